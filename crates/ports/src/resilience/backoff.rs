//! How long to wait before the next attempt: the one piece that retries, jobs and breakers count their waits by. (DESIGN §8.10, X-28)
//!
//! An [`BackoffInterval`] says how long the n-th wait is, before chance has a say; [`full_jitter`] spreads it over everything from
//! nothing up to it, so that those who failed together do not come back together. Pure: the random number is handed in.

use std::time::Duration;

use crate::entropy::Entropy;

/// Longest wait that any interval gives.
const WAIT_MAX: Duration = Duration::from_hours(720);

/// The wait before the n-th repetition, before chance has a say.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BackoffInterval {
    first: Duration,
    multiplier: f64,
    max: Duration,
}

/// An interval that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    /// No wait, or too long a one.
    #[error("a wait must be longer than nothing and at most 30 days")]
    Wait,
    /// Waits that grow shorter.
    #[error("a multiplier must be at least 1")]
    Multiplier,
}

impl BackoffInterval {
    /// The same each time.
    pub fn fixed(wait: Duration) -> Result<Self, IntervalError> {
        Self::exponential(wait, 1.0, wait)
    }

    /// `first`, then each time `multiplier` as long, at most `max`.
    pub fn exponential(first: Duration, multiplier: f64, max: Duration) -> Result<Self, IntervalError> {
        if [first, max].iter().any(|wait| wait.is_zero() || *wait > WAIT_MAX) {
            return Err(IntervalError::Wait);
        }
        // Not "is less than": what is no number must not pass either.
        if !(multiplier >= 1.0 && multiplier.is_finite()) {
            return Err(IntervalError::Multiplier);
        }
        Ok(Self { first, multiplier, max })
    }

    /// The wait after the n-th attempt, from 1, without chance.
    pub fn ceiling(self, attempt: u32) -> Duration {
        let millis = u64::try_from(self.first.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(grown_ms(millis, self.multiplier, attempt)).min(self.max)
    }
}

/// Anything from nothing up to `ceiling`. Not nothing itself: a wait of nothing would be no pause at all.
pub fn full_jitter(ceiling: Duration, chance: f64) -> Duration {
    ceiling.mul_f64(chance.clamp(0.0, 1.0)).max(Duration::from_millis(1))
}

/// A number from 0 to 1.
pub fn chance(entropy: &dyn Entropy) -> f64 {
    let mut random = [0_u8; 4];
    entropy.fill(&mut random);
    f64::from(u32::from_be_bytes(random)) / f64::from(u32::MAX)
}

/// `first` multiplied by `factor` once for each attempt after the first, saturating at what any wait may be.
pub(super) fn grown_ms(first_ms: u64, factor: f64, attempt: u32) -> u64 {
    let most = u64::try_from(WAIT_MAX.as_millis()).unwrap_or(u64::MAX);
    let mut wait = Duration::from_millis(first_ms.min(most));
    for _ in 1..attempt {
        if factor <= 1.0 || wait >= WAIT_MAX {
            break;
        }
        wait = wait.mul_f64(factor.min(1e6)).min(WAIT_MAX);
    }
    u64::try_from(wait.as_millis()).unwrap_or(most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn intervals_that_make_no_sense_are_refused() {
        assert_eq!(BackoffInterval::fixed(Duration::ZERO), Err(IntervalError::Wait));
        assert_eq!(BackoffInterval::fixed(Duration::from_hours(721)), Err(IntervalError::Wait));
        for multiplier in [0.0, 0.99, -2.0, f64::NAN, f64::INFINITY] {
            assert_eq!(BackoffInterval::exponential(SECOND, multiplier, SECOND), Err(IntervalError::Multiplier));
        }
    }

    #[test]
    fn exponential_growth_is_capped() {
        let interval = BackoffInterval::exponential(SECOND, 2.0, Duration::from_secs(10)).unwrap();
        let waits = [1, 2, 3, 4, 5, 4_000_000].map(|attempt| interval.ceiling(attempt).as_secs());
        assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    }

    #[test]
    fn a_backoff_of_one_and_a_half_gives_the_waits_of_the_breaker() {
        assert_eq!([1, 2, 3].map(|opening| grown_ms(5_000, 1.5, opening)), [5_000, 7_500, 11_250]);
    }

    proptest! {
        #[test]
        fn full_jitter_is_never_over_the_ceiling_and_never_nothing(ms in 1_u64..1_000_000, chance in -1.0_f64..2.0) {
            let ceiling = Duration::from_millis(ms);
            let wait = full_jitter(ceiling, chance);
            prop_assert!(wait <= ceiling && wait >= Duration::from_millis(1));
        }
    }
}
