//! `CheckpointStore` without durability: a list under one lock. Passes the same suite as the real ones.

use std::collections::HashMap;
use std::sync::MutexGuard;
use std::time::Duration;

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::envelope::CheckpointKind;
use contract::ids::{InvocationId, TenantId};
use policy::CallOwner;
use ports::checkpoint_store::{
    CHAIN_MAX, CheckpointEnding, CheckpointId, CheckpointStore, LIST_MAX, ListPage, ListedCheckpoint, PromoteOutcome,
    SaveOutcome, SealedCheckpoint,
};
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;

use super::MemoryStore;

/// All of them, in no order that means anything.
#[derive(Debug, Default)]
pub(super) struct Kept(Vec<Row>, HashMap<(TenantId, InvocationId), Attempt>);

/// The attempt that may save.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    fence: u64,
    held_until: UnixMillis,
}

#[derive(Debug)]
struct Row {
    sealed: SealedCheckpoint,
    fence: u64,
    rank: u64,
    until: Option<UnixMillis>,
}

impl Row {
    fn is_of(&self, tenant: &TenantId, invocation: InvocationId) -> bool {
        self.sealed.head.tenant == *tenant && self.sealed.head.invocation == invocation
    }

    fn is_over(&self, now: UnixMillis) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl Kept {
    fn of(&self, tenant: &TenantId, invocation: InvocationId) -> impl Iterator<Item = &Row> {
        self.0.iter().filter(move |row| row.is_of(tenant, invocation))
    }

    /// Higher than that of every attempt before (CKPT-D).
    fn next_fence(&self, tenant: &TenantId, invocation: InvocationId) -> u64 {
        let claimed = self.1.get(&(tenant.clone(), invocation)).map(|attempt| attempt.fence);
        let saved = self.of(tenant, invocation).map(|row| row.fence).max();
        claimed.max(saved).map_or(0, |highest| highest + 1)
    }

    /// Has the attempt with this fence lost the invocation (CKPT-C)?
    fn is_fenced(&self, tenant: &TenantId, invocation: InvocationId, fence: Option<u64>) -> bool {
        let attempt = self.1.get(&(tenant.clone(), invocation));
        fence.zip(attempt).is_some_and(|(fence, attempt)| fence < attempt.fence)
    }

    /// Frees at most `most` of those that are over and on which nothing is based.
    fn free(&mut self, now: UnixMillis, most: usize, within: impl Fn(&Row) -> bool) -> usize {
        let bases: Vec<CheckpointId> = self.0.iter().filter_map(|row| row.sealed.base).collect();
        let mut freed = 0;
        self.0.retain(|row| {
            let goes = freed < most && row.is_over(now) && within(row) && !bases.contains(&row.sealed.head.id);
            freed += usize::from(goes);
            !goes
        });
        freed
    }

    fn sweep(&mut self, tenant: &TenantId, invocation: InvocationId, now: UnixMillis) {
        for _ in 0..=CHAIN_MAX {
            if self.free(now, usize::MAX, |row| row.is_of(tenant, invocation)) == 0 {
                break;
            }
        }
    }
}

fn now() -> UnixMillis {
    UnixMillis(jiff::Timestamp::now().as_millisecond())
}

impl MemoryStore {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.checkpoints.lock_unpoisoned()
    }
}

#[async_trait]
impl CheckpointStore for MemoryStore {
    async fn save(
        &self,
        checkpoint: &SealedCheckpoint,
        fence: Option<u64>,
        keep: Option<Duration>,
    ) -> Result<SaveOutcome, StoreError> {
        let mut kept = self.kept();
        let head = &checkpoint.head;
        if let Some(row) = kept.0.iter().find(|row| row.sealed.head.id == head.id) {
            return Ok(if row.sealed.seal == checkpoint.seal { SaveOutcome::Kept } else { SaveOutcome::Foreign });
        }
        let (mut rank, mut highest) = (0, 0);
        for row in kept.of(&head.tenant, head.invocation) {
            if row.sealed.head.owner != head.owner || row.sealed.head.tool != head.tool {
                return Ok(SaveOutcome::Foreign);
            }
            (rank, highest) = (rank.max(row.rank), highest.max(row.fence));
        }
        if fence.is_some_and(|fence| fence < highest) || kept.is_fenced(&head.tenant, head.invocation, fence) {
            return Ok(SaveOutcome::Fenced);
        }
        let is_there = |base| kept.of(&head.tenant, head.invocation).any(|row| row.sealed.head.id == base);
        if checkpoint.base.is_some_and(|base| !is_there(base)) {
            return Ok(SaveOutcome::BaseGone);
        }
        let until = keep.map(|keep| now().plus(keep));
        let fence = fence.unwrap_or(highest);
        kept.0.push(Row { sealed: checkpoint.clone(), fence, rank: rank + 1, until });
        Ok(SaveOutcome::Kept)
    }

    async fn claim(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        fence: Option<u64>,
        span: Duration,
    ) -> Result<Option<u64>, StoreError> {
        let (mut kept, now) = (self.kept(), now());
        let key = (tenant.clone(), invocation);
        let before = kept.1.get(&key).copied();
        let refused = before.is_some_and(|before| match fence {
            None => before.held_until > now,
            Some(fence) => fence < before.fence,
        });
        if refused {
            return Ok(None);
        }
        let fence = fence.unwrap_or_else(|| kept.next_fence(tenant, invocation));
        kept.1.insert(key, Attempt { fence, held_until: now.plus(span) });
        Ok(Some(fence))
    }

    async fn is_claimed(&self, tenant: &TenantId, invocation: InvocationId) -> Result<bool, StoreError> {
        let attempt = self.kept().1.get(&(tenant.clone(), invocation)).copied();
        Ok(attempt.is_some_and(|attempt| attempt.held_until > now()))
    }

    async fn chain(&self, tenant: &TenantId, id: CheckpointId) -> Result<Vec<SealedCheckpoint>, StoreError> {
        let (kept, now) = (self.kept(), now());
        let mut found: Vec<SealedCheckpoint> = Vec::new();
        let mut wanted = Some(id);
        while let Some(id) = wanted.filter(|_| found.len() <= usize::from(CHAIN_MAX) + 1) {
            let row = kept.0.iter().find(|row| row.sealed.head.id == id && row.sealed.head.tenant == *tenant);
            let Some(row) = row.filter(|row| !found.is_empty() || !row.is_over(now)) else { break };
            wanted = row.sealed.base;
            found.push(row.sealed.clone());
        }
        Ok(found)
    }

    async fn list(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        page: ListPage,
    ) -> Result<Vec<ListedCheckpoint>, StoreError> {
        let (kept, now) = (self.kept(), now());
        let below = page
            .after
            .and_then(|after| kept.of(tenant, invocation).find(|row| row.sealed.head.id == after).map(|row| row.rank));
        let mut rows: Vec<&Row> = kept.of(tenant, invocation).filter(|row| !row.is_over(now)).collect();
        rows.retain(|row| below.is_none_or(|below| row.rank < below));
        rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.rank));
        let listed = rows.into_iter().take(page.limit.min(LIST_MAX)).map(|row| ListedCheckpoint {
            head: row.sealed.head.clone(),
            base: row.sealed.base,
            content_bytes: row.sealed.content_bytes,
            stored_bytes: u64::saturating_from(row.sealed.payload.len()),
            expires_at: row.until,
        });
        Ok(listed.collect())
    }

    async fn promote(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        id: CheckpointId,
        keep: Duration,
        if_idle: bool,
    ) -> Result<PromoteOutcome, StoreError> {
        let (mut kept, now) = (self.kept(), now());
        let living = kept.of(tenant, invocation).filter(|row| !row.is_over(now));
        let Some((newest, _)) = living.map(|row| (row.sealed.head.id, row.rank)).max_by_key(|(_, rank)| *rank) else {
            return Ok(PromoteOutcome::NotThere);
        };
        if !kept.of(tenant, invocation).any(|row| row.sealed.head.id == id && !row.is_over(now)) {
            return Ok(PromoteOutcome::NotThere);
        }
        let key = (tenant.clone(), invocation);
        let held_until = kept.1.get(&key).map_or(UnixMillis(0), |attempt| attempt.held_until);
        if if_idle && held_until > now {
            return Ok(PromoteOutcome::Running);
        }
        let fence = kept.next_fence(tenant, invocation);
        kept.1.insert(key, Attempt { fence, held_until: held_until.min(now) });
        let top = kept.of(tenant, invocation).map(|row| row.rank).max().unwrap_or(0) + 1;
        for row in kept.0.iter_mut().filter(|row| row.sealed.head.id == id || row.sealed.head.id == newest) {
            row.until = row.until.map(|until| until.max(now.plus(keep)));
            if row.sealed.head.id == id {
                row.rank = top;
            }
        }
        Ok(PromoteOutcome::Newest)
    }

    async fn settle(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        owner: &CallOwner,
        fence: Option<u64>,
        ending: CheckpointEnding,
    ) -> Result<(), StoreError> {
        let (mut kept, now) = (self.kept(), now());
        if kept.is_fenced(tenant, invocation, fence) {
            return Ok(());
        }
        let is_micro = |row: &Row| row.sealed.head.kind == CheckpointKind::Micro;
        let mine = |row: &&Row| row.sealed.head.owner == *owner;
        let micro = kept.of(tenant, invocation).filter(mine).filter(|row| is_micro(row) && !row.is_over(now));
        let newest = micro.max_by_key(|row| row.rank).map(|row| row.sealed.head.id);
        let own = |row: &&mut Row| row.is_of(tenant, invocation) && row.sealed.head.owner == *owner;
        match ending {
            CheckpointEnding::Completed => {
                for row in kept.0.iter_mut().filter(own).filter(|row| is_micro(row)) {
                    row.until = row.until.map(|until| until.min(now));
                }
                kept.sweep(tenant, invocation, now);
            }
            CheckpointEnding::Failed { keep } => {
                for row in kept.0.iter_mut().filter(own) {
                    if row.sealed.head.kind == CheckpointKind::Macro || Some(row.sealed.head.id) == newest {
                        row.until = Some(now.plus(keep));
                    }
                }
            }
        }
        Ok(())
    }

    async fn delete(&self, tenant: &TenantId, invocation: InvocationId, id: CheckpointId) -> Result<bool, StoreError> {
        let (mut kept, now) = (self.kept(), now());
        let mut rows = kept.0.iter_mut().filter(|row| row.is_of(tenant, invocation) && !row.is_over(now));
        let Some(row) = rows.find(|row| row.sealed.head.id == id) else { return Ok(false) };
        row.until = Some(now);
        kept.sweep(tenant, invocation, now);
        Ok(true)
    }

    async fn prune(&self, batch: usize) -> Result<usize, StoreError> {
        Ok(self.kept().free(now(), batch, |_| true))
    }
}
