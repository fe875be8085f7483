//! A batch of use, added row by row in one transaction with its name.

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::usage_store::UsageBatch;
use rusqlite::{Connection, params};

use crate::records::usage::whole;
use crate::sqlite::faults::Fault;

/// How long the name of a batch is remembered: far longer than one is tried for.
const NAMES_KEPT_MS: i64 = 7 * 86_400_000;
/// Names that are forgotten with each batch.
const NAMES_FORGOTTEN: i64 = 100;

pub(super) fn add(connection: &Connection, batch: &UsageBatch, now: UnixMillis) -> Result<bool, Fault> {
    let named = connection
        .prepare_cached("INSERT INTO usage_batches (id, added_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING")?
        .execute(params![batch.id.to_string(), now.0])?;
    if named == 0 {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "DELETE FROM usage_batches WHERE id IN
                 (SELECT id FROM usage_batches WHERE added_at < ?1 ORDER BY added_at LIMIT ?2)",
        )?
        .execute(params![now.0.saturating_sub(NAMES_KEPT_MS), NAMES_FORGOTTEN])?;
    add_rows(connection, batch)?;
    let mut latency = connection.prepare_cached(
        "INSERT INTO usage_latencies (tenant_id, day, tool_id, bucket, count) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    for ((tenant, tool, day), latencies) in &batch.latencies {
        for (bucket, count) in latencies.buckets() {
            latency.execute(params![tenant.as_str(), day.0, tool.as_str(), i64::saturating_from(bucket), count])?;
        }
    }
    let mut pair = connection.prepare_cached(
        "INSERT INTO usage_pairs (tenant_id, day, first, second, count) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    for ((tenant, day, first, second), count) in &batch.pairs {
        pair.execute(params![tenant.as_str(), day.0, first.as_str(), second.as_str(), whole(*count)])?;
    }
    let mut wish = connection.prepare_cached(
        "INSERT INTO usage_wishes (tenant_id, day, agent, tool_id, count) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    for ((tenant, day, agent, tool), count) in &batch.wishes {
        wish.execute(params![tenant.as_str(), day.0, agent.as_str(), tool.as_str(), whole(*count)])?;
    }
    Ok(true)
}

fn add_rows(connection: &Connection, batch: &UsageBatch) -> Result<(), Fault> {
    let mut row = connection.prepare_cached(
        "INSERT INTO usage (tenant_id, day, tool_id, agent, user, calls, errors, timeouts, refused, replayed, duration_ms,
                            cpu_millicore_seconds, network_bytes, tokens, last_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)
         ON CONFLICT DO UPDATE
         SET calls = calls + excluded.calls, errors = errors + excluded.errors, timeouts = timeouts + excluded.timeouts,
             refused = refused + excluded.refused, replayed = replayed + excluded.replayed,
             duration_ms = duration_ms + excluded.duration_ms,
             cpu_millicore_seconds = cpu_millicore_seconds + excluded.cpu_millicore_seconds,
             network_bytes = network_bytes + excluded.network_bytes, tokens = tokens + excluded.tokens,
             last_at = max(last_at, excluded.last_at)",
    )?;
    let mut cost = connection.prepare_cached(
        "INSERT INTO usage_costs (tenant_id, day, tool_id, agent, user, currency, component, micros, picos)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT DO UPDATE SET micros = micros + excluded.micros, picos = picos + excluded.picos",
    )?;
    for (key, sum, costs) in &batch.rows {
        let user = key.user.as_ref().map_or("", |user| user.as_str());
        row.execute(params![
            key.tenant.as_str(),
            key.day.0,
            key.tool.as_str(),
            key.agent.as_str(),
            user,
            whole(sum.calls),
            whole(sum.errors),
            whole(sum.timeouts),
            whole(sum.refused),
            whole(sum.replayed),
            whole(sum.duration_ms),
            whole(sum.cpu_millicore_seconds),
            whole(sum.network_bytes),
            whole(sum.tokens),
            sum.last_at.0,
        ])?;
        for line in costs {
            let (micros, picos) = line.amount.split();
            cost.execute(params![
                key.tenant.as_str(),
                key.day.0,
                key.tool.as_str(),
                key.agent.as_str(),
                user,
                line.currency.as_str(),
                line.component.as_str(),
                micros,
                picos,
            ])?;
        }
    }
    Ok(())
}
