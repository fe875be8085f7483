//! A call that is a job from its first moment, and begins at once: for callers that want to be answered with a handle but
//! are there to be asked. (ASYNC-001, MCP Tasks)
//!
//! ```text
//! receive ▶ validate ▶ authorize (nothing runs) ─▶ kept as a running job ─▶ answered ─▶ the six phases, heard by the caller
//! ```
//!
//! It does not wait for a worker, so its number is bounded by the room for promoted calls, fairly shared, not by the queue. What cannot be
//! kept is not begun (JOBS-1). From there on it is a job like any other: a process that dies leaves it to the next, which
//! has nobody to ask.
//!
//! Not here: calls that become jobs while they run (`promotion`).

use std::sync::Arc;

use contract::envelope::InvocationStatus;
use contract::ids::InvocationId;
use kernel::background_calls::{AdmittedCall, other_parameters, taken};
use kernel::{FailedCall, IncomingCall};
use ports::job_store::{AdoptOutcome, AttemptEnd, JobKey, TakenJob};

use super::Jobs;
use super::queued_call::QueuedCall;
use super::submission::{Call, foreground, queue_full, tool_seconds};
use super::view::{self, AcceptedCall};

impl Jobs {
    /// Lets a call in, keeps it as a running job, begins it, and answers. Its audience hears it to its end; its cancellation
    /// ends the job.
    pub async fn start(self: &Arc<Self>, mut arrival: IncomingCall<'_>) -> Result<AcceptedCall, Box<FailedCall>> {
        foreground(&mut arrival.request);
        let (listener, cancellation) = (arrival.audience.take(), arrival.cancellation.clone());
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
        let Some(room) = self.promotions.take(principal.tenant(), principal.root_subject().as_str()) else {
            return Err(admitted.turn_away(&self.kernel, queue_full()).await);
        };
        let mut queued_call =
            QueuedCall::new(principal, tool, request, &admitted.handed_on(), self.kernel.clock().now());
        let call = Call { principal, tool, parameters, key: admitted.key() };
        let mut job_key = key.clone();
        let (adopted, payload) = loop {
            let job = match self.call_job(job_key.clone(), &queued_call, call) {
                Ok(job) => job,
                Err(refusal) => return Err(admitted.turn_away(&self.kernel, refusal).await),
            };
            let payload = job.payload.clone();
            match self.queue.store.adopt(job, self.owner).await {
                // One act has one id: see `submit`.
                Ok(AdoptOutcome::Claimed { id, same: true }) if job_key.id == key.id => {
                    (job_key.id, queued_call.request.invocation_id) = (id, Some(id));
                }
                Ok(adopted) => break (adopted, payload),
                Err(error) => return Err(admitted.turn_away(&self.kernel, error.refusal()).await),
            }
        };
        let fence = match adopted {
            AdoptOutcome::Running(fence) => fence,
            AdoptOutcome::Existing { id, same: true } if id != key.id => {
                return self.started_before(admitted, &job_key, id).await;
            }
            AdoptOutcome::Existing { id, .. } if id == key.id => {
                return Err(admitted.turn_away(&self.kernel, taken()).await);
            }
            AdoptOutcome::Existing { id, .. } | AdoptOutcome::Claimed { id, .. } => {
                return Err(admitted.turn_away(&self.kernel, other_parameters(id)).await);
            }
        };
        let key = job_key;
        let found = self.queue.store.find(&key).await.ok().flatten();
        let accepted = AcceptedCall {
            status: InvocationStatus::Running,
            ..AcceptedCall::pending(key.id, tool_seconds(tool), admitted.trace_id())
        };
        let recorded = admitted.record_accepted(&self.kernel).await;
        let jobs = Arc::clone(self);
        self.tasks.spawn(async move {
            let _room = room;
            match found {
                Some(found) => {
                    let taken = TakenJob { record: found.record, payload, fence };
                    jobs.attempt_heard(taken, listener, cancellation, None).await;
                }
                // It is kept, and the store does not say how: a worker begins it, with nobody to ask.
                None => jobs.keep_end(&key, fence, AttemptEnd::HandBack).await,
            }
        });
        recorded.map(|()| accepted)
    }

    /// The act has a job: whoever wants it again is told of that one.
    async fn started_before(
        &self,
        admitted: AdmittedCall,
        key: &JobKey,
        id: InvocationId,
    ) -> Result<AcceptedCall, Box<FailedCall>> {
        let known = match self.known(&JobKey { id, ..key.clone() }).await {
            Ok(known) => known,
            Err(refusal) => return Err(admitted.turn_away(&self.kernel, refusal).await),
        };
        let accepted = AcceptedCall::pending(id, 0, admitted.trace_id());
        admitted.record_accepted(&self.kernel).await?;
        let status = known.map_or(accepted.status, |found| view::status(&found.record));
        Ok(AcceptedCall { status, is_repeat: true, ..accepted })
    }
}
