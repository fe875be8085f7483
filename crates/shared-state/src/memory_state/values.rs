//! Counters, small values and presence in memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use async_trait::async_trait;
use ports::shared_state::{
    PresentReplica, ReplaceMode, ReserveOutcome, SharedHealth, SharedStateError, SharedValues, VALUE_BYTES_MAX,
};

use super::{MemoryState, VALUES_BYTES_MAX, VALUES_MAX, fits, millis};

/// What all values of a shard may weigh: their share of all, however few they are.
const SHARD_BYTES_MAX: usize = VALUES_BYTES_MAX / 32;
/// Longest word of a replica about itself.
const WORD_BYTES_MAX: usize = 1_024;

/// A number and when it is forgotten.
#[derive(Debug)]
pub(super) struct Counter {
    total: i64,
    expires_ms: u64,
}

/// A value and when it is forgotten.
#[derive(Debug)]
pub(super) struct Value {
    bytes: Box<[u8]>,
    expires_ms: u64,
}

/// A replica and when it is taken to be gone.
#[derive(Debug)]
pub(super) struct Announced {
    word: String,
    seen_ms: u64,
    expires_ms: u64,
}

/// What is forgotten by time.
trait Passing {
    fn expires_ms(&self) -> u64;
}

impl Passing for Counter {
    fn expires_ms(&self) -> u64 {
        self.expires_ms
    }
}

impl Passing for Value {
    fn expires_ms(&self) -> u64 {
        self.expires_ms
    }
}

impl Passing for Announced {
    fn expires_ms(&self) -> u64 {
        self.expires_ms
    }
}

/// Forgets what is over, if the shard is full. Answers how many went.
fn sweep<K: Hash + Eq, V: Passing>(shard: &mut HashMap<K, V>, most: usize, now_ms: u64) -> usize {
    if shard.len() < most {
        return 0;
    }
    let before = shard.len();
    shard.retain(|_, entry| entry.expires_ms() > now_ms);
    before - shard.len()
}

impl MemoryState {
    /// One step of a counter, which is made if it is not there.
    fn counting<T>(&self, key: &str, ttl: Duration, step: impl FnOnce(i64) -> (i64, T)) -> Result<T, SharedStateError> {
        fits(key)?;
        let mut shard = self.counters.lock(key).ok_or(SharedStateError::Full)?;
        let now_ms = self.time.millis();
        let standing = shard.get(key).filter(|counter| counter.expires_ms > now_ms).map_or(0, |counter| counter.total);
        let (total, answer) = step(standing);
        let counter = Counter { total, expires_ms: now_ms.saturating_add(millis(ttl)) };
        if !shard.contains_key(key) {
            let gone = sweep(&mut shard, self.counters.each_max(), now_ms);
            if gone > 0 {
                self.observer.shared_state_evicted("counter", gone);
            }
            if shard.len() >= self.counters.each_max() {
                return Err(SharedStateError::Full);
            }
        }
        shard.insert(key.into(), counter);
        Ok(answer)
    }
}

#[async_trait]
impl SharedValues for MemoryState {
    async fn reserve(
        &self,
        key: &str,
        amount: i64,
        ceiling: i64,
        ttl: Duration,
    ) -> Result<ReserveOutcome, SharedStateError> {
        self.counting(key, ttl, |standing| match standing.checked_add(amount) {
            Some(total) if total <= ceiling => (total, ReserveOutcome::Within { total }),
            _ => (standing, ReserveOutcome::Over { total: standing }),
        })
    }

    async fn settle(&self, key: &str, reserved: i64, actual: i64, ttl: Duration) -> Result<i64, SharedStateError> {
        self.counting(key, ttl, |standing| {
            let total = standing.saturating_add(actual.saturating_sub(reserved)).max(0);
            (total, total)
        })
    }

    async fn put(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
        replace: ReplaceMode,
    ) -> Result<bool, SharedStateError> {
        fits(key)?;
        if value.len() > VALUE_BYTES_MAX {
            return Err(SharedStateError::TooLarge);
        }
        let mut shard = self.values.lock(key).ok_or(SharedStateError::Full)?;
        let now_ms = self.time.millis();
        let there = shard.get(key).is_some_and(|kept| kept.expires_ms > now_ms);
        if there && replace == ReplaceMode::Never {
            return Ok(false);
        }
        shard.remove(key);
        let mut gone = sweep(&mut shard, self.values.each_max(), now_ms);
        let weight = |shard: &HashMap<Box<str>, Value>| shard.values().map(|kept| kept.bytes.len()).sum::<usize>();
        // MEM-2: by age, those first that would have gone first.
        while shard.len() >= self.values.each_max().min(VALUES_MAX) || weight(&shard) + value.len() > SHARD_BYTES_MAX {
            let soonest = shard.iter().min_by_key(|(_, kept)| kept.expires_ms).map(|(key, _)| key.clone());
            let Some(soonest) = soonest else { break };
            shard.remove(&soonest);
            gone += 1;
        }
        if gone > 0 {
            self.observer.shared_state_evicted("value", gone);
        }
        let expires_ms = now_ms.saturating_add(millis(ttl));
        shard.insert(key.into(), Value { bytes: value.into(), expires_ms });
        Ok(true)
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SharedStateError> {
        fits(key)?;
        let shard = self.values.lock(key).ok_or(SharedStateError::Full)?;
        let now_ms = self.time.millis();
        Ok(shard.get(key).filter(|kept| kept.expires_ms > now_ms).map(|kept| kept.bytes.to_vec()))
    }

    async fn remove(&self, key: &str) -> Result<bool, SharedStateError> {
        fits(key)?;
        let mut shard = self.values.lock(key).ok_or(SharedStateError::Full)?;
        let now_ms = self.time.millis();
        Ok(shard.remove(key).is_some_and(|kept| kept.expires_ms > now_ms))
    }

    async fn announce(&self, replica: &str, word: &str, ttl: Duration) -> Result<(), SharedStateError> {
        fits(replica)?;
        if word.len() > WORD_BYTES_MAX {
            return Err(SharedStateError::TooLarge);
        }
        let mut shard = self.replicas.lock(replica).ok_or(SharedStateError::Full)?;
        let seen_ms = self.time.millis();
        shard.remove(replica);
        if ttl.is_zero() {
            return Ok(());
        }
        sweep(&mut shard, self.replicas.each_max(), seen_ms);
        if shard.len() >= self.replicas.each_max() {
            return Err(SharedStateError::Full);
        }
        let expires_ms = seen_ms.saturating_add(millis(ttl));
        shard.insert(replica.into(), Announced { word: word.to_owned(), seen_ms, expires_ms });
        Ok(())
    }

    async fn present(&self) -> Result<Vec<PresentReplica>, SharedStateError> {
        let now_ms = self.time.millis();
        let mut present = Vec::new();
        self.replicas.each(|shard| {
            shard.retain(|_, announced| announced.expires_ms > now_ms);
            present.extend(shard.iter().map(|(replica, announced)| PresentReplica {
                replica: replica.to_string(),
                word: announced.word.clone(),
                seen_ms: announced.seen_ms,
            }));
        });
        present.sort_unstable_by(|one, other| one.replica.cmp(&other.replica));
        Ok(present)
    }

    async fn health(&self) -> SharedHealth {
        SharedHealth { kind: "memory", shared: false, trouble: None }
    }
}
