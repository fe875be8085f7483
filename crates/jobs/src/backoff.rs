//! How long a job waits before its next attempt: the kernel's one back-off, with full jitter. (DESIGN §8.10)

use std::time::Duration;

use base::backoff::{BackoffInterval, full_jitter};
use ports::entropy::{Entropy, chance};

/// Whoever asks for a longer pause is asked again after this.
const ASKED_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// A pause between nothing and `first` doubled for each attempt so far, at most `max`. What the other side asked for is
/// the least, also beyond `max`, up to a day.
pub(super) fn pause(
    first: Duration,
    max: Duration,
    attempts: u32,
    asked: Option<Duration>,
    entropy: &dyn Entropy,
) -> Duration {
    let ceiling = BackoffInterval::exponential(first, 2.0, max).map_or(max, |interval| interval.ceiling(attempts));
    let pause = full_jitter(ceiling, chance(entropy));
    asked.map_or(pause, |asked| pause.max(asked.min(ASKED_MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(u8);

    impl Entropy for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(self.0);
        }
    }

    #[test]
    fn pauses_double_up_to_their_maximum_and_are_spread_over_it() {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(60));
        let most = |attempts| pause(first, max, attempts, None, &Fixed(0xff));
        assert_eq!([1, 2, 3, 7, 100].map(most), [1, 2, 4, 60, 60].map(Duration::from_secs));
        assert_eq!(pause(first, max, 5, None, &Fixed(0)), Duration::from_millis(1));
        let half = pause(first, max, 3, None, &Fixed(0x80));
        assert!(half > Duration::from_secs(2) && half < Duration::from_millis(2_100), "{half:?}");
    }

    #[test]
    fn what_was_asked_for_is_the_least_up_to_a_day() {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(60));
        let asked = |seconds| pause(first, max, 1, Some(Duration::from_secs(seconds)), &Fixed(0xff));
        assert_eq!([0, 30, 3_600, 999_999].map(asked), [1, 30, 3_600, 86_400].map(Duration::from_secs));
    }
}
