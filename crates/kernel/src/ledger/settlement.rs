//! Which end of a call is which state of the ledger. The one table behind "done", "may be repeated" and "nobody knows".
//!
//! | the call ([`ExecutionReach`]) | tool that is safe to repeat | any other |
//! |---|---|---|
//! | succeeded | done | done |
//! | was not sent, or refused before execution | failed clean | failed clean |
//! | was answered: the tool says that it failed, or answered what it must not | failed clean | done, with that failure |
//! | may have run: it was ended, crashed, or its answer was lost | failed clean | unknown |
//!
//! Not here: how far a call came. Its executor says so where the failure is made (`ports::executor`).

use contract::error::{ErrorCode, Refusal};
use contract::manifest::SideEffectPolicy;
use ports::executor::ExecutionReach;
use ports::ledger::{EntryState, Settlement};

use super::kept_outcome::{KeptDoubt, KeptOutcome, KeptResult};

/// End of a call that came to no result.
#[derive(Debug)]
pub(crate) struct FailedEnd<'a> {
    pub(crate) refusal: &'a Refusal,
    /// Why nobody knows, if nobody does.
    pub(crate) cause: &'static str,
    /// The newest state of the call, if there is one.
    pub(crate) checkpoint: Option<String>,
}

/// How the end of a call is kept. `reach` says how far it came, if it failed.
pub(crate) fn settlement(
    effects: SideEffectPolicy,
    reach: ExecutionReach,
    end: Result<KeptResult, FailedEnd<'_>>,
) -> Settlement {
    let FailedEnd { refusal, cause, checkpoint } = match end {
        Ok(result) => {
            return Settlement { state: EntryState::Done, outcome: KeptOutcome::Success(Box::new(result)).write() };
        }
        Err(failed) => failed,
    };
    let state = match reach {
        _ if effects.is_safe_to_retry() => EntryState::FailedClean,
        ExecutionReach::NotSent | ExecutionReach::Refused => EntryState::FailedClean,
        ExecutionReach::Answered => EntryState::Done,
        ExecutionReach::MayHaveRun => EntryState::Unknown,
    };
    let outcome = match state {
        EntryState::Unknown => KeptDoubt::of(refusal, cause).write(),
        _ => KeptOutcome::failure_of(refusal, checkpoint).write(),
    };
    Settlement { state, outcome }
}

/// Why nobody knows where a server ended before its call did, in an orderly way or not.
pub const INTERRUPTED: &str = "interrupted";

/// Why nobody knows, in a word. `is_left` says that the call was ended because its server ends, or has lost its lease.
pub fn cause(code: ErrorCode, is_left: bool) -> &'static str {
    match code {
        ErrorCode::E3703 if is_left => INTERRUPTED,
        ErrorCode::E3002 | ErrorCode::E3402 => "timed_out",
        ErrorCode::E3703 => "cancelled",
        ErrorCode::E3404 => "crashed",
        // Whatever it was, the tool had been started and nobody heard its answer.
        _ => "answer_lost",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn failed<'a>(refusal: &'a Refusal, cause: &'static str) -> Result<KeptResult, FailedEnd<'a>> {
        Err(FailedEnd { refusal, cause, checkpoint: None })
    }

    #[test]
    fn how_far_a_call_came_decides_its_state_and_its_code_does_not() {
        use EntryState::{Done, FailedClean, Unknown};
        for code in ErrorCode::ALL.iter().copied() {
            for reach in ExecutionReach::ALL {
                let refusal = Refusal::new(code, "it failed");
                let state = |effects| settlement(effects, reach, failed(&refusal, cause(code, false))).state;
                for effects in [SideEffectPolicy::Pure, SideEffectPolicy::Idempotent] {
                    assert_eq!(state(effects), FailedClean, "{code} {reach:?}: it can always be repeated");
                }
                let expected = match reach {
                    ExecutionReach::NotSent | ExecutionReach::Refused => FailedClean,
                    ExecutionReach::Answered => Done,
                    ExecutionReach::MayHaveRun => Unknown,
                };
                for effects in
                    [SideEffectPolicy::Compensatable, SideEffectPolicy::Irreversible, SideEffectPolicy::Unclassified]
                {
                    assert_eq!(state(effects), expected, "{code} {reach:?}");
                }
            }
        }
    }

    #[test]
    fn why_nobody_knows_is_one_of_few_words_beside_the_code() {
        for (code, word) in [
            (ErrorCode::E3402, "timed_out"),
            (ErrorCode::E3703, "cancelled"),
            (ErrorCode::E3404, "crashed"),
            (ErrorCode::E3503, "answer_lost"),
        ] {
            let kept = settlement(
                SideEffectPolicy::Compensatable,
                ExecutionReach::MayHaveRun,
                failed(&Refusal::new(code, "it failed"), cause(code, false)),
            )
            .outcome;
            let expected = json!({ "unknown": { "code": code.as_str(), "cause": word, "message": "it failed" } });
            assert_eq!(kept, expected);
        }
        assert_eq!(cause(ErrorCode::E3703, true), INTERRUPTED, "nobody has cancelled what the end of a server ends");
        assert_eq!(cause(ErrorCode::E3402, true), "timed_out");
    }

    #[test]
    fn a_failure_is_told_again_as_it_was_told() {
        let told =
            Refusal::new(ErrorCode::E3401, "no money").hint("earn some").details(json!({ "left": 0 })).retryable(false);
        let end = failed(&told, cause(told.code, false));
        let kept = settlement(SideEffectPolicy::Compensatable, ExecutionReach::Answered, end).outcome;
        let KeptOutcome::Failure(failure) = KeptOutcome::read(Some(kept)).unwrap() else {
            panic!("a failure was kept")
        };
        assert_eq!(failure.refusal(), told);
    }
}
