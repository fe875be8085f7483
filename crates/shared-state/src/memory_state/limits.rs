//! Rate limits in memory. Several are taken with all their shards locked, always in the same order.

use std::collections::HashMap;
use std::sync::MutexGuard;

use async_trait::async_trait;
use ports::resilience::{QuotaOutcome, limiter};
use ports::shared_state::{AllTaken, KeyedQuota, LIMITS_AT_ONCE_MAX, RateLimits, SharedStateError};

use super::{MemoryState, fits};

type Shard<'a> = MutexGuard<'a, HashMap<Box<str>, u64>>;

#[async_trait]
impl RateLimits for MemoryState {
    async fn take(&self, limits: &[KeyedQuota<'_>], count: u32) -> Result<AllTaken, SharedStateError> {
        if limits.len() > LIMITS_AT_ONCE_MAX {
            return Err(SharedStateError::TooLarge);
        }
        limits.iter().try_for_each(|limit| fits(limit.key))?;
        let mut places: Vec<usize> = limits.iter().map(|limit| self.limits.place(limit.key)).collect();
        places.sort_unstable();
        places.dedup();
        let mut shards: Vec<(usize, Shard<'_>)> =
            places.into_iter().filter_map(|place| Some((place, self.limits.at(place)?))).collect();
        let now_us = self.time.micros();

        let mut stands: Vec<(&str, u64)> = Vec::with_capacity(limits.len());
        let mut least = AllTaken::Allowed { remaining: u32::MAX, reset: std::time::Duration::ZERO };
        let mut refused: Option<(usize, Option<std::time::Duration>)> = None;
        for (which, limit) in limits.iter().enumerate() {
            let place = self.limits.place(limit.key);
            let kept = shards.iter().find(|(own, _)| *own == place).and_then(|(_, shard)| shard.get(limit.key));
            let earlier = stands.iter().rev().find(|(key, _)| *key == limit.key).map(|(_, stand)| *stand);
            let (next, taken) =
                limiter::take(earlier.or_else(|| kept.copied()).unwrap_or(0), limit.quota, count, now_us);
            match taken {
                QuotaOutcome::Refused { retry_after } => {
                    // Never is longer than any wait.
                    let longer = refused.is_none_or(|(_, known)| match (known, retry_after) {
                        (None, _) => false,
                        (Some(_), None) => true,
                        (Some(known), Some(wait)) => wait > known,
                    });
                    if longer {
                        refused = Some((which, retry_after));
                    }
                }
                QuotaOutcome::Allowed { remaining, reset } => {
                    if let AllTaken::Allowed { remaining: fewest, .. } = least
                        && remaining < fewest
                    {
                        least = AllTaken::Allowed { remaining, reset };
                    }
                }
            }
            stands.push((limit.key, next));
        }
        if let Some((which, retry_after)) = refused {
            return Ok(AllTaken::Refused { which, retry_after });
        }
        for (key, _) in &stands {
            self.room_for(&mut shards, key, now_us)?;
        }
        for (key, next) in stands {
            let place = self.limits.place(key);
            if let Some((_, shard)) = shards.iter_mut().find(|(own, _)| *own == place) {
                match shard.get_mut(key) {
                    Some(stand) => *stand = next,
                    None => drop(shard.insert(key.into(), next)),
                }
            }
        }
        Ok(least)
    }

    async fn peek(&self, limit: KeyedQuota<'_>) -> Result<QuotaOutcome, SharedStateError> {
        fits(limit.key)?;
        let stand = self.limits.lock(limit.key).and_then(|shard| shard.get(limit.key).copied());
        Ok(limiter::take(stand.unwrap_or(0), limit.quota, 1, self.time.micros()).1)
    }
}

impl MemoryState {
    /// MEM-2: a limit from which nothing is missing is the same as none.
    fn room_for(&self, shards: &mut [(usize, Shard<'_>)], key: &str, now_us: u64) -> Result<(), SharedStateError> {
        let place = self.limits.place(key);
        let Some((_, shard)) = shards.iter_mut().find(|(own, _)| *own == place) else { return Ok(()) };
        // One more than one call adds to a shard is left free, so that what was seen to fit does fit.
        if shard.contains_key(key) || shard.len() + LIMITS_AT_ONCE_MAX < self.limits.each_max() {
            return Ok(());
        }
        let before = shard.len();
        shard.retain(|_, stand| *stand > now_us);
        self.observer.shared_state_evicted("limit", before - shard.len());
        if shard.len() < before { Ok(()) } else { Err(SharedStateError::Full) }
    }
}
