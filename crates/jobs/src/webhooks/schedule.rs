//! When the next attempt is made: quickly at first, for receivers that restart, and then over a day, for those that are
//! being mended. (ASYNC-007)

use std::time::Duration;

use base::SaturatingFrom as _;

/// Attempts of one round, unless configured otherwise. All of them fit into a day.
pub const ATTEMPTS_DEFAULT: u32 = 8;

/// Pauses after the first, second, … failed attempt, in seconds; later ones repeat the last.
const PAUSES_S: [u64; 7] = [10, 60, 5 * 60, 30 * 60, 2 * 3600, 6 * 3600, 14 * 3600];
/// Jitter in percent of the pause: receivers that failed together are not called together again.
const JITTER_PERCENT: (u64, u64) = (90, 105);

/// The pause after so many failed attempts. `draw` is a random number.
pub(super) fn pause_after(failed: u32, draw: u16) -> Duration {
    let index = usize::saturating_from(failed.saturating_sub(1)).min(PAUSES_S.len() - 1);
    let pause_ms = PAUSES_S.get(index).copied().unwrap_or_default() * 1000;
    let (low, high) = JITTER_PERCENT;
    let span = pause_ms * (high - low) / 100;
    Duration::from_millis(pause_ms * low / 100 + span * u64::from(draw) / u64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_attempts_fit_into_a_day() {
        let longest: Duration = (1..ATTEMPTS_DEFAULT).map(|failed| pause_after(failed, u16::MAX)).sum();
        let shortest: Duration = (1..ATTEMPTS_DEFAULT).map(|failed| pause_after(failed, 0)).sum();
        assert!(longest <= Duration::from_secs(24 * 3600) && shortest >= Duration::from_secs(20 * 3600), "{longest:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn pauses_grow_and_stay_within_their_jitter(failed in 0_u32..10_000, one in any::<u16>(), two in any::<u16>()) {
            prop_assert!(pause_after(failed, one) <= Duration::from_secs(15 * 3600));
            prop_assert!(pause_after(failed, one) >= Duration::from_secs(9));
            if (1..7).contains(&failed) {
                prop_assert!(pause_after(failed, one) < pause_after(failed + 1, two));
            }
        }
    }
}
