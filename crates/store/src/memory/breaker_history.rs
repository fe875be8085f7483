//! `BreakerHistory` without durability: transitions by what names them.

use std::collections::BTreeMap;
use std::sync::MutexGuard;

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use ports::breaker_history::{BreakerHistory, HISTORY_PAGE_MAX, HistoryQuery};
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::shared_state::{BreakerKey, BreakerTransition};

use super::MemoryStore;

/// By moment, epoch and name of the breaker.
pub(super) type Transitions = BTreeMap<(u64, u64, String), BreakerTransition>;

impl MemoryStore {
    fn transitions(&self) -> MutexGuard<'_, Transitions> {
        self.breaker_history.lock_unpoisoned()
    }
}

#[async_trait]
impl BreakerHistory for MemoryStore {
    async fn keep_transitions(&self, transitions: &[BreakerTransition]) -> Result<(), StoreError> {
        let mut kept = self.transitions();
        for transition in transitions {
            let name = (transition.change.at_ms, transition.change.epoch, transition.key.to_string());
            kept.entry(name).or_insert_with(|| transition.clone());
        }
        Ok(())
    }

    async fn kept_transitions(&self, query: &HistoryQuery) -> Result<Vec<BreakerTransition>, StoreError> {
        let before = query.before.as_ref().map(|place| (place.at_ms, place.epoch, place.breaker.clone()));
        let of = |wanted: &BreakerKey, key: &BreakerKey| {
            wanted.tenant() == key.tenant()
                && wanted.service() == key.service()
                && (wanted.endpoint().is_empty() || wanted.endpoint() == key.endpoint())
        };
        let kept = self.transitions();
        let wanted = kept.iter().rev().filter(|(name, transition)| {
            let key = &transition.key;
            query.tenant.as_ref().is_none_or(|tenant| tenant == key.tenant())
                && query.of.as_ref().is_none_or(|wanted| of(wanted, key))
                && before.as_ref().is_none_or(|before| *name < before)
        });
        let limit = query.limit.min(HISTORY_PAGE_MAX);
        Ok(wanted.take(limit).map(|(_, transition)| transition.clone()).collect())
    }

    async fn forget_transitions(&self, before: UnixMillis, most: usize) -> Result<u64, StoreError> {
        let mut kept = self.transitions();
        let before = u64::saturating_from(before.0);
        let old: Vec<_> = kept.keys().take_while(|name| name.0 < before).take(most).cloned().collect();
        for name in &old {
            kept.remove(name);
        }
        Ok(u64::saturating_from(old.len()))
    }
}
