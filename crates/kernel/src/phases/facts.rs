//! What is known about a call so far, whatever becomes of it: the record is made from this.

use std::sync::Arc;
use std::time::Duration;

use base::SaturatingFrom as _;
use contract::canonical::Digest;
use contract::cost::Costs;
use contract::envelope::{InvocationStatus, StaleNotice};
use contract::error::{ErrorCode, ErrorKind, Refusal};
use contract::ids::{InvocationId, ToolId, TraceId};
use contract::schema::CoercionNote;
use contract::trace_context::TraceContext;
use fair_places::FairPermit;
use ports::audit_sink::{AuditAction, AuditRecord, DecisionReason, JsonText, RecordedDecision};
use ports::clock::UnixMillis;
use ports::entropy::{new_invocation_id, new_trace_id};
use ports::executor::{ExecutionReach, FailedProgram, ResourceUsage};
use ports::job_store::JobKey;
use ports::observer::Phase;
use ports::redactor::Redactor;
use ports::tool_companion::CallListener;
use ports::tool_version::ToolVersion;
use tokio_util::sync::CancellationToken;

use super::authorize::Authorized;
use super::finish::trace;
use crate::call_trace::CallSpans;
use crate::checkpoints::CallCheckpoints;
use crate::identity::Principal;
use crate::invocation_ids::IdHold;
use crate::invoke::{FailedCall, IncomingCall, Kernel};
use crate::ledger::{FirstCall, HeldClaim, NotedKey};
use crate::recorder::{RecordDurability, RecordSlot};
use crate::running_jobs::WhyStop;

/// Under this name the log tells of each call (OBS-010).
pub(super) const CALLS: &str = "gantry_calls";

/// Facts of one call, gathered as it goes.
#[derive(Debug)]
pub struct CallFacts {
    pub(super) invocation_id: InvocationId,
    /// The caller brought the id along, or it is the one of a job: no other call may have it.
    pub(super) is_id_given: bool,
    /// Keeps such an id from others while the call runs.
    pub(super) id_hold: Option<IdHold>,
    pub(super) trace_id: TraceId,
    pub(super) started_at: UnixMillis,
    pub(super) started: Duration,
    pub(super) caller: Option<Arc<Principal>>,
    pub(super) tool: Option<Arc<ToolVersion>>,
    /// The tool that was asked for, where the call did not get as far as one: who tried what is the first question afterwards.
    pub(super) wanted: Option<ToolId>,
    pub(super) parameters_digest: Option<Digest>,
    /// Parameters that were taken for what they stand for.
    pub(super) coercions: Vec<CoercionNote>,
    /// What the record shows of the parameters.
    pub(super) parameters: Option<JsonText>,
    /// Takes out of whatever is written about this call what must not be seen.
    pub(crate) redactor: Arc<dyn Redactor>,
    /// That it may run, and by what, once that was decided.
    pub(super) allowed: Option<DecisionReason>,
    /// Its place among the calls of its agent, if it has one before it comes to need it.
    pub(crate) place: Option<FairPermit>,
    /// It came from the queue, where it had its turn, and not through a door.
    pub(crate) is_job: bool,
    /// The call's place in the ledger, while it has one.
    pub(super) held: Option<HeldClaim>,
    /// Its name among the calls without effects, if it was given one.
    pub(super) noted: Option<NotedKey>,
    /// The call whose answer is given again, if this one was made before.
    pub(super) replay_of: Option<FirstCall>,
    /// The call whose result is given because the service is left alone, and how old that is.
    pub(super) stale: Option<(InvocationId, StaleNotice)>,
    /// The checkpoint that the failure of an earlier call has named, when it is told again.
    pub(super) told_checkpoint: Option<String>,
    /// Room in the audit log; there once the call was let in.
    pub(super) slot: Option<RecordSlot>,
    /// Who listens while it runs; the tool's companion takes it.
    pub(super) audience: Option<Arc<dyn CallListener>>,
    /// Says that nobody wants the result any more.
    pub(super) cancellation: CancellationToken,
    /// What the call saves, and goes on from.
    pub(crate) checkpointing: CallCheckpoints,
    /// What of the parameters is paid for by the piece.
    pub(super) units: Option<u64>,
    /// The tool was begun: from here on the call costs something, whatever becomes of it.
    pub(super) begun: bool,
    /// How far it came, should it fail now. Said by the executor of the last attempt.
    pub(super) reach: ExecutionReach,
    /// What it used, once it has said its last word.
    pub(super) used: Option<ResourceUsage>,
    /// What the last attempt used that failed. Told and recorded; what a failed call costs does not depend on it.
    pub(super) failed_usage: Option<ResourceUsage>,
    /// How its program ended, if it had one that failed.
    pub(super) failed_program: Option<Box<FailedProgram>>,
    /// What the program of the last attempt wrote to its log, redacted; also of one that succeeded.
    pub(super) program_log: Option<String>,
    /// A policy masks members of what the tool says to this caller.
    pub(super) hides_words: bool,
    /// The caller may read what the program wrote.
    pub(super) shows_output: bool,
    /// Times that it was tried again.
    pub(super) repeats: u32,
    /// What is asked of a server, if that is no call of one of its tools: what the record says of it.
    pub(super) offering: Option<String>,
    /// How far it has come.
    pub(crate) journey: CallSpans,
}

impl CallFacts {
    /// The facts of a call that has just come in.
    pub(crate) fn begin(kernel: &Kernel, arrival: &IncomingCall<'_>) -> Self {
        let (clock, entropy) = (kernel.clock(), kernel.entropy());
        let started_at = clock.now();
        let fresh = || TraceContext::begun(new_trace_id(entropy));
        let journey = CallSpans::begin(arrival.trace.clone().unwrap_or_else(fresh), entropy, &*kernel.parts.observer);
        Self {
            invocation_id: arrival.request.invocation_id.unwrap_or_else(|| new_invocation_id(entropy, started_at)),
            is_id_given: arrival.request.invocation_id.is_some(),
            id_hold: None,
            trace_id: journey.context.trace_id,
            started_at,
            started: clock.monotonic(),
            caller: None,
            tool: None,
            wanted: None,
            parameters_digest: None,
            coercions: Vec::new(),
            parameters: None,
            redactor: Arc::clone(&kernel.parts.redactor),
            allowed: None,
            place: None,
            is_job: false,
            held: None,
            noted: None,
            replay_of: None,
            stale: None,
            told_checkpoint: None,
            slot: None,
            audience: arrival.audience.clone(),
            cancellation: arrival.cancellation.clone(),
            checkpointing: CallCheckpoints::default(),
            units: None,
            begun: false,
            reach: ExecutionReach::NotSent,
            used: None,
            failed_usage: None,
            failed_program: None,
            program_log: None,
            hides_words: false,
            shows_output: false,
            repeats: 0,
            offering: None,
            journey,
        }
    }

    /// Takes room in the audit log.
    pub(crate) async fn reserve_record(&mut self, kernel: &Kernel) -> Result<(), Refusal> {
        self.slot = Some(kernel.parts.recorder.reserve().await?);
        Ok(())
    }

    /// If the call is ended now: because this server ends, or has lost its lease, and not because somebody asked for it?
    pub(super) fn is_left(&self, kernel: &Kernel) -> bool {
        let key = self.caller.as_ref().map(|caller| JobKey { tenant: caller.tenant().clone(), id: self.invocation_id });
        match key.and_then(|key| kernel.running_jobs.why_stopped(&key)) {
            Some(why) => why == WhyStop::Leaving,
            None => kernel.drain_cancellation().is_cancelled(),
        }
    }

    /// Is the answer one of an earlier call?
    pub(super) fn is_answered_before(&self) -> bool {
        self.replay_of.is_some() || self.stale.is_some()
    }

    /// What every line of the log says that is written on the way of this call.
    pub(crate) fn line(&self) -> tracing::Span {
        tracing::info_span!("call", invocation_id = %self.invocation_id, trace_id = %self.trace_id)
    }

    /// The call comes to this phase.
    pub(crate) fn enter(&mut self, kernel: &Kernel, phase: Phase) {
        self.journey.enter(phase, kernel.clock().monotonic());
    }

    /// Notes that the call was let in to be done later. Its end will be recorded when it comes, and its spans will hang
    /// under the span that ends here.
    pub(crate) async fn record_accepted(mut self, kernel: &Kernel) -> Result<(), Box<FailedCall>> {
        let recorded = match self.slot.take() {
            Some(slot) => {
                let record = self.record(AuditAction::InvocationAccepted, kernel.clock().now(), None);
                slot.record_until(record, recorded_until(self.has_effects())).await
            }
            None => Ok(()),
        };
        if self.journey.recorded {
            trace(kernel, &mut self, InvocationStatus::Pending, None, Costs::default());
        }
        let (invocation_id, trace_id, reach) = (self.invocation_id, self.trace_id, self.reach);
        let redactor = self.redactor;
        recorded.map_err(|refusal| {
            let (status, begun) = (InvocationStatus::Error, false);
            let (execution_metadata, checkpoint_ref, output) = (None, None, None);
            Box::new(FailedCall {
                refusal,
                status,
                invocation_id,
                trace_id,
                begun,
                reach,
                execution_metadata,
                checkpoint_ref,
                output,
                redactor,
            })
        })
    }

    /// May the tool change something?
    pub(super) fn has_effects(&self) -> bool {
        self.tool.as_ref().is_some_and(|tool| tool.manifest.side_effect_policy.has_effects())
    }

    /// The trace as a job of this call is to go on with it.
    pub(crate) fn handed_on(&self) -> TraceContext {
        self.journey.handed_on()
    }

    /// Notes that the call may run.
    pub(crate) fn note_decision(&mut self, authorized: &Authorized) {
        let policies = &authorized.decision().determining;
        let reason = if policies.is_empty() { "token".into() } else { policies.join(", ").into() };
        self.allowed = Some(DecisionReason { allowed: true, reason });
    }

    pub(crate) fn invocation_id(&self) -> InvocationId {
        self.invocation_id
    }

    /// Gives it an id that was made for it.
    pub(crate) fn named(&mut self, id: InvocationId) {
        self.invocation_id = id;
        self.is_id_given = false;
    }

    /// Did the caller bring its id along?
    pub(crate) fn is_id_given(&self) -> bool {
        self.is_id_given
    }

    pub(crate) fn trace_id(&self) -> TraceId {
        self.trace_id
    }

    /// The audit record of this call at this moment.
    pub(super) fn record(
        &self,
        action: AuditAction,
        at: UnixMillis,
        end: Option<(InvocationStatus, Option<ErrorCode>, Duration)>,
    ) -> AuditRecord {
        AuditRecord {
            at,
            action,
            trace_id: self.trace_id,
            invocation_id: Some(self.invocation_id),
            who: self.caller.as_ref().map(|caller| Arc::clone(&caller.who)),
            tool: self.tool.as_ref().map(|tool| &tool.id).or(self.wanted.as_ref()).cloned(),
            version: self.tool.as_ref().map(|tool| tool.version.clone()),
            status: end.map(|(status, _, _)| status),
            code: end.and_then(|(_, code, _)| code),
            parameters_digest: self.parameters_digest,
            parameters: self.parameters.clone(),
            judged: Some(Box::new(RecordedDecision {
                decision: self.allowed.clone().or_else(|| end.and_then(|(_, code, _)| denied(code?))),
                side_effects: self.tool.as_ref().map(|tool| tool.manifest.side_effect_policy),
                effects: self.tool.as_ref().map(|tool| tool.manifest.side_effects.clone()).unwrap_or_default(),
                result_digest: None,
                result_shape: None,
            })),
            duration_ms: end.map(|(_, _, took)| millis(took)),
            usage: None,
            cost: None,
            note: None,
        }
    }
}

/// A refusal that is a decision about who may do what, and not about the call's form or the tool's state.
pub(super) fn denied(code: ErrorCode) -> Option<DecisionReason> {
    let is_decision = matches!(code.row().kind, ErrorKind::AuthorizationDenied | ErrorKind::ApprovalRequired);
    is_decision.then(|| DecisionReason { allowed: false, reason: code.to_string().into() })
}

/// What an answer waits for: where something may have been changed, even the end of the machine must not take the record.
pub(super) fn recorded_until(is_change: bool) -> RecordDurability {
    if is_change { RecordDurability::Durable } else { RecordDurability::Written }
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::saturating_from(span.as_millis())
}

/// The status word for a failed call.
pub fn status_of(code: ErrorCode) -> InvocationStatus {
    match code {
        ErrorCode::E3002 | ErrorCode::E3402 => InvocationStatus::Timeout,
        ErrorCode::E3703 => InvocationStatus::Cancelled,
        ErrorCode::E3413 => InvocationStatus::Indeterminate,
        other if other.row().kind == ErrorKind::AuthorizationDenied => InvocationStatus::PermissionDenied,
        other if other.row().kind == ErrorKind::ApprovalRequired => InvocationStatus::PermissionDenied,
        _ => InvocationStatus::Error,
    }
}
