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

/// The meta-tools over a catalogue with this [`summary`](crate::summary).
pub fn meta_tools(summary: &str) -> [MetaTool; 3] {
    let tool_id = json!({ "type": "string", "description": format!("a tool_id that {SEARCH_TOOLS} gave") });
    let version = json!({ "type": "string", "description": "a version or range; default the latest" });
    [
        MetaTool {
            name: SEARCH_TOOLS,
            description: ["Find tools by what they do. Search before you say that something cannot be done.", summary]
                .join(" ")
                .trim_end()
                .to_owned(),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "query": { "type": "string", "description": "what the tool should do, in plain words" },
                    "limit": { "type": "integer", "minimum": 1, "maximum": 100, "description": "results at most" },
                    "token_budget": { "type": "integer", "minimum": 1, "description": "tokens of the answer at most" },
                },
                "required": ["query"],
                "additionalProperties": false,
            }),
        },
        MetaTool {
            name: DESCRIBE_TOOL,
            description: format!("Show the whole definition of one tool, before {CALL_TOOL}."),
            input_schema: json!({
                "type": "object",
                "properties": { "tool_id": tool_id, "version": version },
                "required": ["tool_id"],
                "additionalProperties": false,
            }),
        },
        MetaTool {
            name: CALL_TOOL,
            description: format!("Call a tool with arguments that fit the schema {DESCRIBE_TOOL} shows."),
            input_schema: json!({
                "type": "object",
                "properties": {
                    "tool_id": tool_id,
                    "version": version,
                    "arguments": { "type": "object", "description": "the parameters of that tool" },
                },
                "required": ["tool_id", "arguments"],
                "additionalProperties": false,
            }),
        },
    ]
}
