//! Health of versions out of rows.

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::health_store::{AlertRule, HealthRecord};
use serde_json::{Value, json};

use super::version_use::version;
use crate::stored_row::StoredRow;

/// The alerts of a record as a column has them.
pub(crate) fn raised_column(record: &HealthRecord) -> String {
    let raised: Vec<Value> = record.raised.iter().map(|(rule, at)| json!([rule.as_str(), at.0])).collect();
    Value::Array(raised).to_string()
}

pub(crate) fn health<R: StoredRow>(row: &R) -> Result<HealthRecord, R::Fault> {
    let of = row.text("tool_id")?;
    let raised: Value = row.json("raised", of)?;
    // A rule that a later release has added is not known here, and not kept up.
    let known = raised
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pair| Some((AlertRule::of_word(pair.get(0)?.as_str()?)?, UnixMillis(pair.get(1)?.as_i64()?))));
    Ok(HealthRecord {
        key: version(row, of)?,
        score: row.opt_real("score")?,
        calls: u64::saturating_from(row.int("calls")?),
        baseline_p99_ms: row.real("baseline_p99_ms")?,
        baseline_windows: u32::try_from(row.int("baseline_windows")?).unwrap_or(u32::MAX),
        raised: known.collect(),
        at: row.time("at")?,
    })
}
