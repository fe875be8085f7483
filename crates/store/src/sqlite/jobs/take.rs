//! Whose turn it is: leases of owners, taking jobs, and taking over those of owners that are gone.
//!
//! Choosing is three look-ups in an index for each job: the tenant whose turn it is (JOB-6), the flow of it whose turn it is
//! (JOB-7), then its first job (JOB-5).

use std::time::Duration;

use ports::clock::UnixMillis;
use ports::job_store::{OwnerId, RenewOutcome, TakeOutcome, TakeRules, TakenJob};
use rusqlite::{Connection, OptionalExtension as _, named_params};
use serde_json::json;

use super::counters::{event, moved};
use crate::records::jobs::{COLUMNS, key, taken};
use crate::sqlite::columns::{ago, all, first, limit};
use crate::sqlite::faults::Fault;

/// Delayed jobs that one take makes ready at most; the next take goes on.
const DUE_MAX: usize = 256;
/// For how long a lapsed owner is remembered before its row is removed, once it holds nothing.
const OWNERS_KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) fn enlist(
    connection: &Connection,
    now: UnixMillis,
    owner: OwnerId,
    lease: Duration,
    alone: bool,
) -> Result<(), Fault> {
    if alone {
        connection
            .execute("UPDATE job_owners SET lease_until = min(lease_until, :now)", named_params! { ":now": now.0 })?;
    }
    connection
        .prepare_cached(
            "DELETE FROM job_owners WHERE lease_until < :before
             AND NOT EXISTS (SELECT 1 FROM jobs WHERE state = 'running' AND jobs.owner_id = job_owners.owner_id)",
        )?
        .execute(named_params! { ":before": ago(now, OWNERS_KEPT_FOR) })?;
    connection
        .prepare_cached(
            "INSERT INTO job_owners (owner_id, lease_until) VALUES (:owner, :until)
             ON CONFLICT (owner_id) DO UPDATE SET lease_until = excluded.lease_until",
        )?
        .execute(named_params! { ":owner": owner.0.to_string(), ":until": now.plus(lease).0 })?;
    Ok(())
}

pub(super) fn renew(
    connection: &Connection,
    now: UnixMillis,
    owner: OwnerId,
    lease: Duration,
) -> Result<RenewOutcome, Fault> {
    let name = owner.0.to_string();
    let renewed = connection
        .prepare_cached("UPDATE job_owners SET lease_until = :until WHERE owner_id = :name AND lease_until > :now")?
        .execute(named_params! { ":name": name, ":until": now.plus(lease).0, ":now": now.0 })?;
    if renewed == 0 {
        return Ok(RenewOutcome::Lapsed);
    }
    let mut statement = connection.prepare_cached(
        "SELECT tenant_id, id FROM jobs WHERE state = 'running' AND owner_id = :name AND cancel_asked IS NOT NULL",
    )?;
    Ok(RenewOutcome::Alive { cancel: all(statement.query(named_params! { ":name": name })?, key)? })
}

pub(super) fn resign(connection: &Connection, now: UnixMillis, owner: OwnerId) -> Result<(), Fault> {
    connection
        .prepare_cached("UPDATE job_owners SET lease_until = min(lease_until, :now) WHERE owner_id = :owner")?
        .execute(named_params! { ":owner": owner.0.to_string(), ":now": now.0 })?;
    Ok(())
}

fn holds_lease(connection: &Connection, now: UnixMillis, owner: OwnerId) -> Result<bool, Fault> {
    let held: Option<i64> = connection
        .prepare_cached("SELECT 1 FROM job_owners WHERE owner_id = :owner AND lease_until > :now")?
        .query_row(named_params! { ":owner": owner.0.to_string(), ":now": now.0 }, |row| row.get(0))
        .optional()?;
    Ok(held.is_some())
}

pub(super) fn take(
    connection: &Connection,
    now: UnixMillis,
    owner: OwnerId,
    rules: TakeRules,
) -> Result<TakeOutcome, Fault> {
    let mut taken = TakeOutcome::default();
    if !holds_lease(connection, now, owner)? {
        return Ok(taken);
    }
    make_due_ready(connection, now)?;
    while taken.jobs.len() < rules.most {
        let Some(seq) = next(connection, rules)? else { break };
        taken.jobs.push(hold(connection, now, owner, seq, Begin::Attempt)?);
    }
    let next_due: Option<i64> = connection
        .prepare_cached("SELECT min(due_at) FROM jobs WHERE state = 'delayed'")?
        .query_row([], |row| row.get(0))?;
    taken.next_due_in = next_due.map(|due| UnixMillis(due).since(now));
    Ok(taken)
}

/// Delayed jobs whose time has come wait like all others.
fn make_due_ready(connection: &Connection, now: UnixMillis) -> Result<(), Fault> {
    let mut due = connection.prepare_cached(
        "SELECT seq, tenant_id FROM jobs WHERE state = 'delayed' AND due_at <= :now ORDER BY due_at LIMIT :most",
    )?;
    let due: Vec<(i64, String)> = due
        .query_map(named_params! { ":now": now.0, ":most": limit(DUE_MAX) }, |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for (seq, tenant) in due {
        connection
            .prepare_cached("UPDATE jobs SET state = 'queued' WHERE seq = :seq")?
            .execute(named_params! { ":seq": seq })?;
        moved(connection, &tenant, 0, 1, 0)?;
    }
    Ok(())
}

/// The job whose turn it is.
fn next(connection: &Connection, rules: TakeRules) -> Result<Option<i64>, Fault> {
    let tenant: Option<String> = connection
        .prepare_cached(
            "SELECT tenant_id FROM job_tenants WHERE ready > 0 AND running < :running_per_tenant
               AND EXISTS (SELECT 1 FROM job_flows
                           WHERE job_flows.tenant_id = job_tenants.tenant_id AND job_flows.ready > 0
                           AND job_flows.running < :running_per_flow)
             ORDER BY running, served LIMIT 1",
        )?
        .query_row(
            named_params! {
                ":running_per_tenant": rules.running_per_tenant,
                ":running_per_flow": rules.running_per_flow,
            },
            |row| row.get(0),
        )
        .optional()?;
    let Some(tenant) = tenant else { return Ok(None) };
    let flow: String = connection
        .prepare_cached(
            "SELECT flow FROM job_flows WHERE tenant_id = :tenant_id AND ready > 0 AND running < :running_per_flow
             ORDER BY running, served, flow LIMIT 1",
        )?
        .query_row(named_params! { ":tenant_id": tenant, ":running_per_flow": rules.running_per_flow }, |row| {
            row.get(0)
        })?;
    let seq: i64 = connection
        .prepare_cached(
            "SELECT seq FROM jobs WHERE state = 'queued' AND tenant_id = :tenant_id AND flow = :flow ORDER BY rank,
             seq LIMIT 1",
        )?
        .query_row(named_params! { ":tenant_id": &tenant, ":flow": &flow }, |row| row.get(0))?;
    let ticket: i64 = connection
        .prepare_cached("UPDATE job_tenants SET served = served + 1 WHERE tenant_id = '' RETURNING served")?
        .query_row([], |row| row.get(0))?;
    connection
        .prepare_cached("UPDATE job_tenants SET served = :ticket WHERE tenant_id = :tenant_id")?
        .execute(named_params! { ":tenant_id": tenant, ":ticket": ticket })?;
    connection
        .prepare_cached("UPDATE job_flows SET served = :ticket * 2 WHERE tenant_id = :tenant_id AND flow = :flow")?
        .execute(named_params! { ":tenant_id": tenant, ":flow": flow, ":ticket": ticket })?;
    moved(connection, &tenant, -1, -1, 1)?;
    Ok(Some(seq))
}

/// How an owner comes to a job.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    Attempt,
    /// The attempt was another's and was counted then.
    TakenOver,
}

/// Gives a job to an owner under a new fence.
fn hold(connection: &Connection, now: UnixMillis, owner: OwnerId, seq: i64, begin: Begin) -> Result<TakenJob, Fault> {
    connection
        .prepare_cached(
            "UPDATE jobs SET state = 'running', owner_id = :owner, fence = fence + 1, attempts = attempts + :attempts,
                             started_at = :now, progress = NULL, phase = NULL
             WHERE seq = :seq",
        )?
        .execute(named_params! {
            ":seq": seq,
            ":owner": owner.0.to_string(),
            ":now": now.0,
            ":attempts": i64::from(begin == Begin::Attempt),
        })?;
    let sql = format!("SELECT {COLUMNS}, fence, payload FROM jobs JOIN job_bodies USING (seq) WHERE jobs.seq = :seq");
    let mut statement = connection.prepare_cached(&sql)?;
    let taken =
        first(statement.query(named_params! { ":seq": seq })?, taken)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let event_kind = match begin {
        Begin::Attempt => "started",
        Begin::TakenOver => "taken_over",
    };
    event(connection, now, seq, event_kind, &json!({ "attempt": taken.record.attempts }))?;
    Ok(taken)
}

pub(super) fn take_over(
    connection: &Connection,
    now: UnixMillis,
    owner: OwnerId,
    most: usize,
) -> Result<Vec<TakenJob>, Fault> {
    if !holds_lease(connection, now, owner)? {
        return Ok(Vec::new());
    }
    let mut lapsed = connection.prepare_cached(
        "SELECT seq FROM jobs
         WHERE state = 'running'
           AND owner_id NOT IN (SELECT owner_id FROM job_owners WHERE lease_until > :now)
         ORDER BY seq LIMIT :most",
    )?;
    let lapsed: Vec<i64> = lapsed
        .query_map(named_params! { ":now": now.0, ":most": limit(most) }, |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    lapsed.into_iter().map(|seq| hold(connection, now, owner, seq, Begin::TakenOver)).collect()
}
