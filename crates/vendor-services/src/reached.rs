//! How far a call of the workflow engine came: the rule of tools that are called by HTTP (docs/crashes.md), for workflows.
//!
//! Not here: what follows from it (`workflow`).

use contract::error::Refusal;
use ports::call_out::CallOutError;
use serde_json::Value;

use crate::call_outs::{Answer, CallOutStop, bad_status, unreached};

/// How far a call of the workflow engine came. What ran nothing can be done again; what may have run is done again only for
/// those who gave a key.
pub(crate) enum Reached {
    Answered(Value),
    /// The workflow goes on, and will call back.
    Accepted,
    /// Nothing ran, and another attempt may be luckier.
    NotYet(Refusal),
    /// Nothing ran, and nothing will.
    Refused(Refusal),
    MayHaveRun(Refusal),
}

impl Reached {
    /// As for tools that are called by HTTP (docs/crashes.md).
    pub(crate) fn of(called: Result<Answer, CallOutError>) -> Self {
        let (status, json) = match called {
            Ok(Answer { status, json }) => (status, json),
            Err(CallOutError::Redirect(status)) => (status, None),
            Err(error) => {
                let CallOutStop { refusal, again, .. } = unreached(&error);
                return match error {
                    CallOutError::TimedOut(_) | CallOutError::BrokenOff => Self::MayHaveRun(refusal),
                    _ if again => Self::NotYet(refusal),
                    _ => Self::Refused(refusal),
                };
            }
        };
        let refusal = bad_status(status).refusal;
        match status {
            202 => Self::Accepted,
            200..=299 => Self::Answered(json.unwrap_or_default()),
            425 | 429 => Self::NotYet(refusal),
            408 | 409 | 424 => Self::MayHaveRun(refusal),
            304..=499 => Self::Refused(refusal.retryable(false)),
            _ => Self::MayHaveRun(refusal),
        }
    }
}
