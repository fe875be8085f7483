//! Putting jobs into the queue, or work that runs already among the jobs: once for each id and each dedupe key (JOB-3).

use contract::ids::InvocationId;
use ports::clock::UnixMillis;
use ports::job_store::{AdoptOutcome, EnqueueOutcome, FencingToken, JobState, NewJob, OwnerId, rank};
use rusqlite::{Connection, OptionalExtension as _, named_params};
use serde_json::json;

use super::counters::{event, moved};
use crate::sqlite::faults::Fault;
use crate::sqlite::ledger::claimed;
use crate::stored_row::unreadable;

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
            .prepare_cached("SELECT waiting FROM job_tenants WHERE tenant_id = :tenant_id")?
            .query_row(named_params! { ":tenant_id": tenant }, |row| row.get(0))
            .optional()?;
        Ok(waiting.unwrap_or_default().unsigned_abs())
    };
    let of_flow: Option<i64> = connection
        .prepare_cached("SELECT waiting FROM job_flows WHERE tenant_id = :tenant_id AND flow = :flow")?
        .query_row(named_params! { ":tenant_id": job.key.tenant.as_str(), ":flow": &job.flow }, |row| row.get(0))
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
        .prepare_cached("SELECT id, digest FROM jobs WHERE tenant_id = :tenant_id AND id = :id")?
        .query_row(named_params! { ":tenant_id": tenant, ":id": job.key.id.to_string() }, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
    let found = match (&job.dedupe, of_id) {
        (_, Some(found)) => Some(found),
        (None, None) => None,
        (Some(dedupe), None) => {
            connection
                .prepare_cached(
                    "UPDATE jobs SET dedupe_key = NULL, dedupe_until = NULL
                     WHERE tenant_id = :tenant_id AND kind = :kind AND dedupe_key = :key AND dedupe_until <= :now
                     AND ended_at IS NOT NULL",
                )?
                .execute(named_params! {
                    ":tenant_id": tenant,
                    ":kind": job.kind,
                    ":key": dedupe.key,
                    ":now": now.0,
                })?;
            connection
                .prepare_cached(
                    "SELECT id, digest FROM jobs WHERE tenant_id = :tenant_id AND kind = :kind AND dedupe_key = :key",
                )?
                .query_row(named_params! { ":tenant_id": tenant, ":kind": job.kind, ":key": dedupe.key }, |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
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
                               dedupe_key, dedupe_until, owner_id, fence, created_at, due_at, started_at, flow,
                               delegators)
             VALUES (:tenant_id, :id, :kind, :label, :subject, :digest, :priority, :state, :rank, :attempts, :max,
             :dedupe_key, :dedupe_until, :owner, :fence, :now, :due_at, :started_at, :flow, :delegators)
             RETURNING seq",
        )?
        .query_row(
            named_params! {
                ":tenant_id": job.key.tenant.as_str(),
                ":id": job.key.id.to_string(),
                ":kind": job.kind,
                ":label": job.label,
                ":subject": job.owner.subject().as_str(),
                ":digest": job.digest.to_string(),
                ":priority": job.priority.level(),
                ":state": state.as_str(),
                ":rank": rank(due, job.priority),
                ":attempts": i64::from(runs),
                ":max": job.attempts_max.max(1),
                ":dedupe_key": dedupe.map(|dedupe| dedupe.key.as_str()),
                ":dedupe_until": dedupe.map(|dedupe| now.plus(dedupe.window).0),
                ":owner": owner.map(|owner| owner.0.to_string()),
                ":fence": i64::from(runs),
                ":now": now.0,
                ":due_at": due.0,
                ":started_at": runs.then_some(now.0),
                ":flow": job.flow,
                ":delegators": job.owner.delegators(),
            },
            |row| row.get(0),
        )?;
    connection
        .prepare_cached("INSERT INTO job_bodies (seq, payload) VALUES (:seq, :payload)")?
        .execute(named_params! { ":seq": seq, ":payload": payload })?;
    Ok(seq)
}
