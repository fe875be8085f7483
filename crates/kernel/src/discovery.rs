//! What an agent could do: its own tools, its tenant's, and those it would have if somebody enabled them (VIS-006…015).
//!
//! Never runs anything, and says of a tool only what the tenant may know anyway.

use std::sync::Arc;

use contract::cost::CostEstimate;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::LifecycleState;
use policy::{Action, PolicyOverrides, WhyUnavailable};
use ports::actor::Actor;
use ports::tool_version::ToolVersion;

use crate::access::{AccessSnapshot, AgentAccess};
use crate::identity::Principal;
use crate::invoke::{IncomingCall, Kernel};
use crate::phases::{self, CallFacts, Received};
use crate::registry::RegisteredTool;

/// A tool in somebody's reach.
#[derive(Debug, Clone)]
pub struct ReachableTool {
    pub current: Arc<ToolVersion>,
    /// After overrides (VIS-006).
    pub requires_confirmation: bool,
    pub requires_approval: bool,
}

/// A tool that somebody would have to enable first.
#[derive(Debug, Clone)]
pub struct UnreachableTool {
    pub current: Arc<ToolVersion>,
    pub why: WhyUnavailable,
}

/// A tool that a tenant has, looked at by one of its agents (VIS-007).
#[derive(Debug, Clone)]
pub struct TenantTool {
    pub tool: ReachableTool,
    /// Why the caller may not use it; `None`: it may, as far as activations decide.
    pub why_unavailable: Option<WhyUnavailable>,
}

/// What would become of a call, without running it.
#[derive(Debug)]
pub struct CallExplanation {
    /// The refusal it would get.
    pub refusal: Option<Refusal>,
    /// The policies that allow it.
    pub policies: Vec<String>,
    /// What they demand besides.
    pub obligations: Vec<String>,
    /// What it would probably cost; there if it would run.
    pub estimate: Option<CostEstimate>,
}

impl CallExplanation {
    /// Of a call that would be refused.
    pub fn of_refused(refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), policies: Vec::new(), obligations: Vec::new(), estimate: None }
    }
}

impl Kernel {
    /// Tier 2: what a tenant has.
    pub async fn tenant_tools(&self, actor: Actor<'_>, tenant: &TenantId) -> Result<Vec<ReachableTool>, Refusal> {
        let caller = self.recognise(actor).await?;
        let access = self.access().snapshot().clone();
        may_look_at(&access, &caller, tenant)?;
        let view = access.view(tenant, caller.subject());
        Ok(self.of_tenant(view, tenant).into_iter().map(|(_, current)| reachable(current, None)).collect())
    }

    /// Tier 2 by name: a tool that a tenant has, whether the caller may use it or not (VIS-007).
    pub async fn tenant_tool(&self, actor: Actor<'_>, tenant: &TenantId, name: &str) -> Result<TenantTool, Refusal> {
        let caller = self.recognise(actor).await?;
        let access = self.access().snapshot().clone();
        may_look_at(&access, &caller, tenant)?;
        let subjects = std::iter::once(caller.subject()).chain(caller.chain().iter().map(|link| &link.sub));
        let views: Vec<AgentAccess<'_>> = subjects.map(|subject| access.view(tenant, subject)).collect();
        let has = |tool: &RegisteredTool| views.iter().all(|view| view.has(&tool.tenant, &tool.id));
        let registry = self.registry().snapshot();
        let found = registry.find(tenant, name).filter(|tool| has(tool) && !self.availability().is_history(tool));
        let now = self.clock().now();
        // What was removed is history, not something to be enabled.
        let there = |current: &&Arc<ToolVersion>| current.lifecycle.state(now) != LifecycleState::Removed;
        let found = found.and_then(|tool| Some((tool, tool.current(now).filter(there)?)));
        let (tool, current) = found.ok_or_else(|| registry.not_found(tenant, name, has))?;
        let why_unavailable = self.reach_of(&views, tool, current).err();
        Ok(TenantTool { tool: reachable(Arc::clone(current), None), why_unavailable })
    }

    /// Tier 3: what an agent may use, as far as activations decide.
    pub async fn agent_tools(&self, actor: Actor<'_>, agent: &Subject) -> Result<Vec<ReachableTool>, Refusal> {
        let looked = self.look_at(actor, agent).await?;
        let views = looked.views();
        let of_tenant = views.first().map(|view| self.of_tenant(*view, &looked.tenant)).unwrap_or_default();
        Ok(of_tenant
            .into_iter()
            .filter_map(|(tool, current)| {
                let overrides = self.reach_of(&views, &tool, &current).ok()?;
                Some(reachable(current, Some(&overrides)))
            })
            .collect())
    }

    /// Tier 2 without tier 3, with the reason for each (VIS-008, VIS-012).
    pub async fn unavailable_tools(&self, actor: Actor<'_>, agent: &Subject) -> Result<Vec<UnreachableTool>, Refusal> {
        let looked = self.look_at(actor, agent).await?;
        let views = looked.views();
        let of_tenant = views.first().map(|view| self.of_tenant(*view, &looked.tenant)).unwrap_or_default();
        Ok(of_tenant
            .into_iter()
            .filter_map(|(tool, current)| {
                let why = self.reach_of(&views, &tool, &current).err()?;
                Some(UnreachableTool { current, why })
            })
            .collect())
    }

    /// What would become of this call if it were made now, by a caller who waits for it? Nothing is run, spent, counted or
    /// reserved. For calls in the background, ask [`Kernel::explain_submission`].
    pub async fn explain(&self, arrival: IncomingCall<'_>) -> Result<CallExplanation, Refusal> {
        self.explain_as(arrival, Received::has_nothing_of_the_background).await
    }

    /// The same; `fits` says whether the options of the call fit the way it is made.
    pub(crate) async fn explain_as(
        &self,
        arrival: IncomingCall<'_>,
        fits: impl Fn(&Received) -> Result<(), Refusal>,
    ) -> Result<CallExplanation, Refusal> {
        let mut facts = CallFacts::begin(self, &arrival);
        let actor = Actor { credential: arrival.credential, source: arrival.source, trace_id: facts.trace_id() };
        // Whoever is not recognised gets that for an answer, not an explanation.
        self.recognise(actor).await?;
        let carried = async {
            let received = phases::receive_in_theory(self, &mut facts, arrival).await?;
            fits(&received)?;
            let validated = phases::validate(self, &mut facts, received).await?;
            phases::authorize_in_theory(self, validated).await
        };
        Ok(match carried.await {
            Ok((decision, estimate)) => CallExplanation {
                refusal: None,
                policies: decision.determining.clone(),
                obligations: decision.obligations.iter().map(ToString::to_string).collect(),
                estimate: Some(estimate),
            },
            Err(refusal) => CallExplanation::of_refused(refusal),
        })
    }

    /// May a recognised caller look at what this tenant has? The refusal is that of looking.
    pub fn may_see_tenant(&self, caller: &Principal, tenant: &TenantId) -> Result<(), Refusal> {
        may_look_at(&self.access().snapshot(), caller, tenant)
    }

    /// May a recognised caller look at what this agent has? The refusal is that of looking.
    pub fn may_see_agent(&self, caller: &Principal, agent: &Subject) -> Result<(), Refusal> {
        self.looked_at(caller, agent).map(drop)
    }

    /// Reach of an agent, as activations decide at this moment: it has the tool (`Some(true)`), it could have it (`Some(false)`),
    /// or the tool is not its tenant's (`None`).
    pub fn reach_now(&self, tenant: &TenantId, agent: &Subject, tool: &ToolId) -> Option<bool> {
        let access = self.access().snapshot().clone();
        let registry = self.registry().snapshot();
        let view = access.view(tenant, agent);
        let tool = registry.tool(tenant, tool).filter(|tool| view.has(&tool.tenant, &tool.id))?;
        let current = tool.current(self.clock().now())?;
        Some(view.reach(&tool.id, &current.aliases, || current.manifest.side_effect_policy).is_ok())
    }

    async fn look_at(&self, actor: Actor<'_>, agent: &Subject) -> Result<LookedAt, Refusal> {
        let caller: Arc<Principal> = self.recognise(actor).await?;
        self.looked_at(&caller, agent)
    }

    /// An agent may look at itself; whoever sees access, at every agent of its own tenant.
    fn looked_at(&self, caller: &Principal, agent: &Subject) -> Result<LookedAt, Refusal> {
        let access = self.access().snapshot().clone();
        if caller.subject() == agent {
            // What one of those does not reach who handed the token on cannot be called with it.
            let delegators = caller.chain().iter().map(|link| link.sub.clone());
            let subjects = std::iter::once(agent.clone()).chain(delegators).collect();
            return Ok(LookedAt { access, tenant: caller.tenant().clone(), subjects });
        }
        if !caller.may(Action::SeeAccess) {
            return Err(nobody("agent", agent.as_str()));
        }
        // The agent's tenant is taken from its record (VIS-013): the caller's own first.
        let mut tenants = vec![caller.tenant().clone()];
        if caller.tenant().is_home() {
            tenants.extend(access.tenants().into_iter().map(|record| record.tenant.clone()));
        }
        let tenant = tenants.into_iter().find(|tenant| access.knows(tenant, agent));
        tenant
            .map(|tenant| LookedAt { access, tenant, subjects: vec![agent.clone()] })
            .ok_or_else(|| nobody("agent", agent.as_str()))
    }

    fn of_tenant(&self, view: AgentAccess<'_>, tenant: &TenantId) -> Vec<(Arc<RegisteredTool>, Arc<ToolVersion>)> {
        let now = self.clock().now();
        let registry = self.registry().snapshot();
        registry
            .tools_of(tenant)
            .filter(|tool| view.has(&tool.tenant, &tool.id) && !self.availability().is_history(tool))
            .filter_map(|tool| {
                let current = tool.current(now)?;
                // What was removed is history, not something to be enabled.
                let there = current.lifecycle.state(now) != LifecycleState::Removed;
                there.then(|| (Arc::clone(tool), Arc::clone(current)))
            })
            .collect()
    }

    /// The overrides of everybody in whose name the tool would be called, joined.
    fn reach_of(
        &self,
        views: &[AgentAccess<'_>],
        tool: &RegisteredTool,
        current: &ToolVersion,
    ) -> Result<PolicyOverrides, WhyUnavailable> {
        let mut overrides = PolicyOverrides::default();
        for view in views {
            for own in view.reach(&tool.id, &current.aliases, || current.manifest.side_effect_policy)? {
                overrides = overrides.merge(own);
            }
        }
        if let Some(why) = self.availability().why_not(&tool.tenant, &tool.id) {
            return Err(why);
        }
        if !current.manifest.is_enabled() {
            return Err(WhyUnavailable::SwitchedOff);
        }
        if current.lifecycle.state(self.clock().now()) == LifecycleState::Sunset {
            return Err(WhyUnavailable::Retired);
        }
        Ok(overrides)
    }
}

/// A token may look at its own tenant, whoever sees access in the home tenant at every one.
fn may_look_at(access: &AccessSnapshot, caller: &Principal, tenant: &TenantId) -> Result<(), Refusal> {
    let allowed = caller.tenant() == tenant || (caller.tenant().is_home() && caller.may(Action::SeeAccess));
    if allowed && access.tenant(tenant).is_some() { Ok(()) } else { Err(nobody("tenant", tenant.as_str())) }
}

/// An agent, as somebody may look at it.
struct LookedAt {
    access: Arc<AccessSnapshot>,
    tenant: TenantId,
    /// The agent, and whoever handed on the token with which it looks at itself.
    subjects: Vec<Subject>,
}

impl LookedAt {
    fn views(&self) -> Vec<AgentAccess<'_>> {
        self.subjects.iter().map(|subject| self.access.view(&self.tenant, subject)).collect()
    }
}

fn reachable(current: Arc<ToolVersion>, overrides: Option<&PolicyOverrides>) -> ReachableTool {
    let manifest = &current.manifest;
    let confirmation = manifest.requires_confirmation == Some(true)
        || overrides.is_some_and(|overrides| overrides.requires_confirmation == Some(true));
    let approval =
        manifest.needs_approval() || overrides.is_some_and(|overrides| overrides.requires_approval == Some(true));
    ReachableTool { requires_confirmation: confirmation, requires_approval: approval, current }
}

/// The same words for "does not exist" and "is none of your business".
fn nobody(what: &str, name: &str) -> Refusal {
    let shown: String = name.chars().filter(|c| !c.is_control()).take(80).collect();
    let code = if what == "agent" { ErrorCode::E3207 } else { ErrorCode::E3008 };
    Refusal::new(code, format!("there is no {what} `{shown}` here"))
        .hint("a token may look at its own tenant and agent; administrators at all of theirs")
}
