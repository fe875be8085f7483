//! What a refusal is, in a form that code can decide by: [`RefusalReason`], and the error behind it: [`RefusalSource`].
//!
//! The details of a refusal are JSON for callers, and masks and redactors work on them. Whoever decides something because of a
//! refusal looks at its reason instead. Each reason has its members in the details, in the one form that callers know.
//!
//! Invariants (each has a test)
//! - REASON-1: [`RefusalReason::read`] finds in the members of a reason the same reason again. It is asked where a refusal comes
//!   back from a place that keeps what was told and no reason (the end of a job, a line of the ledger of former releases), and
//!   nowhere else.
//! - REASON-2: a source is never rendered, and says nothing about whether two refusals are the same.
//! - REASON-3: the form in which the ledger keeps a reason can be read by every later release.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ErrorCode;
use crate::event_name::EventName;

/// The parameter of a call that a caller has to give where a tool must not run twice: what [`RefusalReason::MissingKey`] names.
pub const MISSING_KEY: &str = "idempotency_key";

const SCOPE: &str = "missing_scope";
const PARAMETER: &str = "missing";
const WIDENING: &str = "widening";
const POLICIES: &str = "policies";
const DESTINATIONS: &str = "destinations";
const EVENT: &str = "event";
const UPSTREAM_STATUS: &str = "upstream_status";
const UPSTREAM_CODE: &str = "upstream_code";
const CODE: &str = "code";
const INNER: &str = "details";

/// Why a call was refused or failed, where somebody decides by it. Serialised, it is the form that the ledger keeps (REASON-3).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// The token lacks this scope.
    MissingScope(String),
    /// The call needs an idempotency key.
    MissingKey,
    /// A token was asked for that may do more than the one it is made from.
    Widening(String),
    /// Policies have denied the call; those that decided it, by name.
    Denied { policies: Vec<String> },
    /// The tool tried to connect to these places.
    ForbiddenDestinations(Vec<String>),
    /// What the tool or its server answered cannot be read.
    UnreadableAnswer,
    /// A service behind the tool answered with this HTTP status.
    UpstreamStatus(u16),
    /// An MCP server behind the tool answered with an error of the protocol.
    UpstreamError { code: i64 },
    /// Nobody knows whether the call had its effect. What the executor said, and why.
    OutcomeUnknown { code: ErrorCode, behind: Option<Box<Self>> },
}

impl RefusalReason {
    /// The reason of a refusal with this code that comes back from where only JSON is kept.
    pub fn read(code: ErrorCode, details: &Value) -> Option<Self> {
        let text = |name: &str| details.get(name).and_then(Value::as_str);
        let names = |name: &str| {
            let names = details.get(name)?.as_array()?;
            Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>())
        };
        if let Some(code) = details.get(UPSTREAM_CODE).and_then(Value::as_i64) {
            return Some(Self::UpstreamError { code });
        }
        if code == ErrorCode::E3413 {
            let said = text(CODE)?;
            let code = ErrorCode::ALL.iter().copied().find(|code| code.as_str() == said)?;
            let behind = details.get(INNER).and_then(|inner| Self::read(code, inner)).map(Box::new);
            return Some(Self::OutcomeUnknown { code, behind });
        }
        if let Some(status) = details.get(UPSTREAM_STATUS).and_then(Value::as_u64) {
            return u16::try_from(status).ok().map(Self::UpstreamStatus);
        }
        if text(EVENT) == Some(EventName::ToolOutputCorruption.as_str()) {
            return Some(Self::UnreadableAnswer);
        }
        match code {
            ErrorCode::E3004 if text(PARAMETER) == Some(MISSING_KEY) => Some(Self::MissingKey),
            ErrorCode::E3206 => text(SCOPE)
                .map(|scope| Self::MissingScope(scope.to_owned()))
                .or_else(|| text(WIDENING).map(|what| Self::Widening(what.to_owned())))
                .or_else(|| names(POLICIES).map(|policies| Self::Denied { policies })),
            ErrorCode::E3406 => names(DESTINATIONS).map(Self::ForbiddenDestinations),
            _ => None,
        }
    }

    /// The MCP server's own error code, also where nobody knows whether the call had its effect.
    pub fn upstream_code(&self) -> Option<i64> {
        match self {
            Self::UpstreamError { code } => Some(*code),
            Self::OutcomeUnknown { behind, .. } => behind.as_ref()?.upstream_code(),
            _ => None,
        }
    }

    /// The same, with its texts put through `change`: whoever takes secrets out of a refusal takes them out of here, too.
    #[must_use]
    pub fn map_texts(self, mut change: impl FnMut(String) -> String) -> Self {
        match self {
            Self::MissingScope(scope) => Self::MissingScope(change(scope)),
            Self::Widening(what) => Self::Widening(change(what)),
            Self::Denied { policies } => Self::Denied { policies: policies.into_iter().map(change).collect() },
            Self::ForbiddenDestinations(tried) => Self::ForbiddenDestinations(tried.into_iter().map(change).collect()),
            same => same,
        }
    }

    /// Puts the members of the reason into the details, where they are not there already.
    pub(super) fn tell(&self, details: &mut Map<String, Value>) {
        let (name, value) = match self {
            Self::MissingScope(scope) => (SCOPE, scope.as_str().into()),
            Self::MissingKey => (PARAMETER, MISSING_KEY.into()),
            Self::Widening(what) => (WIDENING, what.as_str().into()),
            Self::Denied { policies } => (POLICIES, policies.as_slice().into()),
            Self::ForbiddenDestinations(tried) => (DESTINATIONS, tried.as_slice().into()),
            Self::UnreadableAnswer => (EVENT, EventName::ToolOutputCorruption.as_str().into()),
            Self::UpstreamStatus(status) => (UPSTREAM_STATUS, (*status).into()),
            Self::UpstreamError { code } => (UPSTREAM_CODE, (*code).into()),
            Self::OutcomeUnknown { code, .. } => (CODE, code.as_str().into()),
        };
        details.entry(name).or_insert(value);
    }
}

/// The error behind a refusal, for the log: never rendered, not even for debugging, because refusals are printed in places
/// where what a store or a vault said must not be.
#[derive(Clone)]
pub struct RefusalSource(Arc<Box<dyn Error + Send + Sync>>);

impl RefusalSource {
    pub(super) fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::new(error.into()))
    }

    pub(super) fn error(&self) -> &(dyn Error + 'static) {
        &**self.0
    }
}

impl fmt::Debug for RefusalSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RefusalSource(..)")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Refusal;
    use super::*;

    #[test]
    fn a_reason_is_found_again_in_what_it_has_told() {
        let behind = Some(Box::new(RefusalReason::UpstreamError { code: -32603 }));
        let every = [
            (ErrorCode::E3206, RefusalReason::MissingScope("a:b".into()), json!({ "missing_scope": "a:b" })),
            (ErrorCode::E3004, RefusalReason::MissingKey, json!({ "missing": "idempotency_key" })),
            (ErrorCode::E3206, RefusalReason::Widening("tools".into()), json!({ "widening": "tools" })),
            (ErrorCode::E3206, RefusalReason::Denied { policies: vec!["p".into()] }, json!({ "policies": ["p"] })),
            (
                ErrorCode::E3406,
                RefusalReason::ForbiddenDestinations(vec!["h:1".into()]),
                json!({ "destinations": ["h:1"] }),
            ),
            (ErrorCode::E3502, RefusalReason::UnreadableAnswer, json!({ "event": "TOOL_OUTPUT_CORRUPTION" })),
            (ErrorCode::E3502, RefusalReason::UpstreamStatus(429), json!({ "upstream_status": 429 })),
            (ErrorCode::E3301, RefusalReason::UpstreamError { code: -32602 }, json!({ "upstream_code": -32602 })),
            (
                ErrorCode::E3413,
                RefusalReason::OutcomeUnknown { code: ErrorCode::E3402, behind: None },
                json!({ "code": "E3402" }),
            ),
        ];
        for (code, reason, told) in every {
            let refusal = Refusal::new(code, "no").because(reason.clone());
            assert_eq!(refusal.details.as_deref(), Some(&told));
            assert_eq!(RefusalReason::read(code, &told), Some(reason));
        }
        let nested = json!({ "code": "E3502", "cause": "answer_lost", "details": { "upstream_code": -32603 } });
        let unknown = RefusalReason::OutcomeUnknown { code: ErrorCode::E3502, behind };
        assert_eq!(
            (RefusalReason::read(ErrorCode::E3413, &nested), unknown.upstream_code()),
            (Some(unknown), Some(-32603))
        );
        assert_eq!(RefusalReason::read(ErrorCode::E3413, &json!({ "cause": "timed_out" })), None);
    }

    #[test]
    fn the_form_of_a_reason_in_the_ledger_stays_as_it_is() {
        let behind = Some(Box::new(RefusalReason::UpstreamError { code: -32603 }));
        let kept = [
            (RefusalReason::MissingScope("a:b".into()), json!({ "missing_scope": "a:b" })),
            (RefusalReason::MissingKey, json!("missing_key")),
            (RefusalReason::Widening("tools".into()), json!({ "widening": "tools" })),
            (RefusalReason::Denied { policies: vec!["p".into()] }, json!({ "denied": { "policies": ["p"] } })),
            (RefusalReason::ForbiddenDestinations(vec!["h:1".into()]), json!({ "forbidden_destinations": ["h:1"] })),
            (RefusalReason::UnreadableAnswer, json!("unreadable_answer")),
            (RefusalReason::UpstreamStatus(429), json!({ "upstream_status": 429 })),
            (RefusalReason::UpstreamError { code: -32602 }, json!({ "upstream_error": { "code": -32602 } })),
            (
                RefusalReason::OutcomeUnknown { code: ErrorCode::E3502, behind },
                json!({ "outcome_unknown": { "code": "E3502", "behind": { "upstream_error": { "code": -32603 } } } }),
            ),
        ];
        for (reason, form) in kept {
            assert_eq!(json!(reason), form);
            assert_eq!(RefusalReason::deserialize(&form).unwrap(), reason);
        }
    }

    #[test]
    fn a_reason_leaves_the_details_that_were_told_as_they_are() {
        let details = json!({ "layer": "tenant", "policies": ["p"], "reason": "no" });
        let refusal = Refusal::new(ErrorCode::E3206, "no").details(details.clone());
        let refusal = refusal.because(RefusalReason::Denied { policies: vec!["p".into()] });
        assert_eq!(refusal.details.unwrap().to_string(), details.to_string());
    }

    #[test]
    fn the_source_of_a_refusal_is_its_source_and_is_shown_to_nobody() {
        let refusal = Refusal::new(ErrorCode::E3001, "not now").caused_by(std::io::Error::other("disk full"));
        assert_eq!(Error::source(&refusal).unwrap().to_string(), "disk full");
        assert_eq!(refusal.to_string(), "E3001 not now");
        assert_eq!(refusal, Refusal::new(ErrorCode::E3001, "not now"));
        let shown = json!(refusal.envelope(crate::ids::TraceId::from_bytes([7; 16]), None)).to_string();
        assert!(!shown.contains("disk"), "{shown}");
    }
}
