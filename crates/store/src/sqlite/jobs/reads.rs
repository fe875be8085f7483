//! Jobs, their bodies and their events as somebody asks for them.

use base::SaturatingFrom as _;
use contract::ids::TenantId;
use policy::CallOwner;
use ports::job_store::{JobCounts, JobDetail, JobEvent, JobFilter, JobKey, JobPage, JobState, PAGE_MAX};
use rusqlite::{Connection, OptionalExtension as _, named_params};

use crate::records::jobs::{COLUMNS, detail, event, record};
use crate::sqlite::columns::{all, first, limit};
use crate::sqlite::faults::Fault;
use crate::stored_row::StoredRow as _;

pub(super) fn find(connection: &Connection, key: &JobKey) -> Result<Option<JobDetail>, Fault> {
    let sql = format!(
        "SELECT {COLUMNS}, flow, digest, payload, result FROM jobs JOIN job_bodies USING (seq)
         WHERE tenant_id = :tenant_id AND id = :id"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    first(statement.query(named_params! { ":tenant_id": key.tenant.as_str(), ":id": key.id.to_string() })?, detail)
}

pub(super) fn list(
    connection: &Connection,
    filter: &JobFilter,
    before: Option<u64>,
    most: usize,
) -> Result<JobPage, Fault> {
    let most = most.min(PAGE_MAX);
    // Said outright, so that the index of a tenant's jobs is used.
    let tenant = if filter.tenant.is_some() { "tenant_id = :tenant_id" } else { ":tenant_id IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM jobs
         WHERE {tenant} AND (:subject IS NULL OR (subject = :subject AND delegators IS :delegators))
           AND (:state IS NULL OR state = :state)
           AND (:kind IS NULL OR kind = :kind) AND seq < :before
         ORDER BY seq DESC LIMIT :most"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let before = before.and_then(|mark| i64::try_from(mark).ok()).unwrap_or(i64::MAX);
    let mut rows = statement.query(named_params! {
        ":tenant_id": filter.tenant.as_ref().map(TenantId::as_str),
        ":subject": filter.owner.as_ref().map(|owner| owner.subject().as_str()),
        ":delegators": filter.owner.as_ref().and_then(CallOwner::delegators),
        ":state": filter.state.map(JobState::as_str),
        ":kind": filter.kind,
        ":before": before,
        ":most": limit(most).saturating_add(1),
    })?;
    let mut page = JobPage::default();
    let mut last = None;
    while let Some(row) = rows.next()? {
        if page.jobs.len() == most {
            page.next = last;
            break;
        }
        last = u64::try_from(row.int("seq")?).ok();
        page.jobs.push(record(row)?);
    }
    Ok(page)
}

pub(super) fn events(connection: &Connection, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, Fault> {
    let seq: Option<i64> = connection
        .prepare_cached("SELECT seq FROM jobs WHERE tenant_id = :tenant_id AND id = :id")?
        .query_row(named_params! { ":tenant_id": key.tenant.as_str(), ":id": key.id.to_string() }, |row| row.get(0))
        .optional()?;
    let Some(seq) = seq else { return Ok(Vec::new()) };
    let mut statement = connection.prepare_cached(
        "SELECT number, at, kind, data FROM job_events WHERE seq = :seq AND number > :after ORDER BY number LIMIT :most",
    )?;
    let after = i64::saturating_from(after);
    let of = key.id.to_string();
    all(statement.query(named_params! { ":seq": seq, ":after": after, ":most": limit(most.min(PAGE_MAX)) })?, |row| {
        event(row, &of)
    })
}

pub(super) fn counts(connection: &Connection) -> Result<JobCounts, Fault> {
    let (waiting, running): (i64, i64) = connection
        .prepare_cached("SELECT waiting, running FROM job_tenants WHERE tenant_id = ''")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(JobCounts { waiting: waiting.unsigned_abs(), running: running.unsigned_abs() })
}
