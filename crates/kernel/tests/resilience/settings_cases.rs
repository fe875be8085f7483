//! V1…V4: what no breaker can be set to.

use contract::manifest::BreakerConfig;
use ports::resilience::{
    BreakerSettings, CanaryShare, HalfOpenRule, OpenWait, SettingsDraft, SettingsError, WindowKind,
};

fn draft() -> SettingsDraft {
    SettingsDraft::default()
}

fn out_of_range(draft: &SettingsDraft) -> &'static str {
    match draft.checked() {
        Err(SettingsError::OutOfRange { name, .. }) => name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn v1_zero_or_negative_windows_minimums_permits_waits_and_thresholds_are_refused() {
    for bad in [0, -1, i64::MIN, i64::MAX] {
        let bad = Some(bad);
        for (name, draft) in [
            ("window_seconds", SettingsDraft { window_seconds: bad, ..draft() }),
            ("window_calls", SettingsDraft { window_calls: bad, ..draft() }),
            ("minimum_calls", SettingsDraft { minimum_calls: bad, ..draft() }),
            ("half_open_max_calls", SettingsDraft { half_open_max_calls: bad, ..draft() }),
            ("open_ms", SettingsDraft { open_ms: bad, ..draft() }),
            ("slow_after_ms", SettingsDraft { slow_after_ms: bad, ..draft() }),
            (
                "open_backoff_first_ms",
                SettingsDraft { open_backoff_factor: Some(2.0), open_backoff_first_ms: bad, ..draft() },
            ),
        ] {
            assert_eq!(out_of_range(&draft), name);
        }
    }
    for factor in [0.0, 0.9, -1.0, f64::NAN] {
        let refused = SettingsDraft { open_backoff_factor: Some(factor), ..draft() }.checked();
        assert_eq!(refused, Err(SettingsError::NotAFactor { name: "open_backoff_factor" }));
    }
}

#[test]
fn v2_rates_of_0_or_over_100_are_refused_and_a_fraction_is_accepted() {
    for bad in [0.0, -1.0, 100.1, f64::NAN, f64::INFINITY] {
        let failure = SettingsDraft { failure_percent: Some(bad), ..draft() }.checked();
        assert_eq!(failure, Err(SettingsError::NotAPercentage { name: "failure_percent" }));
        let slow = SettingsDraft { slow_percent: Some(bad), ..draft() }.checked();
        assert_eq!(slow, Err(SettingsError::NotAPercentage { name: "slow_percent" }));
    }
    for fine in [0.01, 100.0] {
        let settings = SettingsDraft { failure_percent: Some(fine), ..draft() }.checked().unwrap();
        // A rate stands in place of the number, unless both are asked for.
        assert_eq!((settings.failure_percent, settings.failure_threshold), (Some(fine), None));
    }
}

#[test]
fn v3_a_half_open_bound_of_0_means_none_and_a_negative_one_is_refused() {
    for (given, expected) in [(None, None), (Some(0), None), (Some(1_000), Some(1_000))] {
        let settings = SettingsDraft { half_open_max_ms: given, ..draft() }.checked().unwrap();
        assert_eq!(settings.half_open_max_ms, expected);
    }
    assert_eq!(out_of_range(&SettingsDraft { half_open_max_ms: Some(-1), ..draft() }), "half_open_max_ms");
}

#[test]
fn v4_a_fixed_wait_and_a_backoff_together_are_refused() {
    let both = SettingsDraft { open_ms: Some(5_000), open_backoff_factor: Some(1.5), ..draft() };
    assert_eq!(both.checked(), Err(SettingsError::Together { one: "open_ms", other: "open_backoff_factor" }));
    let both = SettingsDraft { window_seconds: Some(5), window_calls: Some(5), ..draft() };
    assert_eq!(both.checked(), Err(SettingsError::Together { one: "window_seconds", other: "window_calls" }));
}

#[test]
fn a_threshold_beyond_the_calls_that_are_counted_is_refused_and_a_default_gives_way() {
    let beyond = SettingsDraft { failure_threshold: Some(4), window_calls: Some(3), ..draft() };
    assert_eq!(beyond.checked(), Err(SettingsError::ThresholdBeyondWindow { threshold: 4, calls: 3 }));
    assert!(SettingsDraft { failure_percent: Some(50.0), ..beyond }.checked().is_ok(), "the rate opens it");
    let asked = SettingsDraft { failure_threshold: None, window_calls: Some(3), ..draft() };
    assert_eq!(asked.checked().unwrap().failure_threshold, Some(3));
}

#[test]
fn a_breaker_that_nothing_would_open_is_refused() {
    let never = SettingsDraft { failure_threshold: Some(0), ..draft() };
    assert_eq!(never.checked(), Err(SettingsError::NeverOpens));
}

#[test]
fn nothing_said_means_the_defaults_and_a_manifest_says_it_for_its_own_tools() {
    let defaults = draft().checked().unwrap();
    assert_eq!(defaults, BreakerSettings::default());
    let plain = defaults.overridden(&BreakerConfig::default());
    assert_eq!(plain, defaults);
    let own = BreakerConfig {
        failure_threshold: 2,
        success_threshold: 1,
        timeout_seconds: 7,
        half_open_max_calls: 4,
        window_seconds: 9,
        failure_percent: Some(30),
        slow_after_ms: Some(250),
        minimum_calls: Some(20),
        canary_percent: Some(10),
        ..BreakerConfig::default()
    };
    let slowly = BreakerConfig { slow_percent: Some(40), canary_step_percent: Some(25), ..own };
    let settings = defaults.overridden(&slowly);
    assert_eq!(settings.slow_percent, Some(40.0));
    assert_eq!(settings.canary, Some(CanaryShare { first_percent: 10, step_percent: 25 }));
    let settings = defaults.overridden(&own);
    assert_eq!(settings.failure_threshold, Some(2));
    assert_eq!(settings.half_open_rule, HalfOpenRule::OneFailure { success_threshold: 1 });
    assert_eq!((settings.open_wait, settings.half_open_max_calls), (OpenWait::Fixed { ms: 7_000 }, 4));
    assert_eq!(settings.window, WindowKind::Time { seconds: 9 });
    assert_eq!((settings.failure_percent, settings.slow_percent), (Some(30.0), None));
    assert_eq!((settings.slow_after_ms, settings.minimum_calls), (250, 20));
    assert_eq!(settings.canary, Some(CanaryShare { first_percent: 10, step_percent: 10 }));
}
