//! The end of a call as the ledger keeps it: enough to give the same answer again.
//!
//! `Some(Null)` is a result like any other: what counts is that there is one, not what it looks like.

use contract::envelope::Truncation;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use ports::clock::UnixMillis;
use ports::executor::ResourceUsage;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::checkpoints::CHECKPOINT_REF;

/// What is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptOutcome {
    Success(Box<KeptResult>),
    Failure(KeptFailure),
    /// A person has looked.
    Resolved {
        result: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        truncation: Option<Truncation>,
    },
}

/// A result that was verified and returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptResult {
    pub result: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) truncation: Option<Truncation>,
    pub(crate) usage: ResourceUsage,
    pub(crate) started_at: String,
    pub(crate) completed_at: String,
    pub(crate) duration_ms: u64,
}

impl KeptResult {
    /// What a person says came of a call.
    pub(crate) fn of_person(result: Value, truncation: Option<Truncation>, at: UnixMillis) -> Self {
        let at = at.to_string();
        Self {
            result,
            truncation,
            usage: ResourceUsage::default(),
            started_at: at.clone(),
            completed_at: at,
            duration_ms: 0,
        }
    }
}

/// A failure that was told, as it was told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptFailure {
    code: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    details: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retryable: Option<bool>,
    /// Lines of former releases have none; theirs is in the details (REASON-1). One that is not known is none.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "known_reason")]
    reason: Option<Box<RefusalReason>>,
    /// The newest state of the call. Lines of former releases have it in the details only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    checkpoint_ref: Option<String>,
}

/// How a call ended of which nobody knows whether it had its effect: what its executor said, and why nobody knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptDoubt {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

/// The same, as the ledger has it.
#[derive(Default, Serialize, Deserialize)]
struct KeptUnknown {
    unknown: KeptDoubt,
}

impl KeptDoubt {
    pub(crate) fn of(refusal: &Refusal, cause: &str) -> Self {
        let (code, message) = (refusal.code.to_string(), refusal.message.clone());
        Self { code: Some(code), cause: Some(cause.to_owned()), message: Some(message) }
    }

    /// What a line says of it; nothing, if it ended otherwise or has a shape of another time.
    pub(crate) fn read(outcome: Option<&Value>) -> Self {
        outcome.and_then(|outcome| KeptUnknown::deserialize(outcome).ok()).unwrap_or_default().unknown
    }

    /// For the ledger.
    pub(crate) fn write(self) -> Value {
        serde_json::to_value(KeptUnknown { unknown: self }).unwrap_or(Value::Null)
    }
}

impl KeptOutcome {
    /// As the ledger has it; what it does not have, or has in a shape of another time, cannot be given again.
    pub fn read(outcome: Option<Value>) -> Result<Self, Refusal> {
        outcome.and_then(|value| serde_json::from_value(value).ok()).ok_or_else(|| {
            Refusal::new(ErrorCode::E3413, "the call with this idempotency key was done, but its answer cannot be read")
                .hint("an operator can look at it with `gantry jobs show`; the call was not repeated")
                .retryable(false)
        })
    }

    /// A failure, as it was told.
    pub(crate) fn failure(refusal: &Refusal) -> Self {
        Self::failure_of(refusal, None)
    }

    /// The same, with the newest state of the call, if there is one.
    pub(crate) fn failure_of(refusal: &Refusal, checkpoint_ref: Option<String>) -> Self {
        Self::Failure(KeptFailure::of(refusal, checkpoint_ref))
    }

    /// For the ledger.
    pub(crate) fn write(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

impl KeptFailure {
    fn of(refusal: &Refusal, checkpoint_ref: Option<String>) -> Self {
        Self {
            code: refusal.code.to_string(),
            message: refusal.message.clone(),
            hint: refusal.hint.clone(),
            details: refusal.details.as_deref().cloned(),
            retryable: refusal.retryable,
            reason: refusal.reason.clone(),
            checkpoint_ref,
        }
    }

    /// Did the tool do its work, and only its answer was not what it may answer? Then doing it again does it twice.
    pub fn is_of_the_answer(&self) -> bool {
        // E3407 is what a result that was too large had before it had a code of its own; the ledger still holds some.
        let of_the_answer = [ErrorCode::E3303, ErrorCode::E3304, ErrorCode::E3407, ErrorCode::E3414];
        of_the_answer.iter().any(|code| self.code == code.as_str())
    }

    /// The checkpoint that the failure has named.
    pub(crate) fn checkpoint(&self) -> Option<String> {
        let of_former_release = || self.details.as_ref()?.get(CHECKPOINT_REF)?.as_str().map(str::to_owned);
        self.checkpoint_ref.clone().or_else(of_former_release)
    }

    /// The refusal, as it was told.
    pub fn refusal(self) -> Refusal {
        let code = ErrorCode::ALL.iter().copied().find(|code| code.to_string() == self.code);
        let code = code.unwrap_or(ErrorCode::E3000);
        let of_former_release = || RefusalReason::read(code, self.details.as_ref()?).map(Box::new);
        let reason = self.reason.or_else(of_former_release);
        Refusal {
            hint: self.hint,
            details: self.details.map(Box::new),
            retryable: self.retryable,
            reason,
            ..Refusal::new(code, self.message)
        }
    }
}

/// A reason that only a later release knows is none: what was told stands in the details.
fn known_reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RefusalReason>>, D::Error> {
    Option::<Value>::deserialize(deserializer).map(|kept| RefusalReason::deserialize(kept?).ok().map(Box::new))
}

/// What is kept of a call of which a person found out that it did not happen.
pub fn did_not_happen() -> Refusal {
    Refusal::new(ErrorCode::E3404, "the call was interrupted, and a person found that it did not have its effect")
        .hint("it can be made again, with the same idempotency key; a job with `gantry jobs retry`")
        .retryable(true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failure(kept: Value) -> KeptFailure {
        match KeptOutcome::read(Some(kept)).unwrap() {
            KeptOutcome::Failure(failure) => failure,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_failure_that_a_former_release_has_kept_says_the_same() {
        let details =
            json!({ "upstream_code": -32603, "content": [], "checkpoint_ref": "01890000-0000-7000-8000-000000000001" });
        let kept = failure(json!({ "failure": {
            "code": "E3502", "message": "the server `files` could not do it", "hint": "wait", "details": details, "retryable": false
        } }));
        assert_eq!(kept.checkpoint().as_deref(), Some("01890000-0000-7000-8000-000000000001"));
        let refusal = kept.refusal();
        assert_eq!(refusal.reason.as_deref(), Some(&RefusalReason::UpstreamError { code: -32603 }));
        assert_eq!(
            (refusal.code, refusal.hint.as_deref(), refusal.retryable),
            (ErrorCode::E3502, Some("wait"), Some(false))
        );
        assert_eq!(refusal.details.as_deref(), Some(&details));
        let bare = failure(json!({ "failure": { "code": "E3401", "message": "no" } }));
        assert_eq!((bare.checkpoint(), bare.refusal()), (None, Refusal::new(ErrorCode::E3401, "no")));
    }

    #[test]
    fn reason_and_checkpoint_are_kept_beside_the_details_and_not_in_them() {
        let refusal = Refusal::new(ErrorCode::E3401, "not JSON").because(RefusalReason::UnreadableAnswer);
        let withheld = Refusal { details: None, ..refusal };
        let kept = KeptOutcome::failure_of(&withheld, Some("c1".to_owned())).write();
        let form = json!({ "failure": {
            "code": "E3401", "message": "not JSON", "reason": "unreadable_answer", "checkpoint_ref": "c1"
        } });
        assert_eq!(kept, form);
        let kept = failure(kept);
        assert_eq!((kept.checkpoint().as_deref(), kept.refusal()), (Some("c1"), withheld));
    }

    #[test]
    fn a_reason_of_a_later_release_is_none() {
        for reason in [json!("flooded"), json!({ "flooded": { "by": 1 } }), Value::Null] {
            let details = json!({ "upstream_status": 429 });
            let kept = json!({ "failure": { "code": "E3502", "message": "no", "details": details, "reason": reason } });
            assert_eq!(failure(kept).refusal().reason.as_deref(), Some(&RefusalReason::UpstreamStatus(429)));
        }
    }

    #[test]
    fn a_doubt_is_read_as_it_was_kept() {
        let form = json!({ "unknown": { "code": "E3402", "cause": "timed_out", "message": "it took too long" } });
        let doubt = KeptDoubt::of(&Refusal::new(ErrorCode::E3402, "it took too long"), "timed_out");
        assert_eq!((doubt.clone().write(), KeptDoubt::read(Some(&form))), (form, doubt));
        for other in [None, Some(json!({ "failure": {} })), Some(json!({ "unknown": [] }))] {
            assert_eq!(KeptDoubt::read(other.as_ref()), KeptDoubt::default());
        }
    }
}
