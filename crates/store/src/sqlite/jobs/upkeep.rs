//! What keeps a queue in order beside its work: keys that are given up, waits that are cut short, bodies that are written anew,
//! and ends that are forgotten.

use std::time::Duration;

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::job_store::JobKey;
use rusqlite::{Connection, params};

use crate::sqlite::columns::{ago, limit};
use crate::sqlite::faults::Fault;

pub(super) fn release_key(connection: &Connection, key: &JobKey) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "UPDATE jobs SET dedupe_key = NULL, dedupe_until = NULL
             WHERE tenant_id = ?1 AND id = ?2 AND ended_at IS NOT NULL",
        )?
        .execute(params![key.tenant.as_str(), key.id.to_string()])?;
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
        over.query_map(params![ended, dead, now.0, limit(most)], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
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
