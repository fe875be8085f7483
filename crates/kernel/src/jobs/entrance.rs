//! The queue as its narrow way in, for what is built before the queue is: webhooks and the signed door have to be there when
//! the handlers are handed to it.

use std::sync::{Arc, OnceLock, Weak};

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use ports::job_entrance::{EnteringJob, EntranceOutcome, JobEntrance};
use ports::job_store::{EnqueueOutcome, JobDedupe, JobKey, JobPriority};
use serde_json::Value;

use super::submission::queue_full;
use super::{Jobs, SystemJob};

/// Leads to the queue once that is there. Does not keep it alive.
#[derive(Debug, Default)]
pub struct LateEntrance(OnceLock<Weak<Jobs>>);

impl LateEntrance {
    /// Says where it leads. Once.
    pub fn leads_to(&self, jobs: &Arc<Jobs>) {
        let _ = self.0.set(Arc::downgrade(jobs));
    }

    fn jobs(&self) -> Result<Arc<Jobs>, Refusal> {
        let jobs = self.0.get().and_then(Weak::upgrade);
        jobs.ok_or_else(|| Refusal::new(ErrorCode::E3001, "the queue is not open").hint("try again in a moment"))
    }
}

#[async_trait]
impl JobEntrance for LateEntrance {
    async fn enter(&self, job: EnteringJob) -> Result<EntranceOutcome, Refusal> {
        /// In the middle: neither more urgent than calls nor less.
        const PRIORITY: u8 = 5;
        let jobs = self.jobs()?;
        let EnteringJob { kind, tenant, label, flow, payload, delay, attempts_max, key, window, is_follow_up } = job;
        let job = SystemJob {
            kind,
            tenant,
            label,
            flow,
            payload,
            priority: JobPriority::near(PRIORITY),
            delay,
            attempts_max,
            dedupe: Some(JobDedupe { key, window }),
            is_follow_up,
        };
        match jobs.enqueue(job).await? {
            EnqueueOutcome::New => Ok(EntranceOutcome::New),
            EnqueueOutcome::Existing { same, .. } | EnqueueOutcome::Claimed { same, .. } => {
                Ok(EntranceOutcome::Known { same })
            }
            EnqueueOutcome::Full => Err(queue_full()),
        }
    }

    async fn told_end(&self, tenant: &TenantId, id: InvocationId, end: Result<Value, Refusal>) -> Result<(), Refusal> {
        self.jobs()?.told_end(&JobKey { tenant: tenant.clone(), id }, end).await
    }
}
