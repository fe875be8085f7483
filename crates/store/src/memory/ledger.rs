//! `Ledger` without durability: one map under one lock. Passes the same suite as the real ones.

use std::collections::BTreeMap;
use std::sync::MutexGuard;
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::job_store::NewJob;
use ports::ledger::{
    BeginOutcome, EntryFilter, EntryState, FencingToken, Intent, Ledger, LedgerEntry, OwnerId, ResolveOutcome,
    SettleOutcome, Settlement,
};
use ports::registry_store::StoreError;

use super::MemoryStore;

/// A line and what only the store knows of it.
#[derive(Debug)]
struct Line {
    entry: LedgerEntry,
    /// Another call has the key by now.
    released: bool,
    keep_until: UnixMillis,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: BTreeMap<InvocationId, Line>,
    leases: BTreeMap<OwnerId, UnixMillis>,
}

impl Lines {
    fn is_alive(&self, owner: OwnerId, now: UnixMillis) -> bool {
        self.leases.get(&owner).is_some_and(|until| *until > now)
    }

    /// The call other than this one that has the key of a job's act, and whether its parameters are the same (JOB-10).
    pub(super) fn claimed(&self, job: &NewJob, now: UnixMillis) -> Option<(InvocationId, bool)> {
        let act = job.act.as_ref()?;
        let line = self.lines.values().find(|line| {
            let of = &line.entry.intent;
            let counts = match line.entry.state {
                EntryState::InFlight | EntryState::Unknown => true,
                EntryState::Done => line.keep_until > now,
                EntryState::FailedClean => false,
            };
            let is_other = of.invocation != job.key.id;
            let same_key = of.tenant == job.key.tenant && of.tool == act.tool && of.key.as_ref() == Some(&act.key);
            !line.released && counts && is_other && same_key
        })?;
        let of = &line.entry.intent;
        Some((of.invocation, of.parameters == act.parameters))
    }

    /// The call that has the key of this intent and still counts.
    fn holder(&mut self, intent: &Intent, now: UnixMillis) -> Option<&mut Line> {
        let key = intent.key.as_ref()?;
        let line = self.lines.values_mut().find(|line| {
            let of = &line.entry.intent;
            !line.released && of.tenant == intent.tenant && of.tool == intent.tool && of.key.as_ref() == Some(key)
        })?;
        let counts = matches!(line.entry.state, EntryState::InFlight | EntryState::Unknown) || line.keep_until > now;
        if !counts {
            line.released = true;
            return None;
        }
        Some(line)
    }
}

impl MemoryStore {
    pub(super) fn lines(&self) -> MutexGuard<'_, Lines> {
        self.ledger.lock_unpoisoned()
    }
}

fn end(line: &mut Line, settlement: Settlement, now: UnixMillis) {
    line.entry.state = settlement.state;
    line.entry.outcome = Some(settlement.outcome);
    line.entry.settled_at = Some(now);
    line.keep_until = now.plus(line.entry.intent.window);
}

#[async_trait]
impl Ledger for MemoryStore {
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<(), StoreError> {
        let until = self.time.now().plus(lease);
        self.lines().leases.insert(owner, until);
        Ok(())
    }

    async fn retire(&self, owner: OwnerId) -> Result<(), StoreError> {
        self.lines().leases.remove(&owner);
        Ok(())
    }

    async fn begin(&self, intent: Intent) -> Result<BeginOutcome, StoreError> {
        let now = self.time.now();
        // Before the ledger, as by everybody who locks both.
        let queue = self.jobs();
        let mut kept = self.lines();
        if !kept.is_alive(intent.owner, now) {
            return Ok(BeginOutcome::OwnerLapsed);
        }
        if let Some(line) = kept.holder(&intent, now) {
            let held = &line.entry;
            if held.state != EntryState::FailedClean {
                return Ok(if held.intent.parameters == intent.parameters {
                    BeginOutcome::Held(Box::new(held.clone()))
                } else {
                    BeginOutcome::OtherParameters { invocation: held.intent.invocation }
                });
            }
            line.released = true;
        }
        if let Some((job, same)) = queue.to_do(&intent) {
            return Ok(BeginOutcome::Queued { job, same, ended: false });
        }
        let fence = match kept.lines.get(&intent.invocation).map(|line| &line.entry) {
            None => FencingToken(1),
            Some(former) if !former.intent.is_same_call(&intent) => return Ok(BeginOutcome::IdTaken),
            Some(former) if former.state == EntryState::FailedClean => FencingToken(former.fence.0 + 1),
            Some(former) => return Ok(BeginOutcome::Held(Box::new(former.clone()))),
        };
        let invocation = intent.invocation;
        let state = EntryState::InFlight;
        let entry = LedgerEntry { intent, state, fence, begun_at: now, settled_at: None, outcome: None };
        kept.lines.insert(invocation, Line { entry, released: false, keep_until: now });
        Ok(BeginOutcome::Fresh(fence))
    }

    async fn settle(
        &self,
        invocation: InvocationId,
        fence: FencingToken,
        settlement: Settlement,
    ) -> Result<SettleOutcome, StoreError> {
        let now = self.time.now();
        let mut kept = self.lines();
        match kept.lines.get_mut(&invocation) {
            Some(line) if line.entry.state == EntryState::InFlight && line.entry.fence == fence => {
                end(line, settlement, now);
                Ok(SettleOutcome::Kept)
            }
            // Said again, because the answer was lost.
            Some(line)
                if line.entry.fence == fence
                    && line.entry.state == settlement.state
                    && line.entry.outcome.as_ref() == Some(&settlement.outcome) =>
            {
                Ok(SettleOutcome::Kept)
            }
            _ => Ok(SettleOutcome::Fenced),
        }
    }

    async fn lapsed(&self, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let now = self.time.now();
        let kept = self.lines();
        let in_flight = kept.lines.values().map(|line| &line.entry).filter(|entry| entry.state == EntryState::InFlight);
        let mut lapsed: Vec<&LedgerEntry> = in_flight.filter(|entry| !kept.is_alive(entry.intent.owner, now)).collect();
        lapsed.sort_by_key(|entry| entry.begun_at);
        Ok(lapsed.into_iter().take(most).cloned().collect())
    }

    async fn find(&self, tenant: &TenantId, invocation: InvocationId) -> Result<Option<LedgerEntry>, StoreError> {
        let kept = self.lines();
        let entry = kept.lines.get(&invocation).map(|line| &line.entry);
        Ok(entry.filter(|entry| entry.intent.tenant == *tenant).cloned())
    }

    async fn list(&self, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        let kept = self.lines();
        let entries = kept.lines.values().rev().map(|line| &line.entry).filter(|entry| {
            filter.tenant.as_ref().is_none_or(|tenant| *tenant == entry.intent.tenant)
                && filter.state.is_none_or(|state| state == entry.state)
                && filter.before.is_none_or(|before| entry.intent.invocation < before)
        });
        Ok(entries.take(most).cloned().collect())
    }

    async fn resolve(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        settlement: Settlement,
    ) -> Result<ResolveOutcome, StoreError> {
        let now = self.time.now();
        let mut kept = self.lines();
        let line = kept.lines.get_mut(&invocation).filter(|line| line.entry.intent.tenant == *tenant);
        Ok(match line {
            None => ResolveOutcome::NotFound,
            Some(line) if line.entry.state == EntryState::Unknown => {
                end(line, settlement, now);
                ResolveOutcome::Done
            }
            Some(line) => ResolveOutcome::NotUnknown(line.entry.state),
        })
    }

    async fn release(&self, tenant: &TenantId, invocation: InvocationId) -> Result<(), StoreError> {
        let mut kept = self.lines();
        let line = kept.lines.get_mut(&invocation).filter(|line| line.entry.intent.tenant == *tenant);
        if let Some(line) = line.filter(|line| line.entry.state == EntryState::Done) {
            line.released = true;
        }
        Ok(())
    }

    async fn prune(&self, most: usize) -> Result<usize, StoreError> {
        let now = self.time.now();
        let mut kept = self.lines();
        let over: Vec<InvocationId> = kept
            .lines
            .iter()
            .filter(|(_, line)| matches!(line.entry.state, EntryState::Done | EntryState::FailedClean))
            .filter(|(_, line)| line.keep_until <= now)
            .map(|(id, _)| *id)
            .take(most)
            .collect();
        over.iter().for_each(|id| drop(kept.lines.remove(id)));
        Ok(over.len())
    }
}
