//! Which end of a call is which state of the ledger. The one table behind "done", "may be repeated" and "nobody knows".
//!
//! | the call | tool that is safe to repeat | any other |
//! |---|---|---|
//! | succeeded | done | done |
//! | was refused before the tool started | failed clean | failed clean |
//! | the tool says that it failed, or answered what it must not | failed clean | done, with that failure |
//! | the tool was ended, crashed, or its answer was lost | failed clean | unknown |

use contract::error::{ErrorCode, Refusal};
use contract::manifest::SideEffectPolicy;
use serde_json::json;

use super::kept::{Kept, KeptResult};
use crate::ports::ledger::{EntryState, Settlement};

/// How the end of a call is kept. `started` says whether the tool may have done anything.
pub(crate) fn settlement(effects: SideEffectPolicy, started: bool, end: Result<KeptResult, &Refusal>) -> Settlement {
    let refusal = match end {
        Ok(result) => return Settlement { state: EntryState::Done, outcome: Kept::Success(Box::new(result)).write() },
        Err(refusal) => refusal,
    };
    let state =
        if !started || effects.is_safe_to_retry() { EntryState::FailedClean } else { after_start(refusal.code) };
    let outcome = match state {
        EntryState::Unknown => json!({ "unknown": {
            "code": refusal.code.as_str(), "cause": cause(refusal.code), "message": refusal.message } }),
        _ => Kept::failure(refusal).write(),
    };
    Settlement { state, outcome }
}

/// Why nobody knows, in a word. Recovery has one more: `interrupted`.
pub(crate) fn cause(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::E3002 | ErrorCode::E3402 => "timed_out",
        ErrorCode::E3703 => "cancelled",
        ErrorCode::E3404 => "crashed",
        // Whatever it was, the tool had been started and nobody heard its answer.
        _ => "answer_lost",
    }
}

/// Does this failure mean that nothing happened, even though the tool was asked?
pub(crate) fn surely_did_nothing(code: ErrorCode) -> bool {
    after_start(code) == EntryState::FailedClean
}

/// What a failure says about the effect, once the tool was asked to have it.
fn after_start(code: ErrorCode) -> EntryState {
    use ErrorCode as E;
    match code {
        // No process, no credential, no connection: the tool itself never ran.
        // Nor did it in the last of several attempts, if there was no leave for another.
        E::E3108 | E::E3405 | E::E3411 | E::E3501 | E::E3502 | E::E3601 | E::E3602 => EntryState::FailedClean,
        // It ran to its end and says that it failed; or its answer is not one we may pass on.
        E::E3301 | E::E3303 | E::E3401 | E::E3406 | E::E3407 => EntryState::Done,
        // It was ended, it died, or nobody heard its answer.
        _ => EntryState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(effects: SideEffectPolicy, started: bool, code: ErrorCode) -> EntryState {
        settlement(effects, started, Err(&Refusal::new(code, "it failed"))).state
    }

    #[test]
    fn before_the_start_every_failure_is_clean_and_after_it_safe_tools_can_always_be_repeated() {
        for code in ErrorCode::ALL.iter().copied() {
            for effects in
                [SideEffectPolicy::Compensatable, SideEffectPolicy::Irreversible, SideEffectPolicy::Unclassified]
            {
                assert_eq!(state(effects, false, code), EntryState::FailedClean, "{code}");
            }
            for effects in [SideEffectPolicy::Pure, SideEffectPolicy::Idempotent] {
                assert_eq!(state(effects, true, code), EntryState::FailedClean, "{code}");
            }
        }
    }

    #[test]
    fn after_the_start_of_a_tool_that_must_not_be_repeated_only_what_is_certain_is_not_unknown() {
        let clean = [
            ErrorCode::E3108,
            ErrorCode::E3405,
            ErrorCode::E3411,
            ErrorCode::E3501,
            ErrorCode::E3502,
            ErrorCode::E3601,
            ErrorCode::E3602,
        ];
        let told = [ErrorCode::E3301, ErrorCode::E3303, ErrorCode::E3401, ErrorCode::E3406, ErrorCode::E3407];
        for code in ErrorCode::ALL.iter().copied() {
            let expected = match code {
                code if clean.contains(&code) => EntryState::FailedClean,
                code if told.contains(&code) => EntryState::Done,
                _ => EntryState::Unknown,
            };
            assert_eq!(state(SideEffectPolicy::Compensatable, true, code), expected, "{code}");
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
            let kept = settlement(SideEffectPolicy::Compensatable, true, Err(&Refusal::new(code, "it failed"))).outcome;
            let expected = json!({ "unknown": { "code": code.as_str(), "cause": word, "message": "it failed" } });
            assert_eq!(kept, expected);
        }
    }

    #[test]
    fn a_failure_is_told_again_as_it_was_told() {
        let told =
            Refusal::new(ErrorCode::E3401, "no money").hint("earn some").details(json!({ "left": 0 })).retryable(false);
        let kept = settlement(SideEffectPolicy::Compensatable, true, Err(&told)).outcome;
        let Kept::Failure(failure) = Kept::read(Some(kept)).unwrap() else { panic!("a failure was kept") };
        assert_eq!(failure.refusal(), told);
    }
}
