//! `HealthStore` on SQLite: one row per version, replaced as a whole. (OBS-008)

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::health_store::{AlertRule, HealthRecord, HealthStore};
use ports::registry_store::StoreError;
use ports::tool_version::VersionKey;
use rusqlite::{Connection, Row, params};
use serde_json::{Value, json};

use super::SqliteStore;
use super::columns::{json as json_text, unreadable, word};
use super::faults::Fault;

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
        "INSERT INTO tool_health (tenant_id, tool_id, version, score, calls, baseline_p99_ms, baseline_windows, raised, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT DO UPDATE
         SET score = excluded.score, calls = excluded.calls, baseline_p99_ms = excluded.baseline_p99_ms,
             baseline_windows = excluded.baseline_windows, raised = excluded.raised, at = excluded.at",
    )?;
    for record in records {
        let raised: Vec<Value> = record.raised.iter().map(|(rule, at)| json!([rule.as_str(), at.0])).collect();
        put.execute(params![
            record.key.tenant.as_str(),
            record.key.tool.as_str(),
            record.key.version.to_string(),
            record.score,
            i64::saturating_from(record.calls),
            record.baseline_p99_ms,
            record.baseline_windows,
            Value::Array(raised).to_string(),
            record.at.0,
        ])?;
    }
    Ok(())
}

fn newest(connection: &Connection, most: i64) -> Result<Vec<HealthRecord>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT tenant_id, tool_id, version, score, calls, baseline_p99_ms, baseline_windows, raised, at
         FROM tool_health ORDER BY at DESC, tenant_id, tool_id, version LIMIT ?1",
    )?;
    let mut rows = statement.query([most])?;
    let mut records = Vec::new();
    while let Some(row) = rows.next()? {
        records.push(read(row)?);
    }
    Ok(records)
}

fn read(row: &Row<'_>) -> Result<HealthRecord, Fault> {
    let of: String = row.get("tool_id")?;
    let version: String = row.get("version")?;
    let raised = json_text(&row.get::<_, String>("raised")?, "raised", &of)?;
    // A rule that a later release has added is not known here, and not kept up.
    let known = raised
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pair| Some((AlertRule::of_word(pair.get(0)?.as_str()?)?, UnixMillis(pair.get(1)?.as_i64()?))));
    Ok(HealthRecord {
        key: VersionKey {
            tenant: word(row, "tenant_id", &of)?,
            tool: word(row, "tool_id", &of)?,
            version: Version::parse(&version).map_err(|_| unreadable("version", &of))?,
        },
        score: row.get("score")?,
        calls: u64::saturating_from(row.get::<_, i64>("calls")?),
        baseline_p99_ms: row.get("baseline_p99_ms")?,
        baseline_windows: u32::try_from(row.get::<_, i64>("baseline_windows")?).unwrap_or(u32::MAX),
        raised: known.collect(),
        at: UnixMillis(row.get("at")?),
    })
}
