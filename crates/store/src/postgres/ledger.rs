//! `Ledger` on PostgreSQL. Almost every method is one statement, so instances meet only inside the database.
//!
//! - Claims that come at the same time are one `INSERT`, settlements one `UPDATE`; what does not go that way goes alone.
//! - That a key is held once is a unique index's doing (LEDGER-1).
//! - A settlement is one `UPDATE` that names fence and state, which the server checks again on the newest row after any wait:
//!   whoever comes second finds nothing to change (LEDGER-3).
//! - A settlement whose answer was lost may be said again: who finds exactly its own words has written them.
//!
//! Not here: taking a key (`claim`), what goes together (`groups`), claims whose answer was lost (`doubts`), leases
//! (`instances`).

mod claim;
mod doubts;
mod entries;
mod groups;

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use ports::ledger::{
    BeginOutcome, EntryFilter, EntryState, FencingToken, Intent, Ledger, LedgerEntry, OwnerId, ResolveOutcome,
    SettleOutcome, Settlement,
};
use ports::registry_store::StoreError;

pub(super) use doubts::Doubts;
use entries::{COLUMNS, entry};
use groups::WaitingSettlement;
pub(super) use groups::{Claims, Settlements};

use super::PostgresStore;
use super::columns::{limit, with_clock};
use super::faults::Fault;
use super::statement::{column, int, text, unreadable};
use super::transaction::Scope;

#[async_trait]
impl Ledger for PostgresStore {
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<(), StoreError> {
        self.renew_for_calls(owner, lease).await?;
        // The server answers: a good moment to clear up what it left open when it did not.
        self.withdraw_doubtful().await;
        Ok(())
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), StoreError> {
        Ok(self.retire_from_calls(owner).await?)
    }

    async fn begin(&self, intent: Intent) -> Result<BeginOutcome, StoreError> {
        Ok(self.claim(intent).await?)
    }

    async fn settle(
        &self,
        invocation: InvocationId,
        fence: FencingToken,
        settlement: Settlement,
    ) -> Result<SettleOutcome, StoreError> {
        let settlement = WaitingSettlement {
            now: self.now(),
            id: invocation.to_string(),
            fence: i64::saturating_from(fence.0),
            state: settlement.state.as_str(),
            outcome: settlement.outcome.to_string().into(),
        };
        if self.settlements.write(settlement.clone()).await? {
            return Ok(SettleOutcome::Kept);
        }
        Ok(self.settle_alone(&settlement).await?)
    }

    async fn lapsed(&self, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let statement = format!(
            "{} SELECT {COLUMNS} FROM ledger, clock
             WHERE state = 'in_flight'
               AND NOT EXISTS (SELECT 1 FROM instances
                               WHERE instances.owner_id = ledger.owner_id AND ledger_until > clock.now)
             ORDER BY begun_at, invocation_id LIMIT $2",
            with_clock()
        );
        let rows = self.pool.query(Scope::System, &statement, &[int(&self.now()), int(&limit(most))]).await?;
        Ok(rows.iter().map(entry).collect::<Result<_, Fault>>()?)
    }

    async fn find(&self, tenant: &TenantId, invocation: InvocationId) -> Result<Option<LedgerEntry>, StoreError> {
        let statement = format!("SELECT {COLUMNS} FROM ledger WHERE invocation_id = $1 AND tenant_id = $2");
        let rows = self
            .pool
            .query(Scope::Tenant(tenant.as_str()), &statement, &[text(&invocation.to_string()), text(&tenant.as_str())])
            .await?;
        Ok(rows.first().map(entry).transpose()?)
    }

    async fn list(&self, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let tenant = filter.tenant.as_ref().map(TenantId::as_str);
        // One shape of the question for each of the four, so that each finds its index.
        let of = if tenant.is_some() { "tenant_id = $1" } else { "$1 IS NULL" };
        let in_state = if filter.state.is_some() { "state = $2" } else { "$2 IS NULL" };
        let before = if filter.before.is_some() { "invocation_id < $3" } else { "$3 IS NULL" };
        let statement = format!(
            "SELECT {COLUMNS} FROM ledger WHERE {of} AND {in_state} AND {before} ORDER BY invocation_id DESC LIMIT $4"
        );
        let rows = self
            .pool
            .query(
                tenant.map_or(Scope::System, Scope::Tenant),
                &statement,
                &[
                    text(&tenant),
                    text(&filter.state.map(EntryState::as_str)),
                    text(&filter.before.map(|id| id.to_string())),
                    int(&limit(most)),
                ],
            )
            .await?;
        Ok(rows.iter().map(entry).collect::<Result<_, Fault>>()?)
    }

    async fn resolve(
        &self,
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
        let rows = self
            .pool
            .query(
                Scope::Tenant(tenant.as_str()),
                &statement,
                &[
                    int(&self.now()),
                    text(&id),
                    text(&tenant.as_str()),
                    text(&settlement.state.as_str()),
                    text(&outcome),
                ],
            )
            .await?;
        let Some(row) = rows.first() else { return Ok(ResolveOutcome::NotFound) };
        if column(row, "is_resolved")? {
            return Ok(ResolveOutcome::Done);
        }
        let state = EntryState::of_word(column(row, "state")?).ok_or_else(|| Fault::from(unreadable("state", &id)))?;
        Ok(ResolveOutcome::NotUnknown(state))
    }

    async fn release(&self, tenant: &TenantId, invocation: InvocationId) -> Result<(), StoreError> {
        let statement =
            "UPDATE ledger SET holds_key = false WHERE invocation_id = $1 AND tenant_id = $2 AND state = 'done'";
        let (tenant, id) = (tenant.as_str(), invocation.to_string());
        self.pool.execute(Scope::Tenant(tenant), statement, &[text(&id), text(&tenant)]).await?;
        Ok(())
    }

    async fn prune(&self, most: usize) -> Result<usize, StoreError> {
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
        let forgotten = self.pool.execute(Scope::System, &statement, &[int(&self.now()), int(&limit(most))]).await?;
        Ok(usize::saturating_from(forgotten))
    }
}

impl PostgresStore {
    /// Settles one call, and knows its own words if it was settled with them before.
    async fn settle_alone(&self, settlement: &WaitingSettlement) -> Result<SettleOutcome, Fault> {
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
        let kept = self
            .pool
            .query(Scope::System, &statement, &[int(&self.now()), text(id), int(fence), text(state), text(&outcome)])
            .await?;
        Ok(if kept.is_empty() { SettleOutcome::Fenced } else { SettleOutcome::Kept })
    }
}
