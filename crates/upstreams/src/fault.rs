//! Why a request to a server behind Gantry came to nothing, told by what it means for the caller: was it executed?
//!
//! Invariants
//! - FAULT-1: [`UpstreamFault::NotSent`] is said only where it is sure. Everything else about a request that was on its way and has no
//!   answer counts as "may have happened" (DESIGN §5). So does an answer that cannot be understood: whoever gave it has had
//!   the request.
//! - FAULT-3: what was turned away has not happened: a connection that was refused, a status that is given in place of an
//!   execution, an error of the protocol that says by its number that nothing was begun. Every other error of a server
//!   (-32603, -32000 …) may have come in the middle ([`UpstreamFault::reach`]), whatever status it came with: some answer every
//!   failure of a tool with 400. Only a transport that turns a request away in words known to be such words is believed
//!   ([`is_of_transport`], decision 0108).
//! - FAULT-4: a call that a server has answered with a question has begun. Whatever ends it from there on, nobody can say
//!   that nothing was done ([`UpstreamFault::after_answer`]).
//! - FAULT-2: nothing of an address, a path or a credential is in a refusal. What the server itself said about a call is data
//!   for its caller and stands in the details, bounded.

use contract::error::tool_words::{CONTENT, UPSTREAM_DATA};
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::json::JsonError;
use ports::executor::{ExecutionReach, ExecutorError};
use serde_json::{Value, json};

use crate::connection::MESSAGE_BYTES_MAX;
use crate::wire::{AnswerError, RpcError};

/// JSON-RPC codes that mean something here.
pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const METHOD_NOT_FOUND: i64 = -32601;
pub(crate) const INVALID_PARAMS: i64 = -32602;
/// What servers before 2026-07-28 say about a resource they do not have.
pub(crate) const RESOURCE_NOT_FOUND: i64 = -32002;
/// A server of 2026-07-28 that misses a header or a capability, or that knows other revisions.
pub(crate) const HEADER_MISMATCH: i64 = -32020;
pub(crate) const MISSING_CAPABILITY: i64 = -32021;
pub(crate) const UNSUPPORTED_VERSION: i64 = -32022;
/// A server of 2025-11-25 that wants its caller to visit an address before it does anything.
pub(crate) const URL_ELICITATION_REQUIRED: i64 = -32042;

/// What the transports of servers say in their own name, and servers say of everything else.
const SERVER_ERROR: i64 = -32000;
const SESSION_NOT_FOUND: i64 = -32001;

/// How the transports of the SDKs say that a request was turned away, in small letters. A message begins with it: further on
/// it is a tool's, whose business may have sessions, too.
const WORDS_OF_TRANSPORTS: [&str; 12] = [
    "no session",
    "session not found",
    "session has been terminated",
    "session terminated",
    "session id is required",
    "no valid session",
    "invalid session id",
    "missing session id",
    "unknown session",
    "mcp-session-id",
    "server not initialized",
    "unsupported protocol version",
];
/// What transports put before it: the name of the status.
const PREFIXES_OF_TRANSPORTS: [&str; 3] = ["bad request:", "not found:", "error:"];

/// Bytes of a server's own words that go into the details of a refusal.
pub(crate) const DETAILS_BYTES_MAX: usize = 64 << 10;

/// Why there is no result.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(crate) enum UpstreamFault {
    /// It never left, or was turned away at the door.
    #[error("the request did not reach the server: {0}")]
    NotSent(&'static str),
    /// It was on its way, and no answer will come.
    #[error("the connection was lost before the answer came: {0}")]
    Lost(&'static str),
    /// The server answered with an error. At the door: its transport did, before any tool heard of the request.
    #[error("the server answered with the error {}", error.code)]
    Refused { error: RpcError, at_door: bool },
    /// An HTTP status instead of an answer.
    #[error("the server answered with the HTTP status {0}")]
    Status(u16),
    /// It wants to be asked less often.
    #[error("the server is asked too often")]
    Busy { retry_after_ms: Option<u64> },
    /// It does not know us, or does not let us in.
    #[error("the server does not accept the credentials it was given (HTTP {0})")]
    Denied(u16),
    /// Nothing came in time.
    #[error("the server did not answer in time")]
    Late,
    /// It speaks no revision that we speak (MCP-001).
    #[error("Protocol version mismatch: the server speaks `{0}`")]
    Version(String),
    /// It answered, with more than a message may have. What it was is not known any more.
    #[error("the server answered with more than {MESSAGE_BYTES_MAX} bytes")]
    TooLarge,
    /// It answered, in a way that can be read as two things (decision 0114).
    #[error("the server's answer is not acceptable JSON: {0}")]
    Ambiguous(JsonError),
    /// It answered, and not with what was asked for.
    #[error("the server answered with something that is no {0}")]
    Nonsense(&'static str),
    /// Something on our side stood in the way: a sandbox, a credential, a limit.
    #[error("{}", .0.refusal.message)]
    Ours(Box<ExecutorError>),
    /// It ended a call that the server had answered before, with a question.
    #[error("the server had begun with it, and then: {0}")]
    Begun(Box<Self>),
}

impl From<ExecutorError> for UpstreamFault {
    fn from(error: ExecutorError) -> Self {
        Self::Ours(Box::new(error))
    }
}

/// Whatever refuses on our side does so before a request leaves. Who stops one that is on its way says how far it came
/// ([`ExecutorError`]).
impl From<Refusal> for UpstreamFault {
    fn from(refusal: Refusal) -> Self {
        ExecutorError::not_sent(refusal).into()
    }
}

impl From<RpcError> for UpstreamFault {
    fn from(error: RpcError) -> Self {
        Self::Refused { error, at_door: false }
    }
}

impl From<AnswerError> for UpstreamFault {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Rpc(error) => error.into(),
            AnswerError::Ambiguous(why) => Self::Ambiguous(why),
            AnswerError::Contradictory => Self::Nonsense("answer: it has a result and an error"),
        }
    }
}

impl UpstreamFault {
    /// What helps, of what was refused on our side.
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::Ours(error) => error.refusal.hint.as_deref(),
            Self::Begun(fault) => fault.hint(),
            _ => None,
        }
    }

    /// How far the request came.
    pub(crate) fn reach(&self) -> ExecutionReach {
        match self {
            Self::NotSent(_) | Self::Version(_) => ExecutionReach::NotSent,
            Self::Lost(_) | Self::Late | Self::Nonsense(_) | Self::Ambiguous(_) => ExecutionReach::MayHaveRun,
            Self::TooLarge => ExecutionReach::Answered,
            Self::Busy { .. } | Self::Denied(_) => ExecutionReach::Refused,
            Self::Status(status) => ExecutionReach::of_status(*status),
            Self::Refused { at_door: true, .. } => ExecutionReach::Refused,
            Self::Refused { error, at_door: false } => match error.code {
                PARSE_ERROR | INVALID_REQUEST | METHOD_NOT_FOUND => ExecutionReach::Refused,
                HEADER_MISMATCH | MISSING_CAPABILITY | UNSUPPORTED_VERSION => ExecutionReach::Refused,
                URL_ELICITATION_REQUIRED if asks_to_visit(error) => ExecutionReach::Refused,
                // The tool itself may have judged them, and would judge the same ones in the same way again.
                INVALID_PARAMS => ExecutionReach::Answered,
                _ => ExecutionReach::MayHaveRun,
            },
            Self::Ours(error) => error.reach,
            Self::Begun(fault) => match fault.reach() {
                reach if reach.is_clean() => ExecutionReach::MayHaveRun,
                reach => reach,
            },
        }
    }

    /// The same, for a status that came with an error of the protocol. A session that is gone is believed to a transport only.
    pub(crate) fn with_reason(self, status: u16, error: RpcError) -> Self {
        let session_is_gone = matches!(self, Self::NotSent(_));
        let at_door = is_of_transport(status, &error);
        let refused = Self::Refused { error, at_door };
        if session_is_gone && refused.reach().is_clean() { self } else { refused }
    }

    /// The same, of a call that the server has answered before (FAULT-4).
    pub(crate) fn after_answer(self) -> Self {
        match self {
            Self::Begun(_) => self,
            fault => Self::Begun(Box::new(fault)),
        }
    }

    /// The connection is of no use, because nothing can be sent over it.
    pub(crate) fn is_unreachable(&self) -> bool {
        match self {
            Self::Begun(fault) => fault.is_unreachable(),
            fault => matches!(fault, Self::NotSent(_)),
        }
    }

    /// May it have been done, with nobody left to tell? A server that answers with an error tells at least that.
    fn is_unknown(&self) -> bool {
        match self {
            Self::Begun(fault) => fault.is_unknown() || fault.reach().is_clean(),
            Self::Refused { .. } => false,
            fault => fault.reach() == ExecutionReach::MayHaveRun,
        }
    }

    /// What an executor says of it. `safe`: the tool may be called again whatever came of it.
    pub(crate) fn failure(self, server: &str, safe: bool) -> ExecutorError {
        let reach = self.reach();
        ExecutorError::new(self.refusal(server, safe), reach)
    }

    /// Is the connection itself of no more use?
    pub(crate) fn ends_connection(&self) -> bool {
        match self {
            Self::Begun(fault) => fault.ends_connection(),
            fault => matches!(fault, Self::NotSent(_) | Self::Lost(_)),
        }
    }

    /// In terms of the error table. `safe`: the tool may be called again whatever came of it.
    pub(crate) fn refusal(self, server: &str, safe: bool) -> Refusal {
        if self.is_unknown() && !safe {
            return Refusal::new(
                ErrorCode::E3413,
                format!("what came of the call on the server `{server}` is not known: {self}"),
            )
            .hint("find out whether the effect happened before you call it again")
            .retryable(false);
        }
        match self {
            Self::Ours(error) => error.refusal,
            Self::Begun(fault) => fault.refusal(server, safe),
            Self::Busy { retry_after_ms } => {
                let mut refusal = Refusal::new(ErrorCode::E3504, format!("the server `{server}` is asked too often"))
                    .because(RefusalReason::UpstreamStatus(429));
                refusal.retry_after_ms = retry_after_ms;
                refusal
            }
            Self::Denied(_) => Refusal::new(
                ErrorCode::E3603,
                format!("the server `{server}` does not accept the credentials it was given"),
            )
            .hint("let the operator renew the credentials of this server"),
            Self::TooLarge => Refusal::new(ErrorCode::E3414, format!("the server `{server}`: {self}"))
                .hint("ask for less, for example a page or a shorter range; the tool has run")
                .retryable(false),
            Self::Ambiguous(_) => Refusal::new(ErrorCode::E3401, format!("the server `{server}`: {self}"))
                .hint("the tool has run; let it return the number as a string")
                .retryable(false),
            Self::Late => Refusal::new(ErrorCode::E3503, format!("the server `{server}` did not answer in time")),
            Self::Refused { error, .. } => refused(server, error, safe),
            Self::NotSent(_) | Self::Lost(_) => {
                Refusal::new(ErrorCode::E3502, format!("the server `{server}` cannot be reached")).retryable(true)
            }
            Self::Nonsense(_) => Refusal::new(ErrorCode::E3502, format!("the server `{server}`: {self}"))
                .because(RefusalReason::UnreadableAnswer)
                .retryable(safe),
            Self::Status(status) => Refusal::new(ErrorCode::E3502, format!("the server `{server}`: {self}"))
                .because(RefusalReason::UpstreamStatus(status))
                .retryable(safe),
            Self::Version(_) => {
                Refusal::new(ErrorCode::E3502, format!("the server `{server}`: {self}")).retryable(safe)
            }
        }
    }
}

/// Does the error name what is to be visited first, as its number demands? Without that it is a number like any other.
fn asks_to_visit(error: &RpcError) -> bool {
    let asked = error.data.as_ref().and_then(|data| data.get("elicitations")?.as_array());
    asked.is_some_and(|asked| {
        let is_visit = |one: &Value| one.get("mode").and_then(Value::as_str) == Some("url") && one.get("url").is_some();
        !asked.is_empty() && asked.iter().all(is_visit)
    })
}

/// Did the transport of the server give this error, which by its number might be a tool's as well? That the status is the one
/// for a session that is gone says nothing: some answer every failure of a tool with it.
fn is_of_transport(status: u16, error: &RpcError) -> bool {
    if !matches!(error.code, SERVER_ERROR | SESSION_NOT_FOUND) || !ExecutionReach::of_status(status).is_clean() {
        return false;
    }
    // Statuses about the HTTP message as such; no tool is asked about that.
    if matches!(status, 405 | 406 | 411 | 413 | 414 | 415 | 417 | 421 | 426 | 431) {
        return true;
    }
    let message = error.message.trim().to_lowercase();
    let bare = PREFIXES_OF_TRANSPORTS.iter().find_map(|prefix| message.strip_prefix(prefix)).unwrap_or(&message);
    WORDS_OF_TRANSPORTS.iter().any(|words| bare.trim_start().starts_with(words))
}

fn refused(server: &str, error: RpcError, safe: bool) -> Refusal {
    let (code, message) = match error.code {
        INVALID_PARAMS => (ErrorCode::E3301, format!("the server `{server}` does not accept these parameters")),
        RESOURCE_NOT_FOUND => (ErrorCode::E3008, format!("the server `{server}` has no such resource")),
        METHOD_NOT_FOUND => (ErrorCode::E3010, format!("the server `{server}` does not offer this")),
        _ => (ErrorCode::E3502, format!("the server `{server}` could not do it")),
    };
    let mut details = json!({ "upstream_code": error.code, CONTENT: [{ "type": "text", "text": error.message }] });
    if let (Some(members), Some(data)) = (details.as_object_mut(), error.data)
        && data.to_string().len() <= DETAILS_BYTES_MAX / 2
    {
        members.insert(UPSTREAM_DATA.to_owned(), data);
    }
    Refusal::new(code, message)
        .details(details)
        .because(RefusalReason::UpstreamError { code: error.code })
        .retryable(code == ErrorCode::E3502 && safe)
}

/// The content of a failed result, cut to [`DETAILS_BYTES_MAX`]: whole blocks, and a word where some are missing.
pub(crate) fn bounded_content(content: Value) -> Value {
    let Value::Array(blocks) = content else { return json!([]) };
    let total = blocks.len();
    let mut left = DETAILS_BYTES_MAX;
    let mut kept: Vec<Value> = Vec::new();
    for block in blocks {
        let size = block.to_string().len() + 1;
        if size > left {
            break;
        }
        left -= size;
        kept.push(block);
    }
    if kept.len() < total {
        kept.push(json!({ "type": "text", "text": format!("[{} more, left out]", total - kept.len()) }));
    }
    Value::Array(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_may_have_happened_is_never_called_a_plain_failure() {
        let error = |code| UpstreamFault::from(RpcError { code, message: "no".into(), data: None });
        for (fault, unsafe_code, safe_code) in [
            (UpstreamFault::Lost("x"), ErrorCode::E3413, ErrorCode::E3502),
            (UpstreamFault::Late, ErrorCode::E3413, ErrorCode::E3503),
            (UpstreamFault::Status(500), ErrorCode::E3413, ErrorCode::E3502),
            (UpstreamFault::Status(502), ErrorCode::E3413, ErrorCode::E3502),
            (UpstreamFault::Nonsense("x"), ErrorCode::E3413, ErrorCode::E3502),
            (UpstreamFault::TooLarge, ErrorCode::E3414, ErrorCode::E3414),
            (UpstreamFault::Status(400), ErrorCode::E3502, ErrorCode::E3502),
            (UpstreamFault::Status(408), ErrorCode::E3413, ErrorCode::E3502),
            (UpstreamFault::Status(499), ErrorCode::E3413, ErrorCode::E3502),
            (UpstreamFault::Status(307), ErrorCode::E3502, ErrorCode::E3502),
            (UpstreamFault::Status(302), ErrorCode::E3413, ErrorCode::E3502),
            (UpstreamFault::NotSent("x"), ErrorCode::E3502, ErrorCode::E3502),
            (UpstreamFault::Busy { retry_after_ms: Some(5) }, ErrorCode::E3504, ErrorCode::E3504),
            (UpstreamFault::Denied(401), ErrorCode::E3603, ErrorCode::E3603),
            (error(INVALID_PARAMS), ErrorCode::E3301, ErrorCode::E3301),
            (error(RESOURCE_NOT_FOUND), ErrorCode::E3008, ErrorCode::E3008),
            (error(-32603), ErrorCode::E3502, ErrorCode::E3502),
        ] {
            assert_eq!(fault.clone().refusal("s", false).code, unsafe_code, "{fault}");
            assert_eq!(fault.clone().refusal("s", true).code, safe_code, "{fault}");
        }
    }

    /// Every fault there is. One that is added has to be judged here.
    fn judged(fault: &UpstreamFault) -> Option<ExecutionReach> {
        match fault {
            UpstreamFault::NotSent(_) | UpstreamFault::Version(_) => Some(ExecutionReach::NotSent),
            UpstreamFault::Busy { .. } | UpstreamFault::Denied(_) => Some(ExecutionReach::Refused),
            UpstreamFault::Lost(_) | UpstreamFault::Late | UpstreamFault::Nonsense(_) | UpstreamFault::Ambiguous(_) => {
                Some(ExecutionReach::MayHaveRun)
            }
            UpstreamFault::TooLarge => Some(ExecutionReach::Answered),
            UpstreamFault::Refused { .. }
            | UpstreamFault::Status(_)
            | UpstreamFault::Ours(_)
            | UpstreamFault::Begun(_) => None,
        }
    }

    #[test]
    fn each_fault_says_how_far_the_call_came() {
        use ExecutionReach::{Answered, MayHaveRun, NotSent, Refused};
        let ours = |reach| UpstreamFault::from(ExecutorError::new(Refusal::new(ErrorCode::E3405, "no"), reach));
        let rpc = |code, at_door| UpstreamFault::Refused {
            error: RpcError { code, message: "no".into(), data: None },
            at_door,
        };
        let mut table = vec![
            (UpstreamFault::NotSent("x"), NotSent),
            (UpstreamFault::Version("x".into()), NotSent),
            (UpstreamFault::Lost("x"), MayHaveRun),
            (UpstreamFault::Late, MayHaveRun),
            (UpstreamFault::Nonsense("x"), MayHaveRun),
            (UpstreamFault::TooLarge, Answered),
            (UpstreamFault::Busy { retry_after_ms: None }, Refused),
            (UpstreamFault::Denied(401), Refused),
            (UpstreamFault::Denied(403), Refused),
        ];
        table.extend(ExecutionReach::ALL.map(|reach| (ours(reach), reach)));
        for status in [307, 308, 400, 404, 405, 409, 413, 415, 422, 425, 426] {
            table.push((UpstreamFault::Status(status), Refused));
        }
        for status in [300, 301, 302, 303, 304, 408, 418, 424, 444, 460, 499, 500, 502, 503, 504, 599] {
            table.push((UpstreamFault::Status(status), MayHaveRun));
        }
        for code in [-32700, -32600, -32601, -32020, -32021, -32022] {
            table.push((rpc(code, false), Refused));
        }
        for (data, reach) in [
            (
                json!({ "elicitations": [{ "mode": "url", "url": "https://example.com/consent", "elicitationId": "1" }] }),
                Refused,
            ),
            (json!({ "elicitations": [] }), MayHaveRun),
            (json!({ "elicitations": [{ "mode": "form" }] }), MayHaveRun),
            (json!(null), MayHaveRun),
        ] {
            let error = RpcError { code: URL_ELICITATION_REQUIRED, message: "visit".into(), data: Some(data) };
            table.push((error.into(), reach));
        }
        for code in [-32603, -32000, -32001, -32002, -32042, -32099, 0, 1, 500] {
            table.push((rpc(code, false), MayHaveRun));
        }
        table.push((rpc(-32602, false), Answered));
        table.push((rpc(-32000, true), Refused));
        for (fault, reach) in table {
            assert_eq!(fault.reach(), reach, "{fault:?}");
            assert!(judged(&fault).is_none_or(|judged| judged == reach), "{fault:?}");
            assert_eq!(fault.clone().failure("s", false).reach, reach, "{fault:?}");
            // FAULT-4.
            let begun = fault.after_answer();
            let expected = if reach.is_clean() { MayHaveRun } else { reach };
            assert_eq!(begun.reach(), expected, "{begun:?}");
            let failure = begun.clone().failure("s", false);
            assert_eq!(failure.reach, expected, "{begun:?}");
            if reach.is_clean() {
                assert_eq!(failure.refusal.code, ErrorCode::E3413, "{begun:?}");
                assert_ne!(begun.clone().failure("s", true).refusal.code, ErrorCode::E3413, "{begun:?}");
            }
            assert_eq!(begun.clone().after_answer(), begun);
        }
    }

    #[test]
    fn an_error_under_a_status_is_clean_only_where_it_cannot_be_a_tool_s() {
        use ExecutionReach::{Answered, MayHaveRun, NotSent, Refused};
        let gone = || UpstreamFault::NotSent("the session is gone");
        for (fault, status, code, message, reach) in [
            // What says by its number that nothing was begun, under every status.
            (UpstreamFault::Status(400), 400, -32700, "half done", Refused),
            (UpstreamFault::Status(422), 422, -32600, "half done", Refused),
            (UpstreamFault::Status(500), 500, -32601, "half done", Refused),
            (UpstreamFault::Status(400), 400, -32020, "half done", Refused),
            // Parameters may have been judged by the tool.
            (UpstreamFault::Status(400), 400, -32602, "no", Answered),
            (gone(), 404, -32602, "no", Answered),
            // A failure in the middle, under whatever status.
            (UpstreamFault::Status(400), 400, -32603, "no session", MayHaveRun),
            (UpstreamFault::Status(409), 409, -32603, "half done", MayHaveRun),
            (UpstreamFault::Status(415), 415, -32603, "half done", MayHaveRun),
            (gone(), 404, -32603, "half done", MayHaveRun),
            (gone(), 404, -32002, "half done", MayHaveRun),
            (UpstreamFault::Status(400), 400, -32000, "half done", MayHaveRun),
            (UpstreamFault::Status(400), 400, -32000, "Connection closed", MayHaveRun),
            (UpstreamFault::Status(404), 404, -32001, "Request timed out", MayHaveRun),
            (UpstreamFault::Status(422), 422, -32050, "no session", MayHaveRun),
            (UpstreamFault::Status(400), 400, 7, "no session", MayHaveRun),
            (UpstreamFault::Status(500), 500, -32000, "no session", MayHaveRun),
            // A transport that speaks for itself.
            (UpstreamFault::Status(400), 400, -32000, "no session", Refused),
            (UpstreamFault::Status(400), 400, -32000, "Bad Request: Mcp-Session-Id header is required", Refused),
            (UpstreamFault::Status(400), 400, -32000, "Bad Request: Server not initialized", Refused),
            (UpstreamFault::Status(404), 404, -32001, "Session not found", Refused),
            (UpstreamFault::Status(405), 405, -32000, "Method not allowed.", Refused),
            (UpstreamFault::Status(406), 406, -32000, "Not Acceptable", Refused),
            (gone(), 404, -32001, "Session not found", NotSent),
            (gone(), 404, -32000, "Not Found: Session has been terminated", NotSent),
            // Words of its own, under the status of a session that is gone, or with the word in the middle.
            (gone(), 404, -32001, "what session?", MayHaveRun),
            (gone(), 404, -32000, "charged, but there is no mailbox for the receipt", MayHaveRun),
            (UpstreamFault::Status(400), 400, -32000, "charged. Session not found for the receipt", MayHaveRun),
            (gone(), 404, -32600, "Session has been terminated", NotSent),
        ] {
            let error = RpcError { code, message: message.into(), data: None };
            let judged = fault.with_reason(status, error);
            assert_eq!(judged.reach(), reach, "{status} {code} {message}: {judged:?}");
        }
    }

    #[test]
    fn the_codes_are_those_of_the_protocol() {
        use rmcp::model::ErrorCode as Known;
        for (ours, theirs) in [
            (PARSE_ERROR, Known::PARSE_ERROR),
            (INVALID_REQUEST, Known::INVALID_REQUEST),
            (METHOD_NOT_FOUND, Known::METHOD_NOT_FOUND),
            (RESOURCE_NOT_FOUND, Known::RESOURCE_NOT_FOUND),
            (INVALID_PARAMS, Known::INVALID_PARAMS),
            (HEADER_MISMATCH, Known::HEADER_MISMATCH),
            (MISSING_CAPABILITY, Known::MISSING_REQUIRED_CLIENT_CAPABILITY),
            (UNSUPPORTED_VERSION, Known::UNSUPPORTED_PROTOCOL_VERSION),
        ] {
            assert_eq!(ours, i64::from(theirs.0));
        }
    }

    #[test]
    fn a_long_failure_is_cut_at_a_block() {
        let block = |n: usize| json!({ "type": "text", "text": "x".repeat(n) });
        let short = json!([block(10), block(20)]);
        assert_eq!(bounded_content(short.clone()), short);
        let cut = bounded_content(json!([block(10), block(DETAILS_BYTES_MAX), block(1)]));
        assert_eq!(cut.as_array().unwrap().len(), 2);
        assert!(cut.to_string().contains("2 more"));
        assert_eq!(bounded_content(json!("text")), json!([]));
    }
}
