//! Rate limits in Redis: one number for each limit that was taken from, moved by `scripts/take.lua`. (RES-017, RES-018)
//!
//! All limits have one hash tag. Those of a user, a service and the platform are taken in one step, and what is taken in one
//! step must lie on one node; a node does more than a hundred thousand such steps in a second.

use std::time::Duration;

use async_trait::async_trait;
use ports::resilience::QuotaOutcome;
use ports::shared_state::{AllTaken, KeyedQuota, LIMITS_AT_ONCE_MAX, RateLimits, SharedStateError};

use super::link::RedisTrouble;
use super::{RedisState, fits, unavailable};

#[async_trait]
impl RateLimits for RedisState {
    async fn take(&self, limits: &[KeyedQuota<'_>], count: u32) -> Result<AllTaken, SharedStateError> {
        if limits.is_empty() {
            return Ok(AllTaken::Allowed { remaining: u32::MAX, reset: Duration::ZERO });
        }
        self.taking("take", limits, count).await
    }

    async fn peek(&self, limit: KeyedQuota<'_>) -> Result<QuotaOutcome, SharedStateError> {
        Ok(match self.taking("peek", &[limit], 1).await? {
            AllTaken::Allowed { remaining, reset } => QuotaOutcome::Allowed { remaining, reset },
            AllTaken::Refused { retry_after, .. } => QuotaOutcome::Refused { retry_after },
        })
    }
}

impl RedisState {
    async fn taking(&self, what: &str, limits: &[KeyedQuota<'_>], count: u32) -> Result<AllTaken, SharedStateError> {
        if limits.len() > LIMITS_AT_ONCE_MAX {
            return Err(SharedStateError::TooLarge);
        }
        let mut step = self.clock.begin(&self.scripts.take);
        step.arg(count).arg(what);
        for limit in limits {
            fits(limit.key)?;
            step.key(self.names.limit(limit.key)).arg(limit.quota.interval_us).arg(limit.quota.burst);
        }
        let answer: Vec<String> = self.link.run(&step).await.map_err(unavailable)?;
        understood(&answer).ok_or_else(|| unavailable(RedisTrouble::Garbled))
    }
}

fn understood(answer: &[String]) -> Option<AllTaken> {
    match answer {
        [word, remaining, reset] if word == "allowed" => Some(AllTaken::Allowed {
            remaining: remaining.parse().ok()?,
            reset: Duration::from_micros(reset.parse().ok()?),
        }),
        [word, which, wait] if word == "refused" => Some(AllTaken::Refused {
            which: which.parse::<usize>().ok()?.checked_sub(1)?,
            retry_after: if wait.is_empty() { None } else { Some(Duration::from_micros(wait.parse().ok()?)) },
        }),
        _ => None,
    }
}
