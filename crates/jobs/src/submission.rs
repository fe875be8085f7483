//! Into the queue: calls that are let in now and done later, and jobs that are no calls.

use std::time::Duration;

use contract::canonical;
use contract::envelope::{ExecutionMode, InvokeRequest, Priority};
use contract::error::{ErrorCode, Refusal};
use contract::ids::Subject;
use kernel::background_calls::{self, CallKey, job_digest, taken};
use kernel::{CallExplanation, FailedCall, IncomingCall, Principal};
use ports::actor::{Actor, SYSTEM_SUBJECT};
use ports::entropy::new_trace_id;
use ports::job_store::{EnqueueOutcome, JobDedupe, JobDetail, JobKey, JobPriority, LedgerAct, NewJob, TOOL_CALL};
use ports::tool_version::ToolVersion;
use serde_json::Value;

use super::queued_call::QueuedCall;
use super::view::{self, AcceptedCall};
use super::{Jobs, SystemJob, settings};

impl Jobs {
    /// Does the request want to be done in the background?
    pub fn wants_background(request: &InvokeRequest) -> bool {
        let options = &request.execution_options;
        // Who wants to be called back does not want to wait.
        options.async_mode || options.callback.is_some() || request.execution_mode == Some(ExecutionMode::Async)
    }

    /// What would become of this call if it were made now? As [`Kernel::explain`](kernel::Kernel::explain), for a server that does
    /// some calls in the background: a call that would be submitted is judged as one.
    pub async fn explain(&self, mut arrival: IncomingCall<'_>) -> Result<CallExplanation, Refusal> {
        if !Self::wants_background(&arrival.request) {
            return self.kernel.explain(arrival).await;
        }
        foreground(&mut arrival.request);
        let request = arrival.request.clone();
        let trace_id = new_trace_id(self.kernel.entropy());
        let actor = Actor { credential: arrival.credential, source: arrival.source, trace_id };
        let caller = self.kernel.recognise(actor).await?;
        let explanation = self.kernel.explain_submission(arrival).await?;
        if explanation.refusal.is_some() {
            return Ok(explanation);
        }
        let checked = self.check_callback(&caller, &request).await;
        Ok(checked.map_or_else(CallExplanation::of_refused, |()| explanation))
    }

    /// Lets a call in, keeps it, and answers before it runs. The same idempotency key gives the same job.
    pub async fn submit(&self, mut arrival: IncomingCall<'_>) -> Result<AcceptedCall, Box<FailedCall>> {
        foreground(&mut arrival.request);
        let mut request = arrival.request.clone();
        let admitted = self.kernel.admit(arrival).await?;
        let (principal, tool, parameters) = admitted.parts();
        let key = JobKey { tenant: principal.tenant().clone(), id: admitted.invocation_id() };
        request.invocation_id = Some(key.id);
        // Held until the job is kept.
        let _id = match admitted.hold_id(&self.kernel).await {
            Ok(hold) => hold,
            Err(refusal) => return Err(admitted.turn_away(&self.kernel, refusal).await),
        };
        // Boxed: few calls have one, and every call would carry its room.
        if let Err(refusal) = Box::pin(self.check_callback(principal, &request)).await {
            return Err(admitted.turn_away(&self.kernel, refusal).await);
        }
        let waits = tool_seconds(tool);
        let mut queued_call =
            QueuedCall::new(principal, tool, request, &admitted.handed_on(), self.kernel.clock().now());
        let call = Call { principal, tool, parameters, key: admitted.key() };
        let mut job_key = key.clone();
        let enqueued = loop {
            let enqueued = match self.call_job(job_key.clone(), &queued_call, call) {
                Ok(job) => self.queue.store.enqueue(job).await.map_err(|error| error.refusal()),
                Err(refusal) => Err(refusal),
            };
            match enqueued {
                // One act has one id: what goes on, or is done, under another one is this job from now on (decision 0110).
                Ok(EnqueueOutcome::Claimed { id, same: true }) if job_key.id == key.id => {
                    (job_key.id, queued_call.request.invocation_id) = (id, Some(id));
                }
                Ok(enqueued) => break enqueued,
                Err(refusal) => return Err(admitted.turn_away(&self.kernel, refusal).await),
            }
        };
        match enqueued {
            EnqueueOutcome::New => {
                let trace_id = admitted.trace_id();
                let recorded = admitted.record_accepted(&self.kernel).await;
                self.queue.wake.notify_one();
                self.queue.changed(&job_key);
                recorded.map(|()| AcceptedCall::pending(job_key.id, waits, trace_id))
            }
            EnqueueOutcome::Existing { id, same } => {
                let known = match self.known(&JobKey { id, ..key.clone() }).await {
                    Ok(known) => known,
                    Err(refusal) => return Err(admitted.turn_away(&self.kernel, refusal).await),
                };
                let refusal = match &known {
                    // Found by its id: whose it is, and whether its key is another one, is not told.
                    Some(job) if id == key.id => (!admitted.is_call_of(job, &self.kernel)).then(taken),
                    _ => (!same).then(other_call),
                };
                let refusal = refusal.or_else(|| known.as_ref().and_then(|job| not_called_back(job, &queued_call)));
                if let Some(refusal) = refusal {
                    return Err(admitted.turn_away(&self.kernel, refusal).await);
                }
                let state = known.map(|found| view::status(&found.record));
                let trace_id = admitted.trace_id();
                admitted.record_accepted(&self.kernel).await?;
                let accepted = AcceptedCall::pending(id, waits, trace_id);
                Ok(AcceptedCall { status: state.unwrap_or(accepted.status), is_repeat: true, ..accepted })
            }
            // Of the same parameters only if the key changes hands all the time.
            EnqueueOutcome::Claimed { id, .. } => {
                Err(admitted.turn_away(&self.kernel, background_calls::other_parameters(id)).await)
            }
            EnqueueOutcome::Full => Err(admitted.turn_away(&self.kernel, queue_full()).await),
        }
    }

    /// Puts a job that is no call of a tool into the queue. `Existing` if its dedupe key is known.
    pub async fn enqueue(&self, job: SystemJob) -> Result<EnqueueOutcome, Refusal> {
        if !self.handlers.iter().any(|handler| handler.kind() == job.kind) {
            return Err(Refusal::new(ErrorCode::E3010, format!("this server has no handler for `{}` jobs", job.kind)));
        }
        self.queue.put(job).await
    }

    /// The job of a call that was let in.
    pub(super) fn call_job(&self, key: JobKey, queued_call: &QueuedCall, call: Call<'_>) -> Result<NewJob, Refusal> {
        let Call { principal, tool, parameters, .. } = call;
        let options = &queued_call.request.execution_options;
        let retries =
            tool.manifest.retry_policy.as_ref().map_or(self.queue.settings.attempts_max, |p| p.max_attempts.into());
        let new = NewJob {
            key,
            kind: TOOL_CALL.to_owned(),
            label: tool.id.to_string(),
            owner: principal.owner(),
            flow: principal.root_subject().to_string(),
            digest: job_digest(&tool.id, parameters),
            payload: queued_call.to_value()?,
            priority: JobPriority::near(options.priority.map_or_else(|| tool.manifest.priority(), Priority::level)),
            delay: Duration::ZERO,
            attempts_max: if queued_call.repeatable { retries } else { 1 },
            dedupe: dedupe_of(call),
            act: act_of(call),
            bounds: self.queue.settings.bounds,
        };
        self.queue.bounded(&new).map(|()| new)
    }
}

/// A call that was let in, or was once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) principal: &'a Principal,
    pub(super) tool: &'a ToolVersion,
    pub(super) parameters: &'a Value,
    pub(super) key: &'a CallKey,
}

/// What makes another submission the same job, if the call has a key.
pub(super) fn dedupe_of(Call { principal, tool, parameters, key }: Call<'_>) -> Option<JobDedupe> {
    let key = background_calls::queue_key(principal, tool, key, parameters)?;
    Some(JobDedupe { key, window: settings::dedupe_window(&tool.manifest) })
}

/// What the ledger knows the same act by, if it has effects and a key.
fn act_of(Call { principal, tool, parameters, key }: Call<'_>) -> Option<LedgerAct> {
    if !tool.manifest.side_effect_policy.has_effects() {
        return None;
    }
    let key = key.of(principal, tool, parameters)?;
    Some(LedgerAct { tool: tool.id.clone(), key, parameters: canonical::digest(parameters) })
}

/// The same request, to be done now by whoever does it.
pub(super) fn foreground(request: &mut InvokeRequest) {
    request.execution_options.async_mode = false;
    request.execution_mode = None;
}

/// How long a call of this tool takes at most, unless it asks for more.
pub(super) fn tool_seconds(tool: &ToolVersion) -> u64 {
    tool.manifest.timeout_default_ms().div_ceil(1000)
}

pub(super) fn system_subject() -> Result<Subject, Refusal> {
    SYSTEM_SUBJECT.parse().map_err(|_| Refusal::new(ErrorCode::E3000, "the server's own name is no name"))
}

pub(super) fn queue_full() -> Refusal {
    const RETRY_AFTER_MS: u64 = 5_000;
    let refusal = Refusal::new(ErrorCode::E3701, "too many jobs wait").hint("nothing was kept; try again later");
    Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
}

pub(super) fn other_call() -> Refusal {
    Refusal::new(ErrorCode::E3410, "this idempotency key was used for another call")
        .hint("use a new one for a new call, or send the same parameters again")
}

/// A job calls back those it was submitted with, and nobody besides: a repetition that names somebody else is not let in as if
/// they would be told.
fn not_called_back(job: &JobDetail, queued_call: &QueuedCall) -> Option<Refusal> {
    let wanted = queued_call.request.execution_options.callback.as_ref()?;
    let first = QueuedCall::read(&job.payload).ok().and_then(|first| first.request.execution_options.callback);
    if first.as_ref() == Some(wanted) {
        return None;
    }
    let id = job.record.key.id;
    let refusal = Refusal::new(
        ErrorCode::E3410,
        "this call was submitted before with another `execution_options.callback`, or with none",
    );
    Some(
        refusal
            .hint("nobody else is called back: leave `callback` out and ask for the status of the first, or send the same one again")
            .details(background_calls::handle(id))
            .retryable(false),
    )
}
