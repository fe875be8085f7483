//! The end of a call as the ledger keeps it: enough to give the same answer again.
//!
//! `Some(Null)` is a result like any other: what counts is that there is one, not what it looks like.

use contract::envelope::Truncation;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use ports::clock::UnixMillis;
use ports::executor::ResourceUsage;
use serde::{Deserialize, Serialize};
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
        Self::Failure(KeptFailure::of(refusal))
    }

    /// For the ledger.
    pub(crate) fn write(&self) -> Value {
        serde_json::to_value(self).unwrap_or(Value::Null)
    }
}

impl KeptFailure {
    fn of(refusal: &Refusal) -> Self {
        Self {
            code: refusal.code.to_string(),
            message: refusal.message.clone(),
            hint: refusal.hint.clone(),
            details: refusal.details.as_deref().cloned(),
            retryable: refusal.retryable,
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
        self.details.as_ref()?.get(CHECKPOINT_REF)?.as_str().map(str::to_owned)
    }

    /// The refusal, as it was told.
    pub fn refusal(self) -> Refusal {
        let code = ErrorCode::ALL.iter().copied().find(|code| code.to_string() == self.code);
        let code = code.unwrap_or(ErrorCode::E3000);
        let reason = self.details.as_ref().and_then(|details| RefusalReason::read(code, details)).map(Box::new);
        Refusal {
            hint: self.hint,
            details: self.details.map(Box::new),
            retryable: self.retryable,
            reason,
            ..Refusal::new(code, self.message)
        }
    }
}

/// What is kept of a call of which a person found out that it did not happen.
pub fn did_not_happen() -> Refusal {
    Refusal::new(ErrorCode::E3404, "the call was interrupted, and a person found that it did not have its effect")
        .hint("it can be made again, with the same idempotency key; a job with `gantry jobs retry`")
        .retryable(true)
}
