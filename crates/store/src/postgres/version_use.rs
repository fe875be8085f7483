//! `VersionUseStore` on PostgreSQL: calls of versions that end, by the hour, added to by every instance. (REG-012)

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::version_use::{Hour, HourOfUse, VersionUse, VersionUseStore};

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{column, int, ints, texts};
use super::transaction::Scope;
use crate::records::version_use::hour_of_use;

#[async_trait]
impl VersionUseStore for PostgresStore {
    async fn add_version_use(&self, hours: &[HourOfUse]) -> Result<(), StoreError> {
        Ok(add(self, hours).await?)
    }

    async fn version_use(&self, from: Hour) -> Result<VersionUse, StoreError> {
        Ok(read(self, from).await?)
    }

    async fn begin_use_report(&self, now: UnixMillis, every: Duration) -> Result<Option<UnixMillis>, StoreError> {
        begin_report(self, now, every).await
    }

    async fn forget_version_use(&self, before: Hour) -> Result<(), StoreError> {
        self.pool.execute(Scope::System, "DELETE FROM version_use WHERE hour < $1", &[int(&before.0)]).await?;
        Ok(())
    }
}

async fn add(store: &PostgresStore, hours: &[HourOfUse]) -> Result<(), Fault> {
    // In the order of keys, so that instances that add at once do not stand in each other's way.
    let sql = "INSERT INTO version_use AS kept (tenant_id, tool_id, version, hour, calls)
               SELECT tenant, tool, version, hour, sum(calls)::bigint
               FROM unnest($1, $2, $3, $4, $5) AS given (tenant, tool, version, hour, calls)
               GROUP BY tenant, tool, version, hour ORDER BY tenant, tool, version, hour
               ON CONFLICT (tenant_id, tool_id, version, hour) DO UPDATE SET calls = kept.calls + excluded.calls";
    let tenants: Vec<&str> = hours.iter().map(|used| used.version.tenant.as_str()).collect();
    let tools: Vec<&str> = hours.iter().map(|used| used.version.tool.as_str()).collect();
    let versions: Vec<String> = hours.iter().map(|used| used.version.version.to_string()).collect();
    let numbers: Vec<i64> = hours.iter().map(|used| used.hour.0).collect();
    let calls: Vec<i64> = hours.iter().map(|used| i64::saturating_from(used.calls)).collect();
    let values = [texts(&tenants), texts(&tools), texts(&versions), ints(&numbers), ints(&calls)];
    store.pool.execute(Scope::System, sql, &values).await?;
    Ok(())
}

async fn read(store: &PostgresStore, from: Hour) -> Result<VersionUse, Fault> {
    let since = "SELECT value FROM store_numbers WHERE name = 'version_use_since'";
    let since = store.pool.query(Scope::System, since, &[]).await?;
    let since = since.first().map(|row| column::<i64>(row, "value")).transpose()?.unwrap_or(i64::MAX);
    let sql = "SELECT tenant_id, tool_id, version, hour, calls FROM version_use WHERE hour >= $1";
    let rows = store.pool.query(Scope::System, sql, &[int(&from.0)]).await?;
    Ok(VersionUse { since: UnixMillis(since), hours: rows.iter().map(hour_of_use).collect::<Result<_, Fault>>()? })
}

async fn begin_report(
    store: &PostgresStore,
    now: UnixMillis,
    every: Duration,
) -> Result<Option<UnixMillis>, StoreError> {
    let due = now.0.saturating_sub(i64::saturating_from(every.as_millis()));
    // Whoever comes second waits for the row, and then finds the number of the first.
    let sql = "WITH before AS (SELECT value FROM store_numbers WHERE name = 'version_use_reported' FOR UPDATE)
               UPDATE store_numbers AS kept SET value = $1 FROM before
               WHERE kept.name = 'version_use_reported' AND before.value <= $2 AND kept.value <= $2
               RETURNING before.value AS reported";
    let rows = store.pool.query(Scope::System, sql, &[int(&now.0), int(&due)]).await?;
    Ok(rows.first().map(|row| column::<i64>(row, "reported")).transpose()?.map(UnixMillis))
}
