//! Looking at tools: list, show, search, compare, negotiate. Every answer is limited to what the caller may know; a tool
//! it may not know of is "not found", never "forbidden".
//!
//! The three tiers (VIS-001): *catalogue* is what there is for the caller's tenant to have, *tenant* what it has, *agent*
//! what this caller may use. Tools of another tenant are in none of them.

use std::sync::{Arc, Mutex};

use base::MutexExt as _;
use contract::compat::{self, Comparison, Negotiation, SchemaDirection};
use contract::error::{ErrorCode, Refusal};
use contract::version::{Version, VersionSpec};
use policy::{Action, Caller};
use ports::actor::Actor;
use ports::clock::UnixMillis;
use ports::tool_version::ToolVersion;
use serde_json::Value;

use crate::access::{AccessSnapshot, AgentAccess};
use crate::availability::ToolAvailability;
use crate::invoke::Kernel;
use crate::registry::{ListFilter, ListingEntry, RegisteredTool, RegistrySnapshot, ToolPage};

/// Tools that a search finds and the caller lacks, of which the need is noted: the best ones.
const LACKING_MAX: usize = 3;

/// How far a look goes (VIS-001).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VisibilityTier {
    /// Everything there is for the tenant to have.
    Catalogue,
    /// What the tenant has.
    Tenant,
    /// What the caller may use.
    Agent,
}

/// One side of a comparison: a schema, or a published version.
#[derive(Debug, Clone)]
pub enum ComparisonSide {
    Schema(Value),
    Published { tool: String, version: VersionSpec },
}

/// The verdict about two versions or schemas.
#[derive(Debug)]
pub struct ComparisonResult {
    pub parameters: Comparison,
    /// There when both sides were published versions.
    pub result: Option<Comparison>,
}

/// A moment of everything that decides what can be offered. Two marks are equal when nothing in between has changed
/// it, so whatever was worked out at one of them still holds; only time can change it besides.
///
/// A mark holds the snapshots it speaks of, so that an old one is never taken for a new one at the same address.
#[derive(Debug, Clone)]
pub struct CatalogueMark {
    registry: Arc<RegistrySnapshot>,
    access: Arc<AccessSnapshot>,
    availability: u64,
}

impl PartialEq for CatalogueMark {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.registry, &other.registry)
            && Arc::ptr_eq(&self.access, &other.access)
            && self.availability == other.availability
    }
}

impl Kernel {
    /// The present moment of the catalogue.
    pub fn catalogue_mark(&self) -> CatalogueMark {
        CatalogueMark {
            registry: Arc::clone(&self.registry().snapshot()),
            access: self.access().snapshot().clone(),
            availability: self.availability().current_generation(),
        }
    }

    /// Everything a recognised caller can call at this moment without naming a version, each by the version that it would call,
    /// ordered by id.
    ///
    /// `caller` has been recognised for this very request: this asks nothing about the token any more.
    pub fn offered_tools(&self, caller: &Caller, mark: &CatalogueMark) -> Vec<Arc<ToolVersion>> {
        let now = self.clock().now();
        let sight = self.sight(&mark.access, caller);
        let tools = mark.registry.tools_of(caller.tenant());
        tools
            .filter(|tool| sight.may_use(tool))
            // What is retired, removed or not released is not what a call without a version reaches, so it is not offered.
            .filter_map(|tool| tool.latest_of(now, |version| caller.may_call(&tool.id, version)))
            // What is switched off is refused when called.
            .filter(|latest| latest.manifest.is_enabled() && latest.manifest.execution.is_some())
            .map(Arc::clone)
            .collect()
    }

    /// One page of the tools of a tier; without one, of what the caller may know.
    pub async fn list_tools(
        &self,
        actor: Actor<'_>,
        filter: &ListFilter,
        tier: Option<VisibilityTier>,
    ) -> Result<ToolPage, Refusal> {
        let caller = self.recognise(actor).await?;
        if tier == Some(VisibilityTier::Catalogue) && !caller.may(Action::SeeWholeCatalogue) {
            return Err(Refusal::new(ErrorCode::E3206, "this token may not see the whole catalogue")
                .hint("leave `tier` out, or ask for `tier=tenant` or `tier=agent`"));
        }
        let access = self.access().snapshot().clone();
        let sight = self.sight(&access, &caller);
        let shows = |tool: &RegisteredTool| {
            let is_shown = match tier {
                None => sight.knows(tool),
                Some(VisibilityTier::Catalogue) => true,
                Some(VisibilityTier::Tenant) => sight.view.has(&tool.tenant, &tool.id),
                Some(VisibilityTier::Agent) => sight.may_use(tool),
            };
            is_shown && !self.availability().is_history(tool)
        };
        Ok(self.registry().list(caller.tenant(), filter, shows))
    }

    /// The best hits among the tools the caller may know.
    pub async fn search_tools(
        &self,
        actor: Actor<'_>,
        query: &str,
        limit: usize,
    ) -> Result<Vec<ListingEntry>, Refusal> {
        let caller = self.recognise(actor).await?;
        let access = self.access().snapshot().clone();
        let sight = self.sight(&access, &caller);
        // What the search finds best and the agent lacks is a need that nobody has met (ANALYT-003).
        let lacking = Mutex::new(Vec::new());
        let knows = |tool: &RegisteredTool| {
            if self.availability().is_history(tool) {
                return false;
            }
            let knows = sight.knows(tool);
            let mut lacking = lacking.lock_unpoisoned();
            if !knows && lacking.len() < LACKING_MAX && sight.view.has(&tool.tenant, &tool.id) {
                lacking.push(tool.id.clone());
            }
            knows
        };
        let found = self.registry().search(caller.tenant(), query, limit, knows).await?;
        if let Some(insights) = &self.insights {
            insights.found_out_of_reach(
                caller.tenant(),
                caller.root_subject(),
                &lacking.into_inner().unwrap_or_default(),
            );
        }
        Ok(found)
    }

    /// One tool with all its versions.
    pub async fn tool(&self, actor: Actor<'_>, name: &str) -> Result<Arc<RegisteredTool>, Refusal> {
        let caller = self.recognise(actor).await?;
        self.known_tool(&caller, name)
    }

    /// One version of one tool, whatever its state: history stays readable.
    pub async fn tool_version(
        &self,
        actor: Actor<'_>,
        name: &str,
        spec: &VersionSpec,
    ) -> Result<Arc<ToolVersion>, Refusal> {
        let tool = self.tool(actor, name).await?;
        if let VersionSpec::Exact(version) = spec
            && let Some(known) = tool.version(version)
        {
            return Ok(Arc::clone(known));
        }
        tool.resolve(spec, self.clock().now()).cloned()
    }

    /// Compares two schemas or versions (REG-016, REG-017).
    pub async fn compare(
        &self,
        actor: Actor<'_>,
        old: &ComparisonSide,
        new: &ComparisonSide,
        direction: SchemaDirection,
    ) -> Result<ComparisonResult, Refusal> {
        let caller = self.recognise(actor).await?;
        if let (
            ComparisonSide::Published { tool: a, version: va },
            ComparisonSide::Published { tool: b, version: vb },
        ) = (old, new)
        {
            let (old, new) = (self.tool_version(actor, a, va).await?, self.tool_version(actor, b, vb).await?);
            let comparing = move || {
                let (old, new) = (&old.manifest, &new.manifest);
                let result = compat::compare(&old.result_schema, &new.result_schema, SchemaDirection::Output);
                let parameters = compat::compare(&old.parameters, &new.parameters, SchemaDirection::Input);
                ComparisonResult { parameters, result: Some(result) }
            };
            return self.compared(&caller, comparing).await;
        }
        let (old, new) = (self.schema_of(actor, old, direction).await?, self.schema_of(actor, new, direction).await?);
        let comparing = move || ComparisonResult { parameters: compat::compare(&old, &new, direction), result: None };
        self.compared(&caller, comparing).await
    }

    /// Does what a caller wants to send fit what a tool takes? (REG-018)
    pub async fn negotiate(
        &self,
        actor: Actor<'_>,
        expected: &ComparisonSide,
        offered: &ComparisonSide,
    ) -> Result<Negotiation, Refusal> {
        let caller = self.recognise(actor).await?;
        let expected = self.schema_of(actor, expected, SchemaDirection::Input).await?;
        let offered = self.schema_of(actor, offered, SchemaDirection::Input).await?;
        let comparing = move || compat::negotiate(&expected, &offered);
        self.compared(&caller, comparing).await
    }

    async fn compared<T, F>(&self, caller: &Caller, comparing: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (tenant, subject) = (caller.tenant(), caller.root_subject().as_str());
        self.concurrency.compare(tenant, subject, self.clock(), comparing).await
    }

    async fn schema_of(
        &self,
        actor: Actor<'_>,
        side: &ComparisonSide,
        direction: SchemaDirection,
    ) -> Result<Value, Refusal> {
        match side {
            ComparisonSide::Schema(schema) => Ok(schema.clone()),
            ComparisonSide::Published { tool, version } => {
                let version = self.tool_version(actor, tool, version).await?;
                Ok(match direction {
                    SchemaDirection::Input => version.manifest.parameters.clone(),
                    SchemaDirection::Output => version.manifest.result_schema.clone(),
                })
            }
        }
    }

    pub(crate) fn known_tool(&self, caller: &Caller, name: &str) -> Result<Arc<RegisteredTool>, Refusal> {
        let access = self.access().snapshot().clone();
        let registry = self.registry().snapshot();
        let sight = self.sight(&access, caller);
        let may_know = |tool: &RegisteredTool| sight.knows(tool);
        let found = registry.find(caller.tenant(), name).filter(|tool| may_know(tool)).cloned();
        found.ok_or_else(|| registry.not_found(caller.tenant(), name, may_know))
    }

    /// What the caller sees at this moment.
    pub fn sight<'a>(&'a self, access: &'a AccessSnapshot, caller: &'a Caller) -> CallerView<'a> {
        CallerView {
            caller,
            view: access.view(caller.tenant(), caller.subject()),
            delegators: caller.chain().iter().map(|link| access.view(caller.tenant(), &link.sub)).collect(),
            everything: caller.may(Action::SeeWholeCatalogue),
            availability: self.availability(),
            now: self.clock().now(),
        }
    }
}

/// What one caller sees. Listings ask it about every tool, so everything that is the same for all is looked up before.
#[derive(Debug)]
pub struct CallerView<'a> {
    caller: &'a Caller,
    view: AgentAccess<'a>,
    /// Those who handed the token on: what one of them does not reach cannot be called, so it is not shown either.
    delegators: Vec<AgentAccess<'a>>,
    everything: bool,
    availability: &'a ToolAvailability,
    now: UnixMillis,
}

impl CallerView<'_> {
    /// May the caller be told of this tool, which its own tenant or the shared catalogue has?
    pub fn knows(&self, tool: &RegisteredTool) -> bool {
        self.everything || self.may_use(tool)
    }

    /// The version that a call without one reaches; where there is none, the one that stands for the tool.
    fn meant_version<'t>(&self, tool: &'t RegisteredTool) -> Option<&'t Arc<ToolVersion>> {
        let current = tool.current(self.now)?;
        let may_call = |version: &Version| self.caller.may_call(&tool.id, version);
        if may_call(&current.version) {
            return Some(current);
        }
        tool.latest_of(self.now, may_call).or(Some(current))
    }

    /// Does the tenant have it, the token name it, and the agent reach it?
    fn may_use(&self, tool: &RegisteredTool) -> bool {
        self.caller.names(&tool.id)
            && self.availability.why_not(&tool.tenant, &tool.id).is_none()
            && self.view.has(&tool.tenant, &tool.id)
            && self.meant_version(tool).is_some_and(|current| {
                let effects = || current.manifest.side_effect_policy;
                let reaches = |view: &AgentAccess<'_>| view.reach(&tool.id, &current.aliases, effects).is_ok();
                std::iter::once(&self.view).chain(&self.delegators).all(reaches)
            })
    }
}
