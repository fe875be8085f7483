//! The last quarter of an hour of one version: how many calls, how they ended, how long they took.
//!
//! The window moves in slots of three minutes, so it covers between twelve and fifteen. A slot knows which three minutes
//! it is about; one that is older than the window counts no more, and is overwritten by the next call. Nothing has to be
//! cleaned, and time that goes back (it does not: it is the monotonic clock) would only find its slot again.

use std::time::Duration;

use ports::latency::Latencies;

/// What the score is about (OBS-008).
pub const WINDOW: Duration = Duration::from_secs(15 * 60);
const SLOTS: usize = 5;
const SLOT_MS: u128 = WINDOW.as_millis() / SLOTS as u128;

/// How a call ended, as far as the health of its tool is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthOutcome {
    Well,
    /// The tool, or what is behind it, failed.
    Failed,
    /// It took too long, which is a failure too.
    TimedOut,
    /// It answered with what its manifest does not allow, which is a failure too.
    BrokeItsSchema,
    /// It answered with what cannot be read, which is a failure too.
    Unreadable,
}

/// Calls of some time, counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HealthCounts {
    pub calls: u64,
    pub errors: u64,
    pub timeouts: u64,
    pub schema_violations: u64,
    pub unreadable: u64,
    pub latencies: Latencies,
}

impl HealthCounts {
    fn note(&mut self, ending: HealthOutcome, took: Duration) {
        self.calls += 1;
        self.errors += u64::from(ending != HealthOutcome::Well);
        self.timeouts += u64::from(ending == HealthOutcome::TimedOut);
        self.schema_violations += u64::from(ending == HealthOutcome::BrokeItsSchema);
        self.unreadable += u64::from(ending == HealthOutcome::Unreadable);
        self.latencies.note(took);
    }

    /// The share of calls that failed; `None` without calls.
    pub fn error_rate(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.errors as f64 / self.calls as f64)
    }

    /// The share of calls that took too long; `None` without calls.
    pub fn timeout_rate(&self) -> Option<f64> {
        (self.calls > 0).then(|| self.timeouts as f64 / self.calls as f64)
    }

    /// The time that 99 of 100 calls did not exceed.
    pub fn p99(&self) -> Option<Duration> {
        self.latencies.quantile(0.99)
    }
}

/// The window of one version.
#[derive(Debug, Clone, Default)]
pub struct HealthWindow {
    slots: [(u64, HealthCounts); SLOTS],
}

impl HealthWindow {
    /// Counts a call that ended at this moment.
    pub fn note(&mut self, now: Duration, ending: HealthOutcome, took: Duration) {
        let number = number_of(now);
        if let Some((of, counts)) = self.slots.get_mut(slot_of(number)) {
            if *of != number {
                (*of, *counts) = (number, HealthCounts::default());
            }
            counts.note(ending, took);
        }
    }

    /// Everything in the window that ends at this moment.
    pub fn counts(&self, now: Duration) -> HealthCounts {
        let newest = number_of(now);
        let oldest = newest.saturating_sub(SLOTS as u64 - 1);
        let mut sum = HealthCounts::default();
        for (_, counts) in self.slots.iter().filter(|(of, _)| (oldest..=newest).contains(of)) {
            sum.calls += counts.calls;
            sum.errors += counts.errors;
            sum.timeouts += counts.timeouts;
            sum.schema_violations += counts.schema_violations;
            sum.unreadable += counts.unreadable;
            sum.latencies.merge(&counts.latencies);
        }
        sum
    }
}

/// Which three minutes; from one, because zero is a slot nobody has used.
fn number_of(now: Duration) -> u64 {
    u64::try_from(now.as_millis() / SLOT_MS).unwrap_or(u64::MAX - 1) + 1
}

fn slot_of(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TOOK: Duration = Duration::from_millis(5);

    #[test]
    fn a_call_counts_for_twelve_minutes_at_least_and_fifteen_at_most() {
        for minute in 0..30 {
            let at = Duration::from_secs(minute * 60);
            let mut window = HealthWindow::default();
            window.note(at, HealthOutcome::TimedOut, TOOK);
            assert_eq!(window.counts(at + Duration::from_secs(12 * 60 - 1)).timeouts, 1, "{minute}");
            assert_eq!(window.counts(at + WINDOW).calls, 0, "{minute}");
        }
    }

    #[test]
    fn every_failure_is_an_error_and_only_some_are_something_else() {
        let mut window = HealthWindow::default();
        for ending in
            [HealthOutcome::Well, HealthOutcome::Failed, HealthOutcome::TimedOut, HealthOutcome::BrokeItsSchema]
        {
            window.note(Duration::ZERO, ending, TOOK);
        }
        let counts = window.counts(Duration::ZERO);
        assert_eq!((counts.calls, counts.errors, counts.timeouts, counts.schema_violations), (4, 3, 1, 1));
        assert_eq!((counts.error_rate(), counts.timeout_rate()), (Some(0.75), Some(0.25)));
        assert_eq!((HealthCounts::default().error_rate(), HealthCounts::default().p99()), (None, None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// Against a list of all calls, which nobody could keep.
        #[test]
        fn a_window_is_what_a_list_would_say(steps in prop::collection::vec((0_u64..400, any::<bool>()), 1..80)) {
            let (mut window, mut list, mut now) = (HealthWindow::default(), Vec::new(), Duration::ZERO);
            for (pause, failed) in steps {
                now += Duration::from_secs(pause);
                let ending = if failed { HealthOutcome::Failed } else { HealthOutcome::Well };
                window.note(now, ending, TOOK);
                list.push((now, failed));
                let oldest = number_of(now).saturating_sub(SLOTS as u64 - 1);
                let kept: Vec<_> = list.iter().filter(|(at, _)| number_of(*at) >= oldest).collect();
                let counts = window.counts(now);
                prop_assert_eq!(counts.calls, kept.len() as u64);
                prop_assert_eq!(counts.errors, kept.iter().filter(|(_, failed)| *failed).count() as u64);
                prop_assert!(counts.latencies.total() == counts.calls);
            }
        }
    }
}
