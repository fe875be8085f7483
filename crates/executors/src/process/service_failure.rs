//! What a tool says about the service behind it: that it failed, or that the call should be tried again. So breakers,
//! retries and limits reach tools that Gantry does not call out for itself. (RES-010, RES-014)
//!
//! ```text
//! simple    exit code 69 (EX_UNAVAILABLE)  the service failed             75 (EX_TEMPFAIL)  nothing was done, try again
//!           stdout may have {"message", "retry_after_ms"}
//! gantry/1  error.data.kind "unavailable"  the same                       "try_again"       the same
//!           beside it error.message and error.data.retry_after_ms
//! ```
//!
//! The numbers are those of `sysexits.h`, which tools of other houses use already.
//!
//! Invariants
//! - SERV-1: a failed service is never said of a call with effects as if nothing had happened: the tool has begun, and the
//!   service may have had the request.

use contract::error::{ErrorCode, Refusal};
use contract::json::{self, JsonLimits};
use ports::executor::ExecutionReach;
use serde_json::{Value, json};

/// The service behind the tool is not available.
const EX_UNAVAILABLE: i32 = 69;
/// A failure that passes.
const EX_TEMPFAIL: i32 = 75;
/// Bytes of what a failing tool may say about it.
const SAID_BYTES_MAX: usize = 16 * 1024;
/// Characters of it that the caller reads.
const MESSAGE_CHARS_MAX: usize = 500;
/// The longest pause a tool may ask for.
const RETRY_AFTER_MS_MAX: u64 = 24 * 60 * 60 * 1000;

/// Whose failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceFailure {
    /// The service behind the tool did not do its part.
    Unavailable,
    /// Nothing was done; it may go well later.
    TryAgain,
}

impl ServiceFailure {
    /// What this exit code says.
    pub(super) fn of_exit(code: i32) -> Option<Self> {
        match code {
            EX_UNAVAILABLE => Some(Self::Unavailable),
            EX_TEMPFAIL => Some(Self::TryAgain),
            _ => None,
        }
    }

    /// What `data` of an error of a session says.
    pub(super) fn of_data(data: Option<&Value>) -> Option<Self> {
        match data?.get("kind")?.as_str()? {
            "unavailable" => Some(Self::Unavailable),
            "try_again" => Some(Self::TryAgain),
            _ => None,
        }
    }

    /// How far the call came. SERV-1.
    pub(super) fn reach(self) -> ExecutionReach {
        match self {
            Self::Unavailable => ExecutionReach::MayHaveRun,
            Self::TryAgain => ExecutionReach::Refused,
        }
    }

    /// As a row of the error table, with what the tool says about it and the details that go along.
    pub(super) fn refusal(self, message: Option<&str>, data: Option<&Value>, details: Value) -> Refusal {
        let (code, default) = match self {
            Self::Unavailable => (ErrorCode::E3502, "the service behind the tool failed"),
            Self::TryAgain => (ErrorCode::E3504, "the tool asks to be called again later; nothing was done"),
        };
        let words: String =
            message.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
        let words = if words.trim().is_empty() { default.to_owned() } else { format!("{default}: {words}") };
        let mut refusal = Refusal::new(code, words).details(details).retryable(true);
        refusal.retry_after_ms =
            data.and_then(|data| data.get("retry_after_ms")?.as_u64()).map(|pause| pause.min(RETRY_AFTER_MS_MAX));
        refusal
    }
}

/// The refusal of a tool in simple mode that ended with this code and said this.
pub(super) fn of_simple(code: i32, stdout: &[u8]) -> Option<Refusal> {
    let failure = ServiceFailure::of_exit(code)?;
    let limits = JsonLimits { bytes_max: SAID_BYTES_MAX, ..JsonLimits::default() };
    // What cannot be read says nothing more than the exit code does.
    let said = json::read(stdout, &limits).ok().filter(Value::is_object);
    let message = said.as_ref().and_then(|said| said.get("message")?.as_str());
    Some(failure.refusal(message, said.as_ref(), json!({ "exit_code": code })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_sysexits_say_whose_failure_it_was() {
        let refusal = of_simple(69, br#"{"message": "mail is down\u0007", "retry_after_ms": 1500}"#).unwrap();
        assert_eq!(
            (refusal.code, refusal.retryable, refusal.retry_after_ms),
            (ErrorCode::E3502, Some(true), Some(1500))
        );
        assert_eq!(refusal.message, "the service behind the tool failed: mail is down");
        assert_eq!(refusal.details.as_deref(), Some(&json!({ "exit_code": 69 })));
        for said in [&b""[..], b"no JSON", b"[1]", br#"{"message": 7, "retry_after_ms": -1}"#] {
            let refusal = of_simple(75, said).unwrap();
            assert_eq!((refusal.code, refusal.retry_after_ms), (ErrorCode::E3504, None));
            assert_eq!(refusal.message, "the tool asks to be called again later; nothing was done");
        }
        for code in [1, 2, 64, 70, 74, 76, 255] {
            assert_eq!(of_simple(code, b"{}").map(|refusal| refusal.code), None, "{code}");
        }
    }

    #[test]
    fn a_session_says_it_by_a_word_in_its_error() {
        for (data, expected) in [
            (json!({ "kind": "unavailable" }), Some(ServiceFailure::Unavailable)),
            (json!({ "kind": "try_again" }), Some(ServiceFailure::TryAgain)),
            (json!({ "kind": "tired" }), None),
            (json!({ "kind": 69 }), None),
            (json!("unavailable"), None),
        ] {
            assert_eq!(ServiceFailure::of_data(Some(&data)), expected, "{data}");
        }
        assert_eq!(ServiceFailure::of_data(None), None);
        let endless = json!({ "retry_after_ms": u64::MAX });
        let refusal = ServiceFailure::TryAgain.refusal(Some(""), Some(&endless), json!({}));
        assert_eq!(refusal.retry_after_ms, Some(86_400_000), "a day at most");
    }
}
