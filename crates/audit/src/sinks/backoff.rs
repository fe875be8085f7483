//! How long a sink is left alone after it failed. Pure; the draw comes from the kernel's randomness.

use std::time::Duration;

use base::backoff::{doubled, half_jitter};

/// Pause after the first failure, and the longest; it doubles in between.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// The longest time for which a receiver's own word is taken.
pub(super) const ASKED_PAUSE_MAX: Duration = Duration::from_secs(3600);

/// The pause after so many failures in a row: at least half of its step, so that it grows, and at most the step, so that
/// servers which lost the same receiver do not come back to it together.
pub(super) fn pause_after(failures: u32, draw: u16) -> Duration {
    let (first, last) = PAUSE;
    half_jitter(doubled(first, failures.saturating_sub(1), last), f64::from(draw) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn pauses_grow_to_a_minute_and_never_vanish(failures in any::<u32>(), draw in any::<u16>()) {
            let pause = pause_after(failures, draw);
            prop_assert!(pause >= Duration::from_millis(250) && pause <= Duration::from_secs(60));
            prop_assert!(pause_after(failures.saturating_add(1), 0) * 2 >= pause);
        }
    }

    #[test]
    fn the_first_is_half_a_second_at_most_and_the_tenth_a_minute() {
        assert_eq!(pause_after(1, u16::MAX), Duration::from_millis(500));
        assert_eq!(pause_after(10, u16::MAX), Duration::from_secs(60));
    }
}
