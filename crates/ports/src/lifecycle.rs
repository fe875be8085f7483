//! The life of a published version: active → deprecated → sunset → removed (REG-009, X-21).
//!
//! | state      | by exact pin | by range | as LATEST           | in search |
//! |------------|--------------|----------|---------------------|-----------|
//! | active     | yes          | yes      | yes                 | yes       |
//! | deprecated | with notice  | with notice | only if none is active | yes  |
//! | sunset     | with notice  | no       | no                  | no        |
//! | removed    | E3104        | no       | no                  | no        |
//!
//! Each state comes by itself when its date has come: a version that was announced to be deprecated is deprecated then, is
//! sunset after that and removed in the end (REG-007). So the state in force is a function of the record and the time, the
//! same on every instance, and nobody has to sweep.
//! Pure: (record, action, now) → record or reason.

use std::time::Duration;

use contract::manifest::{LifecycleState, Manifest};
use contract::version::VersionAvailability;

use crate::clock::UnixMillis;

/// From deprecation to sunset (REG-010).
const SUNSET_AFTER: Duration = Duration::from_secs(90 * 86_400);
/// From deprecation to the earliest removal: another 90 days in which exact pins are still served.
const REMOVAL_AFTER: Duration = Duration::from_secs(180 * 86_400);

/// What a version's users should know about its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifecycleNotice {
    pub deprecated_at: UnixMillis,
    pub sunset_at: UnixMillis,
    pub removal_at: UnixMillis,
    /// Tool id of what to use instead.
    pub successor: Option<String>,
    pub migration_guide: Option<String>,
}

/// The recorded life of one version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lifecycle {
    /// The state somebody set. [`Lifecycle::state`] is what is in force.
    pub recorded: LifecycleState,
    /// There from deprecation on.
    pub notice: Option<LifecycleNotice>,
}

/// What somebody wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleAction {
    Deprecate { successor: Option<String>, migration_guide: Option<String> },
    Sunset,
    Restore,
    Remove,
}

impl LifecycleAction {
    /// The word for messages and records.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Deprecate { .. } => "deprecate",
            Self::Sunset => "sunset",
            Self::Restore => "restore",
            Self::Remove => "remove",
        }
    }
}

/// Why an action does not fit the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a version that is {} cannot be {}", state.as_str(), participle)]
pub struct TransitionError {
    pub state: LifecycleState,
    participle: &'static str,
}

impl Lifecycle {
    /// The state in force at `now`.
    pub fn state(&self, now: UnixMillis) -> LifecycleState {
        use LifecycleState::{Active, Deprecated, Removed, Sunset};
        match (self.recorded, &self.notice) {
            (Deprecated | Sunset, Some(notice)) if notice.removal_at <= now => Removed,
            (Deprecated, Some(notice)) if notice.sunset_at <= now => Sunset,
            // Announced, and not there yet.
            (Deprecated, Some(notice)) if notice.deprecated_at > now => Active,
            (state, _) => state,
        }
    }

    /// Does time alone change the state some day?
    pub fn changes_with_time(&self) -> bool {
        matches!(self.recorded, LifecycleState::Deprecated | LifecycleState::Sunset) && self.notice.is_some()
    }

    /// The life of a version whose manifest says when it ends; `None`: it says nothing of an end.
    ///
    /// `deprecation_date` begins the notice, `sunset_date` ends the time in which ranges find the version. One that is
    /// not given follows from the other: a version whose sunset is known is deprecated from its publication on.
    pub fn declared(manifest: &Manifest, now: UnixMillis) -> Option<Self> {
        let date = |text: &Option<String>| text.as_deref().and_then(midnight);
        let (deprecation, sunset) = (date(&manifest.deprecation_date), date(&manifest.sunset_date));
        let says_so = manifest.lifecycle_state == Some(LifecycleState::Deprecated);
        if !says_so && deprecation.is_none() && sunset.is_none() {
            return None;
        }
        let deprecated_at = deprecation.unwrap_or(now);
        let usual = LifecycleNotice::starting(
            deprecated_at,
            manifest.replacement_tool_id.clone(),
            manifest.migration_guide_url.clone(),
        );
        let notice = match sunset {
            None => usual,
            Some(sunset_at) => {
                LifecycleNotice { sunset_at, removal_at: sunset_at.plus(REMOVAL_AFTER - SUNSET_AFTER), ..usual }
            }
        };
        Some(Self { recorded: LifecycleState::Deprecated, notice: Some(notice) })
    }

    /// The state in the terms of version resolution.
    pub fn availability(&self, now: UnixMillis) -> VersionAvailability {
        match self.state(now) {
            LifecycleState::Active => VersionAvailability::Active,
            LifecycleState::Deprecated => VersionAvailability::Deprecated,
            LifecycleState::Sunset => VersionAvailability::Sunset,
            LifecycleState::Removed => VersionAvailability::Removed,
        }
    }

    /// The record after `action`. An action that changes nothing gives the same record, so that repeating is harmless.
    pub fn apply(&self, action: &LifecycleAction, now: UnixMillis) -> Result<Self, TransitionError> {
        use LifecycleState::{Active, Deprecated, Removed, Sunset};
        let state = self.state(now);
        let refused = |participle| Err(TransitionError { state, participle });
        match (action, state) {
            // One that was announced for later begins now.
            (LifecycleAction::Deprecate { successor, migration_guide }, Active) => Ok(Self {
                recorded: Deprecated,
                notice: Some(LifecycleNotice::starting(now, successor.clone(), migration_guide.clone())),
            }),
            // Deprecating again may add or correct the advice, but never moves the dates.
            (LifecycleAction::Deprecate { successor, migration_guide }, Deprecated) => Ok(Self {
                recorded: Deprecated,
                notice: self.notice.clone().map(|notice| LifecycleNotice {
                    successor: successor.clone().or(notice.successor),
                    migration_guide: migration_guide.clone().or(notice.migration_guide),
                    ..notice
                }),
            }),
            (LifecycleAction::Deprecate { .. }, Sunset | Removed) => refused("deprecated"),
            (LifecycleAction::Sunset, Active | Deprecated) => {
                let notice = self.notice.clone().unwrap_or_else(|| LifecycleNotice::starting(now, None, None));
                let (deprecated_at, sunset_at) = (notice.deprecated_at.min(now), notice.sunset_at.min(now));
                Ok(Self { recorded: Sunset, notice: Some(LifecycleNotice { deprecated_at, sunset_at, ..notice }) })
            }
            // An end that was announced is called off, too.
            (LifecycleAction::Restore, Active | Deprecated | Sunset) => Ok(Self::default()),
            (LifecycleAction::Remove, Active | Deprecated | Sunset) => {
                Ok(Self { recorded: Removed, notice: self.notice.clone() })
            }
            (LifecycleAction::Sunset, Sunset) => Ok(self.clone()),
            // By its date or by somebody: recorded from now on.
            (LifecycleAction::Remove, Removed) => Ok(Self { recorded: Removed, notice: self.notice.clone() }),
            // history stays, but what was removed does not come back under the same version.
            (LifecycleAction::Sunset, Removed) => refused("sunset"),
            (LifecycleAction::Restore, Removed) => refused("restored"),
        }
    }
}

/// The beginning of a day that is written as a manifest writes it, in UTC.
pub fn midnight(date: &str) -> Option<UnixMillis> {
    let date: jiff::civil::Date = date.parse().ok()?;
    let start = date.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(UnixMillis(start.timestamp().as_millisecond()))
}

impl LifecycleNotice {
    /// The notice of a deprecation that begins now.
    pub fn starting(now: UnixMillis, successor: Option<String>, migration_guide: Option<String>) -> Self {
        Self {
            deprecated_at: now,
            sunset_at: now.plus(SUNSET_AFTER),
            removal_at: now.plus(REMOVAL_AFTER),
            successor,
            migration_guide,
        }
    }

    /// As callers see it.
    pub fn on_the_wire(&self) -> contract::envelope::DeprecationNotice {
        contract::envelope::DeprecationNotice {
            deprecated_at: self.deprecated_at.to_string(),
            sunset_at: self.sunset_at.to_string(),
            removal_at: self.removal_at.to_string(),
            successor: self.successor.clone(),
            migration_guide: self.migration_guide.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixMillis = UnixMillis(1_800_000_000_000);

    fn deprecate() -> LifecycleAction {
        LifecycleAction::Deprecate { successor: None, migration_guide: None }
    }

    #[test]
    fn a_deprecated_version_becomes_sunset_when_its_date_has_passed() {
        let life = Lifecycle::default().apply(&deprecate(), NOW).unwrap();
        assert_eq!(life.state(NOW), LifecycleState::Deprecated);
        assert_eq!(life.state(NOW.plus(SUNSET_AFTER)), LifecycleState::Sunset);
    }

    #[test]
    fn a_version_is_removed_when_its_last_date_has_passed_whoever_recorded_what() {
        let deprecated = Lifecycle::default().apply(&deprecate(), NOW).unwrap();
        let sunset = deprecated.apply(&LifecycleAction::Sunset, NOW).unwrap();
        for life in [deprecated, sunset] {
            let end = NOW.plus(REMOVAL_AFTER);
            assert_eq!(life.state(UnixMillis(end.0 - 1)), LifecycleState::Sunset);
            assert_eq!(life.state(end), LifecycleState::Removed);
            assert!(life.apply(&LifecycleAction::Restore, end).is_err(), "what is removed does not come back");
            let swept = life.apply(&LifecycleAction::Remove, end).unwrap();
            assert_eq!((swept.recorded, swept.notice), (LifecycleState::Removed, life.notice));
        }
    }

    fn manifest(change: &serde_json::Value) -> Manifest {
        let mut manifest = serde_json::json!({
            "tool_id": "ending", "version": "1.0.0", "name": "Ending", "description": "A tool that will end one day.",
            "provider": "Test", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
            "parameters": { "type": "object" }, "result_schema": {},
        });
        for (member, value) in change.as_object().unwrap() {
            manifest[member] = value.clone();
        }
        Manifest::from_value(manifest).unwrap()
    }

    #[test]
    fn the_dates_of_a_manifest_are_the_dates_of_its_life() {
        use LifecycleState::{Active, Deprecated, Removed, Sunset};
        assert_eq!(Lifecycle::declared(&manifest(&serde_json::json!({})), NOW), None);
        let dates = serde_json::json!({ "deprecation_date": "2030-01-01", "sunset_date": "2030-02-01",
            "replacement_tool_id": "demo.new" });
        let life = Lifecycle::declared(&manifest(&dates), NOW).unwrap();
        let at = |date: &str| life.state(midnight(date).unwrap());
        let states = ["2029-12-31", "2030-01-01", "2030-01-31", "2030-02-01", "2030-05-01", "2030-05-02"].map(at);
        assert_eq!(states, [Active, Deprecated, Deprecated, Sunset, Sunset, Removed]);
        assert_eq!(life.notice.as_ref().unwrap().successor.as_deref(), Some("demo.new"));
        assert_eq!(life.apply(&LifecycleAction::Restore, NOW), Ok(Lifecycle::default()), "called off");
        let known_end =
            Lifecycle::declared(&manifest(&serde_json::json!({ "sunset_date": "2030-02-01" })), NOW).unwrap();
        assert_eq!(known_end.state(NOW), Deprecated, "users are told from the beginning");
    }

    #[test]
    fn every_action_in_every_state_either_changes_keeps_or_refuses() {
        use LifecycleState::{Active, Deprecated, Removed, Sunset};
        let actions = [deprecate(), LifecycleAction::Sunset, LifecycleAction::Restore, LifecycleAction::Remove];
        let expected = [
            (Active, [Some(Deprecated), Some(Sunset), Some(Active), Some(Removed)]),
            (Deprecated, [Some(Deprecated), Some(Sunset), Some(Active), Some(Removed)]),
            (Sunset, [None, Some(Sunset), Some(Active), Some(Removed)]),
            (Removed, [None, None, None, Some(Removed)]),
        ];
        for (start, outcomes) in expected {
            let record = Lifecycle {
                recorded: start,
                notice: (start != Active).then(|| LifecycleNotice::starting(NOW, None, None)),
            };
            for (action, outcome) in actions.iter().zip(outcomes) {
                let got = record.apply(action, NOW).ok().map(|life| life.state(NOW));
                assert_eq!(got, outcome, "{} from {start:?}", action.verb());
            }
        }
    }

    #[test]
    fn deprecating_again_corrects_the_advice_but_never_moves_the_dates() {
        let first = Lifecycle::default().apply(&deprecate(), NOW).unwrap();
        let later = NOW.plus(Duration::from_secs(86_400));
        let again = LifecycleAction::Deprecate { successor: Some("new_tool".into()), migration_guide: None };
        let second = first.apply(&again, later).unwrap();
        let (first, second) = (first.notice.unwrap(), second.notice.unwrap());
        assert_eq!(second.sunset_at, first.sunset_at);
        assert_eq!(second.successor.as_deref(), Some("new_tool"));
    }
}
