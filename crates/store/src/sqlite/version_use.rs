//! `VersionUseStore` on SQLite: calls of versions that end, by the hour. (REG-012)

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::version_use::{Hour, HourOfUse, VersionUse, VersionUseStore};
use rusqlite::{Connection, named_params};

use super::SqliteStore;
use super::columns::all;
use super::faults::Fault;
use crate::records::version_use::hour_of_use;

#[async_trait]
impl VersionUseStore for SqliteStore {
    async fn add_version_use(&self, hours: &[HourOfUse]) -> Result<(), StoreError> {
        let hours = hours.to_vec();
        self.writer()?.run(move |connection| add(connection, &hours)).await
    }

    async fn version_use(&self, from: Hour) -> Result<VersionUse, StoreError> {
        self.readers.run(move |connection| read(connection, from)).await
    }

    async fn begin_use_report(&self, now: UnixMillis, every: Duration) -> Result<Option<UnixMillis>, StoreError> {
        let every = i64::saturating_from(every.as_millis());
        self.writer()?.run(move |connection| begin_report(connection, now, every)).await
    }

    async fn forget_version_use(&self, before: Hour) -> Result<(), StoreError> {
        let forget = move |connection: &Connection| {
            connection
                .execute("DELETE FROM version_use WHERE hour < :before", named_params! { ":before": before.0 })?;
            Ok(())
        };
        self.writer()?.run(forget).await
    }
}

fn add(connection: &Connection, hours: &[HourOfUse]) -> Result<(), Fault> {
    let mut put = connection.prepare_cached(
        "INSERT INTO version_use (tenant_id, tool_id, version, hour, calls)
         VALUES (:tenant_id, :tool_id, :version, :hour, :calls)
         ON CONFLICT DO UPDATE SET calls = calls + excluded.calls",
    )?;
    for HourOfUse { version, hour, calls } in hours {
        let calls = i64::saturating_from(*calls);
        put.execute(named_params! {
            ":tenant_id": version.tenant.as_str(),
            ":tool_id": version.tool.as_str(),
            ":version": version.version.to_string(),
            ":hour": hour.0,
            ":calls": calls,
        })?;
    }
    Ok(())
}

fn read(connection: &Connection, from: Hour) -> Result<VersionUse, Fault> {
    let mut statement = connection
        .prepare_cached("SELECT tenant_id, tool_id, version, hour, calls FROM version_use WHERE hour >= :from")?;
    let hours = all(statement.query(named_params! { ":from": from.0 })?, hour_of_use)?;
    Ok(VersionUse { since: UnixMillis(number(connection, "version_use_since")?), hours })
}

fn begin_report(connection: &Connection, now: UnixMillis, every: i64) -> Result<Option<UnixMillis>, Fault> {
    let before = number(connection, "version_use_reported")?;
    if before > now.0.saturating_sub(every) {
        return Ok(None);
    }
    connection.execute(
        "UPDATE store_numbers SET value = :now WHERE name = 'version_use_reported'",
        named_params! { ":now": now.0 },
    )?;
    Ok(Some(UnixMillis(before)))
}

fn number(connection: &Connection, name: &str) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached("SELECT value FROM store_numbers WHERE name = :name")?;
    Ok(statement.query_row(named_params! { ":name": name }, |row| row.get(0))?)
}
