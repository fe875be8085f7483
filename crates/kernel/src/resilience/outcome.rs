//! The verdict on a refusal: what it says about the service behind the tool. (RES-010, X-15)
//!
//! Not here: counting it (`ports::resilience::breaker`), whether to try again (`retry`).

use contract::error::{ErrorCode, Refusal};
use ports::resilience::BreakerVerdict;

/// What a refusal says about the service behind a tool (RES-010): it did not answer, not in time, or with what stands for a
/// 5xx or 429. Everything else is the caller's, the tool's or ours, and says nothing about it.
pub(super) fn of_refusal(refusal: &Refusal) -> BreakerVerdict {
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
