//! Versions on their way out: who still uses them, and what is to be told about that. (REG-012, REG-013, OBS-011)
//!
//! Once a day each version that is deprecated or past its sunset is looked at:
//!
//! | what is seen | what is told |
//! |---|---|
//! | calls in the last 24 hours, and the date of removal is over | `DEPRECATION_REMOVAL_BLOCKED` |
//! | calls in the last seven days | `DEPRECATION_MIGRATION_PROGRESS`, with their number |
//! | none for seven days | `DEPRECATION_MIGRATION_COMPLETE`, once |
//!
//! Calls are counted by this instance since it was started. Silence is believed only if it was listened to for the whole
//! time, so after a restart nothing is called complete for a week.
//!
//! Invariants
//! - PART-1: nothing is removed here. Taking a version away from somebody who was not heard, because another instance serves
//!   them, cannot be taken back; a person removes it, and is told when that hurts nobody.
//! - PART-2: at most [`WATCHED_MAX`] versions are counted. Of one that is not, nothing is told.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::event_name::EventName;
use contract::manifest::LifecycleState;
use serde_json::json;

use super::{Happening, Insights};
use crate::health::VersionKey;
use crate::invoke::Kernel;
use crate::ports::clock::UnixMillis;
use crate::registry::{Notice, Snapshot, ToolVersion};

/// How often it is told.
pub const REPORT_EVERY: Duration = Duration::from_secs(24 * 3600);
/// For how long a version must not have been used before everybody has left it, and before it may be removed.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Calls are counted by the hour.
const HOUR_MS: i64 = 3_600_000;
const HOURS_KEPT: i64 = 7 * 24;
/// Versions whose use is counted.
const WATCHED_MAX: usize = 4_096;

/// Counts calls of versions that are on their way out.
#[derive(Debug)]
pub(super) struct Parting {
    since: UnixMillis,
    used: Mutex<HashMap<VersionKey, Used>>,
}

#[derive(Debug, Default)]
struct Used {
    /// Calls by the hour, the oldest first.
    hours: VecDeque<(i64, u64)>,
    /// It was said that everybody has left.
    told_complete: bool,
}

impl Used {
    fn since(&self, from: UnixMillis) -> u64 {
        // The hour in which it begins counts as a whole: better a call too many than one too few.
        let first = from.0.div_euclid(HOUR_MS);
        self.hours.iter().filter(|(hour, _)| *hour >= first).fold(0, |sum, (_, calls)| sum.saturating_add(*calls))
    }
}

impl Parting {
    pub(super) fn since(now: UnixMillis) -> Self {
        Self { since: now, used: Mutex::default() }
    }

    /// Counts a call, if its version is on its way out.
    pub(super) fn note(&self, tool: &ToolVersion, now: UnixMillis) {
        if tool.lifecycle.notice.is_none() {
            return;
        }
        let (key, hour) = (VersionKey::of(tool), now.0.div_euclid(HOUR_MS));
        let mut used = self.used();
        if used.len() >= WATCHED_MAX && !used.contains_key(&key) {
            return;
        }
        let used = used.entry(key).or_default();
        used.told_complete = false;
        match used.hours.back_mut() {
            // A clock that was set back counts on in the newest hour.
            Some((newest, calls)) if *newest >= hour => *calls = calls.saturating_add(1),
            _ => used.hours.push_back((hour, 1)),
        }
        while used.hours.front().is_some_and(|(oldest, _)| hour - oldest > HOURS_KEPT) {
            used.hours.pop_front();
        }
    }

    /// What is to be told of every version that is on its way out.
    fn report(&self, registry: &Snapshot, now: UnixMillis) -> Vec<Happening> {
        let leaving = registry.tools().flat_map(|tool| tool.versions()).filter_map(|version| {
            let state = version.lifecycle.state(now);
            let leaving = matches!(state, LifecycleState::Deprecated | LifecycleState::Sunset);
            version.lifecycle.notice.as_ref().filter(|_| leaving).map(|notice| (version, notice))
        });
        let mut used = self.used();
        let mut news = Vec::new();
        for (version, notice) in leaving {
            let key = VersionKey::of(version);
            if used.len() >= WATCHED_MAX && !used.contains_key(&key) {
                continue;
            }
            let seen = used.entry(key).or_default();
            let (today, week) = (seen.since(before(now, DAY)), seen.since(before(now, WEEK)));
            let Some(name) = judged(notice, (self.since, now), today, week) else { continue };
            let complete = name == EventName::DeprecationMigrationComplete;
            if complete && std::mem::replace(&mut seen.told_complete, true) {
                continue;
            }
            let data =
                json!({ "calls": week, "removal_at": notice.removal_at.to_string(), "successor": notice.successor });
            news.push(Happening::about(version, name, now, data));
        }
        news
    }

    fn used(&self) -> MutexGuard<'_, HashMap<VersionKey, Used>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn before(now: UnixMillis, span: Duration) -> UnixMillis {
    UnixMillis(now.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
}

/// What is to be said of a version with so many calls in the last 24 hours and in the last week.
fn judged(notice: &Notice, (since, now): (UnixMillis, UnixMillis), today: u64, week: u64) -> Option<EventName> {
    if today > 0 && notice.removal_at <= now {
        return Some(EventName::DeprecationRemovalBlocked);
    }
    if week > 0 {
        return Some(EventName::DeprecationMigrationProgress);
    }
    // Silence before it was deprecated says nothing, nor silence nobody listened to.
    let heard = now.since(since.max(notice.deprecated_at));
    (heard >= WEEK).then_some(EventName::DeprecationMigrationComplete)
}

impl Insights {
    /// Tells how far users of versions on their way out have come.
    async fn report_parting(&self, registry: &Snapshot) {
        for happening in self.parting.report(registry, self.parts.clock.now()) {
            self.happened(happening).await;
        }
    }
}

impl Kernel {
    /// Tells once a day how far users of deprecated versions have come. Goes on until it is dropped.
    pub async fn keep_reporting_deprecations(&self) {
        let Some(insights) = &self.insights else { return };
        loop {
            self.clock().sleep(REPORT_EVERY).await;
            let registry = self.registry().snapshot().clone();
            insights.report_parting(&registry).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::tests::version;
    use crate::registry::{Lifecycle, LifecycleAction};
    use std::sync::Arc;

    const BEGIN: UnixMillis = UnixMillis(1_800_000_000_000);

    fn day(number: u64) -> UnixMillis {
        BEGIN.plus(DAY * u32::try_from(number).unwrap())
    }

    /// A registry with one version that was deprecated at the beginning, and the version.
    fn stage() -> (Snapshot, Arc<ToolVersion>) {
        let active = version("leaving", &json!({}));
        let action = LifecycleAction::Deprecate { successor: Some("demo.new".into()), migration_guide: None };
        let lifecycle = Lifecycle::default().apply(&action, BEGIN).unwrap();
        let leaving = Arc::new(active.with_lifecycle(lifecycle));
        let fresh = version("active", &json!({}));
        (Snapshot::default().with(Arc::clone(&leaving)).with(fresh), leaving)
    }

    fn names(news: &[Happening]) -> Vec<&'static str> {
        news.iter().map(|happening| happening.name.as_str()).collect()
    }

    #[test]
    fn use_is_told_daily_and_its_end_once() {
        let (registry, leaving) = stage();
        let parting = Parting::since(BEGIN);
        parting.note(&leaving, BEGIN);
        parting.note(&leaving, day(1));
        let news = parting.report(&registry, day(2));
        assert_eq!(names(&news), ["DEPRECATION_MIGRATION_PROGRESS"]);
        assert_eq!((&news[0].data["calls"], &news[0].data["successor"]), (&json!(2), &json!("demo.new")));
        assert_eq!(names(&parting.report(&registry, day(8))), ["DEPRECATION_MIGRATION_PROGRESS"]);
        assert_eq!(names(&parting.report(&registry, day(9))), ["DEPRECATION_MIGRATION_COMPLETE"]);
        assert!(parting.report(&registry, day(10)).is_empty(), "once is enough");
        parting.note(&leaving, day(11));
        assert_eq!(names(&parting.report(&registry, day(11))), ["DEPRECATION_MIGRATION_PROGRESS"]);
        assert_eq!(names(&parting.report(&registry, day(30))), ["DEPRECATION_MIGRATION_COMPLETE"], "and again");
    }

    #[test]
    fn silence_is_believed_only_if_it_was_listened_to() {
        let (registry, _) = stage();
        let parting = Parting::since(day(20));
        assert!(parting.report(&registry, day(22)).is_empty());
        assert_eq!(names(&parting.report(&registry, day(27))), ["DEPRECATION_MIGRATION_COMPLETE"]);
    }

    #[test]
    fn past_its_date_a_version_in_use_is_in_the_way() {
        let (registry, leaving) = stage();
        let parting = Parting::since(day(170));
        parting.note(&leaving, day(181));
        assert_eq!(names(&parting.report(&registry, day(181))), ["DEPRECATION_REMOVAL_BLOCKED"]);
        assert_eq!(names(&parting.report(&registry, day(184))), ["DEPRECATION_MIGRATION_PROGRESS"]);
    }

    #[test]
    fn versions_that_stay_are_not_counted() {
        let parting = Parting::since(BEGIN);
        parting.note(&version("active", &json!({})), BEGIN);
        assert!(parting.used().is_empty());
    }
}
