//! Checkpoints with seals on their payloads: what tools have saved of their state is not readable in the store.
//!
//! The kernel's codec puts a digest on a checkpoint, which notices changes and hides nothing. Here its payload is enciphered
//! between the kernel and either store, bound to its tenant and id; head, sizes and digests stay as they are.
//!
//! Invariants
//! - STATE-1: with a seal, no payload is written but sealed. What is there in clear, from before, is read until its time is over.
//! - STATE-2: a payload that cannot be opened is handed on as it is; the codec finds that it is not what was saved (E3904).
//!
//! Not here: where the keys come from (`store_keys`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, TenantId};
use policy::CallOwner;
use ports::checkpoint_store::{
    CheckpointEnding, CheckpointId, CheckpointStore, ListPage, ListedCheckpoint, PromoteOutcome, SaveOutcome,
    SealedCheckpoint,
};
use ports::registry_store::StoreError;

use crate::store_seal::StoreSeal;

/// A store of checkpoints whose payloads are sealed.
#[derive(Debug)]
pub(crate) struct SealedCheckpoints {
    inner: Arc<dyn CheckpointStore>,
    /// Seals what is written. Without it payloads are written as they are.
    seal: Option<StoreSeal>,
    /// Opens what was sealed with another key of this installation.
    former: Option<StoreSeal>,
}

#[derive(Debug, thiserror::Error)]
#[error("the payload of a checkpoint cannot be sealed")]
struct NotSealed;

impl SealedCheckpoints {
    pub(crate) fn new(inner: Arc<dyn CheckpointStore>, seal: Option<StoreSeal>, former: Option<StoreSeal>) -> Self {
        Self { inner, seal, former }
    }

    fn opened(&self, mut checkpoint: SealedCheckpoint) -> SealedCheckpoint {
        let what = what(&checkpoint);
        let seals = [&self.seal, &self.former];
        let opened = seals.into_iter().flatten().find_map(|seal| seal.open_bytes(&what, &checkpoint.payload));
        if let Some(payload) = opened {
            checkpoint.payload = payload.into();
        }
        checkpoint
    }
}

/// What belongs to one checkpoint is no other's.
fn what(checkpoint: &SealedCheckpoint) -> String {
    format!("gantry checkpoint {} {}", checkpoint.head.id, checkpoint.head.tenant)
}

#[async_trait]
impl CheckpointStore for SealedCheckpoints {
    async fn save(
        &self,
        checkpoint: &SealedCheckpoint,
        fence: Option<u64>,
        keep: Option<Duration>,
    ) -> Result<SaveOutcome, StoreError> {
        let Some(seal) = &self.seal else { return self.inner.save(checkpoint, fence, keep).await };
        let payload = seal.seal_bytes(&what(checkpoint), &checkpoint.payload);
        let payload = payload.ok_or_else(|| StoreError::Corrupt(Box::new(NotSealed)))?;
        self.inner.save(&SealedCheckpoint { payload: payload.into(), ..checkpoint.clone() }, fence, keep).await
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        fence: Option<u64>,
        span: Duration,
    ) -> Result<Option<u64>, StoreError> {
        self.inner.claim(tenant, invocation, fence, span).await
    }

    async fn is_claimed(&self, tenant: &TenantId, invocation: InvocationId) -> Result<bool, StoreError> {
        self.inner.is_claimed(tenant, invocation).await
    }

    async fn chain(&self, tenant: &TenantId, id: CheckpointId) -> Result<Vec<SealedCheckpoint>, StoreError> {
        let chain = self.inner.chain(tenant, id).await?;
        Ok(chain.into_iter().map(|checkpoint| self.opened(checkpoint)).collect())
    }

    async fn list(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        page: ListPage,
    ) -> Result<Vec<ListedCheckpoint>, StoreError> {
        self.inner.list(tenant, invocation, page).await
    }

    async fn promote(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        id: CheckpointId,
        keep: Duration,
        if_idle: bool,
    ) -> Result<PromoteOutcome, StoreError> {
        self.inner.promote(tenant, invocation, id, keep, if_idle).await
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        owner: &CallOwner,
        fence: Option<u64>,
        ending: CheckpointEnding,
    ) -> Result<(), StoreError> {
        self.inner.settle(tenant, invocation, owner, fence, ending).await
    }

    async fn delete(&self, tenant: &TenantId, invocation: InvocationId, id: CheckpointId) -> Result<bool, StoreError> {
        self.inner.delete(tenant, invocation, id).await
    }

    async fn prune(&self, batch: usize) -> Result<usize, StoreError> {
        self.inner.prune(batch).await
    }
}
