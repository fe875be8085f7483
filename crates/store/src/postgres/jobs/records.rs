//! Reads jobs back from rows; what cannot be read is named in a fault.

use ports::job_store::{FencingToken, JobKey, JobPriority, JobRecord, JobState, TakenJob};
use tokio_postgres::Row;

use crate::postgres::columns::{call_owner, json, number, opt_json, opt_time, time};
use crate::postgres::faults::Fault;
use crate::postgres::statement::{column, unreadable, word};

/// The columns that [`record`] reads.
pub(super) const COLUMNS: &str = "jobs.seq, jobs.tenant_id, jobs.id, jobs.kind, jobs.label, jobs.subject, jobs.delegators, jobs.priority, \
                                  jobs.state, jobs.attempts, jobs.interruptions, jobs.attempts_max, jobs.progress, jobs.phase, \
                                  jobs.cancel_asked, jobs.error, jobs.created_at, jobs.due_at, jobs.started_at, \
                                  jobs.ended_at";

/// A record out of a row with [`COLUMNS`].
pub(super) fn record(row: &Row) -> Result<JobRecord, Fault> {
    let of: &str = column(row, "id")?;
    Ok(JobRecord {
        key: key(row)?,
        kind: column(row, "kind")?,
        label: column(row, "label")?,
        owner: call_owner(row, of)?,
        priority: JobPriority::near(number(row, "priority", of)?),
        state: state(row, of)?,
        attempts: number(row, "attempts", of)?,
        interruptions: number(row, "interruptions", of)?,
        attempts_max: number(row, "attempts_max", of)?,
        progress_percent: column(row, "progress")?,
        phase: opt_json(row, "phase", of)?,
        cancel_asked: opt_json(row, "cancel_asked", of)?,
        error: opt_json(row, "error", of)?,
        created_at: time(row, "created_at")?,
        due_at: time(row, "due_at")?,
        started_at: opt_time(row, "started_at")?,
        ended_at: opt_time(row, "ended_at")?,
    })
}

/// A job in a worker's hands, out of a row with [`COLUMNS`], `fence` and `payload`.
pub(super) fn taken(row: &Row) -> Result<TakenJob, Fault> {
    let of: &str = column(row, "id")?;
    Ok(TakenJob {
        record: record(row)?,
        payload: json(row, "payload", of)?,
        fence: FencingToken(number(row, "fence", of)?),
    })
}

/// What names a job.
pub(super) fn key(row: &Row) -> Result<JobKey, Fault> {
    let of: &str = column(row, "id")?;
    Ok(JobKey { tenant: word(row, "tenant_id", of)?, id: word(row, "id", of)? })
}

/// Where a job stands.
pub(super) fn state(row: &Row, of: &str) -> Result<JobState, Fault> {
    JobState::of_word(column(row, "state")?).ok_or_else(|| unreadable("state", of).into())
}
