//! The registry as calls see it: immutable, in memory, swapped as a whole.
//!
//! A persistent map underneath makes the next snapshot out of this one in logarithmic time, so that publishing the ten
//! thousandth tool costs what publishing the first did, and readers never wait.
//!
//! What the home tenant publishes is the shared catalogue: every tenant sees it, as far as the caller's predicate goes
//! (VIS-001, VIS-002). What another tenant publishes is seen by that tenant only.
//!
//! Invariants
//! - REG-A: versions of a tool are in ascending precedence.
//! - REG-B: among the names of one tenant an alias never hides a tool: ids are looked up first.
//! - REG-C: a tenant's own names come before the shared ones, so nothing the home tenant publishes later changes what a
//!   name means to a tenant. Names of one tenant never reach another.
//!
//! Not here: which shared tools a tenant has been given (the caller's predicate).

use std::collections::BTreeSet;
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{TenantId, ToolId};
use contract::manifest::{Execution, LifecycleState};
use contract::nearest::nearest;
use contract::version::{Version, VersionResolution, VersionSpec, resolve};
use imbl::{HashMap, OrdMap};
use ports::clock::UnixMillis;
use ports::tool_version::ToolVersion;
use serde_json::json;

/// One tool with all its versions.
#[derive(Debug, Clone)]
pub struct RegisteredTool {
    /// Whose tool it is; the home tenant's are shared.
    pub tenant: TenantId,
    pub id: ToolId,
    /// Ascending by precedence, removed ones included.
    versions: Vec<Arc<ToolVersion>>,
    /// What [`RegisteredTool::current`] gives, if time alone cannot change it. Listings ask every tool, so it is kept.
    steady: Option<usize>,
}

/// All tools at one moment.
#[derive(Debug, Clone, Default)]
pub struct RegistrySnapshot {
    /// Of the home tenant.
    shared: Names,
    /// Of each other tenant that has published anything.
    own: HashMap<TenantId, Names>,
    tools: usize,
    versions: usize,
}

/// The names one tenant has given.
#[derive(Debug, Clone, Default)]
struct Names {
    tools: OrdMap<ToolId, Arc<RegisteredTool>>,
    aliases: HashMap<String, ToolId>,
}

// ------------------------------------------------------------------------------------------------------------- Tool

impl RegisteredTool {
    fn new(tenant: TenantId, id: ToolId, versions: Vec<Arc<ToolVersion>>) -> Self {
        let mut tool = Self { tenant, id, versions, steady: None };
        // Only a version that is on its way out changes by itself.
        if !tool.versions.iter().any(|v| v.lifecycle.changes_with_time()) {
            let current = tool.choose(UnixMillis::default()).map(|current| current.version.clone());
            tool.steady = current.and_then(|current| tool.versions.iter().position(|v| v.version == current));
        }
        tool
    }

    /// Every version, ascending.
    pub fn versions(&self) -> &[Arc<ToolVersion>] {
        &self.versions
    }

    /// The MCP server that it was taken in from, if it was.
    pub fn server(&self) -> Option<&str> {
        self.versions.iter().rev().find_map(|version| match &version.manifest.execution {
            Some(Execution::Mcp { server, .. }) => Some(server.as_str()),
            _ => None,
        })
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

    /// The version that a caller means who names none: LATEST of those that `may_call` lets through.
    pub fn latest_of(&self, now: UnixMillis, may_call: impl Fn(&Version) -> bool) -> Option<&Arc<ToolVersion>> {
        let named = self.versions.iter().filter(|version| may_call(&version.version));
        let candidates = named.map(|v| (&v.version, v.lifecycle.availability(now)));
        match resolve(&VersionSpec::Latest, candidates) {
            VersionResolution::Found(version) => self.version(version),
            VersionResolution::NotRegistered | VersionResolution::Removed | VersionResolution::Unsatisfiable => None,
        }
    }

    /// The version that somebody means of those that its token names. Whoever names none means the newest of these: one that
    /// the token does not name takes nothing from it. If there is none, it is what is meant without a token, which is refused
    /// later.
    pub fn resolve_named(
        &self,
        spec: &VersionSpec,
        now: UnixMillis,
        may_call: impl Fn(&Version) -> bool,
    ) -> Result<&Arc<ToolVersion>, Refusal> {
        let found = self.resolve(spec, now)?;
        if *spec != VersionSpec::Latest || may_call(&found.version) {
            return Ok(found);
        }
        Ok(self.latest_of(now, may_call).unwrap_or(found))
    }

    /// The version a caller means (REG-005…008, X-21).
    pub fn resolve(&self, spec: &VersionSpec, now: UnixMillis) -> Result<&Arc<ToolVersion>, Refusal> {
        let candidates = self.versions.iter().map(|v| (&v.version, v.lifecycle.availability(now)));
        match resolve(spec, candidates) {
            VersionResolution::Found(version) => self.version(version).ok_or_else(|| self.not_registered(spec, now)),
            VersionResolution::NotRegistered => Err(self.not_registered(spec, now)),
            VersionResolution::Removed => Err(self.removed(spec)),
            VersionResolution::Unsatisfiable => Err(self.unsatisfiable(spec, now)),
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

impl RegistrySnapshot {
    /// How many tools, of all tenants.
    pub fn tool_count(&self) -> usize {
        self.tools
    }

    /// How many versions, of all tenants.
    pub fn version_count(&self) -> usize {
        self.versions
    }

    /// Every tool of every tenant, in no order that means anything.
    pub fn tools(&self) -> impl Iterator<Item = &Arc<RegisteredTool>> {
        self.shared.tools.values().chain(self.own.values().flat_map(|names| names.tools.values()))
    }

    /// What a tenant sees: its own tools and the shared ones its own names do not hide, ordered by id.
    pub fn tools_of<'a>(&'a self, tenant: &TenantId) -> Box<dyn Iterator<Item = &'a Arc<RegisteredTool>> + 'a> {
        let shared = self.shared.tools.values();
        // Most see the shared tools and nothing else, and listings go through all of them.
        let Some(names) = self.own(tenant) else { return Box::new(shared) };
        let mut own = names.tools.values().peekable();
        let mut shared = shared.filter(move |tool| !names.has(tool.id.as_str())).peekable();
        Box::new(std::iter::from_fn(move || match (own.peek(), shared.peek()) {
            (Some(left), Some(right)) if right.id < left.id => shared.next(),
            (Some(_), _) => own.next(),
            (None, _) => shared.next(),
        }))
    }

    /// The tool a tenant sees under this canonical id.
    pub fn tool(&self, tenant: &TenantId, id: &ToolId) -> Option<&Arc<RegisteredTool>> {
        match self.own(tenant) {
            Some(names) if names.has(id.as_str()) => names.tools.get(id),
            _ => self.shared.tools.get(id),
        }
    }

    /// The tool a tenant means by what a caller wrote: an id, or an alias.
    pub fn find(&self, tenant: &TenantId, name: &str) -> Option<&Arc<RegisteredTool>> {
        match self.own(tenant) {
            None => self.shared.find(name),
            // A shared alias does not lead around REG-C to a tool the tenant's names hide.
            Some(names) => {
                names.find(name).or_else(|| self.shared.find(name).filter(|tool| !names.has(tool.id.as_str())))
            }
        }
    }

    /// The tool an alias leads a tenant to.
    pub fn alias(&self, tenant: &TenantId, alias: &str) -> Option<&ToolId> {
        self.own(tenant).and_then(|names| names.aliases.get(alias)).or_else(|| self.shared.aliases.get(alias))
    }

    /// The refusal for a name that nothing has; suggests the nearest of the names the caller may know.
    pub fn not_found(&self, tenant: &TenantId, name: &str, may_know: impl Fn(&RegisteredTool) -> bool) -> Refusal {
        // Not the very name: it may be there and not be for this caller.
        let known = || self.tools_of(tenant).filter(|tool| may_know(tool)).map(|tool| tool.id.as_str());
        let known = || known().filter(|id| *id != name);
        // The usual slip: the name without its namespace.
        let in_a_namespace = known().find(|id| id.rsplit_once('.').is_some_and(|(_, own)| own == name));
        let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
        let refusal = Refusal::new(ErrorCode::E3101, format!("there is no tool `{shown}`"));
        match in_a_namespace.or_else(|| nearest(name, known())) {
            Some(near) => refusal.hint(format!("did you mean `{near}`?")).details(json!({ "nearest": near })),
            None => refusal.hint("list what there is with `gantry tool list` or GET /v1/tools"),
        }
    }

    /// The snapshot with one version added or replaced.
    #[must_use]
    pub fn with(&self, version: Arc<ToolVersion>) -> Self {
        let mut next = self.clone();
        let names = if version.tenant.is_home() {
            &mut next.shared
        } else {
            next.own.entry(version.tenant.clone()).or_default()
        };
        let added = names.put(version);
        next.tools = next.tools.saturating_add(usize::from(added.tool));
        next.versions = next.versions.saturating_add(usize::from(added.version));
        next
    }

    /// The names of a tenant other than the home tenant, if it has any.
    fn own(&self, tenant: &TenantId) -> Option<&Names> {
        if tenant.is_home() { None } else { self.own.get(tenant) }
    }
}

// ------------------------------------------------------------------------------------------------------------ Names

/// What was not there before.
struct Added {
    tool: bool,
    version: bool,
}

impl Names {
    fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name) || self.aliases.contains_key(name)
    }

    fn find(&self, name: &str) -> Option<&Arc<RegisteredTool>> {
        self.tools.get(name).or_else(|| self.aliases.get(name).and_then(|id| self.tools.get(id)))
    }

    fn put(&mut self, version: Arc<ToolVersion>) -> Added {
        let (tenant, id) = (version.tenant.clone(), version.id.clone());
        for alias in &version.manifest.aliases {
            self.aliases.insert(alias.clone(), id.clone());
        }
        let known = self.tools.get(&id);
        let mut added = Added { tool: known.is_none(), version: false };
        let mut versions = known.map(|tool| tool.versions.clone()).unwrap_or_default();
        match versions.binary_search_by(|v| v.version.cmp(&version.version)) {
            Ok(at) => {
                if let Some(slot) = versions.get_mut(at) {
                    *slot = version;
                }
            }
            Err(at) => {
                versions.insert(at, version);
                added.version = true;
            }
        }
        share_aliases(&mut versions);
        self.tools.insert(id.clone(), Arc::new(RegisteredTool::new(tenant, id, versions)));
        added
    }
}

/// An alias leads to its tool in every version, also in one that does not speak of it. So every version knows all of them.
fn share_aliases(versions: &mut [Arc<ToolVersion>]) {
    if versions.iter().all(|version| version.manifest.aliases.is_empty()) {
        return;
    }
    let named = versions.iter().flat_map(|version| &version.manifest.aliases);
    let all: BTreeSet<ToolId> = named.filter_map(|alias| alias.parse().ok()).collect();
    let all: Arc<[ToolId]> = all.into_iter().collect();
    for version in versions.iter_mut().filter(|version| version.aliases != all) {
        *version = Arc::new(version.with_aliases(Arc::clone(&all)));
    }
}
