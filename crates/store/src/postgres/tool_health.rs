//! `HealthStore` on PostgreSQL: one row per version, replaced as a whole. (OBS-008)

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::health_store::{HealthRecord, HealthStore};
use ports::registry_store::StoreError;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{int, ints, texts};
use super::transaction::Scope;
use crate::records::tool_health::{health, raised_column};

#[async_trait]
impl HealthStore for PostgresStore {
    async fn keep_health(&self, records: &[HealthRecord]) -> Result<(), StoreError> {
        Ok(keep(self, records).await?)
    }

    async fn health(&self, most: usize) -> Result<Vec<HealthRecord>, StoreError> {
        newest(self, most).await
    }
}

async fn keep(store: &PostgresStore, records: &[HealthRecord]) -> Result<(), Fault> {
    // Of two records of one version the later counts. In the order of keys, so that instances do not block each other.
    let sql = "INSERT INTO tool_health (tenant_id, tool_id, version, score, calls, baseline_p99_ms, baseline_windows,
                                        raised, at)
               SELECT DISTINCT ON (tenant, tool, version)
                   tenant, tool, version, score, calls, p99, windows, raised, at
               FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9) WITH ORDINALITY
                   AS given (tenant, tool, version, score, calls, p99, windows, raised, at, place)
               ORDER BY tenant, tool, version, place DESC
               ON CONFLICT (tenant_id, tool_id, version) DO UPDATE
               SET score = excluded.score, calls = excluded.calls, baseline_p99_ms = excluded.baseline_p99_ms,
                   baseline_windows = excluded.baseline_windows, raised = excluded.raised, at = excluded.at";
    let tenants: Vec<&str> = records.iter().map(|record| record.key.tenant.as_str()).collect();
    let tools: Vec<&str> = records.iter().map(|record| record.key.tool.as_str()).collect();
    let versions: Vec<String> = records.iter().map(|record| record.key.version.to_string()).collect();
    let scores: Vec<Option<f64>> = records.iter().map(|record| record.score).collect();
    let calls: Vec<i64> = records.iter().map(|record| i64::saturating_from(record.calls)).collect();
    let baselines: Vec<f64> = records.iter().map(|record| record.baseline_p99_ms).collect();
    let windows: Vec<i64> = records.iter().map(|record| i64::from(record.baseline_windows)).collect();
    let raised: Vec<String> = records.iter().map(raised_column).collect();
    let times: Vec<i64> = records.iter().map(|record| record.at.0).collect();
    let values = [
        texts(&tenants),
        texts(&tools),
        texts(&versions),
        (&scores as _, Type::FLOAT8_ARRAY),
        ints(&calls),
        (&baselines as _, Type::FLOAT8_ARRAY),
        ints(&windows),
        texts(&raised),
        ints(&times),
    ];
    store.pool.execute(Scope::System, sql, &values).await?;
    Ok(())
}

async fn newest(store: &PostgresStore, most: usize) -> Result<Vec<HealthRecord>, StoreError> {
    let most = i64::saturating_from(most);
    let sql = "SELECT tenant_id, tool_id, version, score, calls, baseline_p99_ms, baseline_windows, raised, at
               FROM tool_health ORDER BY at DESC, tenant_id, tool_id, version LIMIT $1";
    let rows = store.pool.query(Scope::System, sql, &[int(&most)]).await?;
    Ok(rows.iter().map(health).collect::<Result<_, _>>()?)
}
