//! One number for how a version fares (OBS-008), and which timeout class it behaves like (OBS-009, REG-025).
//!
//! `1 − (0.5 · errors + 0.3 · latency + 0.2 · timeouts)`, each penalty the measured share of what is tolerated, at most 1.
//! Without calls there is no number: a tool nobody calls is neither well nor ill.

use contract::manifest::TimeoutClass;

use super::HealthSettings;
use super::window::HealthCounts;

const ERROR_WEIGHT: f64 = 0.5;
const LATENCY_WEIGHT: f64 = 0.3;
const TIMEOUT_WEIGHT: f64 = 0.2;
/// From here on a version is healthy, and from there on only degraded.
const HEALTHY: f64 = 0.8;
const DEGRADED: f64 = 0.5;

/// How a version fares, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HealthCondition {
    Healthy,
    Degraded,
    Unhealthy,
    /// Nobody has called it in the window.
    Unknown,
}

impl HealthCondition {
    /// The word of a score.
    pub fn of(score: Option<f64>) -> Self {
        match score {
            None => Self::Unknown,
            Some(score) if score >= HEALTHY => Self::Healthy,
            Some(score) if score >= DEGRADED => Self::Degraded,
            Some(_) => Self::Unhealthy,
        }
    }

    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unhealthy => "unhealthy",
            Self::Unknown => "unknown",
        }
    }
}

/// From 0 (as ill as can be) to 1; `None` without calls.
pub fn score(counts: &HealthCounts, class: TimeoutClass, settings: &HealthSettings) -> Option<f64> {
    let penalty = |share: f64, most: f64| (share / most.max(f64::EPSILON)).clamp(0.0, 1.0);
    let errors = penalty(counts.error_rate()?, settings.error_rate_max);
    let timeouts = penalty(counts.timeout_rate()?, settings.timeout_rate_max);
    let latency = penalty(counts.p99()?.as_secs_f64() * 1e3, class.max_ms() as f64);
    Some(1.0 - (ERROR_WEIGHT * errors + LATENCY_WEIGHT * latency + TIMEOUT_WEIGHT * timeouts))
}

/// The smallest class that has room for these calls (REG-025). A call that was cut off at the end of its class took as
/// long as the class allows, so it asks for the next one. External I/O and checkpoints are for a person to judge.
pub fn implied_class(counts: &HealthCounts) -> Option<TimeoutClass> {
    let p99_ms = counts.p99()?.as_secs_f64() * 1e3;
    // Buckets are a quarter of a doubling wide: what was cut off at the limit may be found a little below it.
    let fits = |class: &TimeoutClass| p99_ms < class.max_ms() as f64 * 0.85;
    let classes = [TimeoutClass::Interactive, TimeoutClass::Standard, TimeoutClass::LongRunning];
    Some(classes.into_iter().find(fits).unwrap_or(TimeoutClass::Async))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::window::{HealthOutcome, HealthWindow};
    use super::*;

    fn counts(well: u64, failed: u64, timed_out: u64, took: Duration) -> HealthCounts {
        let mut window = HealthWindow::default();
        let endings =
            [(HealthOutcome::Well, well), (HealthOutcome::Failed, failed), (HealthOutcome::TimedOut, timed_out)];
        for (ending, count) in endings {
            (0..count).for_each(|_| window.note(Duration::ZERO, ending, took));
        }
        window.counts(Duration::ZERO)
    }

    fn of(counts: &HealthCounts) -> f64 {
        score(counts, TimeoutClass::Standard, &HealthSettings::default()).unwrap()
    }

    #[test]
    fn nothing_is_said_of_what_nobody_calls() {
        let none = score(&HealthCounts::default(), TimeoutClass::Standard, &HealthSettings::default());
        assert_eq!((none, HealthCondition::of(none)), (None, HealthCondition::Unknown));
        assert_eq!(implied_class(&HealthCounts::default()), None);
    }

    #[test]
    fn each_penalty_has_its_weight_and_its_end() {
        let quick = Duration::from_micros(1);
        assert!((of(&counts(100, 0, 0, quick)) - 1.0).abs() < 0.001);
        // Ten of a hundred is as much as is tolerated; a hundred of a hundred is not worse.
        for failed in [(90, 10), (0, 100)] {
            assert!((of(&counts(failed.0, failed.1, 0, quick)) - 0.5).abs() < 0.001, "{failed:?}");
        }
        assert!((of(&counts(95, 5, 0, quick)) - 0.75).abs() < 0.001);
        // Timeouts are errors too: five of a hundred cost half of 0.5 and all of 0.2.
        assert!((of(&counts(95, 0, 5, quick)) - 0.55).abs() < 0.001);
        assert!(of(&counts(0, 0, 100, Duration::from_secs(60))).abs() < 0.001, "as ill as can be");
        assert!((of(&counts(100, 0, 0, Duration::from_secs(60))) - 0.7).abs() < 0.001, "slow, and nothing else");
    }

    #[test]
    fn a_class_is_implied_by_what_the_calls_take() {
        let cases = [
            (10, TimeoutClass::Interactive),
            (500, TimeoutClass::Standard),
            (3_000, TimeoutClass::Standard),
            (5_000, TimeoutClass::LongRunning),
            (300_000, TimeoutClass::Async),
        ];
        for (ms, class) in cases {
            assert_eq!(implied_class(&counts(50, 0, 0, Duration::from_millis(ms))), Some(class), "{ms}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn a_score_is_between_nothing_and_one_and_one_more_timeout_never_helps(
            well in 0_u64..60, failed in 0_u64..30, timed_out in 0_u64..30, ms in 0_u64..20_000,
        ) {
            prop_assume!(well + failed + timed_out > 0);
            let took = Duration::from_millis(ms);
            let before = of(&counts(well, failed, timed_out, took));
            prop_assert!((-1e-9..=1.0).contains(&before));
            let worse = of(&counts(well, failed, timed_out + 1, took));
            prop_assert!(worse <= before + 1e-9);
            prop_assert!(of(&counts(well + 1, failed, timed_out, took)) >= before - 1e-9);
        }
    }
}
