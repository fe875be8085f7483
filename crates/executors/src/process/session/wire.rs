//! The messages of `gantry/1` as they stand on a line: JSON-RPC 2.0, one object a line, no batches.
//!
//! Reading is strict: a line is exactly one request, notification or response, or it is a [`ProtocolFault`]. A tool that prints
//! something else to stdout has a bug, and guessing what it meant would hide it. Members we do not know are let be, so that
//! a later version of the protocol can add some.
//!
//! Not here: what the methods mean (`conversation`), how lines come in (`pipe`).

use base::SaturatingFrom as _;
use contract::cost::ReportedCost;
use contract::error::Refusal;
use contract::ids::Subject;
use contract::json::{self, JsonError, JsonLimits};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::SessionCall;
use super::checkpointed::Resume;
use crate::process::streams::clean;

/// The JSON-RPC number for a request that is none, for example one whose id is still in use.
pub(super) const INVALID_REQUEST: i32 = -32600;
/// The JSON-RPC number for a method nobody knows.
pub(super) const METHOD_NOT_FOUND: i32 = -32601;
/// The JSON-RPC number for parameters that do not fit the method.
pub(super) const INVALID_PARAMS: i32 = -32602;
/// Ours, from the table of error classes: too many requests are open.
pub(super) const TOO_MANY_REQUESTS: i32 = -32005;
/// Ours, likewise: the answer is too large for the protocol.
pub(super) const ANSWER_TOO_LARGE: i32 = -32006;
/// Ours, likewise: the call is over or being cancelled.
pub(super) const CANCELLED: i32 = -32007;
/// The JSON-RPC number for a fault of ours.
pub(super) const INTERNAL: i32 = -32603;

/// Characters of a tool's error message that a caller may see.
const FAILURE_CHARS_MAX: usize = 1000;
/// Bytes of a tool's error data that a caller may see; more is left out as a whole.
const FAILURE_DATA_BYTES_MAX: usize = 4096;
/// Bytes of an id that a tool gives its requests.
const ID_BYTES_MAX: usize = 128;
/// The message around a result is two levels deep and has a few values of its own.
const ENVELOPE_DEPTH: usize = 2;
const ENVELOPE_NODES: usize = 16;

/// How a tool broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolFault {
    #[error("a line on stdout is not acceptable JSON: {0}")]
    Json(#[from] JsonError),
    #[error("a line on stdout is longer than {max} bytes")]
    LineTooLong { max: usize },
    #[error("a line on stdout is not a JSON-RPC object")]
    NotAnObject,
    #[error("a message does not say `\"jsonrpc\": \"2.0\"`")]
    NotVersionTwo,
    #[error("a message is neither a request, nor a notification, nor a response with either `result` or `error`")]
    NoKind,
    #[error("the id of a request is neither an integer nor a string of at most {max} bytes")]
    BadId { max: usize },
    #[error("an `error` is not an object with an integer `code` and a string `message`")]
    BadError,
    #[error("the tool does not read what it is sent")]
    Unread,
}

/// The id a tool gave a request: an integer or a short string.
pub(super) type Id = Value;

/// What a tool's error object says, fit for a caller.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolFailure {
    pub code: i64,
    /// Bounded, on one line, without control characters.
    pub message: String,
    /// Left out if larger than the bound.
    pub data: Option<Value>,
}

/// One line from the tool.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    Request {
        id: Id,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// `said`: what the tool reports beside its result.
    Response {
        id: Value,
        outcome: Result<Value, ToolFailure>,
        said: ReportedCost,
    },
}

impl Message {
    pub(super) fn read(line: &[u8], line_bytes_max: usize) -> Result<Self, ProtocolFault> {
        let usual = JsonLimits::default();
        let limits = JsonLimits {
            bytes_max: line_bytes_max,
            string_bytes_max: line_bytes_max,
            depth_max: usual.depth_max + ENVELOPE_DEPTH,
            nodes_max: usual.nodes_max + ENVELOPE_NODES,
        };
        let Value::Object(mut members) = json::read(line, &limits)? else { return Err(ProtocolFault::NotAnObject) };
        if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return Err(ProtocolFault::NotVersionTwo);
        }
        let answer = (members.remove("result"), members.remove("error"));
        let said = members.get("usage").map(ReportedCost::read).unwrap_or_default();
        match (members.remove("method"), members.remove("id"), answer) {
            (Some(Value::String(method)), id, (None, None)) => {
                let params = members.remove("params").unwrap_or(Value::Null);
                match id {
                    None => Ok(Self::Notification { method, params }),
                    Some(id) => Ok(Self::Request { id: usable(id)?, method, params }),
                }
            }
            (None, Some(id), (Some(result), None)) => Ok(Self::Response { id, outcome: Ok(result), said }),
            (None, Some(id), (None, Some(error))) => {
                Ok(Self::Response { id, outcome: Err(ToolFailure::of(error)?), said })
            }
            _ => Err(ProtocolFault::NoKind),
        }
    }
}

fn usable(id: Value) -> Result<Id, ProtocolFault> {
    let fine = match &id {
        Value::Number(number) => number.is_i64() || number.is_u64(),
        Value::String(text) => text.len() <= ID_BYTES_MAX,
        _ => false,
    };
    if fine { Ok(id) } else { Err(ProtocolFault::BadId { max: ID_BYTES_MAX }) }
}

impl ToolFailure {
    fn of(error: Value) -> Result<Self, ProtocolFault> {
        let Value::Object(mut members) = error else { return Err(ProtocolFault::BadError) };
        let code = members.get("code").and_then(Value::as_i64).ok_or(ProtocolFault::BadError)?;
        let message = members.get("message").and_then(Value::as_str).ok_or(ProtocolFault::BadError)?;
        let message = clean(&message.lines().collect::<Vec<_>>().join(" "), FAILURE_CHARS_MAX);
        let data = members.remove("data").filter(|data| data.to_string().len() <= FAILURE_DATA_BYTES_MAX);
        Ok(Self { code, message, data })
    }
}

// ---------------------------------------------------------------------------------------------------------- to tool

/// A line that asks the tool to run. The request's id is the invocation's.
pub(super) fn invoke(call: &SessionCall) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a> {
        jsonrpc: &'static str,
        id: &'a str,
        method: &'static str,
        params: Params<'a>,
    }
    #[derive(Serialize)]
    struct Params<'a> {
        invocation_id: &'a str,
        tool_id: &'a str,
        tool_version: String,
        parameters: &'a Value,
        deadline_ms: u64,
        trace_id: String,
        idempotency_key: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        user: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        traceparent: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        resume: Option<Resume<'a>>,
    }
    let id = call.invocation_id.to_string();
    let params = Params {
        invocation_id: &id,
        tool_id: call.tool_id.as_str(),
        tool_version: call.tool_version.to_string(),
        parameters: &call.parameters,
        deadline_ms: u64::saturating_from(call.time_left.as_millis()),
        trace_id: call.trace_id.to_string(),
        idempotency_key: &call.idempotency_key,
        user: call.user.as_ref().map(Subject::as_str),
        traceparent: call.traceparent.as_deref(),
        resume: call.resume.as_deref().map(Resume::from),
    };
    line(&Line { jsonrpc: "2.0", id: &id, method: "invoke", params })
}

/// A line that tells the tool to stop.
pub(super) fn cancel(reason: &str) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "method": "cancel", "params": { "reason": reason } }))
}

/// A line that answers a request of the tool.
pub(super) fn answer(id: &Id, result: &Value) -> Vec<u8> {
    #[derive(Serialize)]
    struct Line<'a> {
        jsonrpc: &'static str,
        id: &'a Value,
        result: &'a Value,
    }
    line(&Line { jsonrpc: "2.0", id, result })
}

/// A line that refuses a request of the tool.
pub(super) fn refuse(id: &Id, code: i32, message: &str) -> Vec<u8> {
    line(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
}

/// The same, with the row of the error table.
pub(super) fn refuse_with(id: &Id, refusal: &Refusal) -> Vec<u8> {
    let mut data = Map::new();
    data.insert("code".to_owned(), refusal.code.as_str().into());
    data.insert("name".to_owned(), refusal.code.row().name.into());
    data.insert("resolution".to_owned(), refusal.resolution().into());
    let error = json!({ "code": refusal.code.json_rpc(), "message": refusal.message, "data": data });
    line(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))
}

fn line(message: &impl Serialize) -> Vec<u8> {
    // Maps with string keys and JSON values cannot fail to serialize; an empty line is skipped by every reader.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE_MAX: usize = 1 << 20;

    #[test]
    fn a_line_is_one_message_or_a_fault() {
        for (line, words) in [
            (&b"hello"[..], "not acceptable JSON"),
            (b"[]", "not a JSON-RPC object"),
            (b"[{\"jsonrpc\":\"2.0\",\"method\":\"log\"}]", "not a JSON-RPC object"),
            (b"{\"method\":\"log\"}", "`\"jsonrpc\": \"2.0\"`"),
            (b"{\"jsonrpc\":\"1.0\",\"method\":\"log\"}", "`\"jsonrpc\": \"2.0\"`"),
            (b"{\"jsonrpc\":\"2.0\"}", "neither a request"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1}", "neither a request"),
            (b"{\"jsonrpc\":\"2.0\",\"result\":1}", "neither a request"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":{}}", "neither a request"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"result\":1}", "neither a request"),
            (b"{\"jsonrpc\":\"2.0\",\"method\":5}", "neither a request"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}", "id of a request"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"x\"}", "id of a request"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"x\"}", "id of a request"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":\"no\"}", "`error` is not an object"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"message\":\"m\"}}", "`error` is not an object"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"result\":1}", "stands twice"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":NaN}", "not acceptable JSON"),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1} x", "something follows"),
        ] {
            let fault = Message::read(line, LINE_MAX).unwrap_err().to_string();
            assert!(fault.contains(words), "{words}: {fault}");
        }
        let long = json!({ "jsonrpc": "2.0", "id": "x".repeat(ID_BYTES_MAX + 1), "method": "document" }).to_string();
        assert_eq!(Message::read(long.as_bytes(), LINE_MAX), Err(ProtocolFault::BadId { max: ID_BYTES_MAX }));
    }

    #[test]
    fn each_kind_of_message_is_told_apart() {
        let read = |value: Value| Message::read(value.to_string().as_bytes(), LINE_MAX).unwrap();
        assert_eq!(
            read(json!({ "jsonrpc": "2.0", "method": "progress", "params": { "percent": 1 }, "more": 1 })),
            Message::Notification { method: "progress".to_owned(), params: json!({ "percent": 1 }) }
        );
        assert_eq!(
            read(json!({ "jsonrpc": "2.0", "id": "a", "method": "document" })),
            Message::Request { id: json!("a"), method: "document".to_owned(), params: Value::Null }
        );
        assert_eq!(
            read(json!({ "jsonrpc": "2.0", "id": 7, "result": null })),
            Message::Response { id: json!(7), outcome: Ok(Value::Null), said: ReportedCost::default() }
        );
    }

    #[test]
    fn a_result_may_be_as_deep_in_a_message_as_it_may_be_alone() {
        let usual = JsonLimits::default().depth_max;
        for (depth, fits) in [(usual, true), (usual + 2, false)] {
            let result = "[".repeat(depth) + &"]".repeat(depth);
            let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{result}}}");
            assert_eq!(Message::read(line.as_bytes(), LINE_MAX).is_ok(), fits, "{depth}");
        }
    }

    #[test]
    fn what_a_tool_says_of_its_failure_is_bounded_and_clean() {
        let failure = |error: Value| ToolFailure::of(error).unwrap();
        let said = failure(json!({ "code": 5, "message": "first\nsecond\u{1b}[31m", "data": { "row": 3 } }));
        assert_eq!(said.message, "first second\u{fffd}[31m");
        assert_eq!(said.data, Some(json!({ "row": 3 })));
        let long = failure(json!({ "code": 5, "message": "x".repeat(5000), "data": "y".repeat(5000) }));
        assert_eq!((long.message.chars().count(), long.data), (FAILURE_CHARS_MAX + 1, None));
    }

    #[test]
    fn lines_to_the_tool_are_one_line_each_whatever_is_in_them() {
        let refusal = Refusal::new(contract::error::ErrorCode::E3010, "no\nway");
        for line in [
            cancel("because\nof this"),
            answer(&json!("a\nb"), &json!("c\nd")),
            refuse(&json!(1), METHOD_NOT_FOUND, "x\ny"),
            refuse_with(&json!(1), &refusal),
        ] {
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert!(line.ends_with(b"\n") && line.len() > 2);
        }
    }
}
