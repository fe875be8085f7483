//! Tenants, the agents introduced to them, and what each agent may use (VIS-*, API-014).

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use policy::{Action, Did, DidDocument, PolicyOverrides, ToolPattern, VisibilityDefault, did_of_subject};
use ports::access_store::{Activation, AgentRecord, TenantRecord};
use ports::actor::Actor;
use ports::audit_sink::AuditAction;
use ports::clock::UnixMillis;
use ports::entropy::new_token_id;
use uuid::Uuid;

use crate::access::EVERY_AGENT;
use crate::invoke::Kernel;

/// Longest list in one request.
const AT_ONCE_MAX: usize = 1_000;
/// Entries of a change that its audit record names.
const NOTED_MAX: usize = 20;
/// Largest DID document that is kept.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024;

/// A tenant as an administrator wants it.
#[derive(Debug, Clone)]
pub struct TenantWish {
    pub tenant: TenantId,
    /// Absent: as it is, or the tenant's id.
    pub name: Option<String>,
    /// Absent: as it is, or what the configuration says.
    pub visibility: Option<VisibilityDefault>,
    /// Which shared tools it has; absent: as it is, or all.
    pub tools: Option<Vec<ToolPattern>>,
    /// Absent: as it is, or enabled.
    pub enabled: Option<bool>,
}

/// An activation as an administrator wants it.
#[derive(Debug, Clone)]
pub struct ActivationWish {
    /// Absent: the caller's own.
    pub tenant: Option<TenantId>,
    /// Absent: every agent of the tenant.
    pub agent: Option<Subject>,
    pub tool: ToolPattern,
    pub enabled: bool,
    pub overrides: PolicyOverrides,
    /// What the activation must be for the wish to be granted.
    pub replaces: ReplacedActivation,
}

/// What somebody has read of an activation that is to be replaced: it is, only if all of it still holds.
#[derive(Debug, Clone, Default)]
pub struct ReplacedActivation {
    pub id: Option<Uuid>,
    /// RFC 3339 times, as they were told.
    pub created_at: Option<String>,
    pub updated_at: Option<String>,
}

impl ReplacedActivation {
    fn holds(&self, found: Option<&Activation>) -> Result<(), Refusal> {
        let told = |member: &str, fits: Option<bool>| match fits {
            None | Some(true) => Ok(()),
            Some(false) => {
                Err(Refusal::new(ErrorCode::E3004, format!("the activation has another `{member}`, or is not there"))
                    .hint("read it again, or leave `id`, `created_at` and `updated_at` out to put it in any case"))
            }
        };
        let same_time = |given: &String, time: fn(&Activation) -> UnixMillis| {
            found.is_some_and(|found| time(found).to_string() == *given)
        };
        told("id", self.id.map(|id| found.is_some_and(|found| found.id == id)))?;
        told("created_at", self.created_at.as_ref().map(|at| same_time(at, |found| found.created_at)))?;
        told("updated_at", self.updated_at.as_ref().map(|at| same_time(at, |found| found.updated_at)))
    }
}

impl Kernel {
    /// The tenants the caller may know of.
    pub async fn tenants(&self, actor: Actor<'_>) -> Result<Vec<TenantRecord>, Refusal> {
        let caller = self.permitted(actor, Action::SeeAccess).await?;
        let snapshot = self.access().snapshot();
        let mine = |record: &&TenantRecord| caller.tenant().is_home() || record.tenant == *caller.tenant();
        Ok(snapshot.tenants().into_iter().filter(mine).cloned().collect())
    }

    /// Adds or changes tenants.
    pub async fn put_tenants(&self, actor: Actor<'_>, wishes: &[TenantWish]) -> Result<Vec<TenantRecord>, Refusal> {
        let caller = self.permitted(actor, Action::ManageTenants).await?;
        self.of_the_installation(actor, &caller).await?;
        at_most(wishes.len())?;
        let snapshot = self.access().snapshot().clone();
        let records: Vec<TenantRecord> = wishes.iter().map(|wish| tenant_as_wished(wish, &snapshot)).collect();
        if let Some(record) = records.iter().find(|record| record.tenant.is_home() && !record.enabled) {
            return Err(Refusal::new(
                ErrorCode::E3004,
                format!("the home tenant `{}` cannot be switched off", record.tenant),
            )
            .hint("it holds the administrators of this installation"));
        }
        let slot = self.parts.recorder.reserve().await?;
        self.access().put_tenants(&records).await.map_err(|error| error.refusal())?;
        let names: Vec<&str> = records.iter().map(|record| record.tenant.as_str()).take(20).collect();
        slot.record_durably(self.act(actor, &caller, AuditAction::TenantsChanged, None, Some(names.join(", "))))
            .await?;
        Ok(records)
    }

    /// The agents that were introduced to a tenant.
    pub async fn agents(&self, actor: Actor<'_>, tenant: Option<&TenantId>) -> Result<Vec<AgentRecord>, Refusal> {
        let caller = self.permitted(actor, Action::SeeAccess).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        Ok(self.access().snapshot().agents(&tenant).into_iter().cloned().collect())
    }

    /// Introduces an agent to a tenant, with its DID document if it has one.
    pub async fn introduce_agent(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        agent: &Subject,
        document: Option<String>,
    ) -> Result<AgentRecord, Refusal> {
        let caller = self.permitted(actor, Action::ManageAgents).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        subject_is_fine(agent)?;
        if let Some(text) = &document {
            if text.len() > DOCUMENT_BYTES_MAX {
                return Err(Refusal::new(
                    ErrorCode::E3004,
                    format!("the document is larger than {DOCUMENT_BYTES_MAX} bytes"),
                ));
            }
            let did = agent.as_str().parse::<Did>();
            did.and_then(|did| DidDocument::read(text.as_bytes(), &did)).map_err(|error| {
                Refusal::new(ErrorCode::E3004, format!("the DID document cannot be used: {error}"))
                    .hint("its `id` must be the agent's DID")
            })?;
        }
        let slot = self.parts.recorder.reserve().await?;
        let record = AgentRecord {
            tenant,
            agent: agent.clone(),
            document,
            added_at: self.clock().now(),
            added_by: caller.subject().clone(),
        };
        self.access().introduce(vec![record.clone()]).await.map_err(|error| error.refusal())?;
        slot.record_durably(self.act(actor, &caller, AuditAction::AgentsChanged, None, Some(format!("added {agent}"))))
            .await?;
        Ok(record)
    }

    /// Forgets an agent. Its tokens are refused from now on, unless its DID certifies itself; revoke it for those.
    pub async fn forget_agent(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        agent: &Subject,
    ) -> Result<(), Refusal> {
        let caller = self.permitted(actor, Action::ManageAgents).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        let slot = self.parts.recorder.reserve().await?;
        if !self.access().forget(&tenant, agent).await.map_err(|error| error.refusal())? {
            return Err(Refusal::new(ErrorCode::E3207, format!("there is no agent `{agent}` here"))
                .hint("GET /v1/agents lists those there are"));
        }
        slot.record_durably(self.act(
            actor,
            &caller,
            AuditAction::AgentsChanged,
            None,
            Some(format!("removed {agent}")),
        ))
        .await?;
        Ok(())
    }

    /// The activations of a tenant; without one and for the installation's administrators, of all tenants.
    pub async fn activations(&self, actor: Actor<'_>, tenant: Option<&TenantId>) -> Result<Vec<Activation>, Refusal> {
        let caller = self.permitted(actor, Action::SeeAccess).await?;
        let snapshot = self.access().snapshot();
        if tenant.is_none() && caller.tenant().is_home() {
            let all = snapshot.tenants();
            return Ok(all.iter().flat_map(|record| snapshot.activations(&record.tenant)).cloned().collect());
        }
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        Ok(snapshot.activations(&tenant).into_iter().cloned().collect())
    }

    /// Adds or changes activations. Agents and tenants that are new are introduced thereby.
    pub async fn put_activations(
        &self,
        actor: Actor<'_>,
        wishes: Vec<ActivationWish>,
    ) -> Result<Vec<Activation>, Refusal> {
        let caller = self.permitted(actor, Action::ManageActivations).await?;
        at_most(wishes.len())?;
        let now = self.clock().now();
        let (mut activations, mut agents) = (Vec::new(), Vec::new());
        for wish in wishes {
            wish.overrides.check().map_err(|error| {
                Refusal::new(ErrorCode::E3004, format!("policy_overrides: {error}"))
                    .hint("overrides can only make a tool stricter than its manifest")
            })?;
            let tenant = self.tenant_for(actor, &caller, wish.tenant.as_ref()).await?;
            if let ToolPattern::One(named) = &wish.tool {
                self.is_no_former_name(&tenant, named)?;
            }
            let agent = match wish.agent.clone() {
                Some(agent) => {
                    subject_is_fine(&agent)?;
                    agent
                }
                None => EVERY_AGENT.parse().map_err(|_| Refusal::new(ErrorCode::E3000, "`*` is no subject"))?,
            };
            agents.push(AgentRecord {
                tenant: tenant.clone(),
                agent: agent.clone(),
                document: None,
                added_at: now,
                added_by: caller.subject().clone(),
            });
            let ActivationWish { tool, enabled, overrides, replaces, .. } = wish;
            let snapshot = self.access().snapshot();
            replaces.holds(snapshot.activation(&tenant, &agent, &tool))?;
            let id = new_token_id(self.entropy());
            let (created_at, updated_at) = (now, now);
            activations.push(Activation { id, tenant, agent, tool, enabled, overrides, created_at, updated_at });
        }
        let slot = self.parts.recorder.reserve().await?;
        self.access().introduce(agents).await.map_err(|error| error.refusal())?;
        self.access().put_activations(&activations).await.map_err(|error| error.refusal())?;
        let line = |one: &Activation| {
            format!("{} {} {} {}", one.tenant, one.agent, one.tool, if one.enabled { "on" } else { "off" })
        };
        let mut note = activations.iter().take(NOTED_MAX).map(line).collect::<Vec<_>>().join("; ");
        if activations.len() > NOTED_MAX {
            note.push_str(&format!("; and {} more", activations.len() - NOTED_MAX));
        }
        slot.record_durably(self.act(actor, &caller, AuditAction::ActivationsChanged, None, Some(note))).await?;
        // One that was replaced has kept its id and its beginning.
        let snapshot = self.access().snapshot();
        let stored = |one: Activation| match snapshot.activation(&one.tenant, &one.agent, &one.tool) {
            Some(found) => Activation { id: found.id, created_at: found.created_at, ..one },
            None => one,
        };
        Ok(activations.into_iter().map(stored).collect())
    }
}

/// Agents are introduced under names that a token could have.
fn subject_is_fine(agent: &Subject) -> Result<(), Refusal> {
    match did_of_subject(agent) {
        Ok(_) => Ok(()),
        Err(why) => Err(Refusal::new(ErrorCode::E3004, format!("`agent_id` looks like a DID and is none: {why}"))
            .hint("write the DID as its method has it, or use a plain name")),
    }
}

fn tenant_as_wished(wish: &TenantWish, snapshot: &crate::access::AccessSnapshot) -> TenantRecord {
    let known = snapshot.tenant(&wish.tenant);
    TenantRecord {
        tenant: wish.tenant.clone(),
        name: wish
            .name
            .clone()
            .or_else(|| known.map(|known| known.name.clone()))
            .unwrap_or_else(|| wish.tenant.to_string()),
        visibility: wish.visibility.or_else(|| known.and_then(|known| known.visibility)),
        tools: wish
            .tools
            .clone()
            .or_else(|| known.map(|known| known.tools.clone()))
            .unwrap_or_else(|| vec![ToolPattern::All]),
        enabled: wish.enabled.or_else(|| known.map(|known| known.enabled)).unwrap_or(true),
    }
}

fn at_most(count: usize) -> Result<(), Refusal> {
    if count <= AT_ONCE_MAX {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::E3004, format!("more than {AT_ONCE_MAX} entries at once")).hint("send them in parts"))
}
