//! Kept error: what was told of the end of a call, read again from where the answer is kept (the end of a job).
//!
//! Such an answer has the form of [`ErrorEnvelope`](super::ErrorEnvelope), and may have been masked since for whoever reads it. So
//! its reason is what the details still say, and a member that is missing or means nothing is taken as not told.

use serde::Deserialize as _;
use serde_json::Value;

use super::{ErrorCode, Refusal, RefusalReason};
use crate::ids::{InvocationId, TraceId};

/// An error that was told, and is told again.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptError {
    pub refusal: Refusal,
    /// The trace of the call that ended so.
    pub trace_id: Option<TraceId>,
}

impl KeptError {
    /// The code of an envelope as it was kept; `None` for what is no envelope.
    pub fn code_of(envelope: &Value) -> Option<ErrorCode> {
        ErrorCode::deserialize(envelope.get("code")?).ok()
    }

    /// The invocation that the details name as the one the error is about, where that is another one than its own.
    pub fn invocation_of(envelope: &Value) -> Option<InvocationId> {
        envelope.get("details")?.get("invocation_id")?.as_str()?.parse().ok()
    }

    /// From an envelope as it was kept.
    pub fn read(envelope: &Value) -> Self {
        let text = |name: &str| envelope.get(name).and_then(Value::as_str);
        let code = Self::code_of(envelope).unwrap_or(ErrorCode::E3000);
        let details = envelope.get("details");
        let refusal = Refusal {
            hint: text("resolution").map(str::to_owned),
            details: details.cloned().map(Box::new),
            reason: details.and_then(|details| RefusalReason::read(code, details)).map(Box::new),
            retryable: envelope.get("retryable").and_then(Value::as_bool),
            retry_after_ms: envelope.get("retry_after_ms").and_then(Value::as_u64),
            ..Refusal::new(code, text("message").unwrap_or("the call failed"))
        };
        Self { refusal, trace_id: text("trace_id").and_then(|id| id.parse().ok()) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_envelope_is_read_as_the_refusal_that_it_was() {
        let mut told = Refusal::new(ErrorCode::E3206, "not with this token")
            .hint("ask for another one")
            .because(RefusalReason::MissingScope("a:b".into()))
            .retryable(false);
        told.retry_after_ms = Some(70);
        let trace = TraceId::from_bytes([7; 16]);
        let read = KeptError::read(&json!(told.envelope(trace, None)));
        assert_eq!(read, KeptError { refusal: told, trace_id: Some(trace) });
    }

    #[test]
    fn what_is_missing_withheld_or_means_nothing_was_not_told() {
        let read = KeptError::read(&json!({ "code": "E9999", "details": "[WITHHELD]", "trace_id": 7 }));
        let refusal = Refusal::new(ErrorCode::E3000, "the call failed").details("[WITHHELD]".into());
        assert_eq!(read, KeptError { refusal, trace_id: None });
        assert_eq!(KeptError::read(&Value::Null).refusal, Refusal::new(ErrorCode::E3000, "the call failed"));
    }

    #[test]
    fn code_and_invocation_are_read_where_they_were_told_and_nowhere_else() {
        let id = InvocationId(uuid::Uuid::from_u128(7));
        for (envelope, code, named) in [
            (json!({ "code": "E3413", "details": { "invocation_id": id } }), Some(ErrorCode::E3413), Some(id)),
            (json!({ "code": "E3401", "details": "[WITHHELD]" }), Some(ErrorCode::E3401), None),
            (json!({ "code": "E9999", "details": { "invocation_id": "no id" } }), None, None),
            (json!({ "invocation_id": id }), None, None),
            (Value::Null, None, None),
        ] {
            assert_eq!(
                (KeptError::code_of(&envelope), KeptError::invocation_of(&envelope)),
                (code, named),
                "{envelope}"
            );
        }
    }
}
