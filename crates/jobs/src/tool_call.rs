//! The kernel's own kind of job: a call of a tool, through the same six phases as every other.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::trace_context::TraceContext;
use contract::version::VersionSpec;
use kernel::phases::Returned;
use kernel::{FailedCall, IncomingCall, Kernel, Principal};
use ports::entropy::new_trace_id;
use ports::job_store::JobRecord;
use ports::redactor::redacted;
use ports::tool_companion::CallListener;
use ports::tool_version::ToolVersion;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::handler::JobFailure;
use super::queued_call::QueuedCall;
use super::view::FailedRun;
use super::worker_permits::WorkerPermit;
use super::{Jobs, RunningJob};

impl Jobs {
    /// Makes the call once.
    pub(super) async fn run_call(
        &self,
        job: &RunningJob,
        audience: Arc<dyn CallListener>,
        permit: Option<&WorkerPermit>,
    ) -> Result<Value, JobFailure> {
        let fresh = new_trace_id(self.kernel.entropy());
        // What is refused before the call is made has done nothing.
        let unmade = |refusal: &Refusal, trace_id, safe| JobFailure {
            untouched: true,
            ..JobFailure::of(refusal, &job.record, trace_id, safe)
        };
        let queued_call = QueuedCall::read(&job.payload).map_err(|refusal| unmade(&refusal, fresh, false))?;
        let trace = queued_call.trace().unwrap_or_else(|| TraceContext::begun(fresh));
        let trace_id = trace.trace_id;
        let age = self.kernel.clock().now().since(queued_call.admitted_at());
        if age > self.queue.settings.max_age {
            let refusal = Refusal::new(ErrorCode::E3002, "the call waited longer than it may").retryable(false);
            return Err(unmade(&refusal, trace_id, false));
        }
        let principal = queued_call.principal(&self.kernel);
        let repeatable = queued_call.repeatable;
        let place = match self.tool_of(&principal, &queued_call) {
            // A call that cannot be made hears so where calls are made.
            None => Ok(None),
            Some(tool) => self.place_for(&principal, &tool, permit, &job.cancellation).await,
        };
        let place = place.map_err(|refusal| JobFailure { not_now: true, ..unmade(&refusal, trace_id, repeatable) })?;
        if let Some(former) = queued_call.supersedes {
            let freed = self.kernel.books().ledger().release(principal.tenant(), former).await;
            let refused = |refusal: Refusal| JobFailure { not_now: true, ..unmade(&refusal, trace_id, repeatable) };
            freed.map_err(|error| refused(error.refusal()))?;
        }
        let mut arrival = arrival(queued_call, trace, audience, job.cancellation.clone());
        self.go_on(job, &mut arrival).await;
        let outcome = self.kernel.invoke_as(principal, (place, job.fence.0), arrival).await;
        call_end(&self.kernel, outcome, &job.record, repeatable)
    }
}

impl Jobs {
    /// The tool that is meant, if there is one by now. Whether it may be called is asked when it is.
    fn tool_of(&self, principal: &Principal, queued_call: &QueuedCall) -> Option<Arc<ToolVersion>> {
        let spec = VersionSpec::parse(queued_call.request.tool_version.as_deref().unwrap_or_default()).ok()?;
        let registry = self.kernel.registry().snapshot();
        let tool = registry.find(principal.tenant(), &queued_call.request.tool_id)?;
        tool.resolve(&spec, self.kernel.clock().now()).ok().map(Arc::clone)
    }

    /// An attempt that is not the first goes on from the newest state that was kept of the call, not from the beginning
    /// (CKPT-014). A state that cannot be had is no reason not to do the job.
    async fn go_on(&self, job: &RunningJob, arrival: &mut IncomingCall<'_>) {
        if job.record.attempts <= 1 {
            return;
        }
        let key = &job.record.key;
        match self.kernel.newest_checkpoint(&key.tenant, key.id).await {
            Ok(Some(newest)) => {
                let config = arrival.request.checkpoint_config.get_or_insert_default();
                config.resume_from_checkpoint_id = Some(newest.to_string());
            }
            Ok(None) => {}
            Err(refusal) => {
                tracing::warn!(job = %key.id, code = %refusal.code, error = &refusal as &dyn std::error::Error, "a job begins anew")
            }
        }
    }
}

fn arrival(
    queued_call: QueuedCall,
    trace: TraceContext,
    audience: Arc<dyn CallListener>,
    cancellation: CancellationToken,
) -> IncomingCall<'static> {
    IncomingCall {
        credential: None,
        source: None,
        request: queued_call.request,
        trace: Some(trace),
        parent_left: None,
        audience: Some(audience),
        cancellation,
    }
}

/// What is kept of the end of a call. A failure is kept in the words that may be seen, as the ledger keeps it; a result is
/// kept for whoever asked for it.
pub(super) fn call_end(
    kernel: &Kernel,
    outcome: Result<Returned, Box<FailedCall>>,
    record: &JobRecord,
    repeatable: bool,
) -> Result<Value, JobFailure> {
    match outcome {
        Ok(returned) => Ok(serde_json::to_value(returned.into_response()).unwrap_or_default()),
        Err(failed) => {
            let not_now = !failed.begun && failed.envelope().retryable && passes(failed.refusal.code);
            let untouched = failed.reach.is_clean();
            // As the ledger keeps it: without what the call was told in confidence. A call that was refused early has only the
            // rules of everybody.
            let refusal = redacted(failed.redactor(), failed.refusal.clone());
            let own = kernel.redactor().of_tenant(&record.key.tenant);
            let refusal = match own {
                Some(own) => redacted(&*own, refusal),
                None => refusal,
            };
            let mut failure = JobFailure::of(&refusal, record, failed.trace_id, repeatable);
            let metadata = failed.execution_metadata.and_then(|metadata| serde_json::to_value(metadata).ok());
            FailedRun { execution_metadata: metadata, checkpoint_ref: failed.checkpoint_ref }
                .put_into(&mut failure.error);
            Err(JobFailure { not_now, untouched, ..failure })
        }
    }
}

/// Does what the code says pass by itself, and say nothing about the call? No place or no room within a limit, a service that
/// is left alone, something that could not be asked.
fn passes(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::E3001 | ErrorCode::E3003 | ErrorCode::E3501 | ErrorCode::E3504)
}
