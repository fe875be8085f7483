//! `[resilience]`: breakers, limits and retries of everything that does not say otherwise. (RES-002, RES-014…018)
//!
//! A manifest has the last word about its own breaker and retries (`circuit_breaker_config`, `retry_policy`), and the only one
//! about how often a user may call it (`rate_limit`).

use std::time::Duration;

use base::SaturatingFrom as _;
use kernel::resilience::ResilienceSettings;
use ports::resilience::{BreakerSettings, CanaryShare, RateQuota, SettingsDraft};
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

const DAY: Duration = Duration::from_hours(24);

/// Breakers, limits and retries of everything that does not say otherwise.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct ResilienceKeys {
    /// Failures within the window that open a breaker. 0: only the percentages below.
    #[schemars(range(min = 0, max = 100_000))]
    pub(super) failure_threshold: i64,
    /// Percent of calls in the window that failed from which on a breaker opens.
    #[schemars(range(min = 1, max = 100), extend("x-unset" = "no such bound"))]
    pub(super) failure_percent: Option<u32>,
    /// Percent of calls in the window that were slow from which on a breaker opens.
    #[schemars(range(min = 1, max = 100), extend("x-unset" = "no such bound"))]
    pub(super) slow_percent: Option<u32>,
    /// Milliseconds after which a call counts as slow.
    #[schemars(range(min = 1, max = 86_400_000))]
    pub(super) slow_after_ms: i64,
    /// Calls in the window below which percentages mean nothing.
    #[schemars(range(min = 1, max = 100_000))]
    pub(super) minimum_calls: i64,
    /// Seconds of calls that a breaker judges by.
    #[schemars(range(min = 1, max = 3_600))]
    pub(super) window_seconds: i64,
    /// The last so many calls that a breaker judges by, in place of `window_seconds`.
    #[schemars(range(min = 1, max = 1_000), extend("x-unset" = "no such bound"))]
    pub(super) window_calls: Option<i64>,
    /// Milliseconds for which an open breaker refuses calls (E3501) before it lets some through to try.
    #[schemars(range(min = 1, max = 2_592_000_000_u64))]
    pub(super) open_ms: i64,
    /// How long it stays open when it opens again without having been closed, in percent of the time before.
    #[schemars(range(min = 101, max = 10_000), extend("x-unset" = "no such bound"))]
    pub(super) open_growth_percent: Option<u32>,
    /// The longest that this may grow to.
    #[schemars(range(min = 1, max = 2_592_000_000_u64))]
    pub(super) open_max_ms: i64,
    /// Calls that a half-open breaker lets through at once to try.
    #[schemars(range(min = 1, max = 1_000))]
    pub(super) half_open_max_calls: i64,
    /// Of those, so many successes close it and one failure opens it again. 0: the percentages over `half_open_max_calls`
    /// decide.
    #[schemars(range(min = 0, max = 1_000))]
    pub(super) success_threshold: i64,
    /// Percent of the calls that a half-open breaker lets through at first; unset, as many as it has places for.
    #[schemars(range(min = 1, max = 100), extend("x-unset" = "no such bound"))]
    pub(super) canary_percent: Option<i64>,
    /// By how many percent each success raises that share.
    #[schemars(range(min = 1, max = 100))]
    pub(super) canary_step_percent: i64,
    /// Milliseconds after which a half-open breaker opens again without a result. 0: it waits.
    #[schemars(range(min = 0, max = 2_592_000_000_u64))]
    pub(super) half_open_max_ms: i64,
    /// Calls that the whole installation takes per second. One more: E3003.
    #[schemars(range(min = 1, max = 10_000), extend("x-unset" = "no such bound"))]
    pub(super) calls_per_second: Option<u32>,
    /// Calls that one tenant may make per minute. One more: E3003.
    #[schemars(range(min = 1, max = 600_000), extend("x-unset" = "no such bound"))]
    pub(super) tenant_calls_per_minute: Option<u32>,
    /// Calls that one service behind tools gets per minute. One more: E3504.
    #[schemars(range(min = 1, max = 600_000), extend("x-unset" = "no such bound"))]
    pub(super) service_calls_per_minute: Option<u32>,
    /// The longest wait in milliseconds before a call is tried again for the first time; chance picks one from nothing up
    /// to it.
    #[schemars(range(min = 1, max = 60_000))]
    pub(super) retry_first_ms: u64,
    /// Times per minute that calls to one service are tried again, all callers together. One more: E3411.
    #[schemars(range(min = 1, max = 600_000))]
    pub(super) retries_per_minute: u32,
    /// Days for which the changes of state of breakers are kept in the store.
    #[schemars(range(min = 1, max = 3_650))]
    pub(super) history_days: u64,
}

impl Default for ResilienceKeys {
    fn default() -> Self {
        let usual = ResilienceSettings::default();
        let breaker = &usual.breaker;
        Self {
            failure_threshold: breaker.failure_threshold.map_or(0, i64::from),
            failure_percent: None,
            slow_percent: None,
            slow_after_ms: i64::saturating_from(breaker.slow_after_ms),
            minimum_calls: breaker.minimum_calls.into(),
            // The kernel has it as one kind of window among others; a test compares.
            window_seconds: 60,
            window_calls: None,
            open_ms: i64::saturating_from(breaker.open_wait.ms(1)),
            open_growth_percent: None,
            open_max_ms: 3_600_000,
            half_open_max_calls: breaker.half_open_max_calls.into(),
            // The same of rules.
            success_threshold: 3,
            canary_percent: None,
            canary_step_percent: CanaryShare::STEP_PERCENT.into(),
            half_open_max_ms: breaker.half_open_max_ms.map_or(0, i64::saturating_from),
            calls_per_second: None,
            tenant_calls_per_minute: None,
            service_calls_per_minute: None,
            retry_first_ms: u64::saturating_from(usual.retry_first.as_millis()),
            retries_per_minute: usual.retry_budget.map_or(1, |quota| quota.burst),
            history_days: usual.history_kept.as_secs() / DAY.as_secs(),
        }
    }
}

impl ConfigSection for ResilienceKeys {
    const NAME: &'static str = "resilience";
    type Checked = ResilienceSettings;

    fn checked(self, problems: &mut SectionProblems<'_>) -> ResilienceSettings {
        let breaker = self.breaker().checked().unwrap_or_else(|error| {
            problems.at_section(error.to_string());
            BreakerSettings::default()
        });
        let mut quota = |name, limit: Option<u32>, period| {
            RateQuota::new(limit?, period).map_err(|error| problems.at(name, error.to_string())).ok()
        };
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        ResilienceSettings {
            breaker,
            platform_quota: quota("calls_per_second", self.calls_per_second, second),
            tenant_quota: quota("tenant_calls_per_minute", self.tenant_calls_per_minute, minute),
            service_quota: quota("service_calls_per_minute", self.service_calls_per_minute, minute),
            retry_first: Duration::from_millis(self.retry_first_ms),
            retry_budget: quota("retries_per_minute", Some(self.retries_per_minute), minute),
            history_kept: Duration::from_secs(self.history_days.saturating_mul(DAY.as_secs())),
        }
    }
}

impl ResilienceKeys {
    fn breaker(&self) -> SettingsDraft {
        let growth = self.open_growth_percent.map(|percent| f64::from(percent) / 100.0);
        SettingsDraft {
            failure_threshold: Some(self.failure_threshold),
            failure_percent: self.failure_percent.map(f64::from),
            slow_percent: self.slow_percent.map(f64::from),
            slow_after_ms: Some(self.slow_after_ms),
            minimum_calls: Some(self.minimum_calls),
            window_seconds: Some(self.window_seconds).filter(|_| self.window_calls.is_none()),
            window_calls: self.window_calls,
            open_ms: Some(self.open_ms).filter(|_| growth.is_none()),
            open_backoff_first_ms: Some(self.open_ms),
            open_backoff_factor: growth,
            open_backoff_max_ms: Some(self.open_max_ms),
            half_open_max_calls: Some(self.half_open_max_calls),
            success_threshold: Some(self.success_threshold),
            canary_percent: self.canary_percent,
            canary_step_percent: Some(self.canary_step_percent),
            half_open_max_ms: Some(self.half_open_max_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use ports::resilience::{HalfOpenRule, OpenWait, WindowKind};

    use super::super::section_tests::of_variables;
    use super::*;

    fn read_from(pairs: &[(&str, &str)]) -> (ResilienceSettings, Vec<String>) {
        let pairs: Vec<(String, &str)> = pairs.iter().map(|(name, value)| (name.to_uppercase(), *value)).collect();
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        of_variables::<ResilienceKeys>(&pairs)
    }

    #[test]
    fn what_is_unset_is_as_the_kernel_has_it() {
        let (values, problems) = read_from(&[]);
        assert!(problems.is_empty());
        assert_eq!(values, ResilienceSettings::default());
    }

    #[test]
    fn every_kind_of_breaker_can_be_had() {
        let (values, _) = read_from(&[
            ("failure_threshold", "0"),
            ("failure_percent", "50"),
            ("window_calls", "20"),
            ("open_ms", "5000"),
            ("open_growth_percent", "150"),
            ("success_threshold", "0"),
            ("canary_percent", "5"),
            ("calls_per_second", "100"),
        ]);
        let breaker = values.breaker;
        assert_eq!((breaker.failure_threshold, breaker.failure_percent), (None, Some(50.0)));
        assert_eq!((breaker.window, breaker.half_open_rule), (WindowKind::Count { calls: 20 }, HalfOpenRule::Rates));
        let grown = OpenWait::Exponential { first_ms: 5_000, factor: 1.5, max_ms: 3_600_000 };
        assert_eq!(breaker.open_wait, grown);
        assert_eq!(breaker.canary, Some(CanaryShare { first_percent: 5, step_percent: 10 }));
        assert_eq!(values.platform_quota.unwrap().burst, 100);
    }

    #[test]
    fn a_breaker_that_nothing_would_open_is_refused() {
        let (_, problems) = read_from(&[("failure_threshold", "0")]);
        assert!(problems.iter().any(|problem| problem.contains("nothing would open it")));
    }
}
