//! How long calls took, in buckets that can be added up: for percentiles over a window, a day or a month.
//!
//! Four buckets to each doubling, from 64 µs to a day, so a percentile is off by a tenth at most; within a bucket values
//! are taken to be spread evenly. The bounds never change: sums of old and new rows stay true.

use std::time::Duration;

use base::SaturatingFrom as _;

/// How many buckets there are.
pub const BUCKETS: usize = 128;
/// Everything below is one bucket.
const FIRST_MICROS: u64 = 64;
/// Buckets to a doubling.
const STEPS: u64 = 4;

/// A histogram of durations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies([u32; BUCKETS]);

impl Default for Latencies {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

impl Latencies {
    /// Counts one.
    pub fn note(&mut self, took: Duration) {
        self.add(bucket_of(took), 1);
    }

    /// Counts some in a bucket; one that does not exist counts as the last. Saturates.
    pub fn add(&mut self, bucket: usize, count: u32) {
        if let Some(slot) = self.0.get_mut(bucket.min(BUCKETS - 1)) {
            *slot = slot.saturating_add(count);
        }
    }

    /// Adds another one to it.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }

    /// How many were counted.
    pub fn total(&self) -> u64 {
        self.0.iter().copied().map(u64::from).sum()
    }

    /// The buckets that are not empty.
    pub fn buckets(&self) -> impl Iterator<Item = (usize, u32)> {
        self.0.iter().copied().enumerate().filter(|(_, count)| *count > 0)
    }

    /// The duration that `share` (0 to 1) of all calls did not exceed; `None` if there were none.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let rank = (share.clamp(0.0, 1.0) * total as f64).max(1.0);
        let mut before = 0.0;
        for (bucket, count) in self.buckets() {
            let count = f64::from(count);
            if before + count >= rank {
                let (low, high) = (lower_micros(bucket) as f64, lower_micros(bucket + 1) as f64);
                let micros = low + (high - low) * ((rank - before) / count);
                return Some(Duration::from_secs_f64(micros / 1e6));
            }
            before += count;
        }
        None
    }
}

/// The bucket of a duration.
pub fn bucket_of(took: Duration) -> usize {
    let micros = u64::saturating_from(took.as_micros());
    let scaled = micros / (FIRST_MICROS / STEPS);
    // The first bucket with a doubling of its own begins at FIRST_MICROS, which is STEPS in this scale.
    let Some(octave) = scaled.checked_ilog2().and_then(|bits| bits.checked_sub(STEPS.ilog2())) else { return 0 };
    let bucket = 1 + u64::from(octave) * STEPS + (scaled >> octave) % STEPS;
    usize::try_from(bucket).map_or(BUCKETS - 1, |bucket| bucket.min(BUCKETS - 1))
}

/// Where a bucket begins.
fn lower_micros(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(1) else { return 0 };
    let above = u64::saturating_from(above);
    let (octave, step) = (above / STEPS, above % STEPS);
    (FIRST_MICROS * (STEPS + step) / STEPS) << octave.min(40)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_lie_side_by_side() {
        for bucket in 0..BUCKETS - 1 {
            let low = lower_micros(bucket);
            assert_eq!(bucket_of(Duration::from_micros(low)), bucket, "{low}");
            assert_eq!(bucket_of(Duration::from_micros(lower_micros(bucket + 1) - 1)), bucket);
        }
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
        assert!(lower_micros(BUCKETS - 1) > 86_400_000_000, "a day has its bucket");
        assert_eq!(Latencies::default().quantile(0.99), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn percentiles_are_ordered_and_near_the_truth(mut micros in prop::collection::vec(100_u64..1_000_000_000, 1..300)) {
            let mut latencies = Latencies::default();
            for one in &micros {
                latencies.note(Duration::from_micros(*one));
            }
            micros.sort_unstable();
            let of = |share: f64| latencies.quantile(share).unwrap().as_secs_f64() * 1e6;
            prop_assert!(of(0.5) <= of(0.95) && of(0.95) <= of(0.99));
            let rank = (99 * micros.len()).div_ceil(100);
            let truth = micros[rank - 1] as f64;
            prop_assert!(of(0.99) <= truth * 1.26 && of(0.99) >= truth / 1.26, "{} {}", of(0.99), truth);
        }

        #[test]
        fn merging_is_counting_together(left in prop::collection::vec(0_u64..1_000_000, 0..50), right in prop::collection::vec(0_u64..1_000_000, 0..50)) {
            let count = |all: &[u64]| {
                let mut latencies = Latencies::default();
                all.iter().for_each(|one| latencies.note(Duration::from_micros(*one)));
                latencies
            };
            let mut merged = count(&left);
            merged.merge(&count(&right));
            prop_assert_eq!(merged, count(&[left, right].concat()));
        }
    }
}
