//! `[health]`: from when on a tool is ill, and when somebody is told. (OBS-007, OBS-008; decision 0036)
//!
//! A manifest has the last word about its own tool (`observability`).

use std::time::Duration;

use insights::health::HealthSettings;
use insights::health::alerts::AlertHold;
use schemars::JsonSchema;
use serde::Deserialize;

use super::problems::SectionProblems;
use super::section::ConfigSection;

/// From when on a tool is ill, and when somebody is told.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct HealthKeys {
    /// Percent of failed calls in the last 15 minutes that take the whole penalty for errors from the health score of a
    /// tool.
    #[schemars(range(min = 1, max = 100))]
    pub(super) error_percent_max: u64,
    /// The same for calls that took longer than they may.
    #[schemars(range(min = 1, max = 100))]
    pub(super) timeout_percent_max: u64,
    /// ToolDegraded is raised above this percentage of failed calls.
    #[schemars(range(min = 1, max = 100))]
    pub(super) alert_error_percent: u64,
    /// TimeoutClassMismatch is raised above this percentage of calls that took longer than they may.
    #[schemars(range(min = 1, max = 100))]
    pub(super) alert_timeout_percent: u64,
    /// LatencyRegression is raised when the p99 is above this percentage of what is usual for the tool.
    #[schemars(range(min = 110, max = 10_000))]
    pub(super) latency_percent: u64,
    /// With fewer calls in the window, shares and percentiles raise nothing.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) calls_min: u64,
    /// Seconds for which it must be so before an alert is raised.
    #[schemars(range(min = 0, max = 3_600))]
    pub(super) raise_after_seconds: u64,
    /// Seconds for which it must be well again, at four fifths of the threshold at most, before an alert is resolved.
    #[schemars(range(min = 0, max = 86_400))]
    pub(super) resolve_after_seconds: u64,
    /// ApprovalQueueBacklog is raised above so many pending approvals …
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(super) approvals_pending: u64,
    /// … that have been so many for this many seconds.
    #[schemars(range(min = 0, max = 604_800))]
    pub(super) approvals_pending_seconds: u64,
    /// MiB that should be free where the data is. With less, `GET /health` says so; calls go on.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub(super) disk_free_mb: u64,
}

impl Default for HealthKeys {
    fn default() -> Self {
        let usual = HealthSettings::default();
        Self {
            error_percent_max: percent(usual.error_rate_max),
            timeout_percent_max: percent(usual.timeout_rate_max),
            alert_error_percent: percent(usual.alert_error_rate),
            alert_timeout_percent: percent(usual.alert_timeout_rate),
            latency_percent: percent(usual.latency_factor),
            calls_min: usual.calls_min,
            raise_after_seconds: usual.hold.raise_after.as_secs(),
            resolve_after_seconds: usual.hold.resolve_after.as_secs(),
            approvals_pending: usual.approvals_pending_max,
            approvals_pending_seconds: usual.approvals_pending_for.as_secs(),
            disk_free_mb: 512,
        }
    }
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct HealthSection {
    pub(crate) thresholds: HealthSettings,
    pub(crate) disk_free_bytes: u64,
}

impl ConfigSection for HealthKeys {
    const NAME: &'static str = "health";
    type Checked = HealthSection;

    fn checked(self, _: &mut SectionProblems<'_>) -> HealthSection {
        let share = |percent: u64| percent as f64 / 100.0;
        let seconds = Duration::from_secs;
        HealthSection {
            thresholds: HealthSettings {
                error_rate_max: share(self.error_percent_max),
                timeout_rate_max: share(self.timeout_percent_max),
                alert_error_rate: share(self.alert_error_percent),
                alert_timeout_rate: share(self.alert_timeout_percent),
                latency_factor: share(self.latency_percent),
                calls_min: self.calls_min,
                hold: AlertHold {
                    raise_after: seconds(self.raise_after_seconds),
                    resolve_after: seconds(self.resolve_after_seconds),
                },
                approvals_pending_max: self.approvals_pending,
                approvals_pending_for: seconds(self.approvals_pending_seconds),
            },
            disk_free_bytes: self.disk_free_mb.saturating_mul(1 << 20),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "shares of the kernel are small and positive"
)]
fn percent(share: f64) -> u64 {
    (share * 100.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::super::section_tests::of_variables;
    use super::*;

    #[test]
    fn what_is_unset_is_as_the_kernel_has_it() {
        let (section, _) = of_variables::<HealthKeys>(&[]);
        assert_eq!(section.thresholds, HealthSettings::default());
        assert_eq!(section.disk_free_bytes, 512 << 20);
    }
}
