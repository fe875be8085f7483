//! JSON-RPC 2.0 as the Model Context Protocol has it, read once and kept as it came.
//!
//! The typed messages of `rmcp` are not used on this side. A gateway has to hand on what it does not know: a content block of
//! a later revision, a member nobody has heard of. A typed reader drops those, tries every result type in turn for each
//! answer, and does not tell whether a request was on its way when a connection broke. So a message is read into the members
//! every revision has, and what is inside them stays a value. The words (versions, headers, error codes) are `rmcp`'s.
//!
//! Invariants
//! - UWIRE-1: whatever comes in gives a message or an error, never a panic; nesting is bounded by the reader.
//! - UWIRE-2: our own ids are numbers that are used once in the life of a connection.
//! - UWIRE-3: a number in a result is what the server wrote, and every member stands there once; else the answer is none that is
//!   handed on (decision 0114). Whoever waits for it hears so at once.

use contract::json::{self, DEPTH_MAX_CEILING, JsonError, JsonLimits};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// Our requests on one connection.
pub(crate) type CallId = u64;

/// Longest text of an upstream's error that is kept, in characters.
const ERROR_CHARS_MAX: usize = 1_000;
/// Most messages of one batch (2025-03-26) that are listened to.
const BATCH_MAX: usize = 1_000;

/// What the other side says.
#[derive(Debug, PartialEq)]
pub(crate) enum IncomingMessage {
    /// The answer to one of our requests. `None`: it has no id, or one that cannot be ours.
    Answer { id: Option<CallId>, outcome: Result<Value, AnswerError> },
    /// It wants an answer.
    Request { id: Value, method: String, params: Value },
    /// It wants none.
    Notification { method: String, params: Value },
}

/// An answer that is no result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AnswerError {
    /// The server says so.
    Rpc(RpcError),
    /// Parts of it can be read in two ways: a member that stands twice, a number that would be handed on as another one.
    Ambiguous(JsonError),
    /// It has a result and an error, so it is neither.
    Contradictory,
}

/// The error member of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RpcError {
    pub(crate) code: i64,
    /// In the words of the other side, cut to a bound.
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

/// What is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no JSON-RPC message")]
pub(crate) struct NoMessage;

/// All members a message of any kind can have.
#[derive(Deserialize)]
struct Members {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<Value>,
    // Not `Option`: `"result": null` is an answer.
    #[serde(default = "absent", deserialize_with = "present")]
    result: Option<Value>,
    #[serde(default)]
    error: Option<ErrorMembers>,
}

#[derive(Deserialize)]
struct ErrorMembers {
    #[serde(default)]
    code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Option<Value>,
}

fn absent() -> Option<Value> {
    None
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// What is looked for in a message that the strict reader does not take.
#[derive(Deserialize)]
struct AnswerHead {
    #[serde(default)]
    id: Option<Value>,
    #[serde(default)]
    method: Option<IgnoredAny>,
}

/// Of a message; its length is bounded before.
const LIMITS: JsonLimits = JsonLimits {
    bytes_max: usize::MAX,
    depth_max: DEPTH_MAX_CEILING,
    string_bytes_max: usize::MAX,
    nodes_max: usize::MAX,
};

/// Reads one text: a message, or a batch of them.
pub(crate) fn read(text: &[u8]) -> Result<Vec<IncomingMessage>, NoMessage> {
    match json::read(text, &LIMITS) {
        Ok(value) => messages(value),
        Err(why) => match serde_json::from_slice(text) {
            // A bound in a schema is no value of anybody's, and a server must not lose all its tools by it: descriptors are
            // read as near as can be.
            Ok(value) if is_tool_list(&value) => messages(value),
            _ => read_heads(text, &why),
        },
    }
}

fn is_tool_list(message: &Value) -> bool {
    message.pointer("/result/tools").is_some_and(Value::is_array)
}

/// UWIRE-3: the answers in this text, none of which is handed on.
fn read_heads(text: &[u8], why: &JsonError) -> Result<Vec<IncomingMessage>, NoMessage> {
    // A list would be read as the members of one head, in their order.
    let heads: Vec<AnswerHead> = match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'[') => serde_json::from_slice(text).map_err(|_| NoMessage)?,
        _ => vec![serde_json::from_slice(text).map_err(|_| NoMessage)?],
    };
    let answers =
        heads.into_iter().take(BATCH_MAX).filter(|head| head.method.is_none()).map(|head| IncomingMessage::Answer {
            id: head.id.as_ref().and_then(own),
            outcome: Err(AnswerError::Ambiguous(why.clone())),
        });
    let answers: Vec<_> = answers.collect();
    if answers.is_empty() { Err(NoMessage) } else { Ok(answers) }
}

fn messages(value: Value) -> Result<Vec<IncomingMessage>, NoMessage> {
    match value {
        Value::Array(batch) if batch.is_empty() || batch.len() > BATCH_MAX => Err(NoMessage),
        Value::Array(batch) => batch.into_iter().map(message).collect(),
        value => message(value).map(|message| vec![message]),
    }
}

fn message(value: Value) -> Result<IncomingMessage, NoMessage> {
    if !value.is_object() {
        return Err(NoMessage);
    }
    serde_json::from_value::<Members>(value).map_err(|_| NoMessage)?.message()
}

impl Members {
    fn message(self) -> Result<IncomingMessage, NoMessage> {
        let Self { id, method, params, result, error } = self;
        match (method, id, result, error) {
            (Some(method), Some(id), _, _) if id.is_string() || id.is_number() => {
                Ok(IncomingMessage::Request { id, method, params: params.unwrap_or_default() })
            }
            (Some(method), None, _, _) => {
                Ok(IncomingMessage::Notification { method, params: params.unwrap_or_default() })
            }
            (None, id, Some(_), Some(_)) => {
                Ok(IncomingMessage::Answer { id: id.as_ref().and_then(own), outcome: Err(AnswerError::Contradictory) })
            }
            (None, id, None, Some(error)) => Ok(IncomingMessage::Answer {
                id: id.as_ref().and_then(own),
                outcome: Err(AnswerError::Rpc(error.kept())),
            }),
            (None, id, Some(result), None) => {
                Ok(IncomingMessage::Answer { id: id.as_ref().and_then(own), outcome: Ok(result) })
            }
            _ => Err(NoMessage),
        }
    }
}

impl ErrorMembers {
    fn kept(self) -> RpcError {
        RpcError { code: self.code, message: beginning(self.message), data: self.data }
    }
}

/// What is kept of a long text. The word in which it is cut goes as a whole: half a credential would be recognised by nobody.
fn beginning(text: String) -> String {
    let Some((end, _)) = text.char_indices().nth(ERROR_CHARS_MAX) else { return text };
    let kept = text.get(..end).unwrap_or_default();
    let whole = kept.rfind(char::is_whitespace).and_then(|space| kept.get(..space)).unwrap_or_default();
    format!("{}…", whole.trim_end())
}

/// An id of ours as it comes back. Some servers make text of numbers.
pub(crate) fn own(id: &Value) -> Option<CallId> {
    match id {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

/// A request as it goes out.
pub(crate) fn request(id: CallId, method: &str, params: &Value) -> Vec<u8> {
    #[derive(serde::Serialize)]
    struct Request<'a> {
        jsonrpc: &'static str,
        id: CallId,
        method: &'a str,
        params: &'a Value,
    }
    // A value with text for keys can always be written.
    serde_json::to_vec(&Request { jsonrpc: "2.0", id, method, params }).unwrap_or_default()
}

/// A notification as it goes out.
pub(crate) fn notification(method: &str, params: Option<&Value>) -> Vec<u8> {
    let mut message = json!({ "jsonrpc": "2.0", "method": method });
    if let (Some(members), Some(params)) = (message.as_object_mut(), params) {
        members.insert("params".to_owned(), params.clone());
    }
    message.to_string().into_bytes()
}

/// Our answer to a request of the other side.
pub(crate) fn answer(id: &Value, outcome: Result<Value, (i64, &str)>) -> Vec<u8> {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err((code, message)) => json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }),
    }
    .to_string()
    .into_bytes()
}

/// Is this a name in `_meta` that only Gantry gives a value? What a server says under it is not handed on.
pub(crate) fn is_ours(name: &str) -> bool {
    name.starts_with("dev.gantry/")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(text: &str) -> Result<IncomingMessage, NoMessage> {
        read(text.as_bytes()).map(|mut all| all.remove(0))
    }

    #[test]
    fn messages_are_told_apart_by_their_members() {
        let answer = |id, outcome| Ok(IncomingMessage::Answer { id, outcome });
        let failed = RpcError { code: -32601, message: "no".into(), data: None };
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":3,"result":{"a":1}}"#, answer(Some(3), Ok(json!({"a":1})))),
            (r#"{"id":"3","result":null}"#, answer(Some(3), Ok(Value::Null))),
            (
                r#"{"id":3,"error":{"code":-32601,"message":"no"}}"#,
                answer(Some(3), Err(AnswerError::Rpc(failed.clone()))),
            ),
            (r#"{"id":null,"error":{"code":-32601,"message":"no"}}"#, answer(None, Err(AnswerError::Rpc(failed)))),
            (r#"{"id":-3,"result":1}"#, answer(None, Ok(json!(1)))),
            (r#"{"id":3.5,"result":1}"#, answer(None, Ok(json!(1)))),
            (r#"{"method":"x"}"#, Ok(IncomingMessage::Notification { method: "x".into(), params: Value::Null })),
            (
                r#"{"id":"a","method":"ping","params":{}}"#,
                Ok(IncomingMessage::Request { id: json!("a"), method: "ping".into(), params: json!({}) }),
            ),
            (r#"{"id":{},"method":"ping"}"#, Err(NoMessage)),
            ("{}", Err(NoMessage)),
            ("[]", Err(NoMessage)),
            ("", Err(NoMessage)),
            ("  ", Err(NoMessage)),
            ("hello", Err(NoMessage)),
            (r#"{"id":3,"result""#, Err(NoMessage)),
        ] {
            assert_eq!(one(text), expected, "{text}");
        }
        assert_eq!(read(br#"[{"method":"a"},{"method":"b"}]"#).unwrap().len(), 2);
    }

    #[test]
    fn an_answer_that_can_be_read_in_two_ways_is_no_result() {
        for (text, expected) in [
            (r#"{"id":3,"result":{"structuredContent":{"n":18446744073709551616}}}"#, Some(3)),
            (r#"{"id":3,"result":{"content":[],"n":[1e400]}}"#, Some(3)),
            (r#"[{"id":"4","result":9007199254740993.0}]"#, Some(4)),
            (r#"{"id":3,"result":{"content":[],"isError":true,"isError":false}}"#, Some(3)),
            (r#"{"id":3,"result":{"content":[],"structuredContent":{"paid":1,"paid":0}}}"#, Some(3)),
            (r#"{"id":3,"result":{"structuredContent":"\ud83d"}}"#, Some(3)),
        ] {
            let Ok(IncomingMessage::Answer { id, outcome: Err(AnswerError::Ambiguous(_)) }) = one(text) else {
                panic!("{text}")
            };
            assert_eq!(id, expected, "{text}");
        }
        assert_eq!(one(r#"{"method":"notifications/progress","params":{"progress":1e400}}"#), Err(NoMessage));
        let listed = one(r#"{"id":1,"result":{"tools":[{"inputSchema":{"maximum":18446744073709551616}}]}}"#);
        assert!(matches!(listed, Ok(IncomingMessage::Answer { outcome: Ok(_), .. })), "{listed:?}");
    }

    #[test]
    fn nesting_without_end_is_no_message() {
        let deep = format!(r#"{{"id":1,"result":{}"#, "[".repeat(100_000));
        assert_eq!(one(&deep), Err(NoMessage));
    }

    #[test]
    fn what_is_unknown_stays_in_the_result() {
        let text = r#"{"id":1,"result":{"content":[{"type":"hologram","beam":[1,{"x":"ü"}]}],"later":true}}"#;
        let Ok(IncomingMessage::Answer { outcome: Ok(result), .. }) = one(text) else { panic!("{text}") };
        assert_eq!(result, json!({"content":[{"type":"hologram","beam":[1,{"x":"ü"}]}],"later":true}));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_bytes_give_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            // Whichever it is: it comes back.
            let _ = read(&bytes);
        }

        #[test]
        fn our_own_requests_can_be_read_back(id in any::<u64>(), method in "[a-z/]{1,20}", text in ".*") {
            let params = json!({ "text": text });
            let read = one(std::str::from_utf8(&request(id, &method, &params)).unwrap()).unwrap();
            prop_assert_eq!(read, IncomingMessage::Request { id: json!(id), method, params });
        }
    }
}
