//! `CheckpointStore` on PostgreSQL: what running tools have saved, each act one statement. (CKPT-*)
//!
//! Instances may save into one invocation at once, one of them fenced out already. What puts them in order is the unique
//! rank: of two that would be the newest, one is kept, and the other looks again and sees the first. In the same way a
//! base that goes while something is saved on it is noticed by the foreign key, on whichever side is later.
//!
//! Not here: what is in a checkpoint; whether it is damaged is found by whoever opens it.

mod reads;
mod writes;

use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, TenantId};
use policy::CallOwner;
use ports::checkpoint_store::{
    CheckpointEnding, CheckpointId, CheckpointStore, ListPage, ListedCheckpoint, PromoteOutcome, SaveOutcome,
    SealedCheckpoint,
};
use ports::registry_store::StoreError;
use tokio_postgres::error::SqlState;

use super::PostgresStore;
use super::faults::Fault;

/// So often in all an act is tried that another instance has overtaken.
const OVERTAKEN_MAX: u32 = 32;

#[async_trait]
impl CheckpointStore for PostgresStore {
    async fn save(
        &self,
        checkpoint: &SealedCheckpoint,
        fence: Option<u64>,
        keep: Option<Duration>,
    ) -> Result<SaveOutcome, StoreError> {
        for _ in 1..OVERTAKEN_MAX {
            if let Some(saved) = writes::save(self, checkpoint, fence, keep).await? {
                return Ok(saved);
            }
        }
        Err(Fault::from(super::faults::Busy::NoAnswer).into())
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        fence: Option<u64>,
        span: Duration,
    ) -> Result<Option<u64>, StoreError> {
        Ok(writes::claim(self, tenant, invocation, fence, span).await?)
    }

    async fn is_claimed(&self, tenant: &TenantId, invocation: InvocationId) -> Result<bool, StoreError> {
        Ok(reads::is_claimed(self, tenant, invocation).await?)
    }

    async fn chain(&self, tenant: &TenantId, id: CheckpointId) -> Result<Vec<SealedCheckpoint>, StoreError> {
        Ok(reads::chain(self, tenant, id).await?)
    }

    async fn list(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        page: ListPage,
    ) -> Result<Vec<ListedCheckpoint>, StoreError> {
        Ok(reads::list(self, tenant, invocation, page).await?)
    }

    async fn promote(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        id: CheckpointId,
        keep: Duration,
        if_idle: bool,
    ) -> Result<PromoteOutcome, StoreError> {
        let mut tried = 1;
        loop {
            match writes::promote(self, tenant, invocation, id, keep, if_idle).await {
                Err(fault) if tried < OVERTAKEN_MAX && is_overtaken(&fault) => tried += 1,
                done => return Ok(done?),
            }
        }
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        owner: &CallOwner,
        fence: Option<u64>,
        ending: CheckpointEnding,
    ) -> Result<(), StoreError> {
        let mut tried = 1;
        loop {
            let done = match ending {
                CheckpointEnding::Completed => writes::complete(self, tenant, invocation, owner, fence).await,
                CheckpointEnding::Failed { keep } => {
                    writes::keep_for(self, tenant, invocation, owner, fence, keep).await
                }
            };
            match done {
                Err(fault) if tried < OVERTAKEN_MAX && is_overtaken(&fault) => tried += 1,
                done => return Ok(done?),
            }
        }
    }

    async fn delete(&self, tenant: &TenantId, invocation: InvocationId, id: CheckpointId) -> Result<bool, StoreError> {
        let mut tried = 1;
        loop {
            match writes::delete(self, tenant, invocation, id).await {
                Err(fault) if tried < OVERTAKEN_MAX && is_overtaken(&fault) => tried += 1,
                done => return Ok(done?),
            }
        }
    }

    async fn prune(&self, batch: usize) -> Result<usize, StoreError> {
        let mut tried = 1;
        loop {
            match writes::prune(self, batch).await {
                Err(fault) if tried < OVERTAKEN_MAX && is_overtaken(&fault) => tried += 1,
                done => return Ok(done?),
            }
        }
    }
}

/// Did another instance take the rank, or save something on a base that was about to go? Looking again shows it.
fn is_overtaken(fault: &Fault) -> bool {
    let Fault::Postgres(error) = fault else { return false };
    matches!(error.code(), Some(&SqlState::UNIQUE_VIOLATION | &SqlState::FOREIGN_KEY_VIOLATION))
}
