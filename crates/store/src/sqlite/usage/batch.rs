//! A batch of use, added row by row in one transaction with its name.

use base::SaturatingFrom as _;
use ports::clock::UnixMillis;
use ports::usage_store::UsageBatch;
use rusqlite::{Connection, named_params};

use crate::records::usage::whole;
use crate::sqlite::faults::Fault;

/// How long the name of a batch is remembered: far longer than one is tried for.
const NAMES_KEPT_MS: i64 = 7 * 86_400_000;
/// Names that are forgotten with each batch.
const NAMES_FORGOTTEN: i64 = 100;

pub(super) fn add(connection: &Connection, batch: &UsageBatch, now: UnixMillis) -> Result<bool, Fault> {
    let named = connection
        .prepare_cached("INSERT INTO usage_batches (id, added_at) VALUES (:id, :now) ON CONFLICT DO NOTHING")?
        .execute(named_params! { ":id": batch.id.to_string(), ":now": now.0 })?;
    if named == 0 {
        return Ok(false);
    }
    connection
        .prepare_cached(
            "DELETE FROM usage_batches WHERE id IN
                 (SELECT id FROM usage_batches WHERE added_at < :before ORDER BY added_at LIMIT :most)",
        )?
        .execute(named_params! { ":before": now.0.saturating_sub(NAMES_KEPT_MS), ":most": NAMES_FORGOTTEN })?;
    add_rows(connection, batch)?;
    let mut latency = connection.prepare_cached(
        "INSERT INTO usage_latencies (tenant_id, day, tool_id, bucket, count)
         VALUES (:tenant_id, :day, :tool_id, :bucket, :count)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    for ((tenant, tool, day), latencies) in &batch.latencies {
        for (bucket, count) in latencies.buckets() {
            latency.execute(named_params! {
                ":tenant_id": tenant.as_str(),
                ":day": day.0,
                ":tool_id": tool.as_str(),
                ":bucket": i64::saturating_from(bucket),
                ":count": count,
            })?;
        }
    }
    let mut pair = connection.prepare_cached(
        "INSERT INTO usage_pairs (tenant_id, day, first, second, count) VALUES (:tenant_id, :day, :first, :second, :count)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    for ((tenant, day, first, second), count) in &batch.pairs {
        pair.execute(named_params! {
            ":tenant_id": tenant.as_str(),
            ":day": day.0,
            ":first": first.as_str(),
            ":second": second.as_str(),
            ":count": whole(*count),
        })?;
    }
    let mut wish = connection.prepare_cached(
        "INSERT INTO usage_wishes (tenant_id, day, agent, tool_id, count)
         VALUES (:tenant_id, :day, :agent, :tool_id, :count)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    for ((tenant, day, agent, tool), count) in &batch.wishes {
        wish.execute(named_params! {
            ":tenant_id": tenant.as_str(),
            ":day": day.0,
            ":agent": agent.as_str(),
            ":tool_id": tool.as_str(),
            ":count": whole(*count),
        })?;
    }
    Ok(true)
}

fn add_rows(connection: &Connection, batch: &UsageBatch) -> Result<(), Fault> {
    let mut row = connection.prepare_cached(
        "INSERT INTO usage (tenant_id, day, tool_id, agent, user, calls, errors, timeouts, refused, replayed, duration_ms,
                            cpu_millicore_seconds, network_bytes, tokens, last_at)
         VALUES (:tenant_id, :day, :tool_id, :agent, :user, :calls, :errors, :timeouts, :refused, :replayed,
         :duration_ms, :cpu_millicore_seconds, :network_bytes, :tokens, :last_at)
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
         VALUES (:tenant_id, :day, :tool_id, :agent, :user, :currency, :component, :micros, :picos)
         ON CONFLICT DO UPDATE SET micros = micros + excluded.micros, picos = picos + excluded.picos",
    )?;
    for (key, sum, costs) in &batch.rows {
        let user = key.user.as_ref().map_or("", |user| user.as_str());
        row.execute(named_params! {
            ":tenant_id": key.tenant.as_str(),
            ":day": key.day.0,
            ":tool_id": key.tool.as_str(),
            ":agent": key.agent.as_str(),
            ":user": user,
            ":calls": whole(sum.calls),
            ":errors": whole(sum.errors),
            ":timeouts": whole(sum.timeouts),
            ":refused": whole(sum.refused),
            ":replayed": whole(sum.replayed),
            ":duration_ms": whole(sum.duration_ms),
            ":cpu_millicore_seconds": whole(sum.cpu_millicore_seconds),
            ":network_bytes": whole(sum.network_bytes),
            ":tokens": whole(sum.tokens),
            ":last_at": sum.last_at.0,
        })?;
        for line in costs {
            let (micros, picos) = line.amount.split();
            cost.execute(named_params! {
                ":tenant_id": key.tenant.as_str(),
                ":day": key.day.0,
                ":tool_id": key.tool.as_str(),
                ":agent": key.agent.as_str(),
                ":user": user,
                ":currency": line.currency.as_str(),
                ":component": line.component.as_str(),
                ":micros": micros,
                ":picos": picos,
            })?;
        }
    }
    Ok(())
}
