//! The queue with seals on what went into its jobs: parameters of calls, and who they were let in for.
//!
//! A job waits in the store for as long as it must, and one that failed for as long as it can be begun again; whoever reads the
//! database, or a copy of it, must not read parameters there. So a payload is sealed before it goes in, bound to its job, and
//! opened when a worker takes it. Of a job that is done the kernel keeps no parameters at all.
//!
//! Invariants
//! - PAYLOAD-1: with a seal, no payload is written but sealed. What is there in clear, from before, is read and sealed: when a
//!   worker takes it, and by [`SealedJobs::seal_former`].
//! - PAYLOAD-2: a payload that cannot be opened is none, and its job fails; it holds up no other.
//!
//! Not here: where the keys come from (`store_keys`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::job_store::{
    AdoptOutcome, AttemptEnd, CancelAsked, EnqueueOutcome, FencingToken, FoundResult, JobCounts, JobDetail, JobEvent,
    JobFilter, JobKey, JobPage, JobStore, NewJob, OwnerId, PAGE_MAX, RenewOutcome, TakeOutcome, TakeRules, TakenJob,
    WriteOutcome,
};
use ports::registry_store::StoreError;
use serde_json::Value;

use crate::store_seal::{StoreSeal, is_sealed};

/// A queue whose payloads are sealed.
#[derive(Debug)]
pub(crate) struct SealedJobs {
    inner: Arc<dyn JobStore>,
    /// Seals what is written. Without it payloads are written as they are.
    seal: Option<StoreSeal>,
    /// Opens what was sealed with another key of this installation.
    former: Option<StoreSeal>,
}

#[derive(Debug, thiserror::Error)]
#[error("the payload of a job cannot be sealed")]
struct NotSealed;

impl SealedJobs {
    pub(crate) fn new(inner: Arc<dyn JobStore>, seal: Option<StoreSeal>, former: Option<StoreSeal>) -> Self {
        Self { inner, seal, former }
    }

    /// Seals what waits in the store in clear, from a release or a time without a key. Says how many it was; those that cannot
    /// be opened are told to the log. Every job is looked at: a pass that was broken off has left the oldest ones in clear.
    pub(crate) async fn seal_former(&self) -> Result<usize, StoreError> {
        if self.seal.is_none() {
            return Ok(0);
        }
        let (mut sealed, mut foreign) = (0, 0);
        let mut before = None;
        loop {
            let page = self.inner.list(&JobFilter::default(), before, PAGE_MAX).await?;
            for record in &page.jobs {
                let Some(detail) = self.inner.find(&record.key).await? else { continue };
                if self.is_clear(&detail.payload) {
                    self.seal_again(&record.key, &detail.payload).await?;
                    sealed += 1;
                } else if self.opened(&record.key, &detail.payload).is_none() {
                    foreign += 1;
                }
            }
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        if foreign > 0 {
            tracing::error!(
                jobs = foreign,
                "jobs in the store are sealed with a key that this instance does not have; they will fail. Bring back \
                 `keys/store.key` of the data directory, or give the key with `[store] seal_key_file`"
            );
        }
        Ok(sealed)
    }

    /// Does it stand in the store as nobody should read it?
    fn is_clear(&self, payload: &Value) -> bool {
        self.seal.is_some() && !payload.is_null() && !payload.as_str().is_some_and(is_sealed)
    }

    fn sealed(&self, key: &JobKey, payload: Value) -> Result<Value, StoreError> {
        match &self.seal {
            Some(seal) if !payload.is_null() => {
                let sealed = seal.seal(&what(key), &payload.to_string());
                sealed.map(Value::String).ok_or_else(|| StoreError::Corrupt(Box::new(NotSealed)))
            }
            _ => Ok(payload),
        }
    }

    /// What a kept payload says. `None` if it cannot be opened.
    fn opened(&self, key: &JobKey, payload: &Value) -> Option<Value> {
        let Some(text) = payload.as_str().filter(|text| is_sealed(text)) else { return Some(payload.clone()) };
        let seals = [&self.seal, &self.former];
        let opened = seals.into_iter().flatten().find_map(|seal| seal.open(&what(key), text))?;
        serde_json::from_str(&opened).ok()
    }

    fn opened_or_none(&self, key: &JobKey, payload: &Value) -> Value {
        self.opened(key, payload).unwrap_or_else(|| {
            tracing::error!(job = %key.id, tenant = %key.tenant, "what went into a job is sealed with another key, or was changed");
            Value::Null
        })
    }

    async fn seal_again(&self, key: &JobKey, payload: &Value) -> Result<(), StoreError> {
        let sealed = self.sealed(key, payload.clone())?;
        // What has changed or gone meanwhile is not in clear any more.
        self.inner.rewrite_payload(key, &sealed).await.map(drop)
    }

    async fn opened_jobs(&self, jobs: Vec<TakenJob>) -> Vec<TakenJob> {
        let mut opened = Vec::with_capacity(jobs.len());
        for job in jobs {
            let key = &job.record.key;
            if self.is_clear(&job.payload)
                && let Err(error) = self.seal_again(key, &job.payload).await
            {
                tracing::warn!(error = &error as &dyn std::error::Error, "a job of before could not be sealed yet");
            }
            let payload = self.opened_or_none(key, &job.payload);
            opened.push(TakenJob { payload, ..job });
        }
        opened
    }
}

/// What belongs to one job is no other's.
fn what(key: &JobKey) -> String {
    format!("gantry job {} {}", key.id, key.tenant)
}

#[async_trait]
impl JobStore for SealedJobs {
    async fn enlist(&self, owner: OwnerId, lease: Duration, alone: bool) -> Result<(), StoreError> {
        self.inner.enlist(owner, lease, alone).await
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<RenewOutcome, StoreError> {
        self.inner.renew(owner, lease).await
    }

    async fn resign(&self, owner: OwnerId) -> Result<(), StoreError> {
        self.inner.resign(owner).await
    }

    async fn enqueue(&self, mut job: NewJob) -> Result<EnqueueOutcome, StoreError> {
        job.payload = self.sealed(&job.key, job.payload)?;
        self.inner.enqueue(job).await
    }

    async fn adopt(&self, mut job: NewJob, owner: OwnerId) -> Result<AdoptOutcome, StoreError> {
        job.payload = self.sealed(&job.key, job.payload)?;
        self.inner.adopt(job, owner).await
    }

    async fn take(&self, owner: OwnerId, rules: TakeRules) -> Result<TakeOutcome, StoreError> {
        let taken = self.inner.take(owner, rules).await?;
        Ok(TakeOutcome { jobs: self.opened_jobs(taken.jobs).await, ..taken })
    }

    async fn take_over(&self, owner: OwnerId, most: usize) -> Result<Vec<TakenJob>, StoreError> {
        let taken = self.inner.take_over(owner, most).await?;
        Ok(self.opened_jobs(taken).await)
    }

    async fn report(
        &self,
        key: &JobKey,
        fence: FencingToken,
        percent: Option<f64>,
        phase: Option<String>,
    ) -> Result<WriteOutcome, StoreError> {
        self.inner.report(key, fence, percent, phase).await
    }

    async fn finish(&self, key: &JobKey, fence: FencingToken, end: AttemptEnd) -> Result<WriteOutcome, StoreError> {
        let end = match end {
            AttemptEnd::DoneKeeping { result, payload } => {
                AttemptEnd::DoneKeeping { result, payload: self.sealed(key, payload)? }
            }
            other => other,
        };
        self.inner.finish(key, fence, end).await
    }

    async fn resolve(
        &self,
        key: &JobKey,
        was: &Value,
        found: Result<FoundResult, Value>,
    ) -> Result<WriteOutcome, StoreError> {
        let found = match found {
            Ok(FoundResult { result, payload }) => Ok(FoundResult { result, payload: self.sealed(key, payload)? }),
            other => other,
        };
        self.inner.resolve(key, was, found).await
    }

    async fn ask_cancel(&self, key: &JobKey, reason: &str, error: Value) -> Result<CancelAsked, StoreError> {
        self.inner.ask_cancel(key, reason, error).await
    }

    async fn release_key(&self, key: &JobKey) -> Result<(), StoreError> {
        self.inner.release_key(key).await
    }

    async fn hasten(&self, key: &JobKey) -> Result<(), StoreError> {
        self.inner.hasten(key).await
    }

    async fn find(&self, key: &JobKey) -> Result<Option<JobDetail>, StoreError> {
        let found = self.inner.find(key).await?;
        Ok(found.map(|detail| JobDetail { payload: self.opened_or_none(key, &detail.payload), ..detail }))
    }

    async fn list(&self, filter: &JobFilter, before: Option<u64>, most: usize) -> Result<JobPage, StoreError> {
        self.inner.list(filter, before, most).await
    }

    async fn events(&self, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, StoreError> {
        self.inner.events(key, after, most).await
    }

    async fn counts(&self) -> Result<JobCounts, StoreError> {
        self.inner.counts().await
    }

    async fn rewrite_payload(&self, key: &JobKey, payload: &Value) -> Result<bool, StoreError> {
        self.inner.rewrite_payload(key, &self.sealed(key, payload.clone())?).await
    }

    async fn prune(&self, retention: Duration, dead_retention: Duration, most: usize) -> Result<u64, StoreError> {
        self.inner.prune(retention, dead_retention, most).await
    }
}
