//! What is done to a queue, each in one savepoint of the writer: job, counters and event change together.

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::ids::InvocationId;
use ports::clock::UnixMillis;
use ports::job_store::{
    AdoptOutcome, AttemptEnd, CancelAsked, DedupeKey, EnqueueOutcome, FencingToken, FoundResult, JobKey, JobState,
    NewJob, OwnerId, PROGRESS_KEPT_MAX, WriteOutcome, rank,
};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::{Value, json};

use super::reads::unreadable;
use super::{ago, count};
use crate::sqlite::faults::Fault;
use crate::sqlite::ledger::claimed;

/// Changes the counters of a tenant, and of all tenants together.
pub(super) fn moved(
    connection: &Connection,
    tenant: &str,
    waiting: i64,
    ready: i64,
    running: i64,
) -> Result<(), Fault> {
    // The row of a new tenant is made first: an upsert would check the proposed row, whose counters may be below zero.
    connection.prepare_cached("INSERT OR IGNORE INTO job_tenants (tenant_id) VALUES (?1)")?.execute([tenant])?;
    connection
        .prepare_cached(
            "UPDATE job_tenants SET waiting = waiting + ?2, ready = ready + ?3, running = running + ?4 WHERE tenant_id = ?1",
        )?
        .execute(params![tenant, waiting, ready, running])?;
    connection
        .prepare_cached("UPDATE job_tenants SET waiting = waiting + ?1, running = running + ?2 WHERE tenant_id = ''")?
        .execute([waiting, running])?;
    Ok(())
}

/// Adds an event; too much progress makes room.
pub(super) fn event(connection: &Connection, now: UnixMillis, seq: i64, kind: &str, data: &Value) -> Result<(), Fault> {
    let number: i64 = connection
        .prepare_cached("UPDATE jobs SET events = events + 1 WHERE seq = ?1 RETURNING events")?
        .query_row([seq], |row| row.get(0))?;
    connection
        .prepare_cached("INSERT INTO job_events (seq, number, at, kind, data) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![seq, number, now.0, kind, data.to_string()])?;
    if kind == "progress" {
        let oldest = number.saturating_sub(i64::saturating_from(PROGRESS_KEPT_MAX));
        connection
            .prepare_cached("DELETE FROM job_events WHERE seq = ?1 AND number <= ?2 AND kind = 'progress'")?
            .execute([seq, oldest])?;
    }
    Ok(())
}

pub(super) fn enqueue(
    connection: &Connection,
    now: UnixMillis,
    job: &NewJob,
    payload: &str,
) -> Result<EnqueueOutcome, Fault> {
    if let Some((id, same)) = existing(connection, now, job)? {
        return Ok(EnqueueOutcome::Existing { id, same });
    }
    if let Some((id, same)) = claimed_by(connection, now, job)? {
        return Ok(EnqueueOutcome::Claimed { id, same });
    }
    let waiting = |tenant: &str| -> Result<u64, Fault> {
        let waiting: Option<i64> = connection
            .prepare_cached("SELECT waiting FROM job_tenants WHERE tenant_id = ?1")?
            .query_row([tenant], |row| row.get(0))
            .optional()?;
        Ok(waiting.unwrap_or_default().unsigned_abs())
    };
    let of_flow: Option<i64> = connection
        .prepare_cached("SELECT waiting FROM job_flows WHERE tenant_id = ?1 AND flow = ?2")?
        .query_row([job.key.tenant.as_str(), &job.flow], |row| row.get(0))
        .optional()?;
    if of_flow.unwrap_or_default().unsigned_abs() >= job.bounds.per_flow
        || waiting(job.key.tenant.as_str())? >= job.bounds.per_tenant
        || waiting("")? >= job.bounds.total
    {
        return Ok(EnqueueOutcome::Full);
    }
    let (state, ready) = if job.delay.is_zero() { (JobState::Queued, 1) } else { (JobState::Delayed, 0) };
    let seq = insert(connection, now, job, payload, state, None)?;
    moved(connection, job.key.tenant.as_str(), 1, ready, 0)?;
    event(connection, now, seq, "queued", &json!({}))?;
    Ok(EnqueueOutcome::New)
}

pub(super) fn adopt(
    connection: &Connection,
    now: UnixMillis,
    job: &NewJob,
    payload: &str,
    owner: OwnerId,
) -> Result<AdoptOutcome, Fault> {
    if let Some((id, same)) = existing(connection, now, job)? {
        return Ok(AdoptOutcome::Existing { id, same });
    }
    if let Some((id, same)) = claimed_by(connection, now, job)? {
        return Ok(AdoptOutcome::Claimed { id, same });
    }
    let seq = insert(connection, now, job, payload, JobState::Running, Some(owner))?;
    moved(connection, job.key.tenant.as_str(), 0, 0, 1)?;
    event(connection, now, seq, "started", &json!({ "attempt": 1 }))?;
    Ok(AdoptOutcome::Running(FencingToken(1)))
}

/// The call that has this job's key in the ledger.
fn claimed_by(connection: &Connection, now: UnixMillis, job: &NewJob) -> Result<Option<(InvocationId, bool)>, Fault> {
    let Some(act) = &job.act else { return Ok(None) };
    claimed(connection, now, (&job.key.tenant, job.key.id), act)
}

/// The job that this one would be again. A dedupe key whose window has passed is given up first.
fn existing(connection: &Connection, now: UnixMillis, job: &NewJob) -> Result<Option<(InvocationId, bool)>, Fault> {
    let tenant = job.key.tenant.as_str();
    let of_id: Option<(String, String)> = connection
        .prepare_cached("SELECT id, digest FROM jobs WHERE tenant_id = ?1 AND id = ?2")?
        .query_row(params![tenant, job.key.id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let found = match (&job.dedupe, of_id) {
        (_, Some(found)) => Some(found),
        (None, None) => None,
        (Some(dedupe), None) => {
            connection
                .prepare_cached(
                    "UPDATE jobs SET dedupe_key = NULL, dedupe_until = NULL
                     WHERE tenant_id = ?1 AND kind = ?2 AND dedupe_key = ?3 AND dedupe_until <= ?4 AND ended_at IS NOT NULL",
                )?
                .execute(params![tenant, job.kind, dedupe.key, now.0])?;
            connection
                .prepare_cached("SELECT id, digest FROM jobs WHERE tenant_id = ?1 AND kind = ?2 AND dedupe_key = ?3")?
                .query_row(params![tenant, job.kind, dedupe.key], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?
        }
    };
    found
        .map(|(id, digest)| {
            let same = digest == job.digest.to_string();
            Ok((id.parse().map_err(|_| unreadable("id", &id))?, same))
        })
        .transpose()
}

fn insert(
    connection: &Connection,
    now: UnixMillis,
    job: &NewJob,
    payload: &str,
    state: JobState,
    owner: Option<OwnerId>,
) -> Result<i64, Fault> {
    let due = now.plus(job.delay);
    let runs = owner.is_some();
    let dedupe = job.dedupe.as_ref();
    let seq: i64 = connection
        .prepare_cached(
            "INSERT INTO jobs (tenant_id, id, kind, label, subject, digest, priority, state, rank, attempts, attempts_max,
                               dedupe_key, dedupe_until, owner_id, fence, created_at, due_at, started_at, flow, delegators)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
             RETURNING seq",
        )?
        .query_row(
            params![
                job.key.tenant.as_str(),
                job.key.id.to_string(),
                job.kind,
                job.label,
                job.owner.subject().as_str(),
                job.digest.to_string(),
                job.priority.level(),
                state.as_str(),
                rank(due, job.priority),
                i64::from(runs),
                job.attempts_max.max(1),
                dedupe.map(|dedupe| dedupe.key.as_str()),
                dedupe.map(|dedupe| now.plus(dedupe.window).0),
                owner.map(|owner| owner.0.to_string()),
                i64::from(runs),
                now.0,
                due.0,
                runs.then_some(now.0),
                job.flow,
                job.owner.delegators(),
            ],
            |row| row.get(0),
        )?;
    connection
        .prepare_cached("INSERT INTO job_bodies (seq, payload) VALUES (?1, ?2)")?
        .execute(params![seq, payload])?;
    Ok(seq)
}

/// The running job of this key under this fence: was it asked to end, and which attempt is it?
fn held(connection: &Connection, key: &JobKey, fence: FencingToken) -> Result<Option<(i64, bool, i64)>, Fault> {
    Ok(connection
        .prepare_cached(
            "SELECT seq, cancel_asked IS NOT NULL, attempts FROM jobs
             WHERE tenant_id = ?1 AND id = ?2 AND fence = ?3 AND state = 'running'",
        )?
        .query_row(params![key.tenant.as_str(), key.id.to_string(), i64::saturating_from(fence.0)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?)
}

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
            "UPDATE jobs SET progress = coalesce(?2, progress), phase = coalesce(?3, phase) WHERE seq = ?1
             RETURNING progress, phase",
        )?
        .query_row(params![seq, percent, phase], |row| Ok((row.get(0)?, row.get(1)?)))?;
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
                .prepare_cached("UPDATE job_bodies SET result = ?2 WHERE seq = ?1")?
                .execute(params![seq, result.to_string()])?;
            (JobState::Done, None, DedupeKey::Kept)
        }
        AttemptEnd::DoneKeeping { result, payload } => {
            connection
                .prepare_cached("UPDATE job_bodies SET result = ?2, payload = ?3 WHERE seq = ?1")?
                .execute(params![seq, result.to_string(), payload.to_string()])?;
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
                .prepare_cached("UPDATE jobs SET interruptions = interruptions + 1 WHERE seq = ?1")?
                .execute([seq])?;
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
            "UPDATE jobs SET state = ?2, owner_id = NULL, ended_at = ?3, error = ?4,
                             progress = CASE ?2 WHEN 'done' THEN 100.0 ELSE progress END,
                             dedupe_key = CASE WHEN ?5 THEN NULL ELSE dedupe_key END,
                             dedupe_until = CASE WHEN ?5 THEN NULL ELSE dedupe_until END
             WHERE seq = ?1",
        )?
        .execute(params![seq, state.as_str(), now.0, error.map(Value::to_string), dedupe == DedupeKey::Freed])?;
    Ok(())
}

pub(super) fn resolve(
    connection: &Connection,
    now: UnixMillis,
    key: &JobKey,
    was: &Value,
    found: &Result<FoundResult, Value>,
) -> Result<WriteOutcome, Fault> {
    let failed: Option<(i64, Option<String>)> = connection
        .prepare_cached("SELECT seq, error FROM jobs WHERE tenant_id = ?1 AND id = ?2 AND state = 'failed'")?
        .query_row(params![key.tenant.as_str(), key.id.to_string()], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let same = |error: &Option<String>| {
        error.as_deref().and_then(|text| serde_json::from_str::<Value>(text).ok()).as_ref() == Some(was)
    };
    let Some((seq, _)) = failed.filter(|(_, error)| same(error)) else { return Ok(WriteOutcome::Fenced) };
    let (state, data) = match found {
        Ok(FoundResult { result, payload }) => {
            connection
                .prepare_cached("UPDATE job_bodies SET result = ?2, payload = ?3 WHERE seq = ?1")?
                .execute(params![seq, result.to_string(), payload.to_string()])?;
            connection
                .prepare_cached("UPDATE jobs SET state = 'done', error = NULL, progress = 100.0 WHERE seq = ?1")?
                .execute([seq])?;
            (JobState::Done, json!({ "state": JobState::Done.as_str() }))
        }
        Err(error) => {
            connection
                .prepare_cached("UPDATE jobs SET error = ?2, dedupe_key = NULL, dedupe_until = NULL WHERE seq = ?1")?
                .execute(params![seq, error.to_string()])?;
            (JobState::Failed, json!({ "state": JobState::Failed.as_str(), "error": error }))
        }
    };
    event(connection, now, seq, "resolved", &data)?;
    Ok(WriteOutcome::Kept(state))
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

/// The attempt does not count.
fn uncount(connection: &Connection, seq: i64) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE jobs SET attempts = attempts - 1 WHERE seq = ?1 AND attempts > 0")?
        .execute([seq])?;
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
            "UPDATE jobs SET state = ?2, owner_id = NULL, rank = rank - due_at + ?3, due_at = ?3,
                             error = coalesce(?4, error)
             WHERE seq = ?1",
        )?
        .execute(params![seq, state.as_str(), due.0, error.map(Value::to_string)])?;
    Ok(())
}

pub(super) fn hasten(connection: &Connection, now: UnixMillis, key: &JobKey) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "UPDATE jobs SET rank = rank - due_at + ?3, due_at = ?3
             WHERE tenant_id = ?1 AND id = ?2 AND state = 'delayed' AND due_at > ?3",
        )?
        .execute(params![key.tenant.as_str(), key.id.to_string(), now.0])?;
    Ok(())
}

pub(super) fn release_key(connection: &Connection, key: &JobKey) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "UPDATE jobs SET dedupe_key = NULL, dedupe_until = NULL
             WHERE tenant_id = ?1 AND id = ?2 AND ended_at IS NOT NULL",
        )?
        .execute(params![key.tenant.as_str(), key.id.to_string()])?;
    Ok(())
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
            "SELECT seq, state, cancel_asked IS NOT NULL, attempts FROM jobs WHERE tenant_id = ?1 AND id = ?2",
        )?
        .query_row(params![key.tenant.as_str(), key.id.to_string()], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })
        .optional()?;
    let Some((seq, word, asked, attempts)) = found else { return Ok(CancelAsked::Unknown) };
    let state = JobState::of_word(&word).ok_or_else(|| unreadable("state", &key.id.to_string()))?;
    if state.is_end() || asked {
        return Ok(CancelAsked::Now(state));
    }
    connection.prepare_cached("UPDATE jobs SET cancel_asked = ?2 WHERE seq = ?1")?.execute(params![seq, reason])?;
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

pub(super) fn rewrite_payload(connection: &Connection, key: &JobKey, payload: &str) -> Result<bool, Fault> {
    let rewritten = connection
        .prepare_cached(
            "UPDATE job_bodies SET payload = ?3
             WHERE seq = (SELECT seq FROM jobs WHERE tenant_id = ?1 AND id = ?2) AND payload <> 'null'",
        )?
        .execute(params![key.tenant.as_str(), key.id.to_string(), payload])?;
    Ok(rewritten > 0)
}

pub(super) fn prune(
    connection: &Connection,
    now: UnixMillis,
    retention: Duration,
    dead_retention: Duration,
    most: usize,
) -> Result<u64, Fault> {
    let mut over = connection.prepare_cached(
        "SELECT seq FROM jobs
         WHERE ended_at IS NOT NULL AND ended_at < CASE state WHEN 'dead' THEN ?2 ELSE ?1 END AND ended_at < max(?1, ?2)
           AND (dedupe_until IS NULL OR dedupe_until <= ?3)
         ORDER BY ended_at LIMIT ?4",
    )?;
    let (ended, dead) = (ago(now, retention), ago(now, dead_retention));
    let over: Vec<i64> =
        over.query_map(params![ended, dead, now.0, count(most)], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    for seq in &over {
        for sql in [
            "DELETE FROM job_events WHERE seq = ?1",
            "DELETE FROM job_bodies WHERE seq = ?1",
            "DELETE FROM jobs WHERE seq = ?1",
        ] {
            connection.prepare_cached(sql)?.execute([seq])?;
        }
    }
    // Tenants that have nothing to do with the queue any more need no turn.
    connection
        .prepare_cached("DELETE FROM job_tenants WHERE tenant_id <> '' AND waiting = 0 AND ready = 0 AND running = 0")?
        .execute([])?;
    Ok(u64::saturating_from(over.len()))
}
