//! What the end of a guest means in terms of the error table, the same table as for processes (EXEC-012).
//!
//! Invariants
//! - VERDICT-1: a caller reads the tool's own `tool-error` and kinds of traps, never what the engine says about our files,
//!   and never what the tool wrote to its log.
//! - VERDICT-2: a guest that was refused memory and then failed, failed for want of memory, however it put it.
//! - VERDICT-3: a guest that tried to go where it may not is refused whatever it answers.
//! - VERDICT-4: a guest that says that a service behind it is unavailable does not say whether that service was asked, so the
//!   call may have run.
//! - VERDICT-5: code of a guest may run while it is made, so one that could not be made, or turned out not to be a tool, may have
//!   done something. What is known before that (no component, no credential, no turn) is said before there is a guest.

use base::SaturatingFrom as _;
use contract::error::{ErrorCode, Refusal};
use contract::json::{self, JsonLimits};
use ports::executor::{ExecutionReach, ExecutorError, FailedProgram, ResourceUsage, ToolCall, ToolOutput};
use serde_json::Value;
use wasmtime::Trap;

use super::guest::{Ended, Outcome};
use super::host::{ErrorKind, ToolError};
use super::limits::Seen;
use super::streams::printable;
use crate::confinement::forbidden;

/// Characters of a tool's own error message that reach the caller.
const MESSAGE_CHARS_MAX: usize = 500;

/// The result of a call, or its refusal.
pub(super) fn judge(call: &ToolCall, ended: Ended) -> Result<ToolOutput, ExecutorError> {
    log(call, &ended);
    let reach = reach(&ended.outcome, &ended.seen);
    let usage = usage(&ended);
    let exit_code = match &ended.outcome {
        Outcome::Exited(code) => *code,
        _ => FailedProgram::EXIT_CODE_UNKNOWN,
    };
    let lines = ended.log.clone();
    let output = judged(call, ended).map(|value| ToolOutput { value, usage });
    output.map_err(|refusal| {
        let wrote = call.companion.redacted(&lines);
        ExecutorError::new(refusal, reach).having_used(usage).ending(exit_code, wrote)
    })
}

fn usage(ended: &Ended) -> ResourceUsage {
    ResourceUsage {
        cpu_millicore_seconds: u64::saturating_from(ended.cpu.as_millis()),
        memory_peak_mb: ended.seen.memory_peak_bytes.div_ceil(1 << 20),
        network_bytes_sent: ended.traffic.sent,
        network_bytes_received: ended.traffic.received,
        ..ResourceUsage::default()
    }
}

/// How far the call came, by how the guest ended. VERDICT-4, VERDICT-5.
fn reach(outcome: &Outcome, seen: &Seen) -> ExecutionReach {
    match outcome {
        Outcome::NotStarted(_) | Outcome::WrongShape(_) => ExecutionReach::MayHaveRun,
        // Memory that it is refused can stop it in the middle, whatever it says afterwards.
        Outcome::Failed(_) | Outcome::Exited(_) if seen.memory_refused => ExecutionReach::MayHaveRun,
        Outcome::Failed(ToolError { kind: ErrorKind::Unavailable, .. }) => ExecutionReach::MayHaveRun,
        Outcome::Failed(ToolError { kind: ErrorKind::InvalidParameters | ErrorKind::Failed, .. }) => {
            ExecutionReach::Answered
        }
        Outcome::Answered(_) | Outcome::Exited(_) => ExecutionReach::Answered,
        // It was still writing, or was stopped in the middle.
        Outcome::TooMuch | Outcome::Trapped(_) => ExecutionReach::MayHaveRun,
    }
}

fn judged(call: &ToolCall, ended: Ended) -> Result<Value, Refusal> {
    // VERDICT-3.
    if !ended.traffic.violations.is_empty() {
        return Err(forbidden(call, &ended.traffic.violations));
    }
    let bytes_max = usize::saturating_from(call.limits.result_bytes);
    let failed = !matches!(ended.outcome, Outcome::Answered(_));
    match ended.outcome {
        Outcome::TooMuch => Err(too_much(bytes_max)),
        // VERDICT-2.
        _ if failed && ended.seen.memory_refused => {
            Err(Refusal::new(ErrorCode::E3403, "the tool ran out of the memory it may have")
                .hint("raise `resource_limits.memory` in the manifest, or `memory_mb_limit` of the call"))
        }
        _ if failed && ended.seen.table_refused => {
            Err(Refusal::new(ErrorCode::E3407, "the tool asked for a larger table than a WASM tool may have"))
        }
        Outcome::Answered(text) => read(&text, bytes_max),
        Outcome::Failed(error) => Err(said(&error)),
        Outcome::Exited(code) => Err(tool_failed(format!("the tool failed with exit code {code}"))
            .details(serde_json::json!({ "exit_code": code }))),
        Outcome::WrongShape(_) => Err(Refusal::new(
            ErrorCode::E3108,
            "the component's `invoke` is not the function of `gantry:tool/tool` 1.0.0",
        )
        .hint("build the component with `wit/gantry-tool`")
        .retryable(false)),
        Outcome::NotStarted(_) => {
            Err(Refusal::new(ErrorCode::E3405, "the component could not be instantiated")
                .hint("look at the server's log"))
        }
        Outcome::Trapped(error) => Err(trapped(&error)),
    }
}

fn read(text: &[u8], bytes_max: usize) -> Result<Value, Refusal> {
    if text.len() > bytes_max {
        return Err(too_much(bytes_max));
    }
    if text.iter().all(u8::is_ascii_whitespace) {
        return Err(tool_failed("the tool gave no result: it must answer with JSON"));
    }
    let limits = JsonLimits { bytes_max, string_bytes_max: bytes_max, ..JsonLimits::default() };
    json::read(text, &limits).map_err(|error| tool_failed(format!("the tool's result is not acceptable JSON: {error}")))
}

fn too_much(bytes_max: usize) -> Refusal {
    Refusal::new(ErrorCode::E3414, format!("the tool's result is larger than {bytes_max} bytes"))
        .hint("let the tool return less, for example a page or a reference")
}

fn said(error: &ToolError) -> Refusal {
    let words = printable(&error.message.chars().take(MESSAGE_CHARS_MAX).collect::<String>());
    let words = if words.trim().is_empty() { "the tool failed without saying why".to_owned() } else { words };
    match error.kind {
        ErrorKind::InvalidParameters => Refusal::new(ErrorCode::E3301, words),
        ErrorKind::Failed => tool_failed(words),
        ErrorKind::Unavailable => Refusal::new(ErrorCode::E3502, words),
    }
}

fn tool_failed(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::E3401, message)
        .hint("`gantry tool logs` shows administrators what the tool wrote, and so does the server's log")
        .retryable(false)
}

/// VERDICT-1: the kind of a trap is a closed set of words; everything else the engine says stays in the log.
fn trapped(error: &wasmtime::Error) -> Refusal {
    let message = error.downcast_ref::<Trap>().map_or_else(
        || "the tool broke the rules of its interfaces and was stopped".to_owned(),
        |trap| {
            let words = trap.to_string();
            format!("the tool crashed: {}", words.strip_prefix("wasm trap: ").unwrap_or(&words))
        },
    );
    Refusal::new(ErrorCode::E3404, message)
        .hint("`gantry tool logs` shows administrators what the tool wrote, and so does the server's log")
}

/// The tool's own words are for the log of the operator, never for the caller.
fn log(call: &ToolCall, ended: &Ended) {
    if matches!(ended.outcome, Outcome::Answered(_)) && ended.log.is_empty() {
        return;
    }
    let (tool, invocation, wrote) = (&call.tool.id, &call.invocation_id, call.companion.redacted(&ended.log));
    match &ended.outcome {
        Outcome::Answered(_) => tracing::debug!(%tool, %invocation, wrote, "the tool wrote to its log"),
        Outcome::Failed(_) => tracing::warn!(%tool, %invocation, wrote, "the tool failed"),
        Outcome::Exited(code) => tracing::warn!(%tool, %invocation, code, wrote, "the tool failed"),
        Outcome::TooMuch => tracing::warn!(%tool, %invocation, wrote, "the tool wrote too much"),
        Outcome::WrongShape(error) | Outcome::NotStarted(error) | Outcome::Trapped(error) => {
            tracing::warn!(%tool, %invocation, error = %format!("{error:#}"), wrote, "the tool was stopped");
        }
    }
}
