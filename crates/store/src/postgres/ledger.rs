//! `Ledger` on PostgreSQL. Almost every method is one statement, so instances meet only inside the database.
//!
//! - Claims that come at the same time are one `INSERT`, settlements one `UPDATE`; what does not go that way goes alone.
//! - That a key is held once is a unique index's doing (LEDGER-1).
//! - A settlement is one `UPDATE` that names fence and state, which the server checks again on the newest row after any wait:
//!   whoever comes second finds nothing to change (LEDGER-3).
//! - A settlement whose answer was lost may be said again: who finds exactly its own words has written them.
//!
//! Not here: taking a key (`claim`), how calls end (`ends`), looking at them (`reads`), what goes together (`groups`), claims whose
//! answer was lost (`doubts`), leases (`instances`).

mod claim;
mod doubts;
mod ends;
mod groups;
mod reads;

use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, TenantId};
use ports::ledger::{
    BeginOutcome, EntryFilter, FencingToken, Intent, Ledger, LedgerEntry, OwnerId, ResolveOutcome, SettleOutcome,
    Settlement,
};
use ports::registry_store::StoreError;

use super::PostgresStore;
pub(super) use doubts::Doubts;
pub(super) use groups::{Claims, Settlements};

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
        Ok(claim::begin(self, intent).await?)
    }

    async fn settle(
        &self,
        invocation: InvocationId,
        fence: FencingToken,
        settlement: Settlement,
    ) -> Result<SettleOutcome, StoreError> {
        ends::settle(self, invocation, fence, settlement).await
    }

    async fn lapsed(&self, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        reads::lapsed(self, most).await
    }

    async fn find(&self, tenant: &TenantId, invocation: InvocationId) -> Result<Option<LedgerEntry>, StoreError> {
        reads::find(self, tenant, invocation).await
    }

    async fn list(&self, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        reads::list(self, filter, most).await
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        settlement: Settlement,
    ) -> Result<ResolveOutcome, StoreError> {
        ends::resolve(self, tenant, invocation, settlement).await
    }

    async fn release(&self, tenant: &TenantId, invocation: InvocationId) -> Result<(), StoreError> {
        ends::release(self, tenant, invocation).await
    }

    async fn prune(&self, most: usize) -> Result<usize, StoreError> {
        ends::prune(self, most).await
    }
}
