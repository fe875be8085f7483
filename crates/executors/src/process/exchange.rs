//! One call of a process tool from start to end, in either of the two protocols.

use std::sync::{Arc, Once};
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use ports::executor::{ExecutionReach, ExecutorError, FailedProgram, ResourceUsage, ToolCall, ToolOutput};
use ports::tool_companion::ToolCompanion;
use sandbox::SandboxEnd;
use serde_json::Value;

use super::attended::{Attended, Holder};
use super::log_end::LogEnd;
use super::output::{self, ended_early, judged};
use super::prepared::PreparedSandbox;
use super::process_run::ProcessRun;
use super::scrub::SecretScrubber;
use super::session::{ProcessSession, ScrubbedCompanion, SessionBounds, SessionCall, SessionError};
use super::streams::last_lines;
use super::warm::{WarmKey, WarmPool, WarmProcess};
use super::{call_environment, ended, result_bytes_max, simple, stray_output};
use crate::call_time::time_nears_its_end;
use crate::confinement::settled;
use crate::sandbox_provider::SandboxProvider;

/// Before the deadline a session is told that it is over, so that a tool can put its things in order.
const NOTICE: Duration = Duration::from_millis(200);

/// Says once that nothing can be kept warm on this machine.
static NOT_KEPT: Once = Once::new();

/// Parameters in, result out, one process.
pub(crate) async fn simply(
    walls: &SandboxProvider,
    call: &ToolCall,
    mut prepared: PreparedSandbox,
) -> Result<ToolOutput, ExecutorError> {
    prepared.spec.env.extend(call_environment(call));
    let mut running = ProcessRun::start(walls, call, &prepared).await?;
    let streams = running.streams().map_err(|_| broken())?;
    running.leave_log(call, &prepared.scrubber);
    let log_end = streams.log.clone();
    let input = call.parameters.to_string().into_bytes();
    let attended = Attended::new(call, running);
    let talked = {
        let mut running = attended.holder().await;
        simple::talk_until(streams, &input, &simple::ReadBounds::of(call), running.child.wait()).await
    };
    let mut running = attended.back().ok_or_else(broken)?;
    let (end, said) = match talked {
        Ok(talked) => talked,
        Err(error) => {
            tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, "the tool was stopped");
            // How it ends does not matter any more; that it has ended does.
            let _ = running.end().await;
            // Its end was our doing.
            return Err(ExecutorError::may_have_run(output::broken(&error)));
        }
    };
    let mut usage = ended::usage(end.usage);
    let exit = ended::exit(&end);
    let judged = judged(exit, said.result(), result_bytes_max(call));
    if exit.is_success() && judged.is_err() {
        note_stray(&log_end, said.result());
    }
    let lines = prepared.scrubber.text(&log_end.text()).into_owned();
    log(call, &end, &lines);
    let gate = settled(call, running.closed_gate().await, &mut usage);
    let failed = |refusal, reach| {
        let output = call.companion.redacted(&lines);
        ExecutorError::new(refusal, reach).having_used(usage).ending(exit.told_code(), output)
    };
    let refused = |refusal| failed(refusal, exit.reach());
    gate.map_err(refused)?;
    if !exit.is_success()
        && let Some(refusal) = ended::limit_hit(call, &end)
    {
        return Err(failed(refusal, ended::reach_under(&end, exit.reach())));
    }
    let value = judged.map_err(|refusal| refused(prepared.scrubber.refusal(refusal)))?;
    Ok(ToolOutput { value: prepared.scrubber.value(value), usage })
}

/// A conversation, with a process that may have served before and may serve again.
pub(crate) async fn in_session(
    walls: &SandboxProvider,
    call: &ToolCall,
    mut prepared: PreparedSandbox,
    pool: Option<&Arc<WarmPool<ProcessRun>>>,
) -> Result<ToolOutput, ExecutorError> {
    let Some(pool) = pool else {
        let running = started(walls, call, &prepared).await?;
        let (running, answer) = asked(call, running, &prepared.scrubber).await?;
        return concluded(call, running, answer, &prepared.scrubber).await;
    };
    prepared.spec.freezable = true;
    let digest = prepared.digest().map_err(ExecutorError::not_sent)?;
    let key = WarmKey::new(call.tool.id.clone(), &call.tool.version, call.tenant.clone(), digest);
    // One that turns out to be unfit was not asked anything, so another one may be.
    while let Some(mut warm) = pool.take(&key) {
        if !warm.process.wake().await {
            continue;
        }
        call.dispatch.release();
        let (warm, answer) = asked(call, warm, &prepared.scrubber).await?;
        if !matches!(&answer, Err(error) if !error.was_asked()) {
            return kept(call, pool, warm, answer, &prepared.scrubber).await;
        }
        call.dispatch.hold();
    }
    let warm = pool.started(key, started(walls, call, &prepared).await?);
    let (warm, answer) = asked(call, warm, &prepared.scrubber).await?;
    kept(call, pool, warm, answer, &prepared.scrubber).await
}

async fn started(
    walls: &SandboxProvider,
    call: &ToolCall,
    prepared: &PreparedSandbox,
) -> Result<ProcessRun, ExecutorError> {
    let mut running = ProcessRun::start(walls, call, prepared).await?;
    let streams = running.streams().map_err(|_| broken())?;
    running.session = Some(ProcessSession::new(streams, SessionBounds::of(call)));
    Ok(running)
}

/// Asks. The process comes back with what it answered.
async fn asked<H: Holder>(
    call: &ToolCall,
    holder: H,
    secrets: &Arc<SecretScrubber>,
) -> Result<(H, Result<Value, SessionError>), ExecutorError> {
    let attended = Attended::new(call, holder);
    let answer = {
        let mut holder = attended.holder().await;
        let running = holder.process();
        running.leave_log(call, secrets);
        conversed(call, running, secrets).await
    };
    Ok((attended.back().ok_or_else(broken)?, answer))
}

/// Asks, and tells the tool in time that its time is over.
async fn conversed(
    call: &ToolCall,
    running: &mut ProcessRun,
    secrets: &Arc<SecretScrubber>,
) -> Result<Value, SessionError> {
    let companion: Arc<dyn ToolCompanion> =
        Arc::new(ScrubbedCompanion::new(Arc::clone(&call.companion), Arc::clone(secrets)));
    let Some(session) = running.session.as_mut() else { return Err(SessionError::Unfit) };
    let question = SessionCall::from(call);
    let answer = tokio::select! {
        biased;
        answer = session.invoke(&question, &companion) => Some(answer),
        () = time_nears_its_end(call, NOTICE) => None,
    };
    match answer {
        Some(answer) => answer,
        None => {
            // A tool that cannot hear it is ended all the same: the kernel's deadline ends this wait, and with it the process.
            let _ = session.cancel("the time of the call is over").await;
            std::future::pending().await
        }
    }
}

/// The end of a call whose process ends with it.
async fn concluded(
    call: &ToolCall,
    mut running: ProcessRun,
    answer: Result<Value, SessionError>,
    secrets: &SecretScrubber,
) -> Result<ToolOutput, ExecutorError> {
    // A tool that ended by itself says more by how it did.
    let end = match &answer {
        Err(SessionError::Ended) => running.child.wait().await,
        _ => running.end().await,
    };
    let end = SandboxEnd { usage: running.of_this_call(end.usage), ..end };
    let lines = running.session.as_ref().map(|session| session.log(secrets)).unwrap_or_default();
    let mut usage = ended::usage(end.usage);
    let said = answer.as_ref().map_or_else(SessionError::reach, |_| ExecutionReach::Answered);
    let reach = if answer.is_err() { ended::reach_under(&end, said) } else { said };
    let gate = settled(call, running.closed_gate().await, &mut usage);
    running.bytes_of_this_call(&mut usage);
    reported(running.session.as_ref(), &mut usage);
    // One that was asked to go says nothing by how it went.
    let by_itself = matches!(&answer, Err(SessionError::Ended));
    let exit_code = if by_itself { ended::exit(&end).told_code() } else { FailedProgram::EXIT_CODE_UNKNOWN };
    let refused = |refusal| {
        let output = call.companion.redacted(&lines);
        ExecutorError::new(refusal, reach).having_used(usage).ending(exit_code, output)
    };
    gate.map_err(refused)?;
    match answer {
        Ok(value) => {
            log_lines(call, &lines);
            Ok(ToolOutput { value: secrets.value(value), usage })
        }
        Err(error) => {
            log(call, &end, &lines);
            let refusal = ended::limit_hit(call, &end).unwrap_or_else(|| match error {
                SessionError::Ended => ended_early(ended::exit(&end)),
                error => error.refusal(),
            });
            Err(refused(secrets.refusal(refusal)))
        }
    }
}

/// The end of a call whose process stays, if it is in order.
async fn kept(
    call: &ToolCall,
    pool: &Arc<WarmPool<ProcessRun>>,
    mut warm: WarmProcess<ProcessRun>,
    answer: Result<Value, SessionError>,
    secrets: &SecretScrubber,
) -> Result<ToolOutput, ExecutorError> {
    let reusable = warm.process.session.as_ref().is_some_and(ProcessSession::is_reusable);
    if !reusable || !answer.as_ref().err().is_none_or(SessionError::is_reusable) {
        return concluded(call, warm.process, answer, secrets).await;
    }
    // Before its doings are judged, so that nothing it still does is left to the next call.
    let rests = warm.process.rest().await;
    if matches!(rests, Ok(false)) {
        NOT_KEPT.call_once(|| {
            tracing::warn!(tool = %call.tool.id, "no control group here can freeze a process, so none is kept warm between calls; `gantry doctor` says what is missing");
        });
    }
    if !matches!(rests, Ok(true)) || !warm.process.is_innocent() {
        return concluded(call, warm.process, answer, secrets).await;
    }
    let Ok(mut usage) = warm.process.used_by_this_call().await else {
        return concluded(call, warm.process, answer, secrets).await;
    };
    reported(warm.process.session.as_ref(), &mut usage);
    let lines = warm.process.session.as_ref().map(|session| session.log(secrets)).unwrap_or_default();
    log_lines(call, &lines);
    pool.give_back(warm);
    match answer {
        Ok(value) => Ok(ToolOutput { value: secrets.value(value), usage }),
        Err(error) => {
            let output = call.companion.redacted(&lines);
            let failed = ExecutorError::new(secrets.refusal(error.refusal()), error.reach());
            Err(failed.having_used(usage).ending(FailedProgram::EXIT_CODE_UNKNOWN, output))
        }
    }
}

/// Adds what the tool itself says about the call (COST-004).
fn reported(session: Option<&ProcessSession>, usage: &mut ResourceUsage) {
    let said = session.map(ProcessSession::reported).unwrap_or_default();
    (usage.cost_incurred, usage.tokens) = (said.cost, said.tokens);
}

/// The line that spoiled a result joins the log, where those who may read it look.
pub(super) fn note_stray(log: &LogEnd, output: &[u8]) {
    if let Some(stray) = stray_output::find(output) {
        log.note_stray(Some(stray.number), stray.text);
    }
}

fn broken() -> ExecutorError {
    ExecutorError::may_have_run(Refusal::new(ErrorCode::E3404, "the connection to the tool broke"))
}

/// The tool's own words are for the log of the operator, never for the caller.
fn log(call: &ToolCall, end: &SandboxEnd, lines: &str) {
    if end.exit == sandbox::ProgramExit::Code(0) {
        return log_lines(call, lines);
    }
    let lines = last_lines(&call.companion.redacted(lines));
    tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, exit = ?end.exit, stderr = %lines, "the tool failed");
}

fn log_lines(call: &ToolCall, lines: &str) {
    if !lines.is_empty() {
        let lines = last_lines(&call.companion.redacted(lines));
        tracing::debug!(tool = %call.tool.id, invocation = %call.invocation_id, stderr = %lines, "the tool wrote to its log");
    }
}
