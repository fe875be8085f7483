//! Breakers in memory: the machine under a lock, its settings and its history beside it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use async_trait::async_trait;
use ports::resilience::{
    Breaker, BreakerAdmission, BreakerEvent, BreakerPermit, BreakerSettings, IllegalMove, ManualMove, PermittedOutcome,
};
use ports::shared_state::{
    BreakerKey, BreakerQuery, BreakerReport, BreakerTransition, HISTORY_MAX, INSPECTED_MAX, PastTransition,
    SharedBreakers, SharedStateError,
};
use tokio::sync::broadcast;

use super::{MemoryState, millis};

/// One breaker.
#[derive(Debug)]
pub(super) struct Kept {
    breaker: Breaker,
    settings: BreakerSettings,
    history: VecDeque<PastTransition>,
}

impl Kept {
    fn report(&mut self, key: &BreakerKey, now_ms: u64) -> BreakerReport {
        BreakerReport {
            key: key.clone(),
            settings: self.settings.clone(),
            snapshot: self.breaker.snapshot(&self.settings, now_ms),
            history: self.history.iter().copied().collect(),
        }
    }

    /// Remembers transitions and tells of them.
    fn note(&mut self, key: &BreakerKey, events: &[BreakerEvent], tell: &broadcast::Sender<BreakerTransition>) {
        for change in events.iter().filter_map(PastTransition::of) {
            self.history.truncate(HISTORY_MAX - 1);
            self.history.push_front(change);
            // An error means that nobody listens.
            let _nobody = tell.send(BreakerTransition { key: key.clone(), change });
        }
    }
}

impl MemoryState {
    /// One step of one breaker, which is made if it is not there.
    fn step<T>(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        step: impl FnOnce(&mut Kept, u64) -> (T, Vec<BreakerEvent>),
    ) -> Result<T, SharedStateError> {
        let mut shard = self.breakers.lock(key).ok_or(SharedStateError::Full)?;
        // Asked with the lock held, so that the times of a breaker's steps never go back.
        let now_ms = self.time.millis();
        if !shard.contains_key(key) {
            self.make_room(&mut shard, now_ms)?;
            let breaker = Breaker::new(now_ms);
            shard.insert(key.clone(), Kept { breaker, settings: settings.clone(), history: VecDeque::new() });
        }
        let kept = shard.get_mut(key).ok_or(SharedStateError::Full)?;
        if kept.settings != *settings {
            kept.settings = settings.clone();
        }
        let (answer, events) = step(kept, now_ms);
        kept.note(key, &events, &self.transitions);
        Ok(answer)
    }

    /// MEM-2: those that nobody would miss go first.
    fn make_room(&self, shard: &mut HashMap<BreakerKey, Kept>, now_ms: u64) -> Result<(), SharedStateError> {
        if shard.len() < self.breakers.each_max() {
            return Ok(());
        }
        let before = shard.len();
        shard.retain(|_, kept| !kept.breaker.is_idle(&kept.settings, now_ms));
        self.observer.shared_state_evicted("breaker", before - shard.len());
        if shard.len() < before { Ok(()) } else { Err(SharedStateError::Full) }
    }
}

#[async_trait]
impl SharedBreakers for MemoryState {
    async fn acquire(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        lease: Duration,
    ) -> Result<BreakerAdmission, SharedStateError> {
        self.step(key, settings, |kept, now_ms| {
            let acquired = kept.breaker.acquire(settings, millis(lease), now_ms);
            (acquired.admission, acquired.events)
        })
    }

    async fn record(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        permit: BreakerPermit,
        outcome: PermittedOutcome,
    ) -> Result<(), SharedStateError> {
        self.step(key, settings, |kept, now_ms| ((), kept.breaker.record(settings, permit, outcome, now_ms)))
    }

    async fn release(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        permit: BreakerPermit,
    ) -> Result<(), SharedStateError> {
        self.step(key, settings, |kept, now_ms| ((), kept.breaker.release(settings, permit, now_ms)))
    }

    async fn shift(
        &self,
        key: &BreakerKey,
        settings: &BreakerSettings,
        by_hand: ManualMove,
    ) -> Result<Result<BreakerReport, IllegalMove>, SharedStateError> {
        self.step(key, settings, |kept, now_ms| {
            match kept.breaker.shift(settings, by_hand, now_ms) {
                Ok(events) => {
                    // In the report, too, that answers this very step.
                    kept.note(key, &events, &self.transitions);
                    (Ok(kept.report(key, now_ms)), Vec::new())
                }
                Err(illegal) => (Err(illegal), Vec::new()),
            }
        })
    }

    async fn inspect(&self, query: &BreakerQuery) -> Result<Vec<BreakerReport>, SharedStateError> {
        let wanted = |key: &BreakerKey| {
            query.tenant.as_ref().is_none_or(|tenant| tenant == key.tenant())
                && query.service.as_ref().is_none_or(|service| service == key.service())
                && query.after.as_ref().is_none_or(|after| key > after)
        };
        let mut keys = Vec::new();
        self.breakers.each(|shard| keys.extend(shard.keys().filter(|key| wanted(key)).cloned()));
        keys.sort_unstable();
        keys.truncate(query.limit.min(INSPECTED_MAX));
        let mut reports = Vec::with_capacity(keys.len());
        for key in keys {
            let Some(mut shard) = self.breakers.lock(&key) else { continue };
            let now_ms = self.time.millis();
            // Forgotten in between: it was idle.
            let Some(kept) = shard.get_mut(&key) else { continue };
            let events = kept.breaker.tick(&kept.settings.clone(), now_ms);
            kept.note(&key, &events, &self.transitions);
            reports.push(kept.report(&key, now_ms));
        }
        Ok(reports)
    }

    fn transitions(&self) -> broadcast::Receiver<BreakerTransition> {
        self.transitions.subscribe()
    }
}
