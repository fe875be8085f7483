//! Whether a manifest says anything about what comes back. (MAN-009)

use serde_json::Value;

use super::{Execution, Manifest};

impl Manifest {
    /// Does the result schema constrain what the tool itself says? A tool that was imported from an MCP server without an
    /// output schema has the frame of every MCP result and nothing in it.
    pub fn constrains_output(&self) -> bool {
        let schema = match &self.execution {
            Some(Execution::Mcp { .. }) => self.result_schema.pointer("/properties/structuredContent"),
            _ => Some(&self.result_schema),
        };
        schema.is_some_and(|schema| match schema {
            Value::Object(members) => members.keys().any(|name| !ANNOTATIONS.contains(&name.as_str())),
            Value::Bool(anything) => !anything,
            _ => false,
        })
    }
}

/// Members of a schema that constrain nothing.
const ANNOTATIONS: [&str; 8] =
    ["$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(result_schema: &Value, execution: &Value) -> Manifest {
        let document = json!({
            "tool_id": "greet", "version": "1.0.0", "name": "Greeter", "description": "Greets somebody by name.",
            "provider": "Demo", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
            "parameters": { "type": "object" }, "result_schema": result_schema, "execution": execution,
        });
        Manifest::from_value(document).unwrap()
    }

    #[test]
    fn a_schema_that_allows_everything_constrains_nothing() {
        let builtin = json!({ "type": "builtin", "handler": "greet" });
        let mcp = json!({ "type": "mcp", "server": "files", "tool": "read" });
        let frame = |inner: Value| json!({ "type": "object", "properties": { "content": { "type": "array" }, "structuredContent": inner } });
        for (schema, execution, constrains) in [
            (json!({}), &builtin, false),
            (json!({ "description": "whatever it says" }), &builtin, false),
            (json!({ "type": "object" }), &builtin, true),
            (frame(json!({})), &mcp, false),
            (frame(json!({ "type": "object", "required": ["path"] })), &mcp, true),
        ] {
            assert_eq!(manifest(&schema, execution).constrains_output(), constrains, "{schema}");
        }
    }
}
