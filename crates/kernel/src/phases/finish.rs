//! Phase 6, return: record how the call ended, count it, and make the envelope.
//!
//! Runs for every call, whatever became of it, so that nothing ends without a record.

use std::sync::Arc;
use std::time::Duration;

use contract::canonical;
use contract::cost::{Costs, fixed_part};
use contract::envelope::{
    CheckpointNote, ExecutionMetadata, InvocationStatus, InvokeResponse, Provenance, ResultSource, StaleNotice,
};
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::manifest::Execution;
use ports::audit_sink::{AuditAction, RecordedActor, ResultShape};
use ports::call_insights::{CallEnding, CallInsights};
use ports::clock::UnixMillis;
use ports::observer::{FinishedCall, Phase, TracedCall};
use ports::tool_version::ToolVersion;

use super::facts::{CALLS, CallFacts, denied, millis, recorded_until, status_of};
use super::settle::SettledCall;
use super::verify::Verified;
use crate::invoke::{FailedCall, Kernel};
use crate::tool_logs::LoggedCall;

/// Most names in the note of a record.
const NAMES_MAX: usize = 20;

/// A call that passed all six phases.
#[derive(Debug)]
pub struct Returned(InvokeResponse);

impl Returned {
    /// The answer for the caller.
    pub fn into_response(self) -> InvokeResponse {
        self.0
    }
}

/// How a call has ended.
#[derive(Clone, Copy)]
struct CallEnd {
    at: UnixMillis,
    took: Duration,
    status: InvocationStatus,
    code: Option<ErrorCode>,
    costs: Costs,
}

impl CallEnd {
    fn of(kernel: &Kernel, facts: &CallFacts, carried: &Result<Verified, Refusal>) -> Self {
        let clock = kernel.clock();
        let at = clock.now();
        let took = clock.monotonic().saturating_sub(facts.started);
        let (status, code) = match carried {
            Ok(_) => (InvocationStatus::Success, None),
            Err(refusal) => (status_of(refusal.code), Some(refusal.code)),
        };
        Self { at, took, status, code, costs: costs_of(kernel, facts, carried, took) }
    }
}

/// Runs the phase.
pub async fn finish(kernel: &Kernel, facts: &mut CallFacts, settled: SettledCall) -> Result<Returned, Box<FailedCall>> {
    facts.enter(kernel, Phase::Return);
    let SettledCall(carried) = settled;
    let end = CallEnd::of(kernel, facts, &carried);
    count(kernel, facts, carried.as_ref().err(), &end);
    log_end(facts, end.status, end.took);
    keep_log(kernel, facts, carried.as_ref().err(), (end.at, end.took));
    let recorded = record(facts, &carried, &end).await;
    if carried.is_err() {
        facts.journey.stopped();
    }
    if facts.journey.recorded {
        trace(kernel, facts, end.status, end.code, end.costs);
    }
    // What cannot be recorded is not answered, whatever it came to. A key gets its outcome when the log can be written again.
    match recorded.and(carried) {
        Ok(verified) => Ok(returned(facts, verified, &end)),
        Err(refusal) => Err(failed(facts, refusal, &end)),
    }
}

/// Counts the call, for metrics and for those who learn from calls.
fn count(kernel: &Kernel, facts: &CallFacts, refusal: Option<&Refusal>, end: &CallEnd) {
    // Metrics are read by the whole installation: names of a tenant's own tools do not belong there.
    let shared = facts.tool.as_deref().filter(|tool| tool.tenant.is_home());
    kernel.parts.observer.invocation_finished(&FinishedCall {
        tool: shared.map(|tool| &tool.id),
        status: end.status,
        code: end.code,
        duration: end.took,
        version: shared,
        tenant: facts.caller.as_ref().map(|caller| caller.tenant()),
        replayed: facts.replay_of.is_some(),
        retries: facts.journey.retries().max(facts.repeats),
        trace: facts.journey.recorded.then_some(&facts.journey.context),
        costs: &end.costs,
    });
    if let Some((insights, who, tool)) = heard(kernel, facts) {
        insights.ended(&CallEnding {
            who,
            session: facts.caller.as_ref().and_then(|caller| caller.session()),
            tool,
            refusal,
            took: end.took,
            // What an earlier call used was counted then, so it is not among what this one used.
            usage: facts.used.unwrap_or_default(),
            costs: end.costs,
            replayed: facts.is_answered_before(),
        });
    }
}

/// Records the call. The answer leaves when the record cannot be lost any more.
async fn record(facts: &mut CallFacts, carried: &Result<Verified, Refusal>, end: &CallEnd) -> Result<(), Refusal> {
    let Some(slot) = facts.slot.take() else { return Ok(()) };
    let action = match facts.offering {
        None => AuditAction::InvocationFinished,
        Some(_) => AuditAction::OfferingAsked,
    };
    let mut record = facts.record(action, end.at, Some((end.status, end.code, end.took)));
    record.note = match (&facts.replay_of, &facts.stale) {
        (Some(first), _) => Some(format!("answered with the outcome of {}", first.invocation)),
        (None, Some((former, StaleNotice { age_ms }))) => {
            Some(format!("stale: answered with the result of {former}, {age_ms} ms old, because a breaker is open"))
        }
        (None, None) => carried.as_ref().err().and_then(note),
    };
    if let Some(judged) = &mut record.judged {
        // Here and not where records are written: it takes less time than a copy of the result, which goes to the caller,
        // and a queue of results would be as large as the results.
        judged.result_digest = carried.as_ref().ok().map(|verified| canonical::digest(&verified.result));
        judged.result_shape = carried.as_ref().ok().map(|verified| ResultShape::of(&verified.result));
        if let (Some(decided), Some(note)) = (judged.decision.as_mut().filter(|d| !d.allowed), &record.note) {
            decided.reason = note.clone().into();
        }
    }
    if let Some(asked) = facts.offering.take() {
        record.note = Some(record.note.map_or_else(|| asked.clone(), |note| format!("{asked}; {note}")));
    }
    record.usage = carried.as_ref().ok().map(|verified| verified.usage).or(facts.used).or(facts.failed_usage);
    record.cost = (carried.is_ok() || !end.costs.is_zero()).then_some(end.costs);
    slot.record_until(record, recorded_until(facts.begun && facts.has_effects())).await
}

/// The answer of a call that came to a result.
fn returned(facts: &mut CallFacts, verified: Verified, end: &CallEnd) -> Returned {
    let (took, costs) = (end.took, end.costs);
    let checkpoints = std::mem::take(&mut facts.checkpointing.summary);
    // Both askers get the same answer, so it carries the id of the call that ran.
    let first = facts.replay_of.take();
    let tool = &verified.tool;
    let notice = tool.lifecycle.notice.as_ref();
    let version = first.as_ref().map_or_else(|| tool.version.clone(), |first| first.version.clone());
    let cached = first.is_some() || facts.stale.is_some();
    let ran_until = verified.ran.as_ref().map_or_else(|| end.at.to_string(), |ran| ran.completed_at.clone());
    Returned(InvokeResponse {
        invocation_id: first.as_ref().map_or(facts.invocation_id, |first| first.invocation),
        status: end.status,
        tool_id: tool.id.to_string(),
        tool_version: version.clone(),
        cached,
        source: if cached { ResultSource::Cache } else { ResultSource::Compute },
        provenance: Provenance { source: tool.id.to_string(), version, executed_at: ran_until.clone() },
        execution_time_ms: millis(took),
        execution_metadata: ExecutionMetadata {
            duration_ms: verified.ran.as_ref().map_or_else(|| millis(took), |ran| ran.duration_ms),
            started_at: verified
                .ran
                .as_ref()
                .map_or_else(|| facts.started_at.to_string(), |ran| ran.started_at.clone()),
            completed_at: ran_until,
            exit_code: if cached { None } else { exit_code_of(tool) },
            cpu_used_millicore_seconds: verified.usage.cpu_millicore_seconds,
            memory_peak_mb: verified.usage.memory_peak_mb,
            network_bytes_sent: verified.usage.network_bytes_sent,
            network_bytes_received: verified.usage.network_bytes_received,
            coercions: verified.coercions,
            deprecation: notice.map(ports::lifecycle::LifecycleNotice::on_the_wire),
            stale: facts.stale.map(|(_, notice)| notice),
            truncation: verified.truncation,
            tokens_used: verified.usage.tokens,
            cost: costs.total().to_string(),
            cost_currency: (!costs.is_zero()).then_some(costs.currency),
            checkpoints_created: checkpoints.notes,
        },
        checkpoint_ref: checkpoints.newest.map(|id| id.to_string()),
        result: verified.result,
        trace_id: facts.trace_id,
    })
}

/// What is answered to a call that came to none.
fn failed(facts: &mut CallFacts, refusal: Refusal, end: &CallEnd) -> Box<FailedCall> {
    let checkpoints = std::mem::take(&mut facts.checkpointing.summary);
    // As with a result: the id of the call that ran.
    let first = facts.replay_of.take();
    let invocation_id = first.map_or(facts.invocation_id, |first| first.invocation);
    let (trace_id, begun, reach) = (facts.trace_id, facts.begun, facts.reach);
    let output = facts.failed_program.as_deref().filter(|_| facts.shows_output);
    let output = output.map(|program| program.output.clone());
    let redactor = Arc::clone(&facts.redactor);
    let told_checkpoint = facts.told_checkpoint.take();
    Box::new(FailedCall {
        status: end.status,
        invocation_id,
        trace_id,
        begun,
        reach,
        execution_metadata: of_failed(facts, &refusal, (end.at, end.took), end.costs, checkpoints.notes),
        checkpoint_ref: checkpoints.newest.map(|id| id.to_string()).or(told_checkpoint),
        output,
        redactor,
        refusal,
    })
}

/// Keeps what the program of a tenant's own tool wrote, for those who look after it (TLOG-1, TLOG-3).
fn keep_log(
    kernel: &Kernel,
    facts: &mut CallFacts,
    refusal: Option<&Refusal>,
    (completed_at, took): (UnixMillis, Duration),
) {
    let log = facts.program_log.take();
    let (Some(log), Some(caller), Some(tool)) = (log, &facts.caller, &facts.tool) else { return };
    if *caller.tenant() != tool.tenant {
        return;
    }
    let shown = |text: String| (!facts.hides_words).then_some(text);
    let exit_code = match refusal {
        None => exit_code_of(tool),
        Some(_) => facts.failed_program.as_deref().map(|program| program.exit_code),
    };
    kernel.tool_logs.keep(
        caller.tenant(),
        &tool.id,
        LoggedCall {
            invocation_id: facts.invocation_id,
            at: completed_at,
            version: tool.version.clone(),
            subject: caller.subject().clone(),
            duration_ms: millis(took),
            code: refusal.map(|refusal| refusal.code),
            message: refusal.and_then(|refusal| shown(facts.redactor.text(&refusal.message).into_owned())),
            exit_code,
            log: shown(log),
        },
    );
}

/// Times and usage of a call that came to no result. Strangers are told nothing, and of the tool's life only those who may
/// call it: that a tool exists must not be seen by it. (LIFE-014)
fn of_failed(
    facts: &mut CallFacts,
    refusal: &Refusal,
    (completed_at, took): (UnixMillis, Duration),
    costs: Costs,
    checkpoints_created: Vec<CheckpointNote>,
) -> Option<Box<ExecutionMetadata>> {
    facts.caller.as_ref()?;
    let allowed = facts.allowed.is_some() && denied(refusal.code).is_none();
    let tool = facts.tool.as_deref().filter(|_| allowed);
    let usage = facts.used.or(facts.failed_usage).unwrap_or_default();
    Some(Box::new(ExecutionMetadata {
        duration_ms: millis(took),
        started_at: facts.started_at.to_string(),
        completed_at: completed_at.to_string(),
        exit_code: facts.failed_program.as_deref().map(|program| program.exit_code),
        cpu_used_millicore_seconds: usage.cpu_millicore_seconds,
        memory_peak_mb: usage.memory_peak_mb,
        network_bytes_sent: usage.network_bytes_sent,
        network_bytes_received: usage.network_bytes_received,
        coercions: if allowed { std::mem::take(&mut facts.coercions) } else { Vec::new() },
        deprecation: tool.and_then(|tool| Some(tool.lifecycle.notice.as_ref()?.on_the_wire())),
        stale: None,
        truncation: None,
        tokens_used: usage.tokens,
        cost: costs.total().to_string(),
        cost_currency: (!costs.is_zero()).then_some(costs.currency),
        checkpoints_created,
    }))
}

/// The exit code of a call that succeeded, if its tool is a program.
fn exit_code_of(tool: &ToolVersion) -> Option<i32> {
    match tool.manifest.execution {
        Some(Execution::Process { .. } | Execution::Wasm { .. } | Execution::Oci { .. }) => Some(0),
        _ => None,
    }
}

/// What the call cost. Nothing if it was made before or its tool was never begun; what it used, if that is known; else the
/// fixed part of its price.
fn costs_of(kernel: &Kernel, facts: &CallFacts, carried: &Result<Verified, Refusal>, took: Duration) -> Costs {
    let (Some(insights), Some(tool), true) = (&kernel.insights, &facts.tool, facts.begun) else {
        return Costs::default();
    };
    match (facts.used, carried) {
        (Some(usage), _) => insights.bill(tool, usage, facts.units, took),
        (None, Err(refusal)) if began(refusal.code) => fixed_part(tool.manifest.cost_config.as_ref()),
        (None, _) => Costs::default(),
    }
}

/// Did anybody work for the call, if it ended so? An executor that could not begin says so by its code, and so does one whose
/// service was not there or did not take the call.
fn began(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::E3108
            | ErrorCode::E3405
            | ErrorCode::E3501
            | ErrorCode::E3502
            | ErrorCode::E3504
            | ErrorCode::E3601
            | ErrorCode::E3602
    )
}

/// Who learns from the call, whose it was and of which tool, if all of them are known.
fn heard<'a>(
    kernel: &'a Kernel,
    facts: &'a CallFacts,
) -> Option<(&'a dyn CallInsights, &'a RecordedActor, &'a ToolVersion)> {
    Some((kernel.insights.as_deref()?, &facts.caller.as_ref()?.who, facts.tool.as_deref()?))
}

/// OBS-010. At `debug`, because two lines for each call are more than most installations want.
fn log_end(facts: &CallFacts, status: InvocationStatus, took: Duration) {
    let (Some(caller), Some(tool)) = (&facts.caller, &facts.tool) else { return };
    tracing::debug!(
        target: CALLS,
        tenant_id = %caller.tenant(),
        agent_id = %caller.subject(),
        tool_name = %tool.id,
        status = status.as_str(),
        cached = facts.is_answered_before(),
        execution_time_ms = millis(took),
        "tool_execution_completed"
    );
}

/// Hands the way of the call to whoever records it.
pub(super) fn trace(
    kernel: &Kernel,
    facts: &mut CallFacts,
    status: InvocationStatus,
    code: Option<ErrorCode>,
    costs: Costs,
) {
    let ended = kernel.clock().monotonic();
    facts.journey.leave(ended);
    let journey = &facts.journey;
    kernel.parts.observer.invocation_traced(Box::new(TracedCall {
        context: journey.context.clone(),
        span: journey.span(),
        invocation_id: facts.invocation_id,
        started_at: facts.started_at,
        started: facts.started,
        ended,
        phases: journey.phases().collect(),
        stopped_in: journey.stopped_in,
        outward: journey.outward.as_ref().map(|outward| outward.take()).unwrap_or_default(),
        tool: facts.tool.clone(),
        tenant: facts.caller.as_ref().map(|caller| caller.tenant().clone()),
        agent: facts.caller.as_ref().map(|caller| caller.subject().clone()),
        status,
        code,
        replayed: facts.is_answered_before(),
        costs,
    }));
}

/// What the record says besides the code: the policies behind a denial, or the destinations behind a violation.
fn note(refusal: &Refusal) -> Option<String> {
    let (names, word) = match refusal.reason.as_deref()? {
        RefusalReason::ForbiddenDestinations(tried) => (tried, "tried to connect to"),
        RefusalReason::Denied { policies } => (policies, "policies:"),
        _ => return None,
    };
    let names: Vec<&str> = names.iter().map(String::as_str).take(NAMES_MAX).collect();
    Some(format!("{word} {}", names.join(", ")))
}
