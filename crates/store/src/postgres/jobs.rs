//! `JobStore` on PostgreSQL: the durable queue of many instances. (ASYNC-006, ASYNC-015, DESIGN §4)
//!
//! Nearly every method is one statement: job, body and event change together, and the counters of the tenants follow by a
//! trigger of the table. What a worker writes names its fence, which the server checks on the newest row (JOB-2). Only taking
//! is done by one instance at a time, for the length of one statement, because whose turn it is depends on what everybody
//! has taken.
//!
//! Not here: the contract (`ports::job_store`), putting jobs in (`enqueue`), whose turn it is (`take`), what becomes
//! of jobs (`ends`), keeping them in order (`upkeep`), looking at them (`reads`), leases (`instances`).

mod ends;
mod enqueue;
mod reads;
mod take;
mod upkeep;

use std::time::Duration;

use async_trait::async_trait;
use ports::job_store::{
    AdoptOutcome, AttemptEnd, CancelAsked, EnqueueOutcome, FencingToken, FoundResult, JobCounts, JobDetail, JobEvent,
    JobFilter, JobKey, JobPage, JobStore, NewJob, OwnerId, RenewOutcome, TakeOutcome, TakeRules, TakenJob,
    WriteOutcome,
};
use ports::registry_store::StoreError;
use serde_json::Value;

use super::PostgresStore;

#[async_trait]
impl JobStore for PostgresStore {
    async fn enlist(&self, owner: OwnerId, lease: Duration, alone: bool) -> Result<(), StoreError> {
        Ok(self.enlist_for_jobs(owner, lease, alone).await?)
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<RenewOutcome, StoreError> {
        Ok(take::renew(self, owner, lease).await?)
    }

    async fn resign(&self, owner: OwnerId) -> Result<(), StoreError> {
        Ok(self.retire_from_jobs(owner).await?)
    }

    async fn enqueue(&self, job: NewJob) -> Result<EnqueueOutcome, StoreError> {
        enqueue::enqueue(self, job).await
    }

    async fn adopt(&self, job: NewJob, owner: OwnerId) -> Result<AdoptOutcome, StoreError> {
        enqueue::adopt(self, job, owner).await
    }

    async fn take(&self, owner: OwnerId, rules: TakeRules) -> Result<TakeOutcome, StoreError> {
        Ok(take::take(self, owner, rules).await?)
    }

    async fn take_over(&self, owner: OwnerId, most: usize) -> Result<Vec<TakenJob>, StoreError> {
        Ok(take::take_over(self, owner, most).await?)
    }

    async fn report(
        &self,
        key: &JobKey,
        fence: FencingToken,
        percent: Option<f64>,
        phase: Option<String>,
    ) -> Result<WriteOutcome, StoreError> {
        Ok(ends::report(self, key, fence, percent, phase).await?)
    }

    async fn finish(&self, key: &JobKey, fence: FencingToken, end: AttemptEnd) -> Result<WriteOutcome, StoreError> {
        Ok(ends::finish(self, key, fence, &end).await?)
    }

    async fn resolve(
        &self,
        key: &JobKey,
        was: &Value,
        found: Result<FoundResult, Value>,
    ) -> Result<WriteOutcome, StoreError> {
        Ok(ends::resolve(self, key, was, &found).await?)
    }

    async fn ask_cancel(&self, key: &JobKey, reason: &str, error: Value) -> Result<CancelAsked, StoreError> {
        Ok(ends::ask_cancel(self, key, reason, &error).await?)
    }

    async fn release_key(&self, key: &JobKey) -> Result<(), StoreError> {
        upkeep::release_key(self, key).await
    }

    async fn hasten(&self, key: &JobKey) -> Result<(), StoreError> {
        upkeep::hasten(self, key).await
    }

    async fn find(&self, key: &JobKey) -> Result<Option<JobDetail>, StoreError> {
        reads::find(self, key).await
    }

    async fn list(&self, filter: &JobFilter, before: Option<u64>, most: usize) -> Result<JobPage, StoreError> {
        reads::list(self, filter, before, most).await
    }

    async fn events(&self, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, StoreError> {
        reads::events(self, key, after, most).await
    }

    async fn counts(&self) -> Result<JobCounts, StoreError> {
        reads::counts(self).await
    }

    async fn rewrite_payload(&self, key: &JobKey, payload: &Value) -> Result<bool, StoreError> {
        upkeep::rewrite_payload(self, key, payload).await
    }

    async fn prune(&self, retention: Duration, dead_retention: Duration, most: usize) -> Result<u64, StoreError> {
        upkeep::prune(self, retention, dead_retention, most).await
    }
}
