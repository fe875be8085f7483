//! What keeps a queue in order beside its work: keys that are given up, waits that are cut short, bodies that are written anew,
//! and ends that are forgotten.

use std::time::Duration;

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::job_store::JobKey;
use rusqlite::{Connection, named_params};

use crate::sqlite::columns::{ago, limit};
use crate::sqlite::faults::Fault;

pub(super) fn release_key(connection: &Connection, key: &JobKey) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "UPDATE jobs SET dedupe_key = NULL, dedupe_until = NULL
             WHERE tenant_id = :tenant_id AND id = :id AND ended_at IS NOT NULL",
        )?
        .execute(named_params! { ":tenant_id": key.tenant.as_str(), ":id": key.id.to_string() })?;
    Ok(())
}

pub(super) fn hasten(connection: &Connection, now: UnixMillis, key: &JobKey) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "UPDATE jobs SET rank = rank - due_at + :now, due_at = :now
             WHERE tenant_id = :tenant_id AND id = :id AND state = 'delayed' AND due_at > :now",
        )?
        .execute(named_params! { ":tenant_id": key.tenant.as_str(), ":id": key.id.to_string(), ":now": now.0 })?;
    Ok(())
}

pub(super) fn rewrite_payload(connection: &Connection, key: &JobKey, payload: &str) -> Result<bool, Fault> {
    let rewritten = connection
        .prepare_cached(
            "UPDATE job_bodies SET payload = :payload
             WHERE seq = (SELECT seq FROM jobs WHERE tenant_id = :tenant_id AND id = :id) AND payload <> 'null'",
        )?
        .execute(named_params! {
            ":tenant_id": key.tenant.as_str(),
            ":id": key.id.to_string(),
            ":payload": payload,
        })?;
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
         WHERE ended_at IS NOT NULL AND ended_at < CASE state WHEN 'dead' THEN :dead ELSE :ended END
         AND ended_at < max(:ended, :dead)
           AND (dedupe_until IS NULL OR dedupe_until <= :now)
         ORDER BY ended_at LIMIT :most",
    )?;
    let (ended, dead) = (ago(now, retention), ago(now, dead_retention));
    let over: Vec<i64> = over
        .query_map(named_params! { ":ended": ended, ":dead": dead, ":now": now.0, ":most": limit(most) }, |row| {
            row.get(0)
        })?
        .collect::<rusqlite::Result<_>>()?;
    for seq in &over {
        for sql in [
            "DELETE FROM job_events WHERE seq = :seq",
            "DELETE FROM job_bodies WHERE seq = :seq",
            "DELETE FROM jobs WHERE seq = :seq",
        ] {
            connection.prepare_cached(sql)?.execute(named_params! { ":seq": seq })?;
        }
    }
    // Tenants that have nothing to do with the queue any more need no turn.
    connection
        .prepare_cached("DELETE FROM job_tenants WHERE tenant_id <> '' AND waiting = 0 AND ready = 0 AND running = 0")?
        .execute([])?;
    Ok(u64::saturating_from(over.len()))
}
