//! Tools with arguments that have to stand in headers (`x-mcp-header`, 2026-07-28).
//!
//! A client on standard streams knows no headers, so whoever carries its calls to an address has to set them. What they are is
//! learned from the lists of tools that pass by, and from a list of one's own when a call was turned away for want of one.
//!
//! Bounds: the schemas of [`TOOLS_MAX`] tools, and only of such as have marks. Past that a tool is not known, and a call of it
//! is turned away by the server with its reason.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::MutexExt as _;
use serde_json::{Value, json};
use upstreams::headers;

use super::Relay;
use super::answers::{Messages, json_of, media_of};

/// Tools whose schemas are kept.
const TOOLS_MAX: usize = 1_000;

/// Pages of the list of tools that are read for a header that is missing.
const PAGES_MAX: usize = 100;

/// The schemas of tools that have marks, by name.
#[derive(Debug, Default)]
pub(super) struct Marked(Mutex<HashMap<String, Arc<Value>>>);

impl Marked {
    /// Takes note of the tools in the answer to a `tools/list`. A tool that has lost its marks is forgotten.
    pub(super) fn learn(&self, message: &Value) {
        let tools = message.pointer("/result/tools").and_then(Value::as_array);
        for tool in tools.into_iter().flatten() {
            let (Some(name), Some(schema)) = (tool.get("name").and_then(Value::as_str), tool.get("inputSchema")) else {
                continue;
            };
            let mut known = self.known();
            if !headers::has_marks(schema) {
                known.remove(name);
            } else if known.len() < TOOLS_MAX || known.contains_key(name) {
                known.insert(name.to_owned(), Arc::new(schema.clone()));
            }
        }
    }

    /// The schema of a tool, if it has marks.
    pub(super) fn schema(&self, tool: Option<&str>) -> Option<Arc<Value>> {
        self.known().get(tool?).cloned()
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<Value>>> {
        self.0.lock_unpoisoned()
    }
}

impl Relay {
    /// Reads the list of tools for a call that misses a header, as the client that made the call would. `sent_by` is what
    /// was known when it was sent. `false`: there is nothing new to be known.
    pub(super) async fn learn_marks(&self, call: &Value, sent_by: Option<Arc<Value>>) -> bool {
        if call.get("method").and_then(Value::as_str) != Some("tools/call") {
            return false;
        }
        // A list that the client asked for at the same moment may have come in between.
        if self.marked_of(call) != sent_by {
            return true;
        }
        let mut cursor = None;
        for page in 0..PAGES_MAX {
            let Some(listed) = self.page(call, page, cursor.as_ref()).await else { break };
            self.marked.learn(&listed);
            cursor = listed.pointer("/result/nextCursor").filter(|next| !next.is_null()).cloned();
            if cursor.is_none() {
                break;
            }
        }
        self.marked_of(call) != sent_by
    }

    /// What is known of the tool that a message calls.
    pub(super) fn marked_of(&self, message: &Value) -> Option<Arc<Value>> {
        self.marked.schema(message.pointer("/params/name").and_then(Value::as_str))
    }

    async fn page(&self, call: &Value, page: usize, cursor: Option<&Value>) -> Option<Value> {
        let mut meta = call.pointer("/params/_meta").cloned().unwrap_or_else(|| json!({}));
        meta.as_object_mut()?.remove("progressToken");
        let mut params = json!({ "_meta": meta });
        if let (Some(members), Some(cursor)) = (params.as_object_mut(), cursor) {
            members.insert("cursor".to_owned(), cursor.clone());
        }
        let id = format!("gantry-mcp-{page}");
        let asked = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": params });
        let response = self.request(&asked).send().await.ok()?;
        if media_of(&response) == "application/json" {
            return json_of(response).await.ok();
        }
        let mut messages = Messages::of(response);
        while let Some(message) = messages.next().await.ok()? {
            if message.get("id").and_then(Value::as_str) == Some(&id) {
                return Some(message);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(tools: &Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": tools } })
    }

    #[test]
    fn only_tools_with_marks_are_kept_and_forgotten_when_they_lose_them() {
        let marked = Marked::default();
        let region = json!({ "type": "object", "properties": { "r": { "type": "string", "x-mcp-header": "Region" } } });
        let plain = json!({ "type": "object" });
        marked.learn(&listed(
            &json!([{ "name": "a", "inputSchema": region }, { "name": "b", "inputSchema": plain }, {}]),
        ));
        assert_eq!(marked.schema(Some("a")).as_deref(), Some(&region));
        assert_eq!((marked.schema(Some("b")), marked.schema(None)), (None, None));
        marked.learn(&json!({ "result": { "tools": "nonsense" } }));
        marked.learn(&listed(&json!([{ "name": "a", "inputSchema": plain }])));
        assert_eq!(marked.schema(Some("a")), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let marked = Marked::default();
        let schema = json!({ "properties": { "r": { "type": "string", "x-mcp-header": "R" } } });
        let tools: Vec<Value> =
            (0..TOOLS_MAX + 10).map(|n| json!({ "name": format!("t{n}"), "inputSchema": schema })).collect();
        marked.learn(&listed(&json!(tools)));
        assert_eq!(marked.known().len(), TOOLS_MAX);
    }
}
