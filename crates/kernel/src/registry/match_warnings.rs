//! Warnings about calls that mean an old version: it is on its way out, or the constraint is so narrow that it misses a newer
//! one. (REG-008)
//!
//! Such calls come in thousands, so each (tenant, tool, version found) is told once in an hour, with the constraint of the call
//! that came first: what a caller writes as a constraint is its own choice, and without end. At most [`REMEMBERED_MAX`] are
//! remembered of each tenant, and of [`TENANTS_MAX`] tenants; beyond that the warning is left out, because a log that is full of
//! warnings warns of nothing. No tenant takes another's room.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use base::MutexExt as _;
use contract::ids::{TenantId, ToolId};
use contract::manifest::LifecycleState;
use contract::version::{Version, VersionSpec};
use ports::clock::UnixMillis;
use ports::tool_version::ToolVersion;

use super::{RegisteredTool, Registry};

/// How often the same is told.
const TOLD_EVERY: Duration = Duration::from_secs(3_600);
/// Different warnings of one tenant that are remembered at once.
const REMEMBERED_MAX: usize = 256;
/// Tenants whose warnings are remembered at once.
const TENANTS_MAX: usize = 4_096;

/// What was told when.
#[derive(Debug, Default)]
pub(super) struct MatchWarnings(Mutex<HashMap<TenantId, LastWarning>>);

/// When a tenant was told of which version.
type LastWarning = HashMap<(ToolId, Version), UnixMillis>;

impl MatchWarnings {
    /// Is it time to tell this?
    fn is_due(&self, tenant: &TenantId, tool: &ToolId, found: &Version, now: UnixMillis) -> bool {
        let mut tenants = self.0.lock_unpoisoned();
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(tenant) {
            tenants.retain(|_, told| told.values().any(|before| now.since(*before) < TOLD_EVERY));
            if tenants.len() >= TENANTS_MAX {
                return false;
            }
        }
        let told = tenants.entry(tenant.clone()).or_default();
        let key = (tool.clone(), found.clone());
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
        tool: &RegisteredTool,
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
        if !(ends || newest.is_some()) || !self.warnings.is_due(tenant, &tool.id, &found.version, now) {
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
        let version = |text: &str| Version::parse(text).unwrap();
        let start = UnixMillis(1_800_000_000_000);
        assert!(warnings.is_due(&tenant, &tool, &version("1.0.0"), start));
        assert!(!warnings.is_due(&tenant, &tool, &version("1.0.0"), start.plus(TOLD_EVERY / 2)));
        assert!(warnings.is_due(&tenant, &tool, &version("1.1.0"), start), "another version is another warning");
        assert!(warnings.is_due(&tenant, &tool, &version("1.0.0"), start.plus(TOLD_EVERY)));
        for number in 0..REMEMBERED_MAX {
            warnings.is_due(&tenant, &tool, &version(&format!("2.0.{number}")), start.plus(TOLD_EVERY));
        }
        assert!(!warnings.is_due(&tenant, &tool, &version("3.0.0"), start.plus(TOLD_EVERY)), "no room");
        let neighbour: TenantId = "shop".parse().unwrap();
        assert!(warnings.is_due(&neighbour, &tool, &version("3.0.0"), start.plus(TOLD_EVERY)), "room of its own");
        assert!(warnings.is_due(&tenant, &tool, &version("3.0.0"), start.plus(TOLD_EVERY * 2)), "room again");
    }
}
