//! From what a server lists to what can be taken in: each descriptor is looked at by itself, and one that is not in order
//! is left out with a word about it while the others go on. (REG-021, MCP-003)
//!
//! A server is a stranger: everything in a problem is cleaned and cut before anybody sees it.

use std::collections::BTreeMap;

use contract::event_name::EventName;
use contract::manifest::SideEffectPolicy;
use contract::schema::{Coercion, CompiledSchema, SchemaErrors, SchemaLimits};
use ports::server_administration::ToolProblem;
use ports::upstream_store::ToolDefinition;
use serde_json::Value;

use crate::{headers, pins};

/// Largest descriptor, as compact JSON.
const DESCRIPTOR_BYTES_MAX: usize = 512 * 1024;
/// Longest name of a tool. MCP says 128; who says more is still understood.
const NAME_CHARS_MAX: usize = 255;
/// Most tools that are taken from one server.
pub(super) const TOOLS_MAX: usize = 10_000;
/// Most problems of one server that are remembered.
const PROBLEMS_MAX: usize = 100;
/// Longest text of a server in a problem.
const SHOWN_CHARS_MAX: usize = 80;

/// A descriptor that is not in order.
pub const INVALID_TOOL_SCHEMA: &str = EventName::InvalidToolSchema.as_str();
/// Two descriptors have one name and say different things.
pub const DUPLICATE_TOOL_NAME: &str = "DUPLICATE_TOOL_NAME";
/// There are more than are taken.
pub const TOO_MANY_TOOLS: &str = "TOO_MANY_TOOLS";
/// The registry has not admitted it.
pub const NOT_ADMITTED: &str = "NOT_ADMITTED";
/// The server did not say what it offers.
pub const NO_ANSWER: &str = "NO_ANSWER";

/// What a server offers.
#[derive(Debug, Default)]
pub(super) struct Offer {
    /// By the server's own names.
    pub(super) tools: BTreeMap<String, ToolDefinition>,
    pub(super) problems: Problems,
}

/// What is wrong with it, bounded.
#[derive(Debug, Clone, Default)]
pub(super) struct Problems(pub(super) Vec<ToolProblem>);

impl Problems {
    pub(super) fn add(&mut self, tool: &str, code: &'static str, message: impl Into<String>) {
        let problem = ToolProblem { tool: shown(tool), code, message: message.into() };
        tracing::warn!(tool = problem.tool, code, message = problem.message, "left out");
        if self.0.len() < PROBLEMS_MAX {
            self.0.push(problem);
        }
    }
}

/// Looks at every descriptor.
pub(super) fn offer(descriptors: &[Value]) -> Offer {
    let mut offer = Offer::default();
    let mut twice: Vec<String> = Vec::new();
    if descriptors.len() > TOOLS_MAX {
        let message = format!("{} tools are listed; only the first {TOOLS_MAX} are taken", descriptors.len());
        offer.problems.add("", TOO_MANY_TOOLS, message);
    }
    for descriptor in descriptors.iter().take(TOOLS_MAX) {
        let name = descriptor.get("name").and_then(Value::as_str).unwrap_or_default();
        if let Err(reason) = check(name, descriptor) {
            offer.problems.add(name, INVALID_TOOL_SCHEMA, reason);
            // What is said twice, once wrongly, is said in two ways.
            if offer.tools.contains_key(name) {
                twice.push(name.to_owned());
            }
            continue;
        }
        let definition = pins::definition(descriptor);
        match offer.tools.get(name) {
            Some(other) if other.digest != definition.digest => twice.push(name.to_owned()),
            Some(_) => {}
            None => {
                offer.tools.insert(name.to_owned(), definition);
            }
        }
    }
    // Nobody can tell which of them a call would reach, so none is offered.
    twice.sort_unstable();
    twice.dedup();
    for name in twice {
        offer.tools.remove(&name);
        offer.problems.add(&name, DUPLICATE_TOOL_NAME, "it is listed more than once, and not alike");
    }
    offer
}

fn check(name: &str, descriptor: &Value) -> Result<(), String> {
    if !descriptor.is_object() {
        return Err("a tool is described by an object".into());
    }
    if name.trim().is_empty() {
        return Err("it has no `name`".into());
    }
    if name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
        return Err(format!("its `name` must be at most {NAME_CHARS_MAX} characters without control characters"));
    }
    for member in ["title", "description"] {
        if descriptor.get(member).is_some_and(|value| !value.is_string() && !value.is_null()) {
            return Err(format!("its `{member}` must be a string"));
        }
    }
    let bytes = descriptor.to_string().len();
    if bytes > DESCRIPTOR_BYTES_MAX {
        return Err(format!("its description has {bytes} bytes; {DESCRIPTOR_BYTES_MAX} are the most that are read"));
    }
    let input = descriptor.get("inputSchema").unwrap_or(&Value::Null);
    if input.get("type").and_then(Value::as_str) != Some("object") {
        return Err("its `inputSchema` must be a schema of type `object`".into());
    }
    if let Some(reason) = headers::unfit_mark(input) {
        return Err(format!("its `inputSchema` cannot be used: {reason}"));
    }
    let limits = SchemaLimits::default();
    CompiledSchema::input(input, &limits, Coercion::Lossless).map_err(|errors| unfit("inputSchema", &errors))?;
    match descriptor.get("outputSchema") {
        None | Some(Value::Null) => Ok(()),
        Some(output) => {
            if output.get("type").and_then(Value::as_str) != Some("object") {
                return Err("its `outputSchema` must be a schema of type `object`".into());
            }
            CompiledSchema::output(output, &limits).map(drop).map_err(|errors| unfit("outputSchema", &errors))
        }
    }
}

fn unfit(member: &str, errors: &SchemaErrors) -> String {
    let first = errors.0.first().map(|error| format!("{} at `{}`", shown(&error.message), shown(&error.path)));
    format!("its `{member}` cannot be used: {}", first.unwrap_or_default())
}

/// What a server says about effects. Hints, which nobody has checked and nothing relies on.
pub(super) fn hints(definition: &Value) -> Vec<&'static str> {
    let says = |member: &str| definition.pointer(&format!("/annotations/{member}")) == Some(&Value::Bool(true));
    [
        ("readOnlyHint", "read_only"),
        ("destructiveHint", "destructive"),
        ("idempotentHint", "idempotent"),
        ("openWorldHint", "open_world"),
    ]
    .into_iter()
    .filter(|(member, _)| says(member))
    .map(|(_, hint)| hint)
    .collect()
}

/// The class that would agree with the hints, for whoever classifies.
pub(super) fn suggested(hints: &[&str]) -> Option<SideEffectPolicy> {
    if hints.contains(&"read_only") {
        Some(SideEffectPolicy::Pure)
    } else if hints.contains(&"destructive") {
        Some(SideEffectPolicy::Irreversible)
    } else if hints.contains(&"idempotent") {
        Some(SideEffectPolicy::Idempotent)
    } else {
        None
    }
}

/// Text of a server, fit for a message: one line, nothing that turns text around, not too long.
pub(crate) fn shown(text: &str) -> String {
    clean(text, SHOWN_CHARS_MAX)
}

/// Text of a server without control characters and such as turn text around; line breaks become spaces.
pub(super) fn clean(text: &str, chars_max: usize) -> String {
    let is_trick = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut out: String = text
        .chars()
        .map(|c| if c.is_whitespace() { ' ' } else { c })
        .filter(|c| !is_trick(*c))
        .take(chars_max)
        .collect();
    if text.chars().count() > chars_max && chars_max > 0 {
        out.pop();
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str) -> Value {
        json!({ "name": name, "description": "Reads.", "inputSchema": { "type": "object" } })
    }

    #[test]
    fn what_is_not_in_order_is_left_out_and_the_others_go_on() {
        let wrong = [
            (json!(7), "by an object"),
            (json!({ "inputSchema": { "type": "object" } }), "no `name`"),
            (json!({ "name": "" }), "no `name`"),
            (json!({ "name": "a\u{7}", "inputSchema": { "type": "object" } }), "control characters"),
            (json!({ "name": "x".repeat(300), "inputSchema": { "type": "object" } }), "at most 255"),
            (json!({ "name": "a", "inputSchema": true }), "type `object`"),
            (json!({ "name": "a", "inputSchema": { "type": "string" } }), "type `object`"),
            (
                json!({ "name": "a", "inputSchema": { "type": "object", "properties": { "x": { "type": "nothing" } } } }),
                "`inputSchema` cannot be used",
            ),
            (
                json!({ "name": "a", "inputSchema": { "type": "object",
                    "properties": { "x": { "type": "number", "x-mcp-header": "X" } } } }),
                "an `x-mcp-header` marks something else",
            ),
            (
                json!({ "name": "a", "inputSchema": { "type": "object" }, "outputSchema": { "type": "array" } }),
                "`outputSchema` must be",
            ),
            (json!({ "name": "a", "inputSchema": { "type": "object" }, "description": 3 }), "`description` must be"),
            (json!({ "name": "a", "inputSchema": { "type": "object" }, "title": "x".repeat(600_000) }), "bytes"),
        ];
        for (descriptor, reason) in wrong {
            let offer = offer(&[tool("before"), descriptor.clone(), tool("after")]);
            assert_eq!(offer.tools.keys().collect::<Vec<_>>(), ["after", "before"]);
            let problem = offer.problems.0.first().unwrap();
            assert_eq!(problem.code, INVALID_TOOL_SCHEMA);
            assert!(problem.message.contains(reason), "{}: {}", reason, problem.message);
            assert!(problem.tool.chars().count() <= SHOWN_CHARS_MAX && problem.message.len() < 400);
        }
    }

    #[test]
    fn of_two_tools_with_one_name_none_is_offered_unless_they_are_the_same() {
        let other = json!({ "name": "read", "description": "Other.", "inputSchema": { "type": "object" } });
        let broken = json!({ "name": "read", "inputSchema": 7 });
        for second in [other, broken] {
            let offer = offer(&[tool("read"), second, tool("write")]);
            assert_eq!(offer.tools.keys().collect::<Vec<_>>(), ["write"]);
            assert!(offer.problems.0.iter().any(|problem| problem.code == DUPLICATE_TOOL_NAME));
        }
        assert_eq!(offer(&[tool("read"), tool("read")]).tools.len(), 1);
    }

    #[test]
    fn a_flood_of_tools_and_problems_is_bounded() {
        let many: Vec<Value> = (0..TOOLS_MAX + 5).map(|n| json!({ "name": format!("t{n}") })).collect();
        let offer = offer(&many);
        assert!(offer.tools.is_empty());
        assert_eq!(offer.problems.0.len(), PROBLEMS_MAX);
        assert_eq!(offer.problems.0.first().unwrap().code, TOO_MANY_TOOLS);
    }

    #[test]
    fn hints_are_read_and_only_suggest() {
        let said = json!({ "annotations": { "readOnlyHint": true, "openWorldHint": true, "destructiveHint": "yes" } });
        assert_eq!(hints(&said), ["read_only", "open_world"]);
        assert_eq!(suggested(&hints(&said)), Some(SideEffectPolicy::Pure));
        assert_eq!(suggested(&[]), None);
    }
}
