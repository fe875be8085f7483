//! `[resilience]`: breakers, limits and retries of everything that does not say otherwise. (RES-002, RES-014…018)
//!
//! A manifest has the last word about its own breaker and retries (`circuit_breaker_config`, `retry_policy`), and the only one
//! about how often a user may call it (`rate_limit`).

use std::time::Duration;

use base::SaturatingFrom as _;
use kernel::resilience::ResilienceSettings;
use ports::resilience::{RateQuota, SettingsDraft};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

const FAILURE_THRESHOLD: ConfigKey = key(
    "failure_threshold",
    0..=100_000,
    Some("5"),
    "Failures within the window that open a breaker. 0: only the percentages below.",
);
const FAILURE_PERCENT: ConfigKey =
    key("failure_percent", 1..=100, None, "Percent of calls in the window that failed from which on a breaker opens.");
const SLOW_PERCENT: ConfigKey =
    key("slow_percent", 1..=100, None, "Percent of calls in the window that were slow from which on a breaker opens.");
const SLOW_AFTER_MS: ConfigKey =
    key("slow_after_ms", 1..=86_400_000, Some("60000"), "Milliseconds after which a call counts as slow.");
const MINIMUM_CALLS: ConfigKey =
    key("minimum_calls", 1..=100_000, Some("100"), "Calls in the window below which percentages mean nothing.");
const WINDOW_SECONDS: ConfigKey =
    key("window_seconds", 1..=3_600, Some("60"), "Seconds of calls that a breaker judges by.");
const WINDOW_CALLS: ConfigKey = key(
    "window_calls",
    1..=1_000,
    None,
    "The last so many calls that a breaker judges by, in place of `window_seconds`.",
);
const OPEN_MS: ConfigKey = key(
    "open_ms",
    1..=2_592_000_000,
    Some("60000"),
    "Milliseconds for which an open breaker refuses calls (E3501) before it lets some through to try.",
);
const OPEN_GROWTH_PERCENT: ConfigKey = key(
    "open_growth_percent",
    101..=10_000,
    None,
    "How long it stays open when it opens again without having been closed, in percent of the time before.",
);
const OPEN_MAX_MS: ConfigKey =
    key("open_max_ms", 1..=2_592_000_000, Some("3600000"), "The longest that this may grow to.");
const HALF_OPEN_MAX_CALLS: ConfigKey =
    key("half_open_max_calls", 1..=1_000, Some("10"), "Calls that a half-open breaker lets through at once to try.");
const SUCCESS_THRESHOLD: ConfigKey = key(
    "success_threshold",
    0..=1_000,
    Some("3"),
    "Of those, so many successes close it and one failure opens it again. 0: the percentages over `half_open_max_calls` decide.",
);
const CANARY_PERCENT: ConfigKey = key(
    "canary_percent",
    1..=100,
    None,
    "Percent of the calls that a half-open breaker lets through at first; unset, as many as it has places for.",
);
const CANARY_STEP_PERCENT: ConfigKey =
    key("canary_step_percent", 1..=100, Some("10"), "By how many percent each success raises that share.");
const HALF_OPEN_MAX_MS: ConfigKey = key(
    "half_open_max_ms",
    0..=2_592_000_000,
    Some("0"),
    "Milliseconds after which a half-open breaker opens again without a result. 0: it waits.",
);
const CALLS_PER_SECOND: ConfigKey =
    key("calls_per_second", 1..=10_000, None, "Calls that the whole installation takes per second. One more: E3003.");
const TENANT_CALLS_PER_MINUTE: ConfigKey =
    key("tenant_calls_per_minute", 1..=600_000, None, "Calls that one tenant may make per minute. One more: E3003.");
const SERVICE_CALLS_PER_MINUTE: ConfigKey = key(
    "service_calls_per_minute",
    1..=600_000,
    None,
    "Calls that one service behind tools gets per minute. One more: E3504.",
);
const RETRY_FIRST_MS: ConfigKey = key(
    "retry_first_ms",
    1..=60_000,
    Some("500"),
    "The longest wait in milliseconds before a call is tried again for the first time; chance picks one from nothing up to it.",
);
const RETRIES_PER_MINUTE: ConfigKey = key(
    "retries_per_minute",
    1..=600_000,
    Some("60"),
    "Times per minute that calls to one service are tried again, all callers together. One more: E3411.",
);

const HISTORY_DAYS: ConfigKey = key(
    "history_days",
    1..=3_650,
    Some("90"),
    "Days for which the changes of state of breakers are kept in the store.",
);

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &FAILURE_THRESHOLD,
    &FAILURE_PERCENT,
    &SLOW_PERCENT,
    &SLOW_AFTER_MS,
    &MINIMUM_CALLS,
    &WINDOW_SECONDS,
    &WINDOW_CALLS,
    &OPEN_MS,
    &OPEN_GROWTH_PERCENT,
    &OPEN_MAX_MS,
    &HALF_OPEN_MAX_CALLS,
    &SUCCESS_THRESHOLD,
    &CANARY_PERCENT,
    &CANARY_STEP_PERCENT,
    &HALF_OPEN_MAX_MS,
    &CALLS_PER_SECOND,
    &TENANT_CALLS_PER_MINUTE,
    &SERVICE_CALLS_PER_MINUTE,
    &RETRY_FIRST_MS,
    &RETRIES_PER_MINUTE,
    &HISTORY_DAYS,
];

const fn key(
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: Option<&'static str>,
    doc: &'static str,
) -> ConfigKey {
    let unset = if default.is_some() { "" } else { "no such bound" };
    ConfigKey { section: "resilience", name, kind: KeyKind::Integer(range), default, unset, doc, since: "0.2" }
}

/// The section's values.
pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> ResilienceSettings {
    let number = |key: &ConfigKey| i64::try_from(settings.integer(key)).ok();
    let percent = |key: &ConfigKey| settings.integer_if_set(key).map(|percent| percent as f64);
    let growth = percent(&OPEN_GROWTH_PERCENT).map(|percent| percent / 100.0);
    let window_calls = settings.integer_if_set(&WINDOW_CALLS).and_then(|calls| i64::try_from(calls).ok());
    let draft = SettingsDraft {
        failure_threshold: number(&FAILURE_THRESHOLD),
        failure_percent: percent(&FAILURE_PERCENT),
        slow_percent: percent(&SLOW_PERCENT),
        slow_after_ms: number(&SLOW_AFTER_MS),
        minimum_calls: number(&MINIMUM_CALLS),
        window_seconds: number(&WINDOW_SECONDS).filter(|_| window_calls.is_none()),
        window_calls,
        open_ms: number(&OPEN_MS).filter(|_| growth.is_none()),
        open_backoff_first_ms: number(&OPEN_MS),
        open_backoff_factor: growth,
        open_backoff_max_ms: number(&OPEN_MAX_MS),
        half_open_max_calls: number(&HALF_OPEN_MAX_CALLS),
        success_threshold: number(&SUCCESS_THRESHOLD),
        canary_percent: settings.integer_if_set(&CANARY_PERCENT).and_then(|percent| i64::try_from(percent).ok()),
        canary_step_percent: number(&CANARY_STEP_PERCENT),
        half_open_max_ms: number(&HALF_OPEN_MAX_MS),
    };
    let breaker = draft.checked().unwrap_or_else(|error| {
        problems.push(ConfigProblem::new("[resilience]", error.to_string()));
        ports::resilience::BreakerSettings::default()
    });
    let mut quota = |key: &ConfigKey, period: Duration| {
        let limit = u32::saturating_from(settings.integer_if_set(key)?);
        RateQuota::new(limit, period)
            .map_err(|error| problems.push(ConfigProblem::new(key.title(), error.to_string())))
            .ok()
    };
    let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
    ResilienceSettings {
        breaker,
        platform_quota: quota(&CALLS_PER_SECOND, second),
        tenant_quota: quota(&TENANT_CALLS_PER_MINUTE, minute),
        service_quota: quota(&SERVICE_CALLS_PER_MINUTE, minute),
        retry_first: Duration::from_millis(settings.integer(&RETRY_FIRST_MS)),
        retry_budget: quota(&RETRIES_PER_MINUTE, minute),
        history_kept: Duration::from_hours(settings.integer(&HISTORY_DAYS).saturating_mul(24)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ports::resilience::{CanaryShare, HalfOpenRule, OpenWait, WindowKind};

    use super::*;

    fn read_from(pairs: &[(&str, &str)]) -> (ResilienceSettings, Vec<ConfigProblem>) {
        let name = |key: &str| format!("GANTRY_RESILIENCE__{}", key.to_uppercase());
        let environment: BTreeMap<String, String> =
            pairs.iter().map(|(key, value)| (name(key), (*value).to_owned())).collect();
        let settings = EffectiveSettings::gather(None, &environment, Vec::new()).unwrap();
        let mut problems = Vec::new();
        let values = read(&settings, &mut problems);
        (values, problems)
    }

    #[test]
    fn the_defaults_are_those_of_the_kernel() {
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
        assert!(problems.iter().any(|problem| problem.to_string().contains("nothing would open it")));
    }
}
