//! What follows every change of a job, in the same savepoint of the writer: the counters of its tenant, and its event.

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::job_store::PROGRESS_KEPT_MAX;
use rusqlite::{Connection, named_params};
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
    connection
        .prepare_cached("INSERT OR IGNORE INTO job_tenants (tenant_id) VALUES (:tenant_id)")?
        .execute(named_params! { ":tenant_id": tenant })?;
    connection
        .prepare_cached(
            "UPDATE job_tenants SET waiting = waiting + :waiting, ready = ready + :ready,
             running = running + :running WHERE tenant_id = :tenant_id",
        )?
        .execute(named_params! { ":tenant_id": tenant, ":waiting": waiting, ":ready": ready, ":running": running })?;
    connection
        .prepare_cached(
            "UPDATE job_tenants SET waiting = waiting + :waiting, running = running + :running WHERE tenant_id = ''",
        )?
        .execute(named_params! { ":waiting": waiting, ":running": running })?;
    Ok(())
}

/// Adds an event; too much progress makes room.
pub(super) fn event(connection: &Connection, now: UnixMillis, seq: i64, kind: &str, data: &Value) -> Result<(), Fault> {
    let number: i64 = connection
        .prepare_cached("UPDATE jobs SET events = events + 1 WHERE seq = :seq RETURNING events")?
        .query_row(named_params! { ":seq": seq }, |row| row.get(0))?;
    connection
        .prepare_cached(
            "INSERT INTO job_events (seq, number, at, kind, data) VALUES (:seq, :number, :now, :kind, :data)",
        )?
        .execute(
            named_params! { ":seq": seq, ":number": number, ":now": now.0, ":kind": kind, ":data": data.to_string() },
        )?;
    if kind == "progress" {
        let oldest = number.saturating_sub(i64::saturating_from(PROGRESS_KEPT_MAX));
        connection
            .prepare_cached("DELETE FROM job_events WHERE seq = :seq AND number <= :oldest AND kind = 'progress'")?
            .execute(named_params! { ":seq": seq, ":oldest": oldest })?;
    }
    Ok(())
}
