//! What a result says about the service that gave it. (RES-010, X-15; C29…C31)
//!
//! Ignored is asked first, then recorded; where a list of what is recorded is given, what is in neither counts as a success,
//! because the service did answer. A value can be a failure, too: an upstream that answers "error" has not succeeded.
//!
//! Not here: counting it (`ports::resilience::breaker`), whether to try again (`retry`).

use contract::error::{ErrorCode, Refusal};
use ports::resilience::{BreakerVerdict, PermittedOutcome};

/// What counts, for results of any kind.
#[derive(Debug, Clone, Copy)]
pub struct OutcomeRules<T, E> {
    /// Errors that say nothing about the service.
    pub ignored: fn(&E) -> bool,
    /// Errors that are failures; absent: every other one.
    pub recorded: Option<fn(&E) -> bool>,
    /// Values that are failures.
    pub failed_value: fn(&T) -> bool,
    /// The service wants to be left alone, for so long.
    pub open_for_ms: fn(Result<&T, &E>) -> Option<u64>,
}

impl<T, E> Default for OutcomeRules<T, E> {
    fn default() -> Self {
        Self { ignored: |_| false, recorded: None, failed_value: |_| false, open_for_ms: |_| None }
    }
}

impl<T, E> OutcomeRules<T, E> {
    /// What a result is.
    pub fn outcome(&self, result: Result<&T, &E>, duration_ms: Option<u64>) -> PermittedOutcome {
        let verdict = match result {
            Ok(value) if (self.failed_value)(value) => BreakerVerdict::Failed,
            Ok(_) => BreakerVerdict::Succeeded,
            Err(error) if (self.ignored)(error) => BreakerVerdict::Ignored,
            Err(error) if self.recorded.is_none_or(|recorded| recorded(error)) => BreakerVerdict::Failed,
            Err(_) => BreakerVerdict::Succeeded,
        };
        PermittedOutcome { verdict, duration_ms, open_for_ms: (self.open_for_ms)(result), guest: None }
    }
}

/// What a refusal says about the service behind a tool (RES-010): it did not answer, not in time, or with what stands for a
/// 5xx or 429. Everything else is the caller's, the tool's or ours, and says nothing about it.
pub fn of_refusal(refusal: &Refusal) -> BreakerVerdict {
    use ErrorCode as E;
    match refusal.code {
        E::E3002 | E::E3402 | E::E3413 | E::E3502 | E::E3503 | E::E3504 => BreakerVerdict::Failed,
        _ => BreakerVerdict::Ignored,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_lost_answers_and_busy_services_are_failures_and_nothing_else_is() {
        let failing = [
            ErrorCode::E3002,
            ErrorCode::E3402,
            ErrorCode::E3413,
            ErrorCode::E3502,
            ErrorCode::E3503,
            ErrorCode::E3504,
        ];
        for code in ErrorCode::ALL.iter().copied() {
            let expected = if failing.contains(&code) { BreakerVerdict::Failed } else { BreakerVerdict::Ignored };
            assert_eq!(of_refusal(&Refusal::new(code, "it failed")), expected, "{}", code.as_str());
        }
    }
}
