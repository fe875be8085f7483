//! What the end of a process and its output mean for the caller: a value, or a row of the error table (EXEC-010…012).
//!
//! A tool is hostile until shown otherwise: its output goes through the one strict reader of the product
//! ([`contract::json`]), which bounds size, depth and number of values and refuses what two parsers could read
//! differently. What is wrong is said with its place, because the author of the tool needs it; the output itself is not
//! quoted beyond a key.
//!
//! Not here: ends that only the holder of the process knows about (deadline E3402, memory E3403, no sandbox E3405,
//! network E3406), secrets in the output ([`scrub`](super::scrub)), the result schema (the kernel verifies).

use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;

use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::json::{self, JsonError, JsonLimits};
use ports::executor::{ExecutionReach, FailedProgram};
use serde_json::{Value, json};

use super::service_failure::{self, ServiceFailure};
use super::simple::BreakOff;
use super::stray_output::{self, StrayLine};

/// The exit code that stands for "unknown" (EXEC-010).
const EXIT_CODE_UNKNOWN: i32 = FailedProgram::EXIT_CODE_UNKNOWN;

/// Where what a tool wrote is found.
pub(crate) const STDERR_HINT: &str =
    "`gantry tool logs` shows administrators what the tool wrote to stderr, and so does the server's log";

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessExit {
    Code(i32),
    Signal(i32),
}

impl ProcessExit {
    /// Did it end well?
    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }

    /// The code as it is told; a program that was ended has none.
    pub fn told_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(_) => EXIT_CODE_UNKNOWN,
        }
    }

    /// What the end says about a tool in simple mode that gave no usable result: one that left by itself has said how it
    /// went, one that was ended by a signal has not.
    pub fn reach(self) -> ExecutionReach {
        match self {
            Self::Code(code) => ServiceFailure::of_exit(code).map_or(ExecutionReach::Answered, ServiceFailure::reach),
            Self::Signal(_) => ExecutionReach::MayHaveRun,
        }
    }
}

impl From<ExitStatus> for ProcessExit {
    fn from(status: ExitStatus) -> Self {
        match status.signal() {
            Some(signal) => Self::Signal(signal),
            None => Self::Code(status.code().unwrap_or(EXIT_CODE_UNKNOWN)),
        }
    }
}

/// The result of a tool in simple mode, or what its end means.
pub fn judged(exit: ProcessExit, result: &[u8], bytes_max: usize) -> Result<Value, Refusal> {
    if let ProcessExit::Code(code) = exit
        && let Some(refusal) = service_failure::of_simple(code, result)
    {
        return Err(refusal);
    }
    if !exit.is_success() {
        return Err(failed_end(exit));
    }
    let limits = JsonLimits { bytes_max, string_bytes_max: bytes_max, ..JsonLimits::default() };
    json::read(result, &limits).map_err(|error| match error {
        JsonError::Empty => failed("the tool gave no result: it must write JSON to stdout"),
        error => unacceptable(&error, result),
    })
}

/// Of a result with something beside it, everybody reads which line that is. What stands there is for those who may read the log.
fn unacceptable(error: &JsonError, result: &[u8]) -> Refusal {
    let refusal =
        failed(format!("the tool's result is not acceptable JSON: {error}")).because(RefusalReason::UnreadableAnswer);
    match stray_output::find(result) {
        None => refusal,
        Some(StrayLine { number, .. }) => refusal.hint(format!(
            "line {number} of stdout is not part of the result: print to stderr, stdout is for the result alone; `gantry tool logs` shows the line to administrators"
        )),
    }
}

/// The refusal for a process that ended without having answered, whatever the protocol.
pub fn ended_early(exit: ProcessExit) -> Refusal {
    match exit {
        ProcessExit::Code(0) => failed("the tool ended without an answer"),
        ProcessExit::Code(code) => service_failure::of_simple(code, b"").unwrap_or_else(|| failed_end(exit)),
        ProcessExit::Signal(_) => failed_end(exit),
    }
}

/// The refusal for a conversation that was broken off.
pub fn broken(error: &BreakOff) -> Refusal {
    let refusal = |code| Refusal::new(code, error.to_string());
    match error {
        BreakOff::ResultTooLarge { .. } => refusal(ErrorCode::E3414)
            .hint("let the tool return less, for example a page or a reference")
            .retryable(false),
        BreakOff::LogTooLarge { .. } => {
            refusal(ErrorCode::E3407).hint("let the tool write less to its log").retryable(false)
        }
        BreakOff::Io(_) => refusal(ErrorCode::E3404),
    }
}

fn failed_end(exit: ProcessExit) -> Refusal {
    match exit {
        ProcessExit::Signal(signal) => Refusal::new(ErrorCode::E3404, format!("the tool was ended by signal {signal}"))
            .hint(STDERR_HINT)
            .details(json!({ "signal": signal, "exit_code": EXIT_CODE_UNKNOWN })),
        ProcessExit::Code(code) => {
            failed(format!("the tool failed with exit code {code}")).details(json!({ "exit_code": code }))
        }
    }
}

/// The tool's own failure (E3401).
pub(super) fn failed(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::E3401, message).hint(STDERR_HINT).retryable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES_MAX: usize = 1 << 20;

    #[test]
    fn output_of_a_process_that_ended_well_is_a_value_or_says_what_is_wrong() {
        let deep = "[".repeat(65) + &"]".repeat(65);
        let huge = format!("\"{}\"", "x".repeat(BYTES_MAX));
        let many = format!("[{}1]", "1,".repeat(200_000));
        for (output, words) in [
            (&b"not json"[..], "not acceptable JSON: expected"),
            (b"", "no result"),
            (b" \n\t ", "no result"),
            (b"{\"a\": \"\xff\xfe\"}", "not UTF-8"),
            (b"\xef\xbb\xbf{}", "byte order mark"),
            (deep.as_bytes(), "deeper than 64 levels"),
            (huge.as_bytes(), "at most 1048576"),
            (many.as_bytes(), "more than 100000 values"),
            (b"{} {}", "something follows"),
            (b"{\"a\":1}\ndone", "something follows"),
            (b"{\"a\":1,\"a\":2}", "key `a` stands twice"),
            (b"{\"a\":NaN}", "not acceptable JSON"),
            (b"Infinity", "not acceptable JSON"),
            (b"1e999", "too large for a 64-bit"),
            (b"{\"a\":", "ends too early"),
            (b"\"\\ud800\"", "surrogate"),
            (b"{'a': 1}", "not acceptable JSON"),
        ] {
            let refusal = judged(ProcessExit::Code(0), output, BYTES_MAX).unwrap_err();
            assert_eq!((refusal.code, refusal.retryable), (ErrorCode::E3401, Some(false)));
            assert!(refusal.message.contains(words), "{words}: {}", refusal.message);
            assert!(refusal.message.len() < 300, "{}", refusal.message);
            // No answer is a failure; one that nobody can read is worth an alert of its own.
            let named = refusal.details.as_deref().map(|details| &details["event"]);
            assert_eq!(named, (words != "no result").then_some(&json!("TOOL_OUTPUT_CORRUPTION")), "{words}");
        }
        for (output, value) in
            [(&b"{\"a\":[1]}\n"[..], json!({ "a": [1] })), (b" null ", Value::Null), (b"0", json!(0))]
        {
            assert_eq!(judged(ProcessExit::Code(0), output, BYTES_MAX).unwrap(), value);
        }
    }

    #[test]
    fn an_end_that_was_not_well_goes_before_any_output() {
        for (exit, code, words, details) in [
            (ProcessExit::Code(3), ErrorCode::E3401, "exit code 3", json!({ "exit_code": 3 })),
            (ProcessExit::Code(-1), ErrorCode::E3401, "exit code -1", json!({ "exit_code": -1 })),
            (ProcessExit::Signal(11), ErrorCode::E3404, "signal 11", json!({ "signal": 11, "exit_code": -1 })),
            (ProcessExit::Signal(9), ErrorCode::E3404, "signal 9", json!({ "signal": 9, "exit_code": -1 })),
        ] {
            for refusal in [judged(exit, b"{\"fine\": true}", BYTES_MAX).unwrap_err(), ended_early(exit)] {
                assert_eq!(refusal.code, code);
                assert!(refusal.message.contains(words), "{}", refusal.message);
                assert_eq!(refusal.details.as_deref(), Some(&details));
            }
        }
        assert_eq!(ended_early(ProcessExit::Code(0)).code, ErrorCode::E3401);
    }

    #[test]
    fn statuses_of_the_system_are_told_apart() {
        assert_eq!(ProcessExit::from(ExitStatus::from_raw(0)), ProcessExit::Code(0));
        assert_eq!(ProcessExit::from(ExitStatus::from_raw(3 << 8)), ProcessExit::Code(3));
        assert_eq!(ProcessExit::from(ExitStatus::from_raw(9)), ProcessExit::Signal(9));
    }

    #[test]
    fn each_break_has_its_code() {
        for (error, code) in [
            (BreakOff::ResultTooLarge { limit: 5 }, ErrorCode::E3414),
            (BreakOff::LogTooLarge { limit: 5 }, ErrorCode::E3407),
            (BreakOff::Io(std::io::ErrorKind::BrokenPipe.into()), ErrorCode::E3404),
        ] {
            assert_eq!(broken(&error).code, code);
        }
    }
}
