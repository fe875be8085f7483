//! The whole of health with a clock in the hand: one version from its first call to the end of an alert.

use std::sync::Arc;

use contract::ids::TenantId;
use contract::manifest::Manifest;
use ports::lifecycle::Lifecycle;
use ports::registry_store::StoredVersion;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

pub(crate) fn version(name: &str, change: &Value) -> Arc<ToolVersion> {
    let mut manifest = json!({
        "tool_id": name, "version": "1.0.0", "name": "A tool", "description": "Does something with a text that it is given.",
        "provider": "Demo", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object" }, "result_schema": { "type": "object" },
        "execution": { "type": "builtin", "handler": "x" },
    });
    for (member, value) in change.as_object().unwrap() {
        manifest[member] = value.clone();
    }
    let manifest = Manifest::from_value(manifest).unwrap();
    Arc::new(ToolVersion::new(StoredVersion {
        tenant: TenantId::home(),
        tool: manifest.id().unwrap(),
        version: manifest.version.clone(),
        digest: manifest.digest(),
        lifecycle: Lifecycle::default(),
        published_at: UnixMillis(0),
        published_by: "admin".parse().unwrap(),
        manifest,
    }))
}

/// Health, and a clock that is moved by hand.
struct Watch {
    health: HealthMonitor,
    seconds: u64,
}

impl Watch {
    fn new() -> Self {
        Self { health: HealthMonitor::new(HealthSettings::default()), seconds: 100_000 }
    }

    fn now(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }

    fn wall(&self) -> UnixMillis {
        UnixMillis(i64::try_from(self.seconds).unwrap() * 1000)
    }

    /// Calls for so many quarters of a minute, and what was told meanwhile.
    fn minutes(
        &mut self,
        tool: &ToolVersion,
        quarters: u64,
        ending: impl Fn(u64) -> HealthOutcome,
        ms: u64,
    ) -> Vec<Alert> {
        let mut news = Vec::new();
        for _ in 0..quarters {
            self.seconds += 15;
            for number in 0..10 {
                self.health.note(self.now(), tool, ending(number), Duration::from_millis(ms));
            }
            news.extend(self.health.evaluate(self.now(), self.wall()));
        }
        news
    }

    fn report(&self, tool: &ToolVersion) -> Option<HealthReport> {
        self.health.of(self.now(), &VersionKey::of(tool))
    }
}

fn rules(alerts: &[Alert]) -> Vec<(AlertRule, bool)> {
    alerts.iter().map(|alert| (alert.rule, alert.resolved_at.is_some())).collect()
}

fn well(_: u64) -> HealthOutcome {
    HealthOutcome::Well
}

#[test]
fn a_tool_that_fails_is_told_of_once_and_again_when_it_is_well() {
    let (mut watch, tool) = (Watch::new(), version("abc", &json!({})));
    assert!(watch.report(&tool).is_none());
    assert_eq!(watch.minutes(&tool, 40, well, 5), []);
    assert_eq!(watch.report(&tool).unwrap().condition, HealthCondition::Healthy);
    let failing = |number| if number < 5 { HealthOutcome::Failed } else { HealthOutcome::Well };
    assert_eq!(rules(&watch.minutes(&tool, 120, failing, 5)), [(AlertRule::ToolDegraded, false)]);
    let report = watch.report(&tool).unwrap();
    assert!(report.condition == HealthCondition::Unhealthy && report.raised.len() == 1, "{report:?}");
    assert_eq!(rules(&watch.minutes(&tool, 120, well, 5)), [(AlertRule::ToolDegraded, true)]);
}

#[test]
fn a_slow_hour_after_quick_ones_is_a_regression() {
    let (mut watch, tool) = (Watch::new(), version("abc", &json!({})));
    assert_eq!(watch.minutes(&tool, 60 * 4, well, 100), []);
    let usual = watch.report(&tool).unwrap().baseline_p99_ms.unwrap();
    assert!((75.0..135.0).contains(&usual), "{usual}");
    let told = watch.minutes(&tool, 60 * 4, well, 600);
    assert_eq!(rules(&told), [(AlertRule::LatencyRegression, false)]);
    let reading = told[0].reading.unwrap();
    assert!(reading.value > reading.threshold, "{reading:?}");
    assert_eq!(rules(&watch.minutes(&tool, 60 * 2, well, 100)), [(AlertRule::LatencyRegression, true)]);
}

#[test]
fn a_quick_tool_that_takes_three_times_as_long_is_still_quick() {
    let (mut watch, tool) = (Watch::new(), version("abc", &json!({})));
    watch.minutes(&tool, 60 * 4, well, 1);
    assert_eq!(watch.minutes(&tool, 60 * 2, well, 5), []);
}

#[test]
fn a_tool_that_needs_more_time_than_it_declares_is_told_which_class_would_do() {
    let (mut watch, tool) = (Watch::new(), version("abc", &json!({ "timeout_class": "interactive" })));
    let slow = |number| if number == 0 { HealthOutcome::TimedOut } else { HealthOutcome::Well };
    let told = watch.minutes(&tool, 20, slow, 500);
    let mismatch = told.iter().find(|alert| alert.rule == AlertRule::TimeoutClassMismatch).unwrap();
    let change = Reclassify { from: TimeoutClass::Interactive, to: TimeoutClass::Standard };
    assert_eq!(mismatch.suggestion, Some(change));
    assert_eq!(watch.report(&tool).unwrap().suggestion, Some(change));
}

#[test]
fn the_manifest_has_the_last_word_about_its_thresholds() {
    let observability = json!({ "observability": { "alert_error_rate": 0.9, "baseline_p99_ms": 50 } });
    let (mut watch, tool) = (Watch::new(), version("abc", &observability));
    let failing = |number| if number < 5 { HealthOutcome::Failed } else { HealthOutcome::Well };
    assert_eq!(rules(&watch.minutes(&tool, 40, failing, 400)), [(AlertRule::LatencyRegression, false)]);
}

#[test]
fn the_manifest_says_how_many_of_its_calls_may_run_out_of_time() {
    let slow = |number| if number == 0 { HealthOutcome::TimedOut } else { HealthOutcome::Well };
    for (declared, told) in [(json!({}), true), (json!({ "observability": { "alert_timeout_rate": 0.5 } }), false)] {
        let (mut watch, tool) = (Watch::new(), version("abc", &declared));
        let alerts = watch.minutes(&tool, 20, slow, 500);
        let mismatch = alerts.iter().any(|alert| alert.rule == AlertRule::TimeoutClassMismatch);
        assert_eq!(mismatch, told, "{declared}");
    }
}

#[test]
fn a_broken_schema_is_told_at_once_and_few_calls_say_nothing_else() {
    let (mut watch, tool) = (Watch::new(), version("abc", &json!({})));
    watch.health.note(watch.now(), &tool, HealthOutcome::BrokeItsSchema, Duration::from_millis(1));
    let told = watch.health.evaluate(watch.now(), watch.wall());
    assert_eq!(rules(&told), [(AlertRule::OutputSchemaViolation, false)]);
    let mut news = Vec::new();
    for _ in 0..120 {
        watch.seconds += 15;
        news.extend(watch.health.evaluate(watch.now(), watch.wall()));
    }
    assert_eq!(rules(&news), [(AlertRule::OutputSchemaViolation, true)], "nobody calls it any more");
    assert_eq!(watch.report(&tool).unwrap().condition, HealthCondition::Unknown);
}

#[test]
fn an_answer_that_cannot_be_read_is_told_at_once_by_its_own_name() {
    let (watch, tool) = (Watch::new(), version("abc", &json!({})));
    let refusal = Refusal::new(ErrorCode::E3401, "not JSON").because(RefusalReason::UnreadableAnswer);
    let ending = ending_of_refused(&refusal, refusal.code).unwrap();
    assert_eq!(ending, HealthOutcome::Unreadable);
    watch.health.note(watch.now(), &tool, ending, Duration::from_millis(1));
    let told = watch.health.evaluate(watch.now(), watch.wall());
    assert_eq!(rules(&told), [(AlertRule::OutputCorruption, false)]);
    assert_eq!(told[0].rule.as_str(), "TOOL_OUTPUT_CORRUPTION");
    // A tool that only fails, and a caller that is refused, are not taken for it.
    let failed = Refusal::new(ErrorCode::E3401, "exit code 3").details(json!({ "exit_code": 3 }));
    assert_eq!(ending_of_refused(&failed, failed.code), Some(HealthOutcome::Failed));
    let denied = Refusal::new(ErrorCode::E3206, "no").because(RefusalReason::UnreadableAnswer);
    assert_eq!(ending_of_refused(&denied, denied.code), None);
}

#[test]
fn what_is_raised_and_what_is_usual_survive_a_restart() {
    let (mut watch, tool) = (Watch::new(), version("abc", &json!({})));
    watch.minutes(&tool, 60 * 4, well, 100);
    watch.minutes(&tool, 20, |_| HealthOutcome::Failed, 100);
    let kept = watch.health.to_keep(watch.now(), watch.wall());
    let mut again = Watch::new();
    again.seconds = 50;
    again.health.recall(kept.clone());
    assert_eq!(again.report(&tool).unwrap().raised, kept[0].raised);
    assert_eq!(again.report(&tool).unwrap().condition, HealthCondition::Unknown);
    let told = again.minutes(&tool, 60, well, 100);
    assert_eq!(rules(&told), [(AlertRule::ToolDegraded, true)], "resolved, not raised anew");
    assert!(again.report(&tool).unwrap().baseline_p99_ms.is_some());
}

#[test]
fn more_versions_than_are_watched_make_room_for_each_other() {
    let watch = Watch::new();
    let tool = version("abc", &json!({}));
    for number in 0..VERSIONS_MAX + 500 {
        let mut other = ToolVersion::with_lifecycle(&tool, Lifecycle::default());
        other.id = format!("tool_{number}").parse().unwrap();
        let now = watch.now() + Duration::from_millis(u64::try_from(number).unwrap());
        watch.health.note(now, &other, HealthOutcome::Well, Duration::ZERO);
    }
    let reports = watch.health.reports(watch.now() + Duration::from_secs(60), |_| true);
    assert!(reports.len() <= VERSIONS_MAX && reports.len() > VERSIONS_MAX / 2, "{}", reports.len());
    assert!(reports.iter().any(|report| report.key.tool.as_str() == format!("tool_{}", VERSIONS_MAX + 499)));
}

#[test]
fn what_the_caller_got_wrong_says_nothing_about_the_tool() {
    for code in [ErrorCode::E3301, ErrorCode::E3206, ErrorCode::E3703, ErrorCode::E3101, ErrorCode::E3410] {
        assert_eq!(ending_of(Some(code)), None, "{code}");
    }
    assert_eq!(ending_of(Some(ErrorCode::E3402)), Some(HealthOutcome::TimedOut));
    assert_eq!(ending_of(None), Some(HealthOutcome::Well));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn whatever_the_calls_each_alert_is_raised_and_resolved_in_turn(
        steps in prop::collection::vec((0_u8..4, 0_u64..12_000, 0_u64..400), 1..120),
    ) {
        let (mut watch, tool) = (Watch::new(), version("abc", &json!({})));
        let mut open: HashMap<AlertRule, bool> = HashMap::new();
        for (kind, ms, pause) in steps {
            watch.seconds += pause;
            let ending = [HealthOutcome::Well, HealthOutcome::Failed, HealthOutcome::TimedOut, HealthOutcome::BrokeItsSchema][usize::from(kind)];
            for alert in watch.minutes(&tool, 4, |_| ending, ms) {
                let raised = open.entry(alert.rule).or_default();
                prop_assert_eq!(*raised, alert.resolved_at.is_some());
                *raised = !*raised;
                prop_assert!(alert.resolved_at.is_none_or(|at| at >= alert.raised_at));
            }
            let score = watch.report(&tool).unwrap().score.unwrap();
            prop_assert!((-1e-9..=1.0).contains(&score));
        }
    }
}
