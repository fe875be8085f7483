//! How calls end, what a person finds out of them, and how they are forgotten.

use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use ports::ledger::{EntryState, FencingToken, ResolveOutcome, SettleOutcome, Settlement};
use ports::registry_store::StoreError;

use super::groups::WaitingSettlement;
use crate::postgres::PostgresStore;
use crate::postgres::columns::{limit, with_clock};
use crate::postgres::faults::Fault;
use crate::postgres::statement::{column, int, text};
use crate::postgres::transaction::Scope;
use crate::stored_row::StoredRow as _;

pub(super) async fn settle(
    store: &PostgresStore,
    invocation: InvocationId,
    fence: FencingToken,
    settlement: Settlement,
) -> Result<SettleOutcome, StoreError> {
    let settlement = WaitingSettlement {
        now: store.now(),
        id: invocation.to_string(),
        fence: i64::saturating_from(fence.0),
        state: settlement.state.as_str(),
        outcome: settlement.outcome.to_string().into(),
    };
    if store.settlements.write(settlement.clone()).await? {
        return Ok(SettleOutcome::Kept);
    }
    Ok(settle_alone(store, &settlement).await?)
}

pub(super) async fn resolve(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
    settlement: Settlement,
) -> Result<ResolveOutcome, StoreError> {
    let (id, outcome) = (invocation.to_string(), settlement.outcome.to_string());
    // Locked first, so that the state which is told is the one that was judged.
    let statement = format!(
        "{}, found AS (SELECT invocation_id, state FROM ledger WHERE invocation_id = $2 AND tenant_id = $3 FOR UPDATE),
         resolved AS (
             UPDATE ledger SET state = $4, settled_at = clock.now, outcome = $5,
                               keep_until = clock.now + window_seconds * 1000
             FROM clock, found WHERE ledger.invocation_id = found.invocation_id AND found.state = 'unknown' RETURNING 1
         )
         SELECT state, EXISTS (SELECT 1 FROM resolved) AS is_resolved FROM found",
        with_clock()
    );
    let rows = store
        .pool
        .query(
            Scope::Tenant(tenant.as_str()),
            &statement,
            &[int(&store.now()), text(&id), text(&tenant.as_str()), text(&settlement.state.as_str()), text(&outcome)],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(ResolveOutcome::NotFound) };
    if column(row, "is_resolved")? {
        return Ok(ResolveOutcome::Done);
    }
    let state = row.one_of("state", &id, EntryState::of_word)?;
    Ok(ResolveOutcome::NotUnknown(state))
}

pub(super) async fn release(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
) -> Result<(), StoreError> {
    let statement =
        "UPDATE ledger SET holds_key = false WHERE invocation_id = $1 AND tenant_id = $2 AND state = 'done'";
    let (tenant, id) = (tenant.as_str(), invocation.to_string());
    store.pool.execute(Scope::Tenant(tenant), statement, &[text(&id), text(&tenant)]).await?;
    Ok(())
}

pub(super) async fn prune(store: &PostgresStore, most: usize) -> Result<usize, StoreError> {
    // What another instance forgets at the moment is left to it.
    let statement = format!(
        "{}, over AS (
             SELECT invocation_id FROM ledger, clock
             WHERE state IN ('done', 'failed_clean') AND keep_until <= clock.now
             ORDER BY keep_until LIMIT $2 FOR UPDATE OF ledger SKIP LOCKED
         )
         DELETE FROM ledger USING over WHERE ledger.invocation_id = over.invocation_id",
        with_clock()
    );
    let forgotten = store.pool.execute(Scope::System, &statement, &[int(&store.now()), int(&limit(most))]).await?;
    Ok(usize::saturating_from(forgotten))
}

/// Settles one call, and knows its own words if it was settled with them before.
async fn settle_alone(store: &PostgresStore, settlement: &WaitingSettlement) -> Result<SettleOutcome, Fault> {
    let WaitingSettlement { now: _, id, fence, state, outcome } = settlement;
    let statement = format!(
        "{}, settled AS (
             UPDATE ledger SET state = $4, settled_at = clock.now, outcome = $5,
                               keep_until = clock.now + window_seconds * 1000
             FROM clock WHERE invocation_id = $2 AND fence = $3 AND state = 'in_flight' RETURNING 1
         )
         SELECT 1 AS kept FROM settled
         UNION ALL
         SELECT 1 FROM ledger WHERE invocation_id = $2 AND fence = $3 AND state = $4 AND outcome = $5",
        with_clock()
    );
    let outcome: &str = outcome;
    // The call is known by its id alone, which is nobody else's.
    let kept = store
        .pool
        .query(Scope::System, &statement, &[int(&store.now()), text(id), int(fence), text(state), text(&outcome)])
        .await?;
    Ok(if kept.is_empty() { SettleOutcome::Fenced } else { SettleOutcome::Kept })
}
