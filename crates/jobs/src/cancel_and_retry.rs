//! What somebody decides about a job: that it is to end, or to be begun again.

use std::sync::Arc;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use contract::trace_context::TraceContext;
use contract::version::VersionSpec;
use kernel::background_calls::{KeptOutcome, other_parameters, resolve_command};
use kernel::{IncomingCall, Principal};
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::AuditAction;
use ports::entropy::new_invocation_id;
use ports::job_store::{
    CancelAsked, EnqueueOutcome, JobDedupe, JobDetail, JobKey, JobRecord, JobState, NewJob, TOOL_CALL,
};
use ports::ledger::{EntryState, LedgerEntry};
use ports::tool_version::ToolVersion;
use tokio_util::sync::CancellationToken;

use super::queries::unknown;
use super::queued_call::QueuedCall;
use super::submission::{Call, dedupe_of, other_call, queue_full};
use super::view::{self, AcceptedCall};
use super::{Jobs, queued_call};

/// Longest reason for a cancellation that is kept.
const REASON_CHARS_MAX: usize = 500;

impl Jobs {
    /// Asks a job to end (ASYNC-005). Asking again, or after the end, changes nothing and says so.
    pub async fn cancel(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
        reason: Option<&str>,
    ) -> Result<JobState, Refusal> {
        let (caller, JobDetail { record, .. }) = self.managed(actor, tenant, id).await?;
        let (key, before) = (record.key, record.state);
        let reason: String =
            reason.unwrap_or_default().chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect();
        let slot = self.kernel.record_slot().await?;
        let error = cancelled().envelope(actor.trace_id, Some(id));
        let asked = self
            .queue
            .store
            .ask_cancel(&key, &reason, serde_json::to_value(error).unwrap_or_default())
            .await
            .map_err(|error| error.refusal())?;
        let CancelAsked::Now(state) = asked else { return Err(unknown(id)) };
        let mut record = self.kernel.act(actor, &caller, AuditAction::InvocationCancelAsked, None, None);
        record.invocation_id = Some(id);
        slot.record_durably(record).await?;
        self.queue.changed(&key);
        match state {
            JobState::Running => self.kernel.running_jobs().cancel(&key),
            // It waited, and this was its end, unless somebody was faster: then it is told twice, and sent once.
            JobState::Cancelled if !before.is_end() => self.tell_end(&key).await,
            _ => {}
        }
        Ok(state)
    }

    /// Begins an ended job that came to nothing again, as a new job. Whoever owns it makes its call anew, with the rights of
    /// the token shown now. Whoever manages it for another must be allowed to make the call, and the job goes on with the
    /// rights it was let in with, if they could still be shown. (decisions 0072, 0081)
    pub async fn retry(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<AcceptedCall, Refusal> {
        let (caller, JobDetail { record: former, flow, payload, digest, .. }) = self.managed(actor, tenant, id).await?;
        if !former.state.is_end() || former.state == JobState::Done {
            let hint = match former.state {
                JobState::Done => "what was done is not done again; for a new act make a new call, with a new key",
                _ => "only a job that failed, died or was cancelled can be begun again",
            };
            return Err(Refusal::new(ErrorCode::E3408, format!("job `{id}` is {}", former.state.as_str())).hint(hint));
        }
        let line = self.line_of_call(&former).await?;
        if is_end_unknown(&former, line.as_ref()) {
            return Err(Refusal::new(ErrorCode::E3413, format!("nobody knows whether job `{id}` had its effect"))
                .hint(format!("find out and say so first: {}", resolve_command(id))));
        }
        let new_id = new_invocation_id(self.kernel.entropy(), self.kernel.clock().now());
        let key = JobKey { tenant: former.key.tenant.clone(), id: new_id };
        let mut payload = queued_call::under_new_id(payload, new_id);
        let mut dedupe = None;
        if former.kind == TOOL_CALL {
            // What cannot be read cannot be done.
            let mut queued_call = QueuedCall::read(&payload)?;
            queued_call.supersedes = superseded(id, line)?;
            (queued_call, dedupe) = if former.owner == caller.owner() {
                self.let_in_again(actor, queued_call).await?
            } else {
                self.may_go_on(&caller, queued_call).await?
            };
            payload = queued_call.to_value()?;
        }
        if let Some(handler) = self.handlers.iter().find(|handler| handler.kind() == former.kind) {
            handler.begins_anew(&former).await?;
        }
        let new = NewJob {
            key: key.clone(),
            // Jobs of releases that had no flows have none.
            flow: if flow.is_empty() { former.owner.root().to_owned() } else { flow },
            kind: former.kind,
            label: former.label,
            owner: former.owner,
            payload,
            digest,
            priority: former.priority,
            delay: Duration::ZERO,
            attempts_max: former.attempts_max,
            dedupe,
            // Its call is to be made anew although it has a line (decision 0081).
            act: None,
            bounds: self.queue.settings.bounds,
        };
        let slot = self.kernel.record_slot().await?;
        if new.dedupe.is_some() {
            // The key goes over to the new job. Should nothing come of that, the ledger still says what it stands for.
            self.queue.store.release_key(&former.key).await.map_err(|error| error.refusal())?;
        }
        match self.queue.store.enqueue(new).await.map_err(|error| error.refusal())? {
            EnqueueOutcome::New => {
                let note = Some(format!("repeats {id}"));
                let mut record = self.kernel.act(actor, &caller, AuditAction::InvocationAccepted, None, note);
                record.invocation_id = Some(new_id);
                slot.record_durably(record).await?;
            }
            EnqueueOutcome::Full => return Err(queue_full()),
            EnqueueOutcome::Claimed { id, .. } => return Err(other_parameters(id)),
            EnqueueOutcome::Existing { id: other, same } => {
                return self.made_anew_before(&key, (other, same), actor).await;
            }
        }
        self.queue.wake.notify_one();
        self.queue.changed(&key);
        Ok(AcceptedCall::pending(new_id, 0, actor.trace_id))
    }

    /// What the ledger has of a job, if it is a call.
    async fn line_of_call(&self, job: &JobRecord) -> Result<Option<LedgerEntry>, Refusal> {
        if job.kind != TOOL_CALL {
            return Ok(None);
        }
        self.line_in_ledger(job).await.map_err(|error| error.refusal())
    }

    /// The key of the job that is to be begun again is another one's by now: its act was begun again before.
    async fn made_anew_before(
        &self,
        key: &JobKey,
        (id, same): (InvocationId, bool),
        actor: Actor<'_>,
    ) -> Result<AcceptedCall, Refusal> {
        let known = self.known(&JobKey { id, ..key.clone() }).await?;
        match known.filter(|_| same) {
            Some(known) if known.record.state.is_end() && known.record.state != JobState::Done => {
                Err(Refusal::new(ErrorCode::E3408, format!("it was begun again before, as job `{id}`"))
                    .hint(format!("begin that one again: `gantry jobs retry {id}`")))
            }
            Some(known) => {
                let accepted = AcceptedCall::pending(id, 0, actor.trace_id);
                Ok(AcceptedCall { status: view::status(&known.record), ..accepted })
            }
            None => Err(other_call()),
        }
    }

    /// The same call, let in as a new one of whoever asks now: nothing is left of the rights it had.
    async fn let_in_again(
        &self,
        actor: Actor<'_>,
        queued_call: QueuedCall,
    ) -> Result<(QueuedCall, Option<JobDedupe>), Refusal> {
        let arrival = IncomingCall {
            credential: actor.credential,
            source: actor.source,
            request: queued_call.request.clone(),
            trace: Some(TraceContext::begun(actor.trace_id)),
            parent_left: None,
            audience: None,
            cancellation: CancellationToken::new(),
        };
        let admitted = self.kernel.admit(arrival).await.map_err(|failed| failed.refusal)?;
        let (principal, tool, parameters) = admitted.parts();
        if let Err(refusal) = Box::pin(self.check_callback(principal, &queued_call.request)).await {
            return Err(admitted.turn_away(&self.kernel, refusal).await.refusal);
        }
        let now = self.kernel.clock().now();
        let mut anew = QueuedCall::new(principal, tool, queued_call.request, &admitted.handed_on(), now);
        anew.supersedes = queued_call.supersedes;
        let dedupe = dedupe_of(Call { principal, tool, parameters, key: admitted.key() });
        Ok((anew, dedupe))
    }

    /// A job of somebody else: its manager must be allowed to make the call, and the owner's token must still be one. It is one
    /// more call of whoever it is for: what limits calls holds it up here, because nobody counts it when it runs.
    async fn may_go_on(
        &self,
        manager: &Principal,
        queued_call: QueuedCall,
    ) -> Result<(QueuedCall, Option<JobDedupe>), Refusal> {
        let now = self.kernel.clock().now();
        let caller = queued_call.principal(&self.kernel);
        self.kernel.welcome(&caller).await?;
        if !queued_call.caller.is_current(now.0) {
            return Err(Refusal::new(ErrorCode::E3206, "the token that this job was submitted with has ended")
                .hint("whoever owns the job can begin it again with a token of its own, or make the call anew"));
        }
        let request = &queued_call.request;
        let spec = VersionSpec::parse(request.tool_version.as_deref().unwrap_or_default())
            .map_err(|error| Refusal::new(ErrorCode::E3004, format!("tool_version: {error}")))?;
        let registry = self.kernel.registry().snapshot().clone();
        let named = registry
            .find(caller.tenant(), &request.tool_id)
            .ok_or_else(|| registry.not_found(caller.tenant(), &request.tool_id, |_| false))?;
        let tool = named.resolve_named(&spec, now, |version| caller.may_call(&named.id, version))?;
        let arguments = self.kernel.prepared(&caller, tool, request.parameters.clone()).await;
        let arguments = arguments.ok_or_else(|| no_longer_fit(tool))?;
        let needs_approval = request.execution_options.require_approval;
        // Boxed: it is seldom asked, and every retry would carry the room.
        Box::pin(self.kernel.may_manage(manager, tool, &arguments, needs_approval)).await?;
        self.kernel.count_call(&caller, tool).await?;
        let key = self.kernel.call_key(&queued_call.request);
        let dedupe = dedupe_of(Call { principal: &caller, tool, parameters: &arguments, key: &key });
        Ok((queued_call, dedupe))
    }

    /// A job that the caller may decide about: its own, or with the right to manage those of others.
    async fn managed(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<(Arc<Principal>, JobDetail), Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let found = self.seen(&caller, tenant, id).await?;
        if found.record.owner != caller.owner() && !caller.may(Action::ManageJobs) {
            return Err(Refusal::new(
                ErrorCode::E3206,
                "this token may look at the jobs of others, not decide about them",
            )
            .hint("use a token with the role `operator` or `admin`"));
        }
        Ok((caller, found))
    }
}

/// Parameters that no longer fit the tool make no call.
fn no_longer_fit(tool: &ToolVersion) -> Refusal {
    Refusal::new(ErrorCode::E3301, format!("the parameters of the job do not fit `{}` {}", tool.id, tool.version))
        .hint("make the call anew")
}

/// JOBS-8. A job may have been asked to end while it waited for its second attempt: then it says "cancelled", and only the
/// ledger says that its first may have had its effect.
fn is_end_unknown(job: &JobRecord, line: Option<&LedgerEntry>) -> bool {
    job.error_code() == Some(ErrorCode::E3413)
        || line.is_some_and(|line| matches!(line.state, EntryState::InFlight | EntryState::Unknown))
}

/// The call whose key answers with its failure: whoever begins its job again wants it tried, not told again. A tool that did
/// its work and gave an answer that could not be taken is not asked to do it twice.
fn superseded(id: InvocationId, line: Option<LedgerEntry>) -> Result<Option<InvocationId>, Refusal> {
    let Some(line) = line.filter(|line| line.state == EntryState::Done) else { return Ok(None) };
    match KeptOutcome::read(line.outcome)? {
        KeptOutcome::Failure(failure) if failure.is_of_the_answer() => Err(Refusal::new(
            ErrorCode::E3408,
            format!("the tool of job `{id}` has run to its end; only its answer was refused"),
        )
        .hint("it is not done a second time: if the act is still wanted, make a new call, with a new key")),
        KeptOutcome::Failure(_) => Ok(Some(line.intent.invocation)),
        KeptOutcome::Success(_) | KeptOutcome::Resolved { .. } => Ok(None),
    }
}

pub(super) fn cancelled() -> Refusal {
    Refusal::new(ErrorCode::E3703, "the job was cancelled").hint("submit it again if the result is still wanted")
}
