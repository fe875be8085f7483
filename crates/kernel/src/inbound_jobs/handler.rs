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
use crate::ports::audit_sink::{AuditAction, AuditRecord, Who};
use crate::ports::entropy::new_trace_id;

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
                    self.kernel.note_done(&record.key.tenant, action, note).await;
                }
                Ok(result)
            }
            Err(Stopped { refusal, again }) => Err(failed(&refusal, again)),
        }
    }
}

impl Kernel {
    /// Records something that the server has done on nobody's token. It has been done, so it is not refused when the log is
    /// full; the job that did it is recorded by the queue in any case.
    pub async fn note_done(&self, tenant: &TenantId, action: AuditAction, note: String) {
        let (Ok(slot), Ok(subject)) = (self.parts.recorder.reserve().await, SYSTEM_SUBJECT.parse()) else { return };
        let who = Who { tenant: tenant.clone(), subject, user: None, token_id: None, chain: Vec::new() };
        slot.record(AuditRecord {
            at: self.clock().now(),
            action,
            trace_id: new_trace_id(self.entropy()),
            invocation_id: None,
            who: Some(Arc::new(who)),
            tool: None,
            version: None,
            status: None,
            code: None,
            parameters_digest: None,
            judged: None,
            duration_ms: None,
            usage: None,
            note: Some(note),
        });
    }
}
