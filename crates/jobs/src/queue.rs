//! Job queue: where jobs are put, and the bell for those who do them. It needs neither the kernel nor handlers, so it is made
//! before both: webhooks are built on it, the kernel on those, and the workers on all of them.
//!
//! ```text
//! JobQueue ◀── Webhooks ◀── Insights ◀── Kernel ◀── JobHandlers ◀── Jobs ◀── Workers
//!     ▲                                                              │
//!     └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! Invariants
//! - QUEUE-1: a job that is put in here is durable before the answer, and of any number of jobs with one key one is kept.
//!
//! Not here: calls of tools on their way in (`submission`), who does the jobs (`workers`).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use contract::canonical;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use ports::clock::Clock;
use ports::entropy::{Entropy, new_invocation_id, new_trace_id};
use ports::job_entrance::{EnteringJob, EntranceOutcome, JobEntrance};
use ports::job_store::{
    EnqueueOutcome, FoundResult, JobDedupe, JobKey, JobPriority, JobRecord, JobStore, NewJob, TOOL_CALL, WriteOutcome,
};
use serde_json::Value;
use tokio::sync::{Notify, broadcast};

use super::settings::JobsSettings;
use super::submission::{queue_full, system_subject};
use super::{SystemJob, queued_call, resolution};

/// Changes that listeners may lag behind before they read the store instead.
const CHANGES_MAX: usize = 1_024;
/// The priority of what comes through the entrance, in the middle: neither more urgent than calls nor less.
const ENTRANCE_PRIORITY: u8 = 5;

/// What a queue is made of.
#[derive(Debug)]
pub struct JobQueueParts {
    pub store: Arc<dyn JobStore>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub settings: JobsSettings,
}

/// The queue.
pub struct JobQueue {
    pub(super) store: Arc<dyn JobStore>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    pub(super) settings: JobsSettings,
    /// Something waits for a worker.
    pub(super) wake: Notify,
    /// Which jobs have changed in this process.
    changes: broadcast::Sender<JobKey>,
}

impl fmt::Debug for JobQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobQueue").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl JobQueue {
    /// From its parts.
    pub fn new(parts: JobQueueParts) -> Arc<Self> {
        let JobQueueParts { store, clock, entropy, settings } = parts;
        let (wake, changes) = (Notify::new(), broadcast::Sender::new(CHANGES_MAX));
        Arc::new(Self { store, clock, entropy, settings, wake, changes })
    }

    /// Where its jobs are kept.
    pub fn store(&self) -> &Arc<dyn JobStore> {
        &self.store
    }

    /// Which jobs change in this process from now on.
    pub(super) fn changes(&self) -> broadcast::Receiver<JobKey> {
        self.changes.subscribe()
    }

    pub(super) fn changed(&self, key: &JobKey) {
        // Nobody listening is no failure.
        let _ = self.changes.send(key.clone());
    }

    /// Puts a job that is no call of a tool into the queue. `Existing` if its dedupe key is known.
    pub(super) async fn put(&self, job: SystemJob) -> Result<EnqueueOutcome, Refusal> {
        let key = JobKey { tenant: job.tenant, id: new_invocation_id(&*self.entropy, self.clock.now()) };
        let new = NewJob {
            key: key.clone(),
            kind: job.kind.to_owned(),
            label: job.label,
            owner: system_subject()?.into(),
            flow: job.flow,
            digest: canonical::digest(&job.payload),
            payload: job.payload,
            priority: job.priority,
            delay: job.delay,
            attempts_max: job.attempts_max.max(1),
            dedupe: job.dedupe,
            act: None,
            bounds: if job.is_follow_up { self.settings.bounds.doubled() } else { self.settings.bounds },
        };
        self.bounded(&new)?;
        let enqueued = self.store.enqueue(new).await.map_err(|error| error.refusal())?;
        if enqueued == EnqueueOutcome::New {
            self.wake.notify_one();
            self.changed(&key);
        }
        Ok(enqueued)
    }

    /// Is it small enough to be kept?
    pub(super) fn bounded(&self, job: &NewJob) -> Result<(), Refusal> {
        if job.payload.to_string().len() <= self.settings.payload_bytes_max {
            return Ok(());
        }
        Err(Refusal::new(ErrorCode::E3005, "the job is too large to be kept")
            .hint("send less, or call it without `async_mode`"))
    }

    /// Ends a job of which nobody knew how it ended. True if that has changed it.
    pub(super) async fn settle(&self, job: &JobRecord, found: Result<Value, Value>) -> Result<bool, Refusal> {
        let was = job.error.clone().unwrap_or_default();
        let found = match found {
            Ok(result) => {
                let detail = self.store.find(&job.key).await.map_err(|error| error.refusal())?;
                let payload = detail.map_or(Value::Null, |detail| queued_call::kept_when_done(&detail.payload));
                Ok(FoundResult { result, payload })
            }
            Err(error) => Err(error),
        };
        let written = self.store.resolve(&job.key, &was, found).await.map_err(|error| error.refusal())?;
        let is_changed = matches!(written, WriteOutcome::Kept(_));
        if is_changed {
            self.changed(&job.key);
        }
        Ok(is_changed)
    }

    /// The error of a job as it is kept.
    pub(super) fn envelope(&self, refusal: &Refusal, record: &JobRecord) -> Value {
        let trace_id = new_trace_id(&*self.entropy);
        serde_json::to_value(refusal.envelope(trace_id, Some(record.key.id))).unwrap_or_default()
    }
}

#[async_trait]
impl JobEntrance for JobQueue {
    async fn enter(&self, job: EnteringJob) -> Result<EntranceOutcome, Refusal> {
        let EnteringJob { kind, tenant, label, flow, payload, delay, attempts_max, key, window, is_follow_up } = job;
        let job = SystemJob {
            kind,
            tenant,
            label,
            flow,
            payload,
            priority: JobPriority::near(ENTRANCE_PRIORITY),
            delay,
            attempts_max,
            dedupe: Some(JobDedupe { key, window }),
            is_follow_up,
        };
        match self.put(job).await? {
            EnqueueOutcome::New => Ok(EntranceOutcome::New),
            EnqueueOutcome::Existing { same, .. } | EnqueueOutcome::Claimed { same, .. } => {
                Ok(EntranceOutcome::Known { same })
            }
            EnqueueOutcome::Full => Err(queue_full()),
        }
    }

    /// Such a job is in no ledger, and its end is told to nobody from here: whoever put it in tells it.
    async fn told_end(&self, tenant: &TenantId, id: InvocationId, end: Result<Value, Refusal>) -> Result<(), Refusal> {
        let key = JobKey { tenant: tenant.clone(), id };
        let Some(found) = self.store.find(&key).await.map_err(|error| error.refusal())? else { return Ok(()) };
        let job = &found.record;
        if job.kind == TOOL_CALL {
            return Ok(());
        }
        if resolution::is_unknown(job) {
            let end = end.map_err(|refusal| self.envelope(&refusal, job));
            return self.settle(job, end).await.map(drop);
        }
        self.store.hasten(&key).await.map_err(|error| error.refusal())?;
        self.wake.notify_one();
        Ok(())
    }
}
