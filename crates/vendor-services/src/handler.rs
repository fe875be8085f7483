//! What comes through the signed door, as jobs of the queue. What was done is recorded under its own name.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use jobs::{JobFailure, JobHandler, RunningJob, WaitingOutside};
use kernel::Kernel;
use kernel::background_calls::{WhyStop, cause};
use ports::entropy::new_trace_id;
use ports::job_store::JobRecord;
use ports::registry_store::StoreError;
use serde_json::Value;

use crate::call_outs::{CallOutAttempt, CallOutEnd, CallOutStop, CallOuts};
use crate::{InboundKind, workflow};

/// Does jobs of one kind.
#[derive(Debug)]
pub struct InboundHandler {
    pub kind: InboundKind,
    pub calls: Arc<CallOuts>,
    pub kernel: Arc<Kernel>,
}

#[async_trait]
impl JobHandler for InboundHandler {
    fn kind(&self) -> &'static str {
        self.kind.as_str()
    }

    /// An embedding is the same each time. A workflow engine knows a repetition by the key that is sent with it, if whoever
    /// asked for the workflow has given one.
    fn may_repeat(&self, payload: &Value) -> bool {
        self.kind != InboundKind::ExecuteWorkflow || workflow::has_key(payload)
    }

    async fn may_begin_again(&self, record: &JobRecord, payload: &Value) -> Result<bool, StoreError> {
        Ok(self.may_repeat(payload) || !self.calls.may_have_run(&record.key.tenant, record.key.id).await?)
    }

    async fn resolved(&self, record: &JobRecord, happened: Option<&Value>) -> Result<(), Refusal> {
        match self.kind {
            InboundKind::ExecuteWorkflow => self.calls.run_resolved(&record.key.tenant, record.key.id, happened).await,
            InboundKind::GenerateEmbedding | InboundKind::SendNotification => Ok(()),
        }
    }

    async fn begins_anew(&self, former: &JobRecord) -> Result<(), Refusal> {
        match self.kind {
            InboundKind::ExecuteWorkflow => self.calls.failure_forgotten(former).await,
            InboundKind::GenerateEmbedding | InboundKind::SendNotification => Ok(()),
        }
    }

    async fn run(&self, job: &RunningJob) -> Result<Value, JobFailure> {
        let record = &job.record;
        let failed = |refusal: &Refusal, again| JobFailure {
            again,
            ..JobFailure::of(refusal, record, new_trace_id(self.kernel.entropy()), again)
        };
        // What cannot be recorded is not done.
        let slot = self.kernel.record_slot().await.map_err(|refusal| failed(&refusal, true))?;
        let attempt =
            CallOutAttempt { is_last: record.tries() >= record.attempts_max, waits: WaitingOutside::of(record) };
        let running = self.calls.run(self.kind, (&record.key.tenant, record.key.id), &job.payload, attempt);
        let ended = tokio::select! {
            ended = running => ended,
            () = job.cancellation.cancelled() => return Err(self.cancelled(job).await),
        };
        let (outcome, audit) = match ended {
            Ok(CallOutEnd { result, audit }) => (Ok(result), audit),
            Err(CallOutStop { refusal, waits: Some((waits, after)), .. }) => {
                let failure = failed(&refusal, false);
                (Err(JobFailure { error: waits.to_value(), after: Some(after), not_now: true, ..failure }), None)
            }
            Err(CallOutStop { refusal, again, audit, .. }) => (Err(failed(&refusal, again)), audit),
        };
        if let Some((action, note)) = audit {
            // It has ended and is not done again for this: what is tried again reads how its run ended.
            let noted = self.kernel.note_done(slot, &record.key.tenant, action, note).await;
            noted.map_err(|refusal| failed(&refusal, true))?;
        }
        outcome
    }
}

impl InboundHandler {
    /// What is said of a job that was told to end. A workflow that was asked may run, whoever stops listening.
    async fn cancelled(&self, job: &RunningJob) -> JobFailure {
        let record = &job.record;
        let (tenant, id, trace_id) = (&record.key.tenant, record.key.id, new_trace_id(self.kernel.entropy()));
        let may_have_run = match self.kind {
            // A store that does not answer knows nothing.
            InboundKind::ExecuteWorkflow => self.calls.may_have_run(tenant, id).await.unwrap_or(true),
            InboundKind::GenerateEmbedding | InboundKind::SendNotification => false,
        };
        if may_have_run && WaitingOutside::of(record).is_none() && !self.may_repeat(&job.payload) {
            let is_left = self.kernel.running_jobs().why_stopped(&record.key) == Some(WhyStop::Leaving);
            let why = cause(ErrorCode::E3703, is_left);
            return JobFailure::of(&workflow::nobody_knows(why), record, trace_id, false);
        }
        let refusal = Refusal::new(ErrorCode::E3703, "the job was cancelled");
        JobFailure { again: true, untouched: !may_have_run, ..JobFailure::of(&refusal, record, trace_id, true) }
    }
}
