//! Jobs and their events out of rows.

use ports::job_store::{FencingToken, JobDetail, JobEvent, JobKey, JobPriority, JobRecord, JobState, TakenJob};

use crate::stored_row::StoredRow;

/// The columns that [`record`] reads.
pub(crate) const COLUMNS: &str = "jobs.seq, jobs.tenant_id, jobs.id, jobs.kind, jobs.label, jobs.subject, jobs.delegators, \
                                  jobs.priority, jobs.state, jobs.attempts, jobs.interruptions, jobs.attempts_max, \
                                  jobs.progress, jobs.phase, jobs.cancel_asked, jobs.error, jobs.created_at, jobs.due_at, \
                                  jobs.started_at, jobs.ended_at";

/// A record out of a row with [`COLUMNS`].
pub(crate) fn record<R: StoredRow>(row: &R) -> Result<JobRecord, R::Fault> {
    let of = row.text("id")?;
    Ok(JobRecord {
        key: key(row)?,
        kind: row.text("kind")?.to_owned(),
        label: row.text("label")?.to_owned(),
        owner: row.call_owner(of)?,
        priority: JobPriority::near(row.number("priority", of)?),
        state: state(row, of)?,
        attempts: row.number("attempts", of)?,
        interruptions: row.number("interruptions", of)?,
        attempts_max: row.number("attempts_max", of)?,
        progress_percent: row.opt_real("progress")?,
        phase: row.opt_json_text("phase", of)?,
        cancel_asked: row.opt_json_text("cancel_asked", of)?,
        error: row.opt_json("error", of)?,
        created_at: row.time("created_at")?,
        due_at: row.time("due_at")?,
        started_at: row.opt_time("started_at")?,
        ended_at: row.opt_time("ended_at")?,
    })
}

/// A record with its body, out of a row with [`COLUMNS`], `flow`, `digest`, `payload` and `result`.
pub(crate) fn detail<R: StoredRow>(row: &R) -> Result<JobDetail, R::Fault> {
    let of = row.text("id")?;
    Ok(JobDetail {
        record: record(row)?,
        flow: row.text("flow")?.to_owned(),
        payload: row.json("payload", of)?,
        digest: row.word("digest", of)?,
        result: row.opt_json("result", of)?,
    })
}

/// A job in a worker's hands, out of a row with [`COLUMNS`], `fence` and `payload`.
pub(crate) fn taken<R: StoredRow>(row: &R) -> Result<TakenJob, R::Fault> {
    let of = row.text("id")?;
    Ok(TakenJob {
        record: record(row)?,
        payload: row.json("payload", of)?,
        fence: FencingToken(row.number("fence", of)?),
    })
}

/// What names a job.
pub(crate) fn key<R: StoredRow>(row: &R) -> Result<JobKey, R::Fault> {
    let of = row.text("id")?;
    Ok(JobKey { tenant: row.word("tenant_id", of)?, id: row.word("id", of)? })
}

/// Where a job stands.
pub(crate) fn state<R: StoredRow>(row: &R, of: &str) -> Result<JobState, R::Fault> {
    row.one_of("state", of, JobState::of_word)
}

/// An event of the job `of`.
pub(crate) fn event<R: StoredRow>(row: &R, of: &str) -> Result<JobEvent, R::Fault> {
    Ok(JobEvent {
        seq: row.number("number", of)?,
        at: row.time("at")?,
        kind: row.text("kind")?.to_owned(),
        data: row.json("data", of)?,
    })
}
