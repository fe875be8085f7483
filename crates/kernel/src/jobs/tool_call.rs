//! The kernel's own kind of job: a call of a tool, through the same six phases as every other.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::trace_context::TraceContext;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::handler::JobFailure;
use super::warrant::Errand;
use super::{Jobs, RunningJob};
use crate::invoke::{Arrival, Failed, Kernel};
use crate::phases::Returned;
use crate::ports::companion::Audience;
use crate::ports::entropy::new_trace_id;
use crate::ports::job_store::JobRecord;
use crate::ports::redactor::redacted;

impl Jobs {
    /// Makes the call once.
    pub(super) async fn run_call(&self, job: &RunningJob, audience: Arc<dyn Audience>) -> Result<Value, JobFailure> {
        let fresh = new_trace_id(self.kernel.entropy());
        let errand =
            Errand::read(&job.payload).map_err(|refusal| JobFailure::of(&refusal, &job.record, fresh, false))?;
        let trace = errand.trace().unwrap_or_else(|| TraceContext::begun(fresh));
        let trace_id = trace.trace_id;
        let age = self.kernel.clock().now().since(errand.admitted_at());
        if age > self.settings.max_age {
            let refusal = Refusal::new(ErrorCode::E3002, "the call waited longer than it may").retryable(false);
            return Err(JobFailure::of(&refusal, &job.record, trace_id, false));
        }
        let principal = errand.principal(self.kernel.identity());
        let repeatable = errand.repeatable;
        let mut arrival = arrival(errand, trace, audience, job.cancellation.clone());
        self.go_on(job, &mut arrival).await;
        let outcome = self.kernel.invoke_as(principal, arrival).await;
        call_end(&self.kernel, outcome, &job.record, repeatable)
    }
}

impl Jobs {
    /// An attempt that is not the first goes on from the newest state that was kept of the call, not from the beginning
    /// (CKPT-014). A state that cannot be had is no reason not to do the job.
    async fn go_on(&self, job: &RunningJob, arrival: &mut Arrival<'_>) {
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
                tracing::warn!(job = %key.id, code = %refusal.code, "a job begins anew: {}", refusal.message)
            }
        }
    }
}

fn arrival(
    errand: Errand,
    trace: TraceContext,
    audience: Arc<dyn Audience>,
    cancellation: CancellationToken,
) -> Arrival<'static> {
    Arrival {
        credential: None,
        source: None,
        request: errand.request,
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
    outcome: Result<Returned, Box<Failed>>,
    record: &JobRecord,
    repeatable: bool,
) -> Result<Value, JobFailure> {
    match outcome {
        Ok(returned) => Ok(serde_json::to_value(returned.into_response()).unwrap_or_default()),
        Err(failed) => {
            let own = kernel.parts.redactor.of_tenant(&record.key.tenant);
            let refusal = redacted(own.as_deref().unwrap_or(&*kernel.parts.redactor), failed.refusal);
            Err(JobFailure::of(&refusal, record, failed.trace_id, repeatable))
        }
    }
}
