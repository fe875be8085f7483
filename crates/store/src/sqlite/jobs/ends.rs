//! What becomes of jobs: progress, the ends of attempts, wishes to cancel, and what a person finds out. Each is one savepoint of
//! the writer: job, counters and event change together.

use std::time::Duration;

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::job_store::{AttemptEnd, CancelAsked, DedupeKey, FencingToken, FoundResult, JobKey, JobState, WriteOutcome};
use rusqlite::{Connection, OptionalExtension as _, named_params};
use serde_json::{Value, json};

use super::counters::{event, moved};
use crate::sqlite::faults::Fault;
use crate::stored_row::unreadable;

pub(super) fn report(
    connection: &Connection,
    now: UnixMillis,
    key: &JobKey,
    fence: FencingToken,
    percent: Option<f64>,
    phase: Option<&str>,
) -> Result<WriteOutcome, Fault> {
    let Some((seq, ..)) = held(connection, key, fence)? else { return Ok(WriteOutcome::Fenced) };
    let (percent, phase): (Option<f64>, Option<String>) = connection
        .prepare_cached(
            "UPDATE jobs SET progress = coalesce(:percent, progress), phase = coalesce(:phase, phase) WHERE seq = :seq
             RETURNING progress, phase",
        )?
        .query_row(named_params! { ":seq": seq, ":percent": percent, ":phase": phase }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    event(connection, now, seq, "progress", &json!({ "progress_percent": percent, "current_phase": phase }))?;
    Ok(WriteOutcome::Kept(JobState::Running))
}

pub(super) fn finish(
    connection: &Connection,
    now: UnixMillis,
    key: &JobKey,
    fence: FencingToken,
    end: &AttemptEnd,
) -> Result<WriteOutcome, Fault> {
    let Some((seq, cancel_asked, attempts)) = held(connection, key, fence)? else { return Ok(WriteOutcome::Fenced) };
    let tenant = key.tenant.as_str();
    // JOB-8.
    let if_first = if attempts <= 1 { DedupeKey::Freed } else { DedupeKey::Kept };
    let (state, error, dedupe) = match end {
        AttemptEnd::Done(result) => {
            connection
                .prepare_cached("UPDATE job_bodies SET result = :result WHERE seq = :seq")?
                .execute(named_params! { ":seq": seq, ":result": result.to_string() })?;
            (JobState::Done, None, DedupeKey::Kept)
        }
        AttemptEnd::DoneKeeping { result, payload } => {
            write_bodies(connection, seq, result, payload)?;
            (JobState::Done, None, DedupeKey::Kept)
        }
        AttemptEnd::Failed { error, key } => (JobState::Failed, Some(error), *key),
        AttemptEnd::Dead { error, key } => (JobState::Dead, Some(error), *key),
        AttemptEnd::Cancelled { error, key } => (JobState::Cancelled, Some(error), *key),
        AttemptEnd::Retry { error, .. } | AttemptEnd::Interrupted { error } if cancel_asked => {
            (JobState::Cancelled, Some(error), DedupeKey::Kept)
        }
        AttemptEnd::PutBack { error, .. } if cancel_asked => (JobState::Cancelled, Some(error), if_first),
        AttemptEnd::HandBack if cancel_asked => (JobState::Cancelled, None, if_first),
        AttemptEnd::Retry { error, after } => return retry(connection, now, tenant, seq, "retry", error, *after),
        AttemptEnd::Interrupted { error } => {
            connection
                .prepare_cached("UPDATE jobs SET interruptions = interruptions + 1 WHERE seq = :seq")?
                .execute(named_params! { ":seq": seq })?;
            return retry(connection, now, tenant, seq, "interrupted", error, Duration::ZERO);
        }
        AttemptEnd::PutBack { error, after } => {
            uncount(connection, seq)?;
            return retry(connection, now, tenant, seq, "put_back", error, *after);
        }
        AttemptEnd::HandBack => return hand_back(connection, now, tenant, seq),
    };
    ended(connection, now, seq, state, error, dedupe)?;
    moved(connection, tenant, 0, 0, -1)?;
    Ok(WriteOutcome::Kept(state))
}

pub(super) fn resolve(
    connection: &Connection,
    now: UnixMillis,
    key: &JobKey,
    was: &Value,
    found: &Result<FoundResult, Value>,
) -> Result<WriteOutcome, Fault> {
    let failed: Option<(i64, Option<String>)> = connection
        .prepare_cached("SELECT seq, error FROM jobs WHERE tenant_id = :tenant_id AND id = :id AND state = 'failed'")?
        .query_row(named_params! { ":tenant_id": key.tenant.as_str(), ":id": key.id.to_string() }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let same = |error: &Option<String>| {
        error.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok()).as_ref() == Some(was)
    };
    let Some((seq, _)) = failed.filter(|(_, error)| same(error)) else { return Ok(WriteOutcome::Fenced) };
    let (state, data) = match found {
        Ok(FoundResult { result, payload }) => {
            write_bodies(connection, seq, result, payload)?;
            connection
                .prepare_cached("UPDATE jobs SET state = 'done', error = NULL, progress = 100.0 WHERE seq = :seq")?
                .execute(named_params! { ":seq": seq })?;
            (JobState::Done, json!({ "state": JobState::Done.as_str() }))
        }
        Err(error) => {
            connection
                .prepare_cached(
                    "UPDATE jobs SET error = :error, dedupe_key = NULL, dedupe_until = NULL WHERE seq = :seq",
                )?
                .execute(named_params! { ":seq": seq, ":error": error.to_string() })?;
            (JobState::Failed, json!({ "state": JobState::Failed.as_str(), "error": error }))
        }
    };
    event(connection, now, seq, "resolved", &data)?;
    Ok(WriteOutcome::Kept(state))
}

pub(super) fn ask_cancel(
    connection: &Connection,
    now: UnixMillis,
    key: &JobKey,
    reason: &str,
    error: &Value,
) -> Result<CancelAsked, Fault> {
    let found: Option<(i64, String, bool, i64)> = connection
        .prepare_cached(
            "SELECT seq, state, cancel_asked IS NOT NULL, attempts FROM jobs WHERE tenant_id = :tenant_id AND id = :id",
        )?
        .query_row(named_params! { ":tenant_id": key.tenant.as_str(), ":id": key.id.to_string() }, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((seq, word, asked, attempts)) = found else { return Ok(CancelAsked::Unknown) };
    let state = JobState::of_word(&word).ok_or_else(|| unreadable("state", &key.id.to_string()))?;
    if state.is_end() || asked {
        return Ok(CancelAsked::Now(state));
    }
    connection
        .prepare_cached("UPDATE jobs SET cancel_asked = :reason WHERE seq = :seq")?
        .execute(named_params! { ":seq": seq, ":reason": reason })?;
    event(connection, now, seq, "cancel_asked", &json!({ "reason": reason }))?;
    let ready = match state {
        JobState::Running => return Ok(CancelAsked::Now(state)),
        JobState::Queued => -1,
        _ => 0,
    };
    // JOB-8.
    let dedupe = if attempts == 0 { DedupeKey::Freed } else { DedupeKey::Kept };
    ended(connection, now, seq, JobState::Cancelled, Some(error), dedupe)?;
    moved(connection, key.tenant.as_str(), -1, ready, 0)?;
    Ok(CancelAsked::Now(JobState::Cancelled))
}

/// The running job of this key under this fence: was it asked to end, and which attempt is it?
fn held(connection: &Connection, key: &JobKey, fence: FencingToken) -> Result<Option<(i64, bool, i64)>, Fault> {
    Ok(connection
        .prepare_cached(
            "SELECT seq, cancel_asked IS NOT NULL, attempts FROM jobs
             WHERE tenant_id = :tenant_id AND id = :id AND fence = :fence AND state = 'running'",
        )?
        .query_row(
            named_params! {
                ":tenant_id": key.tenant.as_str(),
                ":id": key.id.to_string(),
                ":fence": i64::saturating_from(fence.0),
            },
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()?)
}

fn ended(
    connection: &Connection,
    now: UnixMillis,
    seq: i64,
    state: JobState,
    error: Option<&Value>,
    dedupe: DedupeKey,
) -> Result<(), Fault> {
    // The event first: afterwards the job does not change any more.
    let data = error.map_or_else(|| json!({}), |error| json!({ "error": error }));
    event(connection, now, seq, state.as_str(), &data)?;
    connection
        .prepare_cached(
            "UPDATE jobs SET state = :state, owner_id = NULL, ended_at = :now, error = :error,
                             progress = CASE :state WHEN 'done' THEN 100.0 ELSE progress END,
                             dedupe_key = CASE WHEN :dedupe THEN NULL ELSE dedupe_key END,
                             dedupe_until = CASE WHEN :dedupe THEN NULL ELSE dedupe_until END
             WHERE seq = :seq",
        )?
        .execute(named_params! {
            ":seq": seq,
            ":state": state.as_str(),
            ":now": now.0,
            ":error": error.map(Value::to_string),
            ":dedupe": dedupe == DedupeKey::Freed,
        })?;
    Ok(())
}

fn retry(
    connection: &Connection,
    now: UnixMillis,
    tenant: &str,
    seq: i64,
    word: &str,
    error: &Value,
    after: Duration,
) -> Result<WriteOutcome, Fault> {
    let (state, ready) = if after.is_zero() { (JobState::Queued, 1) } else { (JobState::Delayed, 0) };
    let after_ms = u64::saturating_from(after.as_millis());
    wait_again(connection, seq, state, now.plus(after), Some(error))?;
    moved(connection, tenant, 1, ready, -1)?;
    event(connection, now, seq, word, &json!({ "error": error, "after_ms": after_ms }))?;
    Ok(WriteOutcome::Kept(state))
}

fn hand_back(connection: &Connection, now: UnixMillis, tenant: &str, seq: i64) -> Result<WriteOutcome, Fault> {
    wait_again(connection, seq, JobState::Queued, now, None)?;
    uncount(connection, seq)?;
    moved(connection, tenant, 1, 1, -1)?;
    event(connection, now, seq, "handed_back", &json!({}))?;
    Ok(WriteOutcome::Kept(JobState::Queued))
}

/// What came out, and what is kept of what went in.
fn write_bodies(connection: &Connection, seq: i64, result: &Value, payload: &Value) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE job_bodies SET result = :result, payload = :payload WHERE seq = :seq")?
        .execute(named_params! { ":seq": seq, ":result": result.to_string(), ":payload": payload.to_string() })?;
    Ok(())
}

/// The attempt does not count.
fn uncount(connection: &Connection, seq: i64) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE jobs SET attempts = attempts - 1 WHERE seq = :seq AND attempts > 0")?
        .execute(named_params! { ":seq": seq })?;
    Ok(())
}

/// Lets a job wait for its next attempt, in the order of `due`.
fn wait_again(
    connection: &Connection,
    seq: i64,
    state: JobState,
    due: UnixMillis,
    error: Option<&Value>,
) -> Result<(), Fault> {
    // `rank` of a due time of zero is what the priority is worth, as a negative number.
    connection
        .prepare_cached(
            "UPDATE jobs SET state = :state, owner_id = NULL, rank = rank - due_at + :due, due_at = :due,
                             error = coalesce(:error, error)
             WHERE seq = :seq",
        )?
        .execute(named_params! {
            ":seq": seq,
            ":state": state.as_str(),
            ":due": due.0,
            ":error": error.map(Value::to_string),
        })?;
    Ok(())
}
