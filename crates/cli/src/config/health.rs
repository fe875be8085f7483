//! `[health]`: from when on a tool is ill, and when somebody is told. (OBS-007, OBS-008; decision 0036)
//!
//! A manifest has the last word about its own tool (`observability`).

use std::time::Duration;

use insights::health::HealthSettings;
use insights::health::alerts::AlertHold;

use super::key::{ConfigKey, KeyKind};
use super::settings::EffectiveSettings;

const ERROR_PERCENT_MAX: ConfigKey = key(
    "error_percent_max",
    1..=100,
    "10",
    "Percent of failed calls in the last 15 minutes that take the whole penalty for errors from the health score of a tool.",
);
const TIMEOUT_PERCENT_MAX: ConfigKey =
    key("timeout_percent_max", 1..=100, "5", "The same for calls that took longer than they may.");
const ALERT_ERROR_PERCENT: ConfigKey =
    key("alert_error_percent", 1..=100, "5", "ToolDegraded is raised above this percentage of failed calls.");
const ALERT_TIMEOUT_PERCENT: ConfigKey = key(
    "alert_timeout_percent",
    1..=100,
    "2",
    "TimeoutClassMismatch is raised above this percentage of calls that took longer than they may.",
);
const LATENCY_PERCENT: ConfigKey = key(
    "latency_percent",
    110..=10_000,
    "200",
    "LatencyRegression is raised when the p99 is above this percentage of what is usual for the tool.",
);
const CALLS_MIN: ConfigKey =
    key("calls_min", 1..=1_000_000, "20", "With fewer calls in the window, shares and percentiles raise nothing.");
const RAISE_AFTER_SECONDS: ConfigKey =
    key("raise_after_seconds", 0..=3_600, "60", "Seconds for which it must be so before an alert is raised.");
const RESOLVE_AFTER_SECONDS: ConfigKey = key(
    "resolve_after_seconds",
    0..=86_400,
    "300",
    "Seconds for which it must be well again, at four fifths of the threshold at most, before an alert is resolved.",
);
const APPROVALS_PENDING: ConfigKey =
    key("approvals_pending", 1..=1_000_000, "50", "ApprovalQueueBacklog is raised above so many pending approvals …");
const APPROVALS_PENDING_SECONDS: ConfigKey =
    key("approvals_pending_seconds", 0..=604_800, "900", "… that have been so many for this many seconds.");
const DISK_FREE_MB: ConfigKey = key(
    "disk_free_mb",
    0..=1_000_000_000,
    "512",
    "MiB that should be free where the data is. With less, `GET /health` says so; calls go on.",
);

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[
    &ERROR_PERCENT_MAX,
    &TIMEOUT_PERCENT_MAX,
    &ALERT_ERROR_PERCENT,
    &ALERT_TIMEOUT_PERCENT,
    &LATENCY_PERCENT,
    &CALLS_MIN,
    &RAISE_AFTER_SECONDS,
    &RESOLVE_AFTER_SECONDS,
    &APPROVALS_PENDING,
    &APPROVALS_PENDING_SECONDS,
    &DISK_FREE_MB,
];

const fn key(
    name: &'static str,
    range: std::ops::RangeInclusive<u64>,
    default: &'static str,
    doc: &'static str,
) -> ConfigKey {
    ConfigKey {
        section: "health",
        name,
        kind: KeyKind::Integer(range),
        default: Some(default),
        unset: "",
        doc,
        since: "0.2",
    }
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct HealthSection {
    pub(crate) thresholds: HealthSettings,
    pub(crate) disk_free_bytes: u64,
}

impl HealthSection {
    pub(super) fn read(settings: &EffectiveSettings) -> Self {
        let share = |key: &ConfigKey| settings.integer(key) as f64 / 100.0;
        let seconds = |key: &ConfigKey| Duration::from_secs(settings.integer(key));
        Self {
            thresholds: HealthSettings {
                error_rate_max: share(&ERROR_PERCENT_MAX),
                timeout_rate_max: share(&TIMEOUT_PERCENT_MAX),
                alert_error_rate: share(&ALERT_ERROR_PERCENT),
                alert_timeout_rate: share(&ALERT_TIMEOUT_PERCENT),
                latency_factor: share(&LATENCY_PERCENT),
                calls_min: settings.integer(&CALLS_MIN),
                hold: AlertHold {
                    raise_after: seconds(&RAISE_AFTER_SECONDS),
                    resolve_after: seconds(&RESOLVE_AFTER_SECONDS),
                },
                approvals_pending_max: settings.integer(&APPROVALS_PENDING),
                approvals_pending_for: seconds(&APPROVALS_PENDING_SECONDS),
            },
            disk_free_bytes: settings.integer(&DISK_FREE_MB).saturating_mul(1 << 20),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_kernel() {
        let settings = EffectiveSettings::gather(None, &BTreeMap::new(), Vec::new()).unwrap();
        let section = HealthSection::read(&settings);
        assert_eq!(section.thresholds, HealthSettings::default());
        assert_eq!(section.disk_free_bytes, 512 << 20);
    }
}
