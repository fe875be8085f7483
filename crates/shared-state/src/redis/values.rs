//! Counters, small values and presence in Redis.
//!
//! Every key has an end: a counter and a value their own, the list of replicas that of the last of them. (STORE-006)

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::shared_state::{
    PresentReplica, ReplaceMode, ReserveOutcome, SharedHealth, SharedStateError, SharedValues, VALUE_BYTES_MAX,
};

use super::breakers::EXACT_MAX;
use super::link::RedisTrouble;
use super::{RedisState, fits, millis, unavailable};

/// Replicas at most.
const REPLICAS_MAX: usize = 1_024;
/// Longest word of a replica about itself.
const WORD_BYTES_MAX: usize = 1_024;

#[async_trait]
impl SharedValues for RedisState {
    async fn reserve(
        &self,
        key: &str,
        amount: i64,
        ceiling: i64,
        ttl: Duration,
    ) -> Result<ReserveOutcome, SharedStateError> {
        let (within, total) = self.counting("reserve", key, amount, ceiling, ttl).await?;
        Ok(if within { ReserveOutcome::Within { total } } else { ReserveOutcome::Over { total } })
    }

    async fn settle(&self, key: &str, reserved: i64, actual: i64, ttl: Duration) -> Result<i64, SharedStateError> {
        let difference = actual.saturating_sub(reserved);
        self.counting("settle", key, difference, 0, ttl).await.map(|(_, total)| total)
    }

    async fn put(
        &self,
        key: &str,
        value: &[u8],
        ttl: Duration,
        replace: ReplaceMode,
    ) -> Result<bool, SharedStateError> {
        if value.len() > VALUE_BYTES_MAX {
            return Err(SharedStateError::TooLarge);
        }
        let what = match replace {
            ReplaceMode::Always => "put",
            ReplaceMode::Never => "put_new",
        };
        fits(key)?;
        let mut step = self.clock.begin(&self.scripts.value);
        step.key(self.names.key("value", &[key], "")).arg(what).arg(value).arg(millis(ttl));
        self.link.run::<i64>(&step).await.map(|put| put == 1).map_err(unavailable)
    }

    async fn get(&self, key: &str) -> Result<Option<Vec<u8>>, SharedStateError> {
        fits(key)?;
        let mut step = self.clock.begin(&self.scripts.value);
        step.key(self.names.key("value", &[key], "")).arg("get");
        self.link.run(&step).await.map_err(unavailable)
    }

    async fn remove(&self, key: &str) -> Result<bool, SharedStateError> {
        fits(key)?;
        let mut step = self.clock.begin(&self.scripts.value);
        step.key(self.names.key("value", &[key], "")).arg("remove");
        self.link.run::<i64>(&step).await.map(|removed| removed == 1).map_err(unavailable)
    }

    async fn announce(&self, replica: &str, word: &str, ttl: Duration) -> Result<(), SharedStateError> {
        fits(replica)?;
        if word.len() > WORD_BYTES_MAX {
            return Err(SharedStateError::TooLarge);
        }
        let mut step = self.clock.begin(&self.scripts.presence);
        step.key(self.names.presence()).arg("announce").arg(replica).arg(word).arg(millis(ttl)).arg(REPLICAS_MAX);
        let answer: Vec<String> = self.link.run(&step).await.map_err(unavailable)?;
        if answer.first().is_some_and(|word| word == "full") { Err(SharedStateError::Full) } else { Ok(()) }
    }

    async fn present(&self) -> Result<Vec<PresentReplica>, SharedStateError> {
        let mut step = self.clock.begin(&self.scripts.presence);
        step.key(self.names.presence()).arg("present").arg("");
        let answer: Vec<String> = self.link.run(&step).await.map_err(unavailable)?;
        let mut present: Vec<PresentReplica> = answer.chunks_exact(2).filter_map(announced).collect();
        present.sort_unstable_by(|one, other| one.replica.cmp(&other.replica));
        Ok(present)
    }

    async fn health(&self) -> SharedHealth {
        let trouble = self.link.trouble().map(|trouble| trouble.to_string());
        SharedHealth { kind: "redis", shared: trouble.is_none(), trouble }
    }
}

impl RedisState {
    async fn counting(
        &self,
        what: &str,
        key: &str,
        amount: i64,
        ceiling: i64,
        ttl: Duration,
    ) -> Result<(bool, i64), SharedStateError> {
        fits(key)?;
        // Beyond what a script computes exactly, a ceiling is lower than it says, never higher.
        let most = i64::saturating_from(EXACT_MAX / 4);
        let exact = |number: i64| number.clamp(-most, most);
        let mut step = self.clock.begin(&self.scripts.count);
        step.key(self.names.key("counter", &[key], ""));
        step.arg(what).arg(exact(amount)).arg(exact(ceiling)).arg(millis(ttl));
        let answer: Vec<String> = self.link.run(&step).await.map_err(unavailable)?;
        let counted = match answer.as_slice() {
            [word, total] => total.parse().ok().map(|total| (word == "within", total)),
            _ => None,
        };
        counted.ok_or_else(|| unavailable(RedisTrouble::Garbled))
    }
}

/// A name and `seen until word`.
fn announced(entry: &[String]) -> Option<PresentReplica> {
    let [replica, announced] = entry else { return None };
    let (seen, rest) = announced.split_once(' ')?;
    let (_until, word) = rest.split_once(' ')?;
    Some(PresentReplica { replica: replica.clone(), word: word.to_owned(), seen_ms: seen.parse().ok()? })
}
