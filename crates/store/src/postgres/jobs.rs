//! `JobStore` on PostgreSQL: the durable queue of many instances. (ASYNC-006, ASYNC-015, DESIGN §4)
//!
//! Nearly every method is one statement: job, body and event change together, and the counters of the tenants follow by a
//! trigger of the table. What a worker writes names its fence, which the server checks on the newest row (JOB-2). Only taking
//! is done by one instance at a time, for the length of one statement, because whose turn it is depends on what everybody
//! has taken.
//!
//! Not here: the contract (`ports::job_store`), putting jobs in (`enqueue`), whose turn it is (`take`), what becomes
//! of jobs (`ends`), rows to records (`records`), leases (`instances`).

mod ends;
mod enqueue;
mod records;
mod take;

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use policy::CallOwner;
use ports::clock::UnixMillis;
use ports::job_store::{
    AdoptOutcome, AttemptEnd, CancelAsked, EnqueueOutcome, FencingToken, FoundResult, JobCounts, JobDetail, JobEvent,
    JobFilter, JobKey, JobPage, JobState, JobStore, NewJob, OwnerId, PAGE_MAX, RenewOutcome, TakeOutcome, TakeRules,
    TakenJob, WriteOutcome,
};
use ports::registry_store::StoreError;
use serde_json::Value;

use enqueue::Entry;
use records::{COLUMNS, record};

use super::PostgresStore;
use super::columns::{json, limit, millis, number, opt_json, time, with_clock};
use super::faults::{Busy, Fault};
use super::statement::{column, int, text, word};
use super::transaction::Scope;

#[async_trait]
impl JobStore for PostgresStore {
    async fn enlist(&self, owner: OwnerId, lease: Duration, alone: bool) -> Result<(), StoreError> {
        Ok(self.enlist_for_jobs(owner, lease, alone).await?)
    }

    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<RenewOutcome, StoreError> {
        Ok(self.renew_for_jobs(owner, lease).await?)
    }

    async fn resign(&self, owner: OwnerId) -> Result<(), StoreError> {
        Ok(self.retire_from_jobs(owner).await?)
    }

    async fn enqueue(&self, job: NewJob) -> Result<EnqueueOutcome, StoreError> {
        Ok(match self.enter(&job, None).await? {
            Entry::New => EnqueueOutcome::New,
            Entry::Known { id, same } => EnqueueOutcome::Existing { id, same },
            Entry::Claimed { id, same } => EnqueueOutcome::Claimed { id, same },
            Entry::Full => EnqueueOutcome::Full,
        })
    }

    async fn adopt(&self, job: NewJob, owner: OwnerId) -> Result<AdoptOutcome, StoreError> {
        match self.enter(&job, Some(owner)).await? {
            Entry::New => Ok(AdoptOutcome::Running(FencingToken(1))),
            Entry::Known { id, same } => Ok(AdoptOutcome::Existing { id, same }),
            Entry::Claimed { id, same } => Ok(AdoptOutcome::Claimed { id, same }),
            // What does not wait is not bounded.
            Entry::Full => Err(Fault::from(Busy::Contended).into()),
        }
    }

    async fn take(&self, owner: OwnerId, rules: TakeRules) -> Result<TakeOutcome, StoreError> {
        Ok(self.take_jobs(owner, rules).await?)
    }

    async fn take_over(&self, owner: OwnerId, most: usize) -> Result<Vec<TakenJob>, StoreError> {
        Ok(self.take_lapsed_jobs(owner, most).await?)
    }

    async fn report(
        &self,
        key: &JobKey,
        fence: FencingToken,
        percent: Option<f64>,
        phase: Option<String>,
    ) -> Result<WriteOutcome, StoreError> {
        Ok(self.report_progress(key, fence, percent, phase).await?)
    }

    async fn finish(&self, key: &JobKey, fence: FencingToken, end: AttemptEnd) -> Result<WriteOutcome, StoreError> {
        Ok(self.finish_attempt(key, fence, &end).await?)
    }

    async fn resolve(
        &self,
        key: &JobKey,
        was: &Value,
        found: Result<FoundResult, Value>,
    ) -> Result<WriteOutcome, StoreError> {
        Ok(self.resolve_failed(key, was, &found).await?)
    }

    async fn ask_cancel(&self, key: &JobKey, reason: &str, error: Value) -> Result<CancelAsked, StoreError> {
        Ok(self.cancel_or_ask(key, reason, &error).await?)
    }

    async fn release_key(&self, key: &JobKey) -> Result<(), StoreError> {
        let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
        let statement = "UPDATE jobs SET dedupe_key = NULL, dedupe_until = NULL
                         WHERE tenant_id = $1 AND id = $2 AND ended_at IS NOT NULL";
        self.pool.execute(Scope::Tenant(tenant), statement, &[text(&tenant), text(&id)]).await?;
        Ok(())
    }

    async fn hasten(&self, key: &JobKey) -> Result<(), StoreError> {
        let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
        let statement = format!(
            "{} UPDATE jobs SET rank = rank - due_at + clock.now, due_at = clock.now FROM clock
             WHERE tenant_id = $2 AND id = $3 AND state = 'delayed' AND due_at > clock.now",
            with_clock()
        );
        self.pool.execute(Scope::Tenant(tenant), &statement, &[int(&self.now()), text(&tenant), text(&id)]).await?;
        Ok(())
    }

    async fn find(&self, key: &JobKey) -> Result<Option<JobDetail>, StoreError> {
        let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
        let statement = format!(
            "SELECT {COLUMNS}, flow, digest, payload, result FROM jobs JOIN job_bodies USING (seq)
             WHERE jobs.tenant_id = $1 AND id = $2"
        );
        let rows = self.pool.query(Scope::Tenant(tenant), &statement, &[text(&tenant), text(&id)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        Ok(Some(JobDetail {
            record: record(row)?,
            flow: column(row, "flow")?,
            payload: json(row, "payload", &id)?,
            digest: word(row, "digest", &id)?,
            result: opt_json(row, "result", &id)?,
        }))
    }

    async fn list(&self, filter: &JobFilter, before: Option<u64>, most: usize) -> Result<JobPage, StoreError> {
        let most = most.min(PAGE_MAX);
        let tenant = filter.tenant.as_ref().map(contract::ids::TenantId::as_str);
        // Said outright, so that the index of a tenant's jobs is used.
        let of = if tenant.is_some() { "jobs.tenant_id = $1" } else { "$1 IS NULL" };
        let statement = format!(
            "SELECT {COLUMNS} FROM jobs
             WHERE {of} AND ($2 IS NULL OR (subject = $2 AND delegators IS NOT DISTINCT FROM $7))
               AND ($3 IS NULL OR state = $3) AND ($4 IS NULL OR kind = $4) AND seq < $5
             ORDER BY seq DESC LIMIT $6"
        );
        let before = before.and_then(|mark| i64::try_from(mark).ok()).unwrap_or(i64::MAX);
        let rows = self
            .pool
            .query(
                tenant.map_or(Scope::System, Scope::Tenant),
                &statement,
                &[
                    text(&tenant),
                    text(&filter.owner.as_ref().map(|owner| owner.subject().as_str())),
                    text(&filter.state.map(JobState::as_str)),
                    text(&filter.kind),
                    int(&before),
                    int(&limit(most).saturating_add(1)),
                    text(&filter.owner.as_ref().and_then(CallOwner::delegators)),
                ],
            )
            .await?;
        let shown = rows.get(..most.min(rows.len())).unwrap_or_default();
        let jobs = shown.iter().map(record).collect::<Result<_, Fault>>()?;
        let last = shown.last().filter(|_| rows.len() > most);
        let next = last.map(|row| number(row, "seq", "a job")).transpose()?;
        Ok(JobPage { jobs, next })
    }

    async fn events(&self, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, StoreError> {
        let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
        let statement = "SELECT number, at, job_events.kind, data
                         FROM jobs JOIN job_events USING (seq)
                         WHERE jobs.tenant_id = $1 AND id = $2 AND number > $3 ORDER BY number LIMIT $4";
        let after = i64::saturating_from(after);
        let rows = self
            .pool
            .query(
                Scope::Tenant(tenant),
                statement,
                &[text(&tenant), text(&id), int(&after), int(&limit(most.min(PAGE_MAX)))],
            )
            .await?;
        let event = |row| {
            Ok(JobEvent {
                seq: number(row, "number", &id)?,
                at: time(row, "at")?,
                kind: column(row, "kind")?,
                data: json(row, "data", &id)?,
            })
        };
        Ok(rows.iter().map(event).collect::<Result<_, Fault>>()?)
    }

    async fn counts(&self) -> Result<JobCounts, StoreError> {
        let statement =
            "SELECT coalesce(sum(waiting), 0)::bigint AS waiting, coalesce(sum(running), 0)::bigint AS running
                         FROM job_tenants";
        let rows = self.pool.query(Scope::System, statement, &[]).await?;
        let Some(row) = rows.first() else { return Ok(JobCounts::default()) };
        Ok(JobCounts { waiting: number(row, "waiting", "the queue")?, running: number(row, "running", "the queue")? })
    }

    async fn rewrite_payload(&self, key: &JobKey, payload: &Value) -> Result<bool, StoreError> {
        let (tenant, id, payload) = (key.tenant.as_str(), key.id.to_string(), payload.to_string());
        let statement = "UPDATE job_bodies SET payload = $3 FROM jobs
                         WHERE jobs.tenant_id = $1 AND jobs.id = $2 AND job_bodies.seq = jobs.seq
                           AND job_bodies.payload <> 'null'";
        let rewritten =
            self.pool.execute(Scope::Tenant(tenant), statement, &[text(&tenant), text(&id), text(&payload)]).await?;
        Ok(rewritten > 0)
    }

    async fn prune(&self, retention: Duration, dead_retention: Duration, most: usize) -> Result<u64, StoreError> {
        // What another instance forgets at the moment is left to it.
        let statement = format!(
            "{}, over AS (
                 SELECT seq FROM jobs, clock
                 WHERE ended_at < clock.now - CASE state WHEN 'dead' THEN $3 ELSE $2 END
                   AND ended_at < clock.now - least($2, $3) AND (dedupe_until IS NULL OR dedupe_until <= clock.now)
                 ORDER BY ended_at LIMIT $4 FOR UPDATE OF jobs SKIP LOCKED
             ), events AS (DELETE FROM job_events USING over WHERE job_events.seq = over.seq),
             bodies AS (DELETE FROM job_bodies USING over WHERE job_bodies.seq = over.seq)
             DELETE FROM jobs USING over WHERE jobs.seq = over.seq",
            with_clock()
        );
        let forgotten = self
            .pool
            .execute(
                Scope::System,
                &statement,
                &[int(&self.now()), int(&millis(retention)), int(&millis(dead_retention)), int(&limit(most))],
            )
            .await?;
        // Tenants that have nothing to do with the queue any more need no turn.
        let idle = "WITH idle AS (
                        SELECT tenant_id FROM job_tenants WHERE waiting = 0 AND running = 0
                        ORDER BY tenant_id FOR UPDATE SKIP LOCKED
                    )
                    DELETE FROM job_tenants USING idle WHERE job_tenants.tenant_id = idle.tenant_id";
        self.pool.execute(Scope::System, idle, &[]).await?;
        Ok(forgotten)
    }
}

/// The span from a moment to a later one.
fn until(now: UnixMillis, then: Option<UnixMillis>) -> Option<Duration> {
    then.map(|then| then.since(now))
}
