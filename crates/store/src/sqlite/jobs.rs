//! `JobStore` on SQLite: the durable queue. (ASYNC-006, ASYNC-015, DESIGN §4)
//!
//! Every change goes through the one writer and shares its commits, so a method is atomic and durable when it answers. What
//! waits is counted per tenant in the transaction that changes it; nothing is ever counted by walking over jobs.
//!
//! Not here: the contract (`ports::job_store`), putting jobs in (`enqueue`), whose turn it is (`take`), what becomes
//! of jobs (`ends`), keeping them in order (`upkeep`), looking at them (`reads`).

mod counters;
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
use rusqlite::Connection;
use serde_json::Value;

use super::SqliteStore;

#[async_trait]
impl JobStore for SqliteStore {
    async fn enlist(&self, owner: OwnerId, lease: Duration, alone: bool) -> Result<(), StoreError> {
        let now = self.now();
        self.writer()?.run(move |connection| take::enlist(connection, now, owner, lease, alone)).await
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<RenewOutcome, StoreError> {
        let now = self.now();
        self.writer()?.run(move |connection| take::renew(connection, now, owner, lease)).await
    }

    async fn resign(&self, owner: OwnerId) -> Result<(), StoreError> {
        let now = self.now();
        self.writer()?.run(move |connection| take::resign(connection, now, owner)).await
    }

    async fn enqueue(&self, job: NewJob) -> Result<EnqueueOutcome, StoreError> {
        let now = self.now();
        // Before the queue, so that the writer thread only writes.
        let payload = job.payload.to_string();
        self.writer()?.run(move |connection| enqueue::enqueue(connection, now, &job, &payload)).await
    }

    async fn adopt(&self, job: NewJob, owner: OwnerId) -> Result<AdoptOutcome, StoreError> {
        let now = self.now();
        let payload = job.payload.to_string();
        self.writer()?.run(move |connection| enqueue::adopt(connection, now, &job, &payload, owner)).await
    }

    async fn take(&self, owner: OwnerId, rules: TakeRules) -> Result<TakeOutcome, StoreError> {
        let now = self.now();
        self.writer()?.run(move |connection| take::take(connection, now, owner, rules)).await
    }

    async fn take_over(&self, owner: OwnerId, most: usize) -> Result<Vec<TakenJob>, StoreError> {
        let now = self.now();
        self.writer()?.run(move |connection| take::take_over(connection, now, owner, most)).await
    }

    async fn report(
        &self,
        key: &JobKey,
        fence: FencingToken,
        percent: Option<f64>,
        phase: Option<String>,
    ) -> Result<WriteOutcome, StoreError> {
        let (now, key) = (self.now(), key.clone());
        let work = move |connection: &Connection| ends::report(connection, now, &key, fence, percent, phase.as_deref());
        self.writer()?.run(work).await
    }

    async fn finish(&self, key: &JobKey, fence: FencingToken, end: AttemptEnd) -> Result<WriteOutcome, StoreError> {
        let (now, key) = (self.now(), key.clone());
        self.writer()?.run(move |connection| ends::finish(connection, now, &key, fence, &end)).await
    }

    async fn resolve(
        &self,
        key: &JobKey,
        was: &Value,
        found: Result<FoundResult, Value>,
    ) -> Result<WriteOutcome, StoreError> {
        let (now, key, was) = (self.now(), key.clone(), was.clone());
        self.writer()?.run(move |connection| ends::resolve(connection, now, &key, &was, &found)).await
    }

    async fn ask_cancel(&self, key: &JobKey, reason: &str, error: Value) -> Result<CancelAsked, StoreError> {
        let (now, key, reason) = (self.now(), key.clone(), reason.to_owned());
        self.writer()?.run(move |connection| ends::ask_cancel(connection, now, &key, &reason, &error)).await
    }

    async fn release_key(&self, key: &JobKey) -> Result<(), StoreError> {
        let key = key.clone();
        self.writer()?.run(move |connection| upkeep::release_key(connection, &key)).await
    }

    async fn hasten(&self, key: &JobKey) -> Result<(), StoreError> {
        let (now, key) = (self.now(), key.clone());
        self.writer()?.run(move |connection| upkeep::hasten(connection, now, &key)).await
    }

    async fn find(&self, key: &JobKey) -> Result<Option<JobDetail>, StoreError> {
        let key = key.clone();
        self.readers.run(move |connection| reads::find(connection, &key)).await
    }

    async fn list(&self, filter: &JobFilter, before: Option<u64>, most: usize) -> Result<JobPage, StoreError> {
        let filter = filter.clone();
        self.readers.run(move |connection| reads::list(connection, &filter, before, most)).await
    }

    async fn events(&self, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, StoreError> {
        let key = key.clone();
        self.readers.run(move |connection| reads::events(connection, &key, after, most)).await
    }

    async fn counts(&self) -> Result<JobCounts, StoreError> {
        self.readers.run(reads::counts).await
    }

    async fn rewrite_payload(&self, key: &JobKey, payload: &Value) -> Result<bool, StoreError> {
        let (key, payload) = (key.clone(), payload.to_string());
        self.writer()?.run(move |connection| upkeep::rewrite_payload(connection, &key, &payload)).await
    }

    async fn prune(&self, retention: Duration, dead_retention: Duration, most: usize) -> Result<u64, StoreError> {
        let now = self.now();
        self.writer()?.run(move |connection| upkeep::prune(connection, now, retention, dead_retention, most)).await
    }
}
