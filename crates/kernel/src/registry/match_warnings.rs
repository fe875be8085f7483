//! Warnings about calls that mean an old version: it is on its way out, or the constraint is so narrow that it misses a newer
//! one. (REG-008)
//!
//! Such calls come in thousands, so each (tenant, tool, constraint) is told once in an hour. At most [`REMEMBERED_MAX`] are
//! remembered; beyond that the warning is left out, because a log that is full of warnings warns of nothing.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use contract::ids::{TenantId, ToolId};
use contract::manifest::LifecycleState;
use contract::version::VersionSpec;

use super::{Registry, Tool, ToolVersion};
use crate::ports::clock::UnixMillis;

/// How often the same is told.
const TOLD_EVERY: Duration = Duration::from_secs(3_600);
/// Different warnings that are remembered at once.
const REMEMBERED_MAX: usize = 4_096;

/// What was told when.
#[derive(Debug, Default)]
pub(super) struct MatchWarnings(Mutex<HashMap<(TenantId, ToolId, String), UnixMillis>>);

impl MatchWarnings {
    /// Is it time to tell this?
    fn is_due(&self, tenant: &TenantId, tool: &ToolId, spec: &VersionSpec, now: UnixMillis) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tenant.clone(), tool.clone(), spec.to_string());
        if told.get(&key).is_some_and(|before| now.since(*before) < TOLD_EVERY) {
            return false;
        }
        if told.len() >= REMEMBERED_MAX {
            told.retain(|_, before| now.since(*before) < TOLD_EVERY);
        }
        if told.len() >= REMEMBERED_MAX {
            return false;
        }
        told.insert(key, now);
        true
    }
}

impl Registry {
    /// Warns of a match that somebody should look at. Costs nothing for calls that mean the newest version.
    pub(crate) fn warn_of_match(
        &self,
        tenant: &TenantId,
        tool: &Tool,
        spec: &VersionSpec,
        found: &ToolVersion,
        now: UnixMillis,
    ) {
        let state = found.lifecycle.state(now);
        let ends = matches!(state, LifecycleState::Deprecated | LifecycleState::Sunset);
        // A constraint that finds what LATEST finds narrows nothing yet.
        let newest = match spec {
            VersionSpec::Latest => None,
            _ => tool.resolve(&VersionSpec::Latest, now).ok().filter(|newest| newest.version > found.version),
        };
        if !(ends || newest.is_some()) || !self.warnings.is_due(tenant, &tool.id, spec, now) {
            return;
        }
        let (tool_name, version) = (&tool.id, &found.version);
        if ends {
            let removal_at = found.lifecycle.notice.as_ref().map(|notice| notice.removal_at.to_string());
            tracing::warn!(
                %tenant, %tool_name, %version, constraint = %spec, state = state.as_str(), removal_at,
                "a version that is on its way out is called"
            );
        }
        if let Some(newest) = newest {
            tracing::warn!(
                %tenant, %tool_name, %version, constraint = %spec, newest = %newest.version,
                "a narrow version constraint misses a newer version"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_warning_is_told_once_in_an_hour_and_never_without_bound() {
        let warnings = MatchWarnings::default();
        let (tenant, tool) = (TenantId::home(), "demo.old".parse().unwrap());
        let spec = |text: &str| VersionSpec::parse(text).unwrap();
        let start = UnixMillis(1_800_000_000_000);
        assert!(warnings.is_due(&tenant, &tool, &spec("1.0.0"), start));
        assert!(!warnings.is_due(&tenant, &tool, &spec("1.0.0"), start.plus(TOLD_EVERY / 2)));
        assert!(warnings.is_due(&tenant, &tool, &spec("^1.0.0"), start), "another constraint is another warning");
        assert!(warnings.is_due(&tenant, &tool, &spec("1.0.0"), start.plus(TOLD_EVERY)));
        for number in 0..REMEMBERED_MAX {
            warnings.is_due(&tenant, &tool, &spec(&format!("2.0.{number}")), start.plus(TOLD_EVERY));
        }
        assert!(!warnings.is_due(&tenant, &tool, &spec("3.0.0"), start.plus(TOLD_EVERY)), "no room");
        assert!(warnings.is_due(&tenant, &tool, &spec("3.0.0"), start.plus(TOLD_EVERY * 2)), "room again");
    }
}
