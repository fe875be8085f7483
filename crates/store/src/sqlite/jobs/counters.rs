//! What follows every change of a job, in the same savepoint of the writer: the counters of its tenant, and its event.

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::job_store::PROGRESS_KEPT_MAX;
use rusqlite::{Connection, params};
use serde_json::Value;

use crate::sqlite::faults::Fault;

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
