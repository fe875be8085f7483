//! What is usual for a version: its p99 over earlier windows, weighted so that the last days count most. (OBS-007)
//!
//! One window is taken in at a time. The first ones are averaged, later ones move the baseline by a tenth each. While a
//! regression is raised nothing is learned, or the alert would end by getting used to what it is about; after a day of
//! that, what is new is what is usual.

use std::time::Duration;

use super::window::WINDOW;

/// How far one window moves the baseline.
const WEIGHT: f64 = 0.1;
/// Windows before anything is said by it: an hour.
const WINDOWS_MIN: u32 = 4;
/// Windows of a raised regression that are not learned from: a day.
const SKIPPED_MAX: u32 = 96;

/// A baseline.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Baseline {
    p99_ms: f64,
    windows: u32,
    skipped: u32,
    /// When the next window may be taken in.
    due: Duration,
}

impl Baseline {
    /// As it was kept; what is no sensible number is forgotten.
    pub(super) fn kept(p99_ms: f64, windows: u32) -> Self {
        if p99_ms.is_finite() && p99_ms >= 0.0 { Self { p99_ms, windows, ..Self::default() } } else { Self::default() }
    }

    /// To be kept: the p99 in milliseconds and how many windows it was learned from.
    pub(super) fn to_keep(self) -> (f64, u32) {
        (self.p99_ms, self.windows)
    }

    /// What is usual, once enough was seen.
    pub(super) fn p99_ms(self) -> Option<f64> {
        (self.windows >= WINDOWS_MIN).then_some(self.p99_ms)
    }

    /// Takes a window in, if one is due. `regressed` says that the alert about this very thing is raised.
    pub(super) fn learn(&mut self, now: Duration, p99: Duration, regressed: bool) {
        if now < self.due {
            return;
        }
        self.due = now + WINDOW;
        if regressed && self.skipped < SKIPPED_MAX {
            self.skipped += 1;
            return;
        }
        if regressed {
            // It stays so: begin anew with what is.
            *self = Self { due: self.due, ..Self::default() };
        }
        self.skipped = 0;
        let weight = WEIGHT.max(1.0 / (f64::from(self.windows) + 1.0));
        self.p99_ms += weight * (p99.as_secs_f64() * 1e3 - self.p99_ms);
        self.windows = self.windows.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(windows: &[(u64, bool)]) -> Baseline {
        let mut baseline = Baseline::default();
        for (number, (ms, regressed)) in (0_u32..).zip(windows) {
            baseline.learn(WINDOW * number, Duration::from_millis(*ms), *regressed);
        }
        baseline
    }

    #[test]
    fn it_speaks_after_an_hour_and_takes_a_window_once() {
        assert_eq!(learned(&[(100, false); 3]).p99_ms(), None);
        let mut baseline = learned(&[(100, false); 4]);
        assert!((baseline.p99_ms().unwrap() - 100.0).abs() < 1e-6);
        baseline.learn(WINDOW * 3 + Duration::from_secs(1), Duration::from_secs(9), false);
        assert!((baseline.p99_ms().unwrap() - 100.0).abs() < 1e-6, "not due yet");
        baseline.learn(WINDOW * 4, Duration::from_millis(200), false);
        assert!((baseline.p99_ms().unwrap() - 120.0).abs() < 1e-6, "averaged while it is young");
    }

    #[test]
    fn a_regression_is_not_learned_from_until_it_is_what_is_usual() {
        let mut windows = vec![(100, false); 20];
        windows.extend([(1_000, true); 96]);
        let mut baseline = learned(&windows);
        assert!((baseline.p99_ms().unwrap() - 100.0).abs() < 1e-6);
        for more in 0..4 {
            baseline.learn(WINDOW * (116 + more), Duration::from_secs(1), more == 0);
        }
        assert!((baseline.p99_ms().unwrap() - 1_000.0).abs() < 1e-6);
    }

    #[test]
    fn what_was_kept_badly_is_forgotten() {
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(Baseline::kept(bad, 9), Baseline::default());
        }
        assert_eq!(Baseline::kept(5.0, 9).p99_ms(), Some(5.0));
    }
}
