//! Versions on their way out: who still uses them, and what is to be told about that. (REG-012, REG-013, OBS-011)
//!
//! Once a day each version that is deprecated or past its sunset is looked at, by one of the instances:
//!
//! | what is seen | what is told |
//! |---|---|
//! | calls in the last 24 hours, and its users will be refused before the next look | `DEPRECATION_REMOVAL_BLOCKED` |
//! | calls in the last seven days | `DEPRECATION_MIGRATION_PROGRESS`, with their number |
//! | none for seven days | `DEPRECATION_MIGRATION_COMPLETE`, once |
//! | the date of removal has passed | `TOOL_VERSION_REMOVED`, once, and the removal is recorded |
//!
//! Each instance adds its calls to the store every few seconds, so that the numbers are those of all of them, and those of
//! before a restart. Silence is believed only if the store has counted for the whole time.
//!
//! Invariants
//! - PART-1: a version is removed by its date, which its users have been told with every call (decision 0052). Whoever wants
//!   to give them more time restores the version before that.
//! - PART-2: between two writes at most [`PENDING_MAX`] hours of versions are counted. Beyond that the newest are left out.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use base::{MutexExt as _, SaturatingFrom as _};
use contract::event_name::EventName;
use contract::ids::ToolId;
use contract::manifest::LifecycleState;
use contract::version::Version;
use ports::actor::Actor;
use ports::clock::UnixMillis;
use ports::event_announcer::VersionEvent;
use ports::lifecycle::LifecycleNotice;
use ports::registry_store::StoreError;
use ports::tool_version::{ToolVersion, VersionKey};
use ports::version_use::{Hour, HourOfUse, VersionUse};
use serde_json::json;

use ports::call_insights::CallInsights as _;

use crate::queries::InsightQueries;
use crate::service::Insights;
use contract::error::Refusal;
use kernel::registry::RegistrySnapshot;
use policy::Action;

/// How often it is told.
pub const REPORT_EVERY: Duration = Duration::from_secs(24 * 3600);
/// How often an instance asks whether it is time to tell.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// For how long a version must not have been used before everybody has left it.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// For how long calls are kept: what is told now is compared with what was told last.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Hours of versions that wait to be written.
const PENDING_MAX: usize = 4_096;

/// Counts calls of versions that are on their way out, until they are written.
#[derive(Debug, Default)]
pub(crate) struct DeprecatedUse {
    pending: Mutex<HashMap<(VersionKey, Hour), u64>>,
}

/// How often one version that ends was called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndingVersion {
    pub version: Version,
    pub state: LifecycleState,
    pub notice: LifecycleNotice,
    pub calls_last_day: u64,
    pub calls_last_week: u64,
    /// Since when its calls are counted.
    pub counted_since: UnixMillis,
}

impl DeprecatedUse {
    /// Counts a call, if its version is on its way out.
    pub(crate) fn note(&self, tool: &ToolVersion, now: UnixMillis) {
        if tool.lifecycle.notice.is_none() {
            return;
        }
        let key = (VersionKey::of(tool), Hour::of(now));
        let mut pending = self.pending.lock_unpoisoned();
        if pending.len() < PENDING_MAX || pending.contains_key(&key) {
            let calls = pending.entry(key).or_default();
            *calls = calls.saturating_add(1);
        }
    }

    /// Takes out what is to be written.
    fn drain(&self) -> Vec<HourOfUse> {
        let mut pending = self.pending.lock_unpoisoned();
        pending.drain().map(|((version, hour), calls)| HourOfUse { version, hour, calls }).collect()
    }

    /// Puts back what could not be written.
    fn put_back(&self, hours: Vec<HourOfUse>) {
        let mut pending = self.pending.lock_unpoisoned();
        for HourOfUse { version, hour, calls } in hours {
            let sum = pending.entry((version, hour)).or_default();
            *sum = sum.saturating_add(calls);
        }
    }
}

/// Calls of one version from this time on.
fn calls_since(counted: &VersionUse, version: &VersionKey, from: UnixMillis, to: UnixMillis) -> u64 {
    // The hour in which it begins counts as a whole: better a call too many than one too few.
    let (first, last) = (Hour::of(from), Hour::of(to));
    let hours = counted.hours.iter().filter(|used| used.version == *version && (first..=last).contains(&used.hour));
    hours.fold(0, |sum, used| sum.saturating_add(used.calls))
}

fn before(now: UnixMillis, span: Duration) -> UnixMillis {
    UnixMillis(now.0.saturating_sub(i64::saturating_from(span.as_millis())))
}

/// What is to be told of every version that is on its way out; `told` is when it was told last.
fn report(registry: &RegistrySnapshot, counted: &VersionUse, told: UnixMillis, now: UnixMillis) -> Vec<VersionEvent> {
    let leaving = registry.tools().flat_map(|tool| tool.versions()).filter_map(|version| {
        let state = version.lifecycle.state(now);
        let leaving = matches!(state, LifecycleState::Deprecated | LifecycleState::Sunset);
        version.lifecycle.notice.as_ref().filter(|_| leaving).map(|notice| (version, notice))
    });
    let mut news = Vec::new();
    for (version, notice) in leaving {
        let key = VersionKey::of(version);
        let Some(name) = judged(notice, counted, &key, now) else { continue };
        let complete = EventName::DeprecationMigrationComplete;
        // What was true at the last look was told then.
        if name == complete && told > UnixMillis(0) && judged(notice, counted, &key, told) == Some(complete) {
            continue;
        }
        let calls = calls_since(counted, &key, before(now, WEEK), now);
        let data =
            json!({ "calls": calls, "removal_at": notice.removal_at.to_string(), "successor": notice.successor });
        news.push(VersionEvent::about(version, name, now, data));
    }
    news
}

/// What is to be said of a version at some time.
fn judged(notice: &LifecycleNotice, counted: &VersionUse, version: &VersionKey, at: UnixMillis) -> Option<EventName> {
    let calls = |span: Duration| calls_since(counted, version, before(at, span), at);
    if calls(DAY) > 0 && notice.removal_at <= at.plus(REPORT_EVERY) {
        return Some(EventName::DeprecationRemovalBlocked);
    }
    if calls(WEEK) > 0 {
        return Some(EventName::DeprecationMigrationProgress);
    }
    // Silence before it was deprecated says nothing, nor silence nobody listened to.
    let heard = at.since(counted.since.max(notice.deprecated_at));
    (heard >= WEEK).then_some(EventName::DeprecationMigrationComplete)
}

impl Insights {
    /// Adds what was counted here to what all instances have counted.
    pub(crate) async fn flush_deprecated_use(&self) -> Result<(), StoreError> {
        let hours = self.deprecated_use.drain();
        if hours.is_empty() {
            return Ok(());
        }
        let written = self.parts.version_use.add_version_use(&hours).await;
        if written.is_err() {
            self.deprecated_use.put_back(hours);
        }
        written
    }

    /// Tells how far users of versions on their way out have come, if nobody else has.
    async fn report_deprecated_use(&self, registry: &RegistrySnapshot) -> Result<bool, StoreError> {
        self.flush_deprecated_use().await?;
        let now = self.parts.clock.now();
        let Some(told) = self.parts.version_use.begin_use_report(now, REPORT_EVERY).await? else { return Ok(false) };
        let oldest = Hour::of(before(now, KEPT));
        let counted = self.parts.version_use.version_use(oldest).await?;
        for happening in report(registry, &counted, told, now) {
            self.happened(happening).await;
        }
        self.parts.version_use.forget_version_use(oldest).await?;
        Ok(true)
    }
}

impl InsightQueries {
    /// Tells once a day how far users of deprecated versions have come. Goes on until it is dropped.
    pub async fn keep_reporting_deprecations(&self) {
        loop {
            self.kernel.clock().sleep(LOOK_EVERY).await;
            let registry = self.kernel.registry().snapshot().clone();
            match self.insights.report_deprecated_use(&registry).await {
                Ok(false) => {}
                Ok(true) => self.kernel.record_removals().await,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the use of deprecated versions was not told"
                    );
                }
            }
        }
    }

    /// How often the versions of a tool that end are still called, on all instances, newest version first (ANALYT-001).
    pub async fn ending_versions(&self, actor: Actor<'_>, name: &str) -> Result<(ToolId, Vec<EndingVersion>), Refusal> {
        let tool = self.kernel.tool(actor, name).await?;
        let caller = self.kernel.permitted(actor, Action::SeeUsage).await?;
        // A shared tool is called by every tenant, and how often is for its owner.
        if tool.tenant != *caller.tenant() {
            self.kernel.of_the_installation(actor, &caller).await?;
        }
        let insights = &self.insights;
        insights.flush_deprecated_use().await.map_err(|error| error.refusal())?;
        let now = self.kernel.clock().now();
        let from = Hour::of(before(now, WEEK));
        let counted = insights.parts.version_use.version_use(from).await.map_err(|error| error.refusal())?;
        let ending = tool.versions().iter().rev().filter_map(|version| {
            let notice = version.lifecycle.notice.clone()?;
            let key = VersionKey::of(version);
            Some(EndingVersion {
                version: version.version.clone(),
                state: version.lifecycle.state(now),
                calls_last_day: calls_since(&counted, &key, before(now, DAY), now),
                calls_last_week: calls_since(&counted, &key, before(now, WEEK), now),
                counted_since: counted.since.max(notice.deprecated_at),
                notice,
            })
        });
        Ok((tool.id.clone(), ending.collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::tests::version;
    use ports::lifecycle::{Lifecycle, LifecycleAction};
    use std::sync::Arc;

    const BEGIN: UnixMillis = UnixMillis(1_800_000_000_000);

    fn day(number: u64) -> UnixMillis {
        BEGIN.plus(DAY * u32::try_from(number).unwrap())
    }

    /// A registry with one version that was deprecated at the beginning, and the version.
    fn stage() -> (RegistrySnapshot, Arc<ToolVersion>) {
        let active = version("leaving", &json!({}));
        let action = LifecycleAction::Deprecate { successor: Some("demo.new".into()), migration_guide: None };
        let lifecycle = Lifecycle::default().apply(&action, BEGIN).unwrap();
        let leaving = Arc::new(active.with_lifecycle(lifecycle));
        let fresh = version("active", &json!({}));
        (RegistrySnapshot::default().with(Arc::clone(&leaving)).with(fresh), leaving)
    }

    fn counted(since: UnixMillis, version: &ToolVersion, calls: &[UnixMillis]) -> VersionUse {
        let used = |at: &UnixMillis| HourOfUse { version: VersionKey::of(version), hour: Hour::of(*at), calls: 1 };
        VersionUse { since, hours: calls.iter().map(used).collect() }
    }

    fn names(news: &[VersionEvent]) -> Vec<&'static str> {
        news.iter().map(|happening| happening.name.as_str()).collect()
    }

    #[test]
    fn use_is_told_daily_and_its_end_once() {
        let (registry, leaving) = stage();
        let told = |calls: &[UnixMillis], last: u64, now: u64| {
            report(&registry, &counted(BEGIN, &leaving, calls), day(last), day(now))
        };
        let two = [BEGIN, day(1)];
        let news = told(&two, 1, 2);
        assert_eq!(names(&news), ["DEPRECATION_MIGRATION_PROGRESS"]);
        assert_eq!((&news[0].data["calls"], &news[0].data["successor"]), (&json!(2), &json!("demo.new")));
        assert_eq!(names(&told(&two, 7, 8)), ["DEPRECATION_MIGRATION_PROGRESS"]);
        assert_eq!(names(&told(&two, 8, 9)), ["DEPRECATION_MIGRATION_COMPLETE"]);
        assert!(told(&two, 9, 10).is_empty(), "once is enough, whichever instance told it");
        let three = [BEGIN, day(1), day(11)];
        assert_eq!(names(&told(&three, 10, 11)), ["DEPRECATION_MIGRATION_PROGRESS"]);
        assert_eq!(names(&told(&three, 18, 30)), ["DEPRECATION_MIGRATION_COMPLETE"], "and again");
    }

    #[test]
    fn silence_is_believed_only_if_it_was_listened_to() {
        let (registry, leaving) = stage();
        let silence = counted(day(20), &leaving, &[]);
        assert!(report(&registry, &silence, day(21), day(22)).is_empty());
        assert_eq!(names(&report(&registry, &silence, day(26), day(27))), ["DEPRECATION_MIGRATION_COMPLETE"]);
    }

    #[test]
    fn a_version_in_use_on_its_last_day_is_told_of_and_afterwards_it_is_gone() {
        let (registry, leaving) = stage();
        let used = counted(BEGIN, &leaving, &[day(178), day(179)]);
        assert_eq!(names(&report(&registry, &used, day(177), day(178))), ["DEPRECATION_MIGRATION_PROGRESS"]);
        assert_eq!(names(&report(&registry, &used, day(178), day(179))), ["DEPRECATION_REMOVAL_BLOCKED"]);
        assert!(report(&registry, &used, day(179), day(180)).is_empty(), "it is removed by then");
    }

    #[test]
    fn versions_that_stay_are_not_counted_and_what_was_not_written_is_not_lost() {
        let (_, leaving) = stage();
        let deprecated_use = DeprecatedUse::default();
        deprecated_use.note(&version("active", &json!({})), BEGIN);
        assert!(deprecated_use.drain().is_empty());
        deprecated_use.note(&leaving, BEGIN);
        let drained = deprecated_use.drain();
        deprecated_use.note(&leaving, BEGIN);
        deprecated_use.put_back(drained);
        assert_eq!(deprecated_use.drain().iter().map(|used| used.calls).collect::<Vec<_>>(), [2]);
        assert!(deprecated_use.drain().is_empty());
    }
}
