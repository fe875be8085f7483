//! What comes through the signed door, as jobs of the queue. What was done is recorded under its own name.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use serde_json::Value;

use super::InboundKind;
use super::call_outs::{CallOuts, Ended, Stopped};
use crate::invoke::Kernel;
use crate::jobs::{JobFailure, JobHandler, RunningJob, SYSTEM_SUBJECT};
use crate::ports::audit_sink::AuditAction;
use crate::ports::entropy::new_trace_id;
use crate::recorder::Slot;

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

    /// Services know a repetition by the key that is sent with it; an embedding is the same each time.
    fn may_repeat(&self, _: &Value) -> bool {
        true
    }

    async fn run(&self, job: &RunningJob) -> Result<Value, JobFailure> {
        let record = &job.record;
        let failed = |refusal: &Refusal, again| JobFailure {
            again,
            ..JobFailure::of(refusal, record, new_trace_id(self.kernel.entropy()), again)
        };
        // What cannot be recorded is not done.
        let slot = self.kernel.record_slot().await.map_err(|refusal| failed(&refusal, true))?;
        let is_last = record.attempts >= record.attempts_max;
        let running = self.calls.run(self.kind, (&record.key.tenant, record.key.id), &job.payload, is_last);
        let ended = tokio::select! {
            ended = running => ended,
            () = job.cancellation.cancelled() => {
                return Err(failed(&Refusal::new(ErrorCode::E3703, "the job was cancelled"), true));
            }
        };
        match ended {
            Ok(Ended { result, audit }) => {
                if let Some((action, note)) = audit {
                    self.kernel
                        .note_done(slot, &record.key.tenant, action, note)
                        .await
                        .map_err(|refusal| failed(&refusal, true))?;
                }
                Ok(result)
            }
            Err(Stopped { refusal, again }) => Err(failed(&refusal, again)),
        }
    }
}

impl Kernel {
    /// Room for a record of what is about to be done on nobody's token. Without it, it must not be done.
    pub async fn record_slot(&self) -> Result<Slot, Refusal> {
        self.parts.recorder.reserve().await
    }

    /// Records something that the server has done on nobody's token, durably. On an error the record is kept and written as
    /// soon as it can be, but nobody should hear yet that it was done.
    pub async fn note_done(
        &self,
        slot: Slot,
        tenant: &TenantId,
        action: AuditAction,
        note: String,
    ) -> Result<(), Refusal> {
        let by =
            SYSTEM_SUBJECT.parse().map_err(|_| Refusal::new(ErrorCode::E3000, "the server's own name is no name"))?;
        slot.record_durably(self.unattended(tenant, by, action, note)).await
    }
}
