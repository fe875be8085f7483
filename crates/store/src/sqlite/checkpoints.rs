//! `CheckpointStore` on SQLite: what running tools have saved, durable before it is answered. (CKPT-*)
//!
//! A row whose time is over is deleted as soon as nothing is based on it: at the end of its call, when it is deleted by
//! somebody, or by `prune`. Until then it is out of every list, but can be what another stands on.
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
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;

use super::SqliteStore;

/// The time by which checkpoints of this store live.
fn now_of(_: &SqliteStore) -> UnixMillis {
    UnixMillis(jiff::Timestamp::now().as_millisecond())
}

#[async_trait]
impl CheckpointStore for SqliteStore {
    async fn save(
        &self,
        checkpoint: &SealedCheckpoint,
        fence: Option<u64>,
        keep: Option<Duration>,
    ) -> Result<SaveOutcome, StoreError> {
        let (checkpoint, now) = (checkpoint.clone(), now_of(self));
        let until = keep.map(|keep| now.plus(keep));
        self.writer()?.run(move |connection| writes::save(connection, &checkpoint, fence, until)).await
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        fence: Option<u64>,
        span: Duration,
    ) -> Result<Option<u64>, StoreError> {
        let (tenant, now) = (tenant.clone(), now_of(self));
        let claim = move |connection: &rusqlite::Connection| {
            writes::claim(connection, (tenant.as_str(), invocation), fence, now, now.plus(span))
        };
        self.writer()?.run(claim).await
    }

    async fn is_claimed(&self, tenant: &TenantId, invocation: InvocationId) -> Result<bool, StoreError> {
        let (tenant, now) = (tenant.clone(), now_of(self));
        self.readers.run(move |connection| reads::is_claimed(connection, &tenant, invocation, now)).await
    }

    async fn chain(&self, tenant: &TenantId, id: CheckpointId) -> Result<Vec<SealedCheckpoint>, StoreError> {
        let (tenant, now) = (tenant.clone(), now_of(self));
        self.readers.run(move |connection| reads::chain(connection, &tenant, id, now)).await
    }

    async fn list(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        page: ListPage,
    ) -> Result<Vec<ListedCheckpoint>, StoreError> {
        let (tenant, now) = (tenant.clone(), now_of(self));
        self.readers.run(move |connection| reads::list(connection, &tenant, invocation, page, now)).await
    }

    async fn promote(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        id: CheckpointId,
        keep: Duration,
        if_idle: bool,
    ) -> Result<PromoteOutcome, StoreError> {
        let (tenant, now) = (tenant.clone(), now_of(self));
        let promote = move |connection: &rusqlite::Connection| {
            writes::promote(connection, (tenant.as_str(), invocation), id, (now, now.plus(keep)), if_idle)
        };
        self.writer()?.run(promote).await
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        owner: &CallOwner,
        fence: Option<u64>,
        ending: CheckpointEnding,
    ) -> Result<(), StoreError> {
        let (tenant, owner, now) = (tenant.clone(), owner.clone(), now_of(self));
        let settle = move |connection: &rusqlite::Connection| {
            writes::settle(connection, (tenant.as_str(), invocation), owner.as_str(), fence, ending, now)
        };
        self.writer()?.run(settle).await
    }

    async fn delete(&self, tenant: &TenantId, invocation: InvocationId, id: CheckpointId) -> Result<bool, StoreError> {
        let (tenant, now) = (tenant.clone(), now_of(self));
        let delete =
            move |connection: &rusqlite::Connection| writes::delete(connection, (tenant.as_str(), invocation), id, now);
        self.writer()?.run(delete).await
    }

    async fn prune(&self, batch: usize) -> Result<usize, StoreError> {
        let now = now_of(self);
        self.writer()?.run(move |connection| writes::prune(connection, batch, now)).await
    }
}

/// An invocation of a tenant.
type Of<'a> = (&'a str, InvocationId);
