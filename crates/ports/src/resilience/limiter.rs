//! How often something may happen: the generic cell rate algorithm. (RES-017, RES-018, X-29)
//!
//! A limit is one number, the *theoretical arrival time*: when everything taken so far would have been taken at an even
//! pace. Taking moves it on; it may run ahead of now by no more than the burst. There is no window that begins and ends,
//! so nobody gets twice the quota around its border, and nothing has to be swept: a state that lies in the past is the
//! same as none.
//!
//! Time is in microseconds, because a server's clock gives them and a script's number can hold them exactly.
//!
//! Not here: which limits there are and what they are called (`guard`), taking several at once (the adapters).

use std::time::Duration;

use base::SaturatingFrom as _;
use serde::{Deserialize, Serialize};

/// Most per second that a quota can express within one percent.
pub const PER_SECOND_MAX: u64 = 10_000;
/// Longest period.
pub const PERIOD_MAX: Duration = Duration::from_hours(24 * 31);

/// So many in such a time; all of them at once, if they have been saved up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RateQuota {
    /// The even pace: microseconds for each.
    pub interval_us: u64,
    /// How many at once.
    pub burst: u32,
}

/// A quota that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// Never anything.
    #[error("a quota and its burst must be at least 1")]
    Nothing,
    /// Over no time, or too long a one.
    #[error("the period of a quota must be longer than nothing and at most 31 days")]
    Period,
    /// Too fine to count.
    #[error("a quota can be at most {PER_SECOND_MAX} per second")]
    TooMany,
}

impl RateQuota {
    /// `limit` in each `period`, all of them at once if they were not used before.
    pub fn new(limit: u32, period: Duration) -> Result<Self, QuotaError> {
        Self::with_burst(limit, period, limit)
    }

    /// `limit` in each `period`, at most `burst` at once.
    pub fn with_burst(limit: u32, period: Duration, burst: u32) -> Result<Self, QuotaError> {
        if limit == 0 || burst == 0 {
            return Err(QuotaError::Nothing);
        }
        if period.is_zero() || period > PERIOD_MAX {
            return Err(QuotaError::Period);
        }
        let period_us = u64::try_from(period.as_micros()).map_err(|_| QuotaError::Period)?;
        if u128::from(limit) * 1_000_000 > u128::from(PER_SECOND_MAX) * u128::from(period_us) {
            return Err(QuotaError::TooMany);
        }
        Ok(Self { interval_us: period_us.div_ceil(u64::from(limit)), burst })
    }

    /// Microseconds that the theoretical arrival time may be ahead of now.
    pub fn tolerance_us(self) -> u64 {
        self.interval_us.saturating_mul(u64::from(self.burst))
    }
}

/// What came of taking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum QuotaOutcome {
    /// So many are left, and all of them are there again after `reset`.
    Allowed { remaining: u32, reset: Duration },
    /// Nothing was taken; not before `retry_after` could it be. `None`: never, more was asked for than the burst.
    Refused { retry_after: Option<Duration> },
}

/// Takes `count` from a limit that stands at `arrival_us` (zero: untouched). Answers where it stands afterwards.
///
/// ```
/// # use gantry_ports::resilience::limiter::{QuotaOutcome, RateQuota, take};
/// # use std::time::Duration;
/// let quota = RateQuota::new(2, Duration::from_secs(10))?;
/// let (stand, first) = take(0, quota, 1, 1_000_000);
/// assert_eq!(first, QuotaOutcome::Allowed { remaining: 1, reset: Duration::from_secs(5) });
/// let (stand, _second) = take(stand, quota, 1, 1_000_000);
/// let (_, third) = take(stand, quota, 1, 1_000_000);
/// assert_eq!(third, QuotaOutcome::Refused { retry_after: Some(Duration::from_secs(5)) });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn take(arrival_us: u64, quota: RateQuota, count: u32, now_us: u64) -> (u64, QuotaOutcome) {
    if count > quota.burst {
        return (arrival_us, QuotaOutcome::Refused { retry_after: None });
    }
    let begins = arrival_us.max(now_us);
    let next = begins.saturating_add(quota.interval_us.saturating_mul(u64::from(count)));
    let ahead = next.saturating_sub(now_us);
    let tolerance = quota.tolerance_us();
    if ahead > tolerance {
        let retry_after = Some(Duration::from_micros(ahead - tolerance));
        return (arrival_us, QuotaOutcome::Refused { retry_after });
    }
    let remaining = (tolerance - ahead) / quota.interval_us.max(1);
    let remaining = u32::saturating_from(remaining);
    (next, QuotaOutcome::Allowed { remaining, reset: Duration::from_micros(ahead) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quotas_that_make_no_sense_are_refused() {
        let second = Duration::from_secs(1);
        assert_eq!(RateQuota::new(0, second), Err(QuotaError::Nothing));
        assert_eq!(RateQuota::with_burst(1, second, 0), Err(QuotaError::Nothing));
        assert_eq!(RateQuota::new(1, Duration::ZERO), Err(QuotaError::Period));
        assert_eq!(RateQuota::new(1, Duration::from_hours(24 * 32)), Err(QuotaError::Period));
        assert_eq!(RateQuota::new(10_001, second), Err(QuotaError::TooMany));
        assert_eq!(RateQuota::new(10_000, second).unwrap().interval_us, 100);
    }

    #[test]
    fn more_than_the_burst_is_never_given_and_takes_nothing() {
        let quota = RateQuota::new(3, Duration::from_secs(3)).unwrap();
        let (stand, taken) = take(0, quota, 4, 5);
        assert_eq!((stand, taken), (0, QuotaOutcome::Refused { retry_after: None }));
    }

    #[test]
    fn a_refusal_takes_nothing_and_its_wait_is_exact() {
        let quota = RateQuota::new(2, Duration::from_secs(10)).unwrap();
        let (mut stand, mut now) = (0, 7_000_000);
        for _ in 0..2 {
            stand = take(stand, quota, 1, now).0;
        }
        let (after, QuotaOutcome::Refused { retry_after: Some(wait) }) = take(stand, quota, 1, now) else { panic!() };
        assert_eq!(after, stand);
        now += u64::try_from(wait.as_micros()).unwrap();
        assert!(matches!(take(stand, quota, 1, now - 1).1, QuotaOutcome::Refused { .. }));
        assert!(matches!(take(stand, quota, 1, now).1, QuotaOutcome::Allowed { remaining: 0, .. }));
    }

    proptest! {
        /// Over any time, no more than the burst and what that time is worth.
        #[test]
        fn nobody_gets_more_than_burst_and_pace(
            limit in 1_u32..50, burst in 1_u32..50, steps in proptest::collection::vec((0_u64..400_000, 1_u32..4), 1..200),
        ) {
            let quota = RateQuota::with_burst(limit, Duration::from_secs(1), burst).unwrap();
            let start = 1_000_000_000_u64;
            let (mut stand, mut now, mut given) = (0, start, 0_u64);
            for (pause, count) in steps {
                now += pause;
                let (next, taken) = take(stand, quota, count, now);
                if let QuotaOutcome::Allowed { .. } = taken {
                    given += u64::from(count);
                } else {
                    prop_assert_eq!(next, stand);
                }
                stand = next;
                prop_assert!(given <= u64::from(burst) + (now - start) / quota.interval_us);
            }
        }
    }
}
