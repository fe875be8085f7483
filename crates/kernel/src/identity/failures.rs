//! A limit on failed authentications per source address: guessing and flooding cost the attacker, not this server.
//!
//! Only failures count, and only credentials that are not remembered are held back, so that an honest caller with a good
//! token behind the same address goes on working.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use ports::clock::UnixMillis;
use quick_cache::sync::Cache;

/// Addresses that are watched; the least seen make room.
const SOURCES_MAX: usize = 10_000;
const MINUTE_MS: i64 = 60_000;

/// What an address has left. One failure costs [`MINUTE_MS`], and every millisecond gives back the number of failures per
/// minute, so that nothing is lost by rounding.
#[derive(Debug)]
struct Bucket {
    left: i64,
    at: UnixMillis,
}

/// The limit.
#[derive(Debug)]
pub(super) struct Failures {
    per_minute: i64,
    buckets: Cache<IpAddr, Arc<Mutex<Bucket>>>,
}

impl Failures {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: i64::from(per_minute.max(1)), buckets: Cache::new(SOURCES_MAX) }
    }

    /// May this address try once more?
    pub(super) fn room(&self, source: Option<IpAddr>, now: UnixMillis) -> Result<(), Refusal> {
        let Some(bucket) = source.and_then(|source| self.buckets.get(&source)) else { return Ok(()) };
        let mut bucket = bucket.lock_unpoisoned();
        self.refill(&mut bucket, now);
        if bucket.left >= MINUTE_MS {
            return Ok(());
        }
        let wait_ms = (MINUTE_MS - bucket.left + self.per_minute - 1) / self.per_minute;
        let refusal = Refusal::new(ErrorCode::E3003, "too many failed authentications from this address")
            .hint("check the token; a valid one that was used before still works");
        Err(Refusal { retry_after_ms: Some(u64::try_from(wait_ms.max(1)).unwrap_or(1)), ..refusal })
    }

    /// One more failure.
    pub(super) fn count(&self, source: Option<IpAddr>, now: UnixMillis) {
        let Some(source) = source else { return };
        let fresh = || Arc::new(Mutex::new(Bucket { left: self.per_minute * MINUTE_MS, at: now }));
        let bucket = self.buckets.get(&source).unwrap_or_else(|| {
            let bucket = fresh();
            self.buckets.insert(source, Arc::clone(&bucket));
            bucket
        });
        let mut bucket = bucket.lock_unpoisoned();
        self.refill(&mut bucket, now);
        bucket.left = bucket.left.saturating_sub(MINUTE_MS).max(0);
    }

    fn refill(&self, bucket: &mut Bucket, now: UnixMillis) {
        let passed = now.0.saturating_sub(bucket.at.0).clamp(0, MINUTE_MS);
        bucket.left = (bucket.left + passed * self.per_minute).min(self.per_minute * MINUTE_MS);
        bucket.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_keeps_failing_has_to_wait_and_others_do_not() {
        let failures = Failures::new(3);
        let (bad, good): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let now = UnixMillis(1_000_000);
        for _ in 0..3 {
            assert!(failures.room(Some(bad), now).is_ok());
            failures.count(Some(bad), now);
        }
        let refusal = failures.room(Some(bad), now).unwrap_err();
        assert_eq!((refusal.code, refusal.retry_after_ms), (ErrorCode::E3003, Some(20_000)));
        assert!(failures.room(Some(good), now).is_ok() && failures.room(None, now).is_ok());
        assert!(failures.room(Some(bad), UnixMillis(now.0 + 19_999)).is_err());
        assert!(failures.room(Some(bad), UnixMillis(now.0 + 20_000)).is_ok());
    }

    #[test]
    fn a_clock_that_goes_back_neither_refills_nor_breaks_anything() {
        let failures = Failures::new(1);
        let source = Some("10.0.0.1".parse().unwrap());
        failures.count(source, UnixMillis(1_000_000));
        assert!(failures.room(source, UnixMillis(0)).is_err());
    }
}
