//! How calls end, what a person finds out of them, and how they are forgotten.

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::ledger::{EntryState, FencingToken, ResolveOutcome, SettleOutcome, Settlement};
use rusqlite::{Connection, OptionalExtension as _, named_params};

use super::reads::find;
use crate::sqlite::columns::limit;
use crate::sqlite::faults::Fault;

pub(super) fn settle(
    connection: &Connection,
    invocation: InvocationId,
    fence: FencingToken,
    settlement: &Settlement,
    now: UnixMillis,
) -> Result<SettleOutcome, Fault> {
    let id = invocation.to_string();
    let window: Option<i64> = connection
        .prepare_cached(
            "SELECT window_seconds FROM ledger WHERE invocation_id = :id AND state = 'in_flight' AND fence = :fence",
        )?
        .query_row(named_params! { ":id": id, ":fence": fence_column(fence) }, |row| row.get(0))
        .optional()?;
    let Some(window) = window else { return said_before(connection, &id, fence, settlement) };
    write_end(connection, &id, settlement, window, now)?;
    Ok(SettleOutcome::Kept)
}

pub(super) fn resolve(
    connection: &Connection,
    tenant: &TenantId,
    invocation: InvocationId,
    settlement: &Settlement,
    now: UnixMillis,
) -> Result<ResolveOutcome, Fault> {
    let Some(entry) = find(connection, tenant, invocation)? else {
        return Ok(ResolveOutcome::NotFound);
    };
    if entry.state != EntryState::Unknown {
        return Ok(ResolveOutcome::NotUnknown(entry.state));
    }
    write_end(connection, &invocation.to_string(), settlement, seconds(entry.intent.window), now)?;
    Ok(ResolveOutcome::Done)
}

pub(super) fn release(connection: &Connection, tenant: &TenantId, invocation: InvocationId) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "UPDATE ledger SET holds_key = 0 WHERE invocation_id = :invocation AND tenant_id = :tenant_id
             AND state = 'done'",
        )?
        .execute(named_params! { ":invocation": invocation.to_string(), ":tenant_id": tenant.as_str() })?;
    Ok(())
}

pub(super) fn prune(connection: &Connection, most: usize, now: UnixMillis) -> Result<usize, Fault> {
    let forgotten = connection
        .prepare_cached(
            "DELETE FROM ledger WHERE invocation_id IN (
                 SELECT invocation_id FROM ledger
                 WHERE state IN ('done', 'failed_clean') AND keep_until <= :now ORDER BY keep_until LIMIT :most)",
        )?
        .execute(named_params! { ":now": now.to_string(), ":most": limit(most) })?;
    Ok(forgotten)
}

/// Is the end that is there the one that is said? Then it was said twice.
fn said_before(
    connection: &Connection,
    id: &str,
    fence: FencingToken,
    settlement: &Settlement,
) -> Result<SettleOutcome, Fault> {
    let same = connection
        .prepare_cached(
            "SELECT 1 FROM ledger WHERE invocation_id = :id AND fence = :fence AND state = :state
                         AND outcome = :outcome",
        )?
        .exists(named_params! {
            ":id": id,
            ":fence": fence_column(fence),
            ":state": settlement.state.as_str(),
            ":outcome": settlement.outcome.to_string(),
        })?;
    Ok(if same { SettleOutcome::Kept } else { SettleOutcome::Fenced })
}

pub(in crate::sqlite) fn write_end(
    connection: &Connection,
    id: &str,
    settlement: &Settlement,
    window: i64,
    now: UnixMillis,
) -> Result<(), Fault> {
    let window = Duration::from_secs(u64::try_from(window).unwrap_or_default());
    connection
        .prepare_cached(
            "UPDATE ledger SET state = :state, settled_at = :now, keep_until = :until, outcome = :outcome
             WHERE invocation_id = :id",
        )?
        .execute(named_params! {
            ":id": id,
            ":state": settlement.state.as_str(),
            ":now": now.to_string(),
            ":until": now.plus(window).to_string(),
            ":outcome": settlement.outcome.to_string(),
        })?;
    Ok(())
}

pub(in crate::sqlite) fn seconds(span: Duration) -> i64 {
    u32::saturating_from(span.as_secs()).into()
}

pub(super) fn fence_column(fence: FencingToken) -> i64 {
    i64::saturating_from(fence.0)
}
