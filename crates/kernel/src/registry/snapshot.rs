//! The registry as calls see it: immutable, in memory, swapped as a whole.
//!
//! A persistent map underneath makes the next snapshot out of this one in logarithmic time, so that publishing the ten
//! thousandth tool costs what publishing the first did, and readers never wait.
//!
//! Invariants
//! - REG-A: versions of a tool are in ascending precedence.
//! - REG-B: an alias never hides a tool: ids are looked up first.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::manifest::LifecycleState;
use contract::nearest::nearest;
use contract::version::{Resolution, Version, VersionSpec, resolve};
use imbl::{HashMap, OrdMap};
use serde_json::json;

use super::version::ToolVersion;
use crate::ports::clock::UnixMillis;

/// One tool with all its versions.
#[derive(Debug, Clone)]
pub struct Tool {
    pub id: ToolId,
    /// Ascending by precedence, removed ones included.
    versions: Vec<Arc<ToolVersion>>,
    /// What [`Tool::current`] gives, if time alone cannot change it. Listings ask every tool, so it is kept.
    steady: Option<usize>,
}

/// All tools at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    tools: OrdMap<ToolId, Arc<Tool>>,
    aliases: HashMap<String, ToolId>,
    versions: usize,
}

// ------------------------------------------------------------------------------------------------------------- Tool

impl Tool {
    fn new(id: ToolId, versions: Vec<Arc<ToolVersion>>) -> Self {
        let mut tool = Self { id, versions, steady: None };
        // Only a deprecated version changes by itself: it becomes sunset.
        if tool.versions.iter().all(|v| v.lifecycle.recorded != LifecycleState::Deprecated) {
            let current = tool.choose(UnixMillis::default()).map(|current| current.version.clone());
            tool.steady = current.and_then(|current| tool.versions.iter().position(|v| v.version == current));
        }
        tool
    }

    /// Every version, ascending.
    pub fn versions(&self) -> &[Arc<ToolVersion>] {
        &self.versions
    }

    /// One version, whatever its state.
    pub fn version(&self, version: &Version) -> Option<&Arc<ToolVersion>> {
        self.versions.iter().find(|candidate| candidate.version == *version)
    }

    /// The version that stands for the tool in listings: what LATEST gives, else the highest that is not removed, else
    /// the highest.
    pub fn current(&self, now: UnixMillis) -> Option<&Arc<ToolVersion>> {
        match self.steady {
            Some(index) => self.versions.get(index),
            None => self.choose(now),
        }
    }

    fn choose(&self, now: UnixMillis) -> Option<&Arc<ToolVersion>> {
        self.resolve(&VersionSpec::Latest, now)
            .ok()
            .or_else(|| self.versions.iter().rev().find(|v| v.lifecycle.state(now) != LifecycleState::Removed))
            .or_else(|| self.versions.last())
    }

    /// The version a caller means (REG-005…008, X-21).
    pub fn resolve(&self, spec: &VersionSpec, now: UnixMillis) -> Result<&Arc<ToolVersion>, Refusal> {
        let candidates = self.versions.iter().map(|v| (&v.version, v.lifecycle.availability(now)));
        match resolve(spec, candidates) {
            Resolution::Found(version) => self.version(version).ok_or_else(|| self.not_registered(spec, now)),
            Resolution::NotRegistered => Err(self.not_registered(spec, now)),
            Resolution::Removed => Err(self.removed(spec)),
            Resolution::Unsatisfiable => Err(self.unsatisfiable(spec, now)),
        }
    }

    fn offered(&self, now: UnixMillis) -> Vec<String> {
        let usable = |v: &&Arc<ToolVersion>| v.lifecycle.state(now) != LifecycleState::Removed;
        self.versions.iter().rev().filter(usable).take(20).map(|v| v.version.to_string()).collect()
    }

    fn not_registered(&self, spec: &VersionSpec, now: UnixMillis) -> Refusal {
        let offered = self.offered(now);
        Refusal::new(ErrorCode::E3102, format!("tool `{}` has no version `{spec}`", self.id))
            .hint(if offered.is_empty() {
                "every version of this tool has been removed".into()
            } else {
                format!("registered versions: {}", offered.join(", "))
            })
            .details(json!({ "available_versions": offered }))
    }

    fn unsatisfiable(&self, spec: &VersionSpec, now: UnixMillis) -> Refusal {
        let offered = self.offered(now);
        Refusal::new(ErrorCode::E3103, format!("no version of tool `{}` satisfies `{spec}`", self.id))
            .hint(format!("widen the range or pin one of: {}", offered.join(", ")))
            .details(json!({ "available_versions": offered }))
    }

    fn removed(&self, spec: &VersionSpec) -> Refusal {
        let notice = self.versions.iter().rev().find_map(|v| v.lifecycle.notice.as_ref());
        let successor = notice.and_then(|n| n.successor.as_deref());
        let refusal = Refusal::new(ErrorCode::E3104, format!("tool `{}` version `{spec}` has been removed", self.id));
        match successor {
            Some(successor) => refusal.hint(format!("use `{successor}` instead")),
            None => refusal.hint("use another version or tool; `gantry tool show` lists what is left"),
        }
        .details(json!({
            "replacement_tool_id": successor,
            "migration_guide_url": notice.and_then(|n| n.migration_guide.as_deref()),
        }))
    }
}

// --------------------------------------------------------------------------------------------------------- Snapshot

impl Snapshot {
    /// How many tools.
    pub fn tool_count(&self) -> usize {
        self.tools.len()
    }

    /// How many versions.
    pub fn version_count(&self) -> usize {
        self.versions
    }

    /// All tools, ordered by id.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<Tool>> {
        self.tools.values()
    }

    /// A tool by its canonical id.
    pub fn tool(&self, id: &ToolId) -> Option<&Arc<Tool>> {
        self.tools.get(id)
    }

    /// A tool by what a caller wrote: its id, or an alias.
    pub fn find(&self, name: &str) -> Option<&Arc<Tool>> {
        let by_id = name.parse::<ToolId>().ok().and_then(|id| self.tools.get(&id));
        by_id.or_else(|| self.aliases.get(name).and_then(|id| self.tools.get(id)))
    }

    /// The tool an alias leads to.
    pub fn alias(&self, alias: &str) -> Option<&ToolId> {
        self.aliases.get(alias)
    }

    /// The refusal for a name that nothing has; suggests the nearest of the names the caller may know.
    pub fn not_found(&self, name: &str, may_know: impl Fn(&ToolId) -> bool) -> Refusal {
        let known = self.tools.keys().filter(|id| may_know(id)).map(ToolId::as_str);
        let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
        let refusal = Refusal::new(ErrorCode::E3101, format!("there is no tool `{shown}`"));
        match nearest(name, known) {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")).details(json!({ "nearest": near })),
            None => refusal.hint("list what there is with `gantry tool list` or GET /v1/tools"),
        }
    }

    /// The snapshot with one version added or replaced.
    #[must_use]
    pub fn with(&self, version: Arc<ToolVersion>) -> Self {
        let mut next = self.clone();
        let id = version.id.clone();
        for alias in &version.manifest.aliases {
            next.aliases.insert(alias.clone(), id.clone());
        }
        let mut versions = self.tools.get(&id).map(|tool| tool.versions.clone()).unwrap_or_default();
        match versions.binary_search_by(|v| v.version.cmp(&version.version)) {
            Ok(at) => {
                if let Some(slot) = versions.get_mut(at) {
                    *slot = version;
                }
            }
            Err(at) => {
                versions.insert(at, version);
                next.versions = next.versions.saturating_add(1);
            }
        }
        next.tools.insert(id.clone(), Arc::new(Tool::new(id, versions)));
        next
    }
}
