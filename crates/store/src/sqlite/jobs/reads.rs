//! Reads jobs, their bodies and their events back from rows; what cannot be read is named in a fault.

use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use policy::CallOwner;
use ports::clock::UnixMillis;
use ports::job_store::{
    JobCounts, JobDetail, JobEvent, JobFilter, JobKey, JobPage, JobPriority, JobRecord, JobState, PAGE_MAX,
};
use rusqlite::{Connection, OptionalExtension as _, Row, params};
use serde_json::Value;

use super::count;
use crate::sqlite::columns::call_owner;
use crate::sqlite::faults::{Fault, Unreadable};

/// The columns that [`record`] reads.
pub(super) const COLUMNS: &str =
    "jobs.seq, tenant_id, id, kind, label, subject, delegators, priority, state, attempts, interruptions, attempts_max,
    progress, phase, cancel_asked, error, created_at, due_at, started_at, ended_at";

pub(super) fn find(connection: &Connection, key: &JobKey) -> Result<Option<JobDetail>, Fault> {
    let sql = format!(
        "SELECT {COLUMNS}, flow, digest, payload, result FROM jobs JOIN job_bodies USING (seq) WHERE tenant_id = ?1 AND id = ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![key.tenant.as_str(), key.id.to_string()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let of = key.id.to_string();
    Ok(Some(JobDetail {
        record: record(row)?,
        flow: row.get("flow")?,
        payload: json(&row.get::<_, String>("payload")?, "payload", &of)?,
        digest: row.get::<_, String>("digest")?.parse().map_err(|_| unreadable("digest", &of))?,
        result: row.get::<_, Option<String>>("result")?.map(|text| json(&text, "result", &of)).transpose()?,
    }))
}

pub(super) fn list(
    connection: &Connection,
    filter: &JobFilter,
    before: Option<u64>,
    most: usize,
) -> Result<JobPage, Fault> {
    let most = most.min(PAGE_MAX);
    // Said outright, so that the index of a tenant's jobs is used.
    let tenant = if filter.tenant.is_some() { "tenant_id = ?1" } else { "?1 IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM jobs
         WHERE {tenant} AND (?2 IS NULL OR (subject = ?2 AND delegators IS ?7)) AND (?3 IS NULL OR state = ?3)
           AND (?4 IS NULL OR kind = ?4) AND seq < ?5
         ORDER BY seq DESC LIMIT ?6"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let before = before.and_then(|mark| i64::try_from(mark).ok()).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![
        filter.tenant.as_ref().map(TenantId::as_str),
        filter.owner.as_ref().map(|owner| owner.subject().as_str()),
        filter.state.map(JobState::as_str),
        filter.kind,
        before,
        count(most).saturating_add(1),
        filter.owner.as_ref().and_then(CallOwner::delegators)
    ])?;
    let mut page = JobPage::default();
    let mut last = None;
    while let Some(row) = rows.next()? {
        if page.jobs.len() == most {
            page.next = last;
            break;
        }
        last = u64::try_from(row.get::<_, i64>("seq")?).ok();
        page.jobs.push(record(row)?);
    }
    Ok(page)
}

pub(super) fn events(connection: &Connection, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, Fault> {
    let seq: Option<i64> = connection
        .prepare_cached("SELECT seq FROM jobs WHERE tenant_id = ?1 AND id = ?2")?
        .query_row(params![key.tenant.as_str(), key.id.to_string()], |row| row.get(0))
        .optional()?;
    let Some(seq) = seq else { return Ok(Vec::new()) };
    let mut statement = connection.prepare_cached(
        "SELECT number, at, kind, data FROM job_events WHERE seq = ?1 AND number > ?2 ORDER BY number LIMIT ?3",
    )?;
    let after = i64::saturating_from(after);
    let mut rows = statement.query(params![seq, after, count(most.min(PAGE_MAX))])?;
    let mut events = Vec::new();
    while let Some(row) = rows.next()? {
        events.push(JobEvent {
            seq: number(row, "number", &key.id.to_string())?,
            at: UnixMillis(row.get("at")?),
            kind: row.get("kind")?,
            data: json(&row.get::<_, String>("data")?, "data", &key.id.to_string())?,
        });
    }
    Ok(events)
}

pub(super) fn counts(connection: &Connection) -> Result<JobCounts, Fault> {
    let (waiting, running): (i64, i64) = connection
        .prepare_cached("SELECT waiting, running FROM job_tenants WHERE tenant_id = ''")?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(JobCounts { waiting: waiting.unsigned_abs(), running: running.unsigned_abs() })
}

/// A record out of a row with [`COLUMNS`].
pub(super) fn record(row: &Row<'_>) -> Result<JobRecord, Fault> {
    let of: String = row.get("id")?;
    let state: String = row.get("state")?;
    let error: Option<String> = row.get("error")?;
    let time = |column: &str| -> rusqlite::Result<Option<UnixMillis>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(UnixMillis))
    };
    Ok(JobRecord {
        key: JobKey {
            tenant: row.get::<_, String>("tenant_id")?.parse().map_err(|_| unreadable("tenant_id", &of))?,
            id: of.parse::<InvocationId>().map_err(|_| unreadable("id", &of))?,
        },
        kind: row.get("kind")?,
        label: row.get("label")?,
        owner: call_owner(row, &of)?,
        priority: JobPriority::near(number(row, "priority", &of)?),
        state: JobState::of_word(&state).ok_or_else(|| unreadable("state", &of))?,
        attempts: number(row, "attempts", &of)?,
        interruptions: number(row, "interruptions", &of)?,
        attempts_max: number(row, "attempts_max", &of)?,
        progress_percent: row.get("progress")?,
        phase: row.get("phase")?,
        cancel_asked: row.get("cancel_asked")?,
        error: error.map(|text| json(&text, "error", &of)).transpose()?,
        created_at: UnixMillis(row.get("created_at")?),
        due_at: UnixMillis(row.get("due_at")?),
        started_at: time("started_at")?,
        ended_at: time("ended_at")?,
    })
}

/// A column with a number that is never negative.
pub(super) fn number<T: TryFrom<i64>>(row: &Row<'_>, column: &'static str, of: &str) -> Result<T, Fault> {
    T::try_from(row.get::<_, i64>(column)?).map_err(|_| unreadable(column, of).into())
}

pub(super) fn json(text: &str, column: &'static str, of: &str) -> Result<Value, Unreadable> {
    serde_json::from_str(text).map_err(|_| unreadable(column, of))
}

pub(super) fn unreadable(column: &'static str, of: &str) -> Unreadable {
    Unreadable { column, of: of.to_owned() }
}
