//! `HealthStore` on SQLite: one row per version, replaced as a whole. (OBS-008)

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::health_store::{HealthRecord, HealthStore};
use ports::registry_store::StoreError;
use rusqlite::{Connection, named_params};

use super::SqliteStore;
use super::columns::all;
use super::faults::Fault;
use crate::records::tool_health::{health, raised_column};

#[async_trait]
impl HealthStore for SqliteStore {
    async fn keep_health(&self, records: &[HealthRecord]) -> Result<(), StoreError> {
        let records = records.to_vec();
        self.writer()?.run(move |connection| keep(connection, &records)).await
    }

    async fn health(&self, most: usize) -> Result<Vec<HealthRecord>, StoreError> {
        let most = i64::saturating_from(most);
        self.readers.run(move |connection| newest(connection, most)).await
    }
}

fn keep(connection: &Connection, records: &[HealthRecord]) -> Result<(), Fault> {
    let mut put = connection.prepare_cached(
        "INSERT INTO tool_health (tenant_id, tool_id, version, score, calls, baseline_p99_ms, baseline_windows,
         raised, at)
         VALUES (:tenant_id, :tool_id, :version, :score, :calls, :baseline_p99_ms, :baseline_windows, :raised_column, :at)
         ON CONFLICT DO UPDATE
         SET score = excluded.score, calls = excluded.calls, baseline_p99_ms = excluded.baseline_p99_ms,
             baseline_windows = excluded.baseline_windows, raised = excluded.raised, at = excluded.at",
    )?;
    for record in records {
        put.execute(named_params! {
            ":tenant_id": record.key.tenant.as_str(),
            ":tool_id": record.key.tool.as_str(),
            ":version": record.key.version.to_string(),
            ":score": record.score,
            ":calls": i64::saturating_from(record.calls),
            ":baseline_p99_ms": record.baseline_p99_ms,
            ":baseline_windows": record.baseline_windows,
            ":raised_column": raised_column(record),
            ":at": record.at.0,
        })?;
    }
    Ok(())
}

fn newest(connection: &Connection, most: i64) -> Result<Vec<HealthRecord>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT tenant_id, tool_id, version, score, calls, baseline_p99_ms, baseline_windows, raised, at
         FROM tool_health ORDER BY at DESC, tenant_id, tool_id, version LIMIT :most",
    )?;
    all(statement.query(named_params! { ":most": most })?, health)
}
