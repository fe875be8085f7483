//! Back-off: how long to wait before the next attempt. Retries, jobs, breakers, restarts, sinks and lines that broke all count their
//! waits by this. (DESIGN §8.10, X-28)
//!
//! Whoever knows how often something failed asks for the n-th wait ([`BackoffInterval`], [`doubled`]); whoever only tries until it
//! works keeps a [`GrowingPause`]. Chance spreads waits, so that those who failed together do not come back together: from nothing
//! up ([`full_jitter`]), or from half up where a wait must not vanish ([`half_jitter`]). Pure: the random number is handed in.
//!
//! Not here: waiting, and whether to try again at all.

use std::time::Duration;

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

/// Anything from half of a span up to all of it.
pub fn half_jitter(span: Duration, chance: f64) -> Duration {
    let half = span / 2;
    half.saturating_add(half.mul_f64(chance.clamp(0.0, 1.0)))
}

/// `first` doubled so many times, at most `max`.
pub fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times)).min(max)
}

/// `first` multiplied by `factor` once for each attempt after the first, saturating at what any wait may be.
pub fn grown_ms(first_ms: u64, factor: f64, attempt: u32) -> u64 {
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

/// The waits of somebody who tries until it works: each longer than the one before, up to a bound, without chance.
///
/// ```
/// use gantry_base::backoff::GrowingPause;
/// use std::time::Duration;
/// let mut pause = GrowingPause::doubling(Duration::from_millis(20), Duration::from_millis(50));
/// assert_eq!([(); 4].map(|()| pause.next_pause().as_millis()), [20, 40, 50, 50]);
/// pause.reset();
/// assert_eq!(pause.next_pause().as_millis(), 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GrowingPause {
    first: Duration,
    next: Duration,
    max: Duration,
    growth_percent: u32,
}

impl GrowingPause {
    /// Twice as long each time.
    pub const fn doubling(first: Duration, max: Duration) -> Self {
        Self::growing(first, 200, max)
    }

    /// So many percent of the one before each time; under a hundred counts as a hundred, because waits do not shrink.
    pub const fn growing(first: Duration, growth_percent: u32, max: Duration) -> Self {
        let growth_percent = if growth_percent < 100 { 100 } else { growth_percent };
        Self { first, next: first, max, growth_percent }
    }

    /// How long to wait this time. The next one is longer.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause.saturating_mul(self.growth_percent) / 100).min(self.max);
        pause
    }

    /// The other side has asked for this wait; it is the next one.
    pub fn asked(&mut self, pause: Duration) {
        self.next = pause.min(self.max);
    }

    /// It worked: the next wait is the first again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
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

    #[test]
    fn doubling_saturates_and_is_capped() {
        let waits =
            [0, 1, 5, 60, u32::MAX].map(|times| doubled(Duration::from_millis(500), times, Duration::from_secs(60)));
        assert_eq!(waits.map(|wait| wait.as_millis()), [500, 1_000, 16_000, 60_000, 60_000]);
    }

    #[test]
    fn a_growing_pause_never_passes_its_bound_and_never_shrinks() {
        let mut pause = GrowingPause::growing(Duration::from_millis(100), 150, Duration::from_millis(300));
        assert_eq!([(); 4].map(|()| pause.next_pause().as_millis()), [100, 150, 225, 300]);
        let mut still = GrowingPause::growing(SECOND, 0, SECOND);
        assert_eq!([still.next_pause(), still.next_pause()], [SECOND, SECOND]);
    }

    proptest! {
        #[test]
        fn half_jitter_is_between_half_and_all(ms in 0_u64..1_000_000, chance in -1.0_f64..2.0) {
            let span = Duration::from_millis(ms);
            let wait = half_jitter(span, chance);
            prop_assert!(wait <= span && wait >= span / 2);
        }

        #[test]
        fn full_jitter_is_never_over_the_ceiling_and_never_nothing(ms in 1_u64..1_000_000, chance in -1.0_f64..2.0) {
            let ceiling = Duration::from_millis(ms);
            let wait = full_jitter(ceiling, chance);
            prop_assert!(wait <= ceiling && wait >= Duration::from_millis(1));
        }
    }
}
