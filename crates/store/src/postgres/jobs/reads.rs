//! Jobs, their bodies and their events as somebody asks for them.

use base::SaturatingFrom as _;
use policy::CallOwner;
use ports::job_store::{JobCounts, JobDetail, JobEvent, JobFilter, JobKey, JobPage, JobState, PAGE_MAX};
use ports::registry_store::StoreError;

use crate::postgres::PostgresStore;
use crate::postgres::columns::limit;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{int, text};
use crate::postgres::transaction::Scope;
use crate::records::jobs::{COLUMNS, detail, event, record};
use crate::stored_row::StoredRow as _;

pub(super) async fn find(store: &PostgresStore, key: &JobKey) -> Result<Option<JobDetail>, StoreError> {
    let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
    let statement = format!(
        "SELECT {COLUMNS}, flow, digest, payload, result FROM jobs JOIN job_bodies USING (seq)
         WHERE jobs.tenant_id = $1 AND id = $2"
    );
    let rows = store.pool.query(Scope::Tenant(tenant), &statement, &[text(&tenant), text(&id)]).await?;
    Ok(rows.first().map(detail).transpose()?)
}

pub(super) async fn list(
    store: &PostgresStore,
    filter: &JobFilter,
    before: Option<u64>,
    most: usize,
) -> Result<JobPage, StoreError> {
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
    let rows = store
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
    let next = last.map(|row| row.number("seq", "a job")).transpose()?;
    Ok(JobPage { jobs, next })
}

pub(super) async fn events(
    store: &PostgresStore,
    key: &JobKey,
    after: u64,
    most: usize,
) -> Result<Vec<JobEvent>, StoreError> {
    let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
    let statement = "SELECT number, at, job_events.kind, data
                     FROM jobs JOIN job_events USING (seq)
                     WHERE jobs.tenant_id = $1 AND id = $2 AND number > $3 ORDER BY number LIMIT $4";
    let after = i64::saturating_from(after);
    let rows = store
        .pool
        .query(
            Scope::Tenant(tenant),
            statement,
            &[text(&tenant), text(&id), int(&after), int(&limit(most.min(PAGE_MAX)))],
        )
        .await?;
    Ok(rows.iter().map(|row| event(row, &id)).collect::<Result<_, Fault>>()?)
}

pub(super) async fn counts(store: &PostgresStore) -> Result<JobCounts, StoreError> {
    let statement = "SELECT coalesce(sum(waiting), 0)::bigint AS waiting, coalesce(sum(running), 0)::bigint AS running
                     FROM job_tenants";
    let rows = store.pool.query(Scope::System, statement, &[]).await?;
    let Some(row) = rows.first() else { return Ok(JobCounts::default()) };
    Ok(JobCounts { waiting: row.number("waiting", "the queue")?, running: row.number("running", "the queue")? })
}
