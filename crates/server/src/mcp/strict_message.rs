//! Messages of MCP clients as they are read before the protocol sees them: by the strict reader of every door
//! (`contract::json`), so that what two parsers could read in two ways is refused here as it is by REST.
//!
//! Not here: what a message means (`rmcp`), how long its text may be on the way (`front`, `stdio_transport`).

use contract::error::{ErrorCode, Refusal};
use contract::json::{self, JsonError, JsonLimits};
use rmcp::model::{ErrorCode as WireCode, ErrorData};
use serde::Deserialize;
use serde_json::{Value, json};

/// A message that is not handed on, and what its sender is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UnreadableMessage {
    /// Of the request, where one can be told; else null.
    pub(super) id: Value,
    pub(super) error: ErrorData,
}

/// What is looked for in a message that is refused.
#[derive(Debug, Deserialize)]
struct OnlyId {
    id: Option<Value>,
}

/// Reads one message, or a batch.
pub(super) fn read(text: &[u8], limits: &JsonLimits) -> Result<Value, Box<UnreadableMessage>> {
    json::read(text, limits).map_err(|error| Box::new(UnreadableMessage { id: id_of(text), error: unreadable(&error) }))
}

fn unreadable(error: &JsonError) -> ErrorData {
    let refusal = Refusal::new(ErrorCode::E3004, format!("the body is not acceptable: {error}"));
    let mut data = json!({ "error": { "code": refusal.code, "message": refusal.message } });
    if let (Some(at), Some(members)) = (error.position(), data.pointer_mut("/error").and_then(Value::as_object_mut)) {
        members.insert("details".to_owned(), json!({ "line": at.line, "column": at.column }));
    }
    ErrorData::new(WireCode::PARSE_ERROR, format!("{}: {}", refusal.code, refusal.message), Some(data))
}

/// A client waits for its id. One that stands twice is none.
fn id_of(text: &[u8]) -> Value {
    let id = serde_json::from_slice::<OnlyId>(text).ok().and_then(|message| message.id);
    id.filter(|id| id.is_number() || id.is_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_parsers_could_read_in_two_ways_is_refused_with_the_id_of_its_request() {
        let limits = JsonLimits::default();
        for (text, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"arguments":{"a":1,"a":2}}}"#, json!(7)),
            (r#"{"jsonrpc":"2.0","id":"s","method":"x","method":"y"}"#, json!("s")),
            (r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"x"}"#, Value::Null),
            (r#"{"jsonrpc":"2.0","id":{"a":1},"params":{"a":1,"a":1}}"#, Value::Null),
            (r#"[{"id":7,"a":1,"a":1}]"#, Value::Null),
            (r#"{"id":7,"#, Value::Null),
        ] {
            let refused = read(text.as_bytes(), &limits).unwrap_err();
            assert_eq!((refused.id, refused.error.code), (id, WireCode::PARSE_ERROR), "{text}");
            assert_eq!(refused.error.data.unwrap()["error"]["code"], "E3004", "{text}");
        }
        assert_eq!(read(b"{\"id\":7}", &limits).unwrap(), json!({ "id": 7 }));
    }
}
