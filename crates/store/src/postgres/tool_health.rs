//! `HealthStore` on PostgreSQL: one row per version, replaced as a whole. (OBS-008)

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::health_store::{AlertRule, HealthRecord, HealthStore};
use ports::registry_store::StoreError;
use ports::tool_version::VersionKey;
use serde_json::{Value, json};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{column, int, ints, texts, unreadable, word};
use super::transaction::Scope;

#[async_trait]
impl HealthStore for PostgresStore {
    async fn keep_health(&self, records: &[HealthRecord]) -> Result<(), StoreError> {
        Ok(keep(self, records).await?)
    }

    async fn health(&self, most: usize) -> Result<Vec<HealthRecord>, StoreError> {
        let most = i64::saturating_from(most);
        let sql = "SELECT tenant_id, tool_id, version, score, calls, baseline_p99_ms, baseline_windows, raised, at
                   FROM tool_health ORDER BY at DESC, tenant_id, tool_id, version LIMIT $1";
        let rows = self.pool.query(Scope::System, sql, &[int(&most)]).await?;
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
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
    let raised = |record: &HealthRecord| {
        let raised: Vec<Value> = record.raised.iter().map(|(rule, at)| json!([rule.as_str(), at.0])).collect();
        Value::Array(raised).to_string()
    };
    let tenants: Vec<&str> = records.iter().map(|record| record.key.tenant.as_str()).collect();
    let tools: Vec<&str> = records.iter().map(|record| record.key.tool.as_str()).collect();
    let versions: Vec<String> = records.iter().map(|record| record.key.version.to_string()).collect();
    let scores: Vec<Option<f64>> = records.iter().map(|record| record.score).collect();
    let calls: Vec<i64> = records.iter().map(|record| i64::saturating_from(record.calls)).collect();
    let baselines: Vec<f64> = records.iter().map(|record| record.baseline_p99_ms).collect();
    let windows: Vec<i64> = records.iter().map(|record| i64::from(record.baseline_windows)).collect();
    let raised: Vec<String> = records.iter().map(raised).collect();
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

fn read(row: &Row) -> Result<HealthRecord, Fault> {
    let of: &str = column(row, "tool_id")?;
    let raised: Value = serde_json::from_str(column(row, "raised")?).map_err(|_| unreadable("raised", of))?;
    // A rule that a later release has added is not known here, and not kept up.
    let known = raised
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pair| Some((AlertRule::of_word(pair.get(0)?.as_str()?)?, UnixMillis(pair.get(1)?.as_i64()?))));
    Ok(HealthRecord {
        key: VersionKey {
            tenant: word(row, "tenant_id", of)?,
            tool: word(row, "tool_id", of)?,
            version: Version::parse(column(row, "version")?).map_err(|_| unreadable("version", of))?,
        },
        score: column(row, "score")?,
        calls: u64::saturating_from(column::<i64>(row, "calls")?),
        baseline_p99_ms: column(row, "baseline_p99_ms")?,
        baseline_windows: u32::try_from(column::<i64>(row, "baseline_windows")?).unwrap_or(u32::MAX),
        raised: known.collect(),
        at: UnixMillis(column(row, "at")?),
    })
}
