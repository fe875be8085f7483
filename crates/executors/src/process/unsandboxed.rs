//! A process tool without a sandbox, because the operator has said so: a plain child of the server, with its rights.
//!
//! It gets an environment of our making, and its process group ends with the call. Nothing else is promised, so a call
//! that relies on a limit, and a tool that declares limits or is to be given secrets or a gate, are refused. What the manifest
//! alone decides is refused when the tool is published; what was published before, at its calls.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use contract::error::{ErrorCode, Refusal};
use contract::manifest::{Execution, Manifest, ManifestError, ProcessProtocol};
use ports::executor::{ExecutorError, ToolCall, ToolOutput};

use super::child::Child;
use super::output::{self, ProcessExit, judged};
use super::streams::last_lines;
use super::{PYTHON_PACKAGES, PYTHON_PATH, call_environment, exchange, result_bytes_max, simple};

pub(super) async fn run(
    call: &ToolCall,
    command: &[String],
    env: &BTreeMap<String, String>,
    home: &Path,
) -> Result<ToolOutput, ExecutorError> {
    enforceable(call).map_err(ExecutorError::not_sent)?;
    call.dispatch.release();
    let mut env = env.clone();
    env.extend(call_environment(call));
    let packages = home.join(PYTHON_PACKAGES);
    if tokio::fs::metadata(&packages).await.is_ok_and(|found| found.is_dir()) {
        env.entry(PYTHON_PATH.to_owned()).or_insert_with(|| packages.display().to_string());
    }
    let child = Child::start(command, &env, home);
    let mut child = child.map_err(|error| ExecutorError::not_sent(not_started(call, error)))?;
    let broken = |error| ExecutorError::may_have_run(output::broken(&error));
    let streams = child.streams().ok_or_else(|| broken(simple::BreakOff::Io(io::ErrorKind::BrokenPipe.into())))?;
    let log_end = streams.log.clone();
    let read = log_end.clone();
    call.program_log.leave(move || read.text());
    let input = call.parameters.to_string().into_bytes();
    let (status, said) =
        simple::talk_until(streams, &input, &simple::ReadBounds::of(call), child.wait()).await.map_err(broken)?;
    let status = status.map_err(|error| broken(simple::BreakOff::Io(error)))?;
    let exit = ProcessExit::from(status);
    let value = judged(exit, said.result(), result_bytes_max(call));
    if exit.is_success() && value.is_err() {
        exchange::note_stray(&log_end, said.result());
    }
    let lines = log_end.text();
    if !exit.is_success() {
        let lines = last_lines(&call.companion.redacted(&lines));
        tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %status, stderr = %lines, "the tool failed");
    } else if !lines.is_empty() {
        let lines = last_lines(&call.companion.redacted(&lines));
        tracing::debug!(tool = %call.tool.id, invocation = %call.invocation_id, stderr = %lines, "the tool wrote to its log");
    }
    value.map(ToolOutput::of).map_err(|refusal| {
        let output = call.companion.redacted(&lines);
        ExecutorError::new(refusal, exit.reach()).ending(exit.told_code(), output)
    })
}

/// What of a manifest cannot be kept here, at its place.
pub(super) fn admit(manifest: &Manifest) -> Result<(), ManifestError> {
    let refused = |path: &str, what: &str| {
        Err(ManifestError::one(
            path,
            format!("{what}, which needs the sandbox: start the server without `--unsandboxed-processes`"),
        ))
    };
    if matches!(&manifest.execution, Some(Execution::Process { protocol: ProcessProtocol::Session, .. })) {
        return refused("/execution/protocol", "is `gantry/1`");
    }
    if manifest.resource_limits.is_some() {
        return refused("/resource_limits", "bounds CPU, memory or storage");
    }
    Ok(())
}

/// Nothing here keeps a limit, a gate or a secret.
fn enforceable(call: &ToolCall) -> Result<(), Refusal> {
    let permissions = call.tool.permissions()?;
    let what = if call.limits.asked_by_caller || call.tool.manifest.resource_limits.is_some() {
        "the CPU, memory or network of a process cannot be bounded"
    } else if !permissions.network.is_empty() {
        "the network of a process cannot be kept to what it declares"
    } else if !permissions.credentials.is_empty() {
        "credentials are not given to a process"
    } else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::E3405, format!("{what} without the sandbox"))
        .hint("start the server without `--unsandboxed-processes`")
        .retryable(false))
}

fn not_started(call: &ToolCall, error: std::io::Error) -> Refusal {
    tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, error = &error as &dyn std::error::Error, "the tool's program could not be started");
    Refusal::new(ErrorCode::E3401, "the tool's program could not be started")
        .hint("check that `execution.command` names a program that is installed or stands in the tool's folder")
        .caused_by(error)
        .retryable(false)
}
