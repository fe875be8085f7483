//! The three tools that stand for all others in `lazy` exposure: search, describe, call.
//!
//! Their definitions are fixed except for the summary of the catalogue, so that what a client is shown and what
//! `cargo xtask lazy-tokens` counts is one thing.
//!
//! Not here: what they do (the MCP door; a call through `call_tool` passes the same lifecycle as a direct one).

use serde_json::{Value, json};

/// Finds tools by what they do.
pub const SEARCH_TOOLS: &str = "search_tools";
/// Shows the whole definition of one tool.
pub const DESCRIBE_TOOL: &str = "describe_tool";
/// Calls a tool by its id.
pub const CALL_TOOL: &str = "call_tool";

/// The definition of a meta-tool.
#[derive(Debug, Clone, PartialEq)]
pub struct MetaTool {
    pub name: &'static str,
    pub description: String,
    /// JSON Schema.
    pub input_schema: Value,
}

/// The meta-tools over a catalogue with this [`summary`](crate::summary()).
pub fn meta_tools(summary: &str) -> [MetaTool; 3] {
    let name = json!({ "type": "string", "description": format!("the name that {SEARCH_TOOLS} gave") });
    let find = "Finds tools by what they do, best first. Search before saying that something cannot be done.";
    [
        MetaTool {
            name: SEARCH_TOOLS,
            description: format!("{find} {summary}").trim_end().to_owned(),
            input_schema: takes(
                &json!({
                    "query": { "type": "string", "description": "what should be done, in plain words" },
                    "limit": { "type": "integer", "minimum": 1, "description": "how many tools at most" },
                }),
                &["query"],
            ),
        },
        MetaTool {
            name: DESCRIBE_TOOL,
            description: "Says exactly what one tool does, which arguments it takes and what it gives back. Read it \
                          before the first call."
                .to_owned(),
            input_schema: takes(&json!({ "name": name }), &["name"]),
        },
        MetaTool {
            name: CALL_TOOL,
            description: format!(
                "Calls one tool that {SEARCH_TOOLS} has found, with the arguments that {DESCRIBE_TOOL} has described."
            ),
            input_schema: takes(
                &json!({
                    "name": name,
                    "arguments": { "type": "object", "description": "the arguments of that tool" },
                }),
                &["name"],
            ),
        },
    ]
}

fn takes(properties: &Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_stands_in_the_first_description_and_nowhere_else() {
        let [search, describe, call] = meta_tools("2 tools: git (2).");
        assert!(search.description.ends_with("cannot be done. 2 tools: git (2)."));
        assert!(![describe, call].iter().any(|tool| tool.description.contains("git")));
        let [search, ..] = meta_tools("");
        assert!(search.description.ends_with("cannot be done."));
    }
}
