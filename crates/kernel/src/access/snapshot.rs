//! Everything about access at one moment, arranged for looking up. No I/O, no locks.

use std::collections::HashMap;
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use policy::{
    Caller, CallerKind, Delegator, Policies, PolicyOverrides, ToolPattern, VisibilityDefault, WhyUnavailable, reach,
    specificity,
};
use ports::access_store::{
    AccessState, Activation, AgentRecord, PolicyRecord, Revocation, RevokedIssuers, RevokedTokens, TenantRecord,
};
use ports::clock::UnixMillis;

/// The agent id of an activation that is for every agent of its tenant.
pub(crate) const EVERY_AGENT: &str = "*";

/// The policies of the platform or of one tenant.
#[derive(Debug)]
pub struct PolicyLayer {
    /// `None`: nobody has written any; everything else that must allow a call still must.
    pub record: Option<PolicyRecord>,
    /// `None`: what is stored cannot be used, so nothing is allowed (ACC-3).
    pub policies: Option<Policies>,
}

/// What a tenant has.
#[derive(Debug)]
struct Ground {
    record: TenantRecord,
    agents: HashMap<Subject, AgentRecord>,
    activations: HashMap<Subject, Vec<Activation>>,
    /// Those of the tenant as a whole.
    for_everybody: Vec<Activation>,
    policies: Option<Arc<PolicyLayer>>,
    revoked: HashMap<Subject, UnixMillis>,
    revoked_tokens: HashMap<String, RevokedIssuers>,
}

/// Access at one moment.
#[derive(Debug)]
pub struct AccessSnapshot {
    pub(crate) epoch: u64,
    grounds: HashMap<TenantId, Ground>,
    home: TenantId,
    platform: Arc<PolicyLayer>,
    /// What the configuration says; `None` is the zero-configuration profile.
    visibility: Option<VisibilityDefault>,
}

impl AccessSnapshot {
    /// From what the store has. Layers that have not changed are taken over from `former`, because compiling is slow.
    pub(crate) fn new(state: AccessState, visibility: Option<VisibilityDefault>, former: Option<&Self>) -> Self {
        let mut grounds: HashMap<TenantId, Ground> = HashMap::new();
        let home = TenantId::home();
        grounds.insert(home.clone(), Ground::new(home_record(home.clone())));
        for record in state.tenants {
            grounds.insert(record.tenant.clone(), Ground::new(record));
        }
        for agent in state.agents {
            if let Some(ground) = grounds.get_mut(&agent.tenant) {
                ground.agents.insert(agent.agent.clone(), agent);
            }
        }
        for activation in state.activations {
            if let Some(ground) = grounds.get_mut(&activation.tenant) {
                if activation.agent.as_str() == EVERY_AGENT {
                    ground.for_everybody.push(activation);
                } else {
                    ground.activations.entry(activation.agent.clone()).or_default().push(activation);
                }
            }
        }
        let mut platform = None;
        for record in state.policies {
            match record.tenant.clone() {
                None => platform = Some(layer(record, former.map(|f| &f.platform))),
                Some(tenant) => {
                    let known = former.and_then(|f| f.grounds.get(&tenant)).and_then(|ground| ground.policies.as_ref());
                    if let Some(ground) = grounds.get_mut(&tenant) {
                        ground.policies = Some(layer(record, known));
                    }
                }
            }
        }
        for Revocation { what, issuers, at, .. } in state.revocations {
            match what {
                RevokedTokens::Token(tenant, id) => {
                    if let Some(ground) = grounds.get_mut(&tenant) {
                        ground.revoked_tokens.insert(id, issuers);
                    }
                }
                RevokedTokens::Subject(tenant, subject) => {
                    if let Some(ground) = grounds.get_mut(&tenant) {
                        ground.revoked.insert(subject, at);
                    }
                }
            }
        }
        // The most specific activation is found first.
        for ground in grounds.values_mut() {
            for list in ground.activations.values_mut().chain([&mut ground.for_everybody]) {
                list.sort_by_key(|activation| std::cmp::Reverse(specificity(&activation.tool)));
            }
        }
        let platform = platform.unwrap_or_else(|| Arc::new(PolicyLayer { record: None, policies: None }));
        Self { epoch: state.epoch, grounds, home, platform, visibility }
    }

    /// Is the tenant known here, and switched on? One that is switched off gets nothing.
    pub fn is_open(&self, tenant: &TenantId) -> bool {
        self.grounds.get(tenant).is_some_and(|ground| ground.record.enabled)
    }

    /// May a caller who proved itself act at all? Asked at every call; nothing remembers the answer.
    pub(crate) fn standing(&self, caller: &Caller) -> Result<(), Refusal> {
        if caller.kind() == CallerKind::AdminToken {
            return Ok(());
        }
        let Some(ground) = self.grounds.get(caller.tenant()).filter(|ground| ground.record.enabled) else {
            return Err(Refusal::new(ErrorCode::E3206, "the token's tenant is not known here, or is switched off")
                .hint("ask an administrator to add or enable the tenant"));
        };
        self.not_revoked(ground, caller)
    }

    fn not_revoked(&self, ground: &Ground, caller: &Caller) -> Result<(), Refusal> {
        // Issue times are whole seconds, so a token of the very second of the revocation is void too.
        let of_subject = |subject: &Subject, issued: Option<i64>| {
            ground.revoked.get(subject).is_some_and(|at| issued.is_none_or(|issued| issued <= at.0.div_euclid(1000)))
        };
        // What the home tenant revokes is void everywhere; a tenant revokes its own only.
        let void = [Some(ground), self.grounds.get(&self.home)];
        // An id is unique among those of its issuer only.
        let of_token = |id: Option<&str>, issuer: Option<&str>| {
            let issuers =
                id.into_iter().flat_map(|id| void.iter().flatten().filter_map(|it| it.revoked_tokens.get(id)));
            issuers.into_iter().any(|issuers| issuers.includes(issuer))
        };
        if of_token(caller.token_id(), caller.issuer()) || of_subject(caller.subject(), caller.issued_at()) {
            return Err(Refusal::new(ErrorCode::E3201, "the token has been revoked").hint("obtain a new token"));
        }
        let parent_void =
            |link: &Delegator| of_token(link.jti.as_deref(), link.iss.as_deref()) || of_subject(&link.sub, link.iat);
        if caller.chain().iter().any(parent_void) {
            return Err(Refusal::new(ErrorCode::E3201, "a token that this one was delegated from has been revoked")
                .hint("obtain a new token from somebody whose own is valid"));
        }
        Ok(())
    }

    /// What one agent of a tenant has. Looked up once, to be asked about many tools.
    pub(crate) fn view<'a>(&'a self, tenant: &'a TenantId, agent: &Subject) -> AgentAccess<'a> {
        let ground = self.grounds.get(tenant);
        AgentAccess {
            tenant,
            tools: ground.map(|ground| ground.record.tools.as_slice()).unwrap_or_default(),
            own: ground.and_then(|ground| ground.activations.get(agent)).map(Vec::as_slice).unwrap_or_default(),
            for_everybody: ground.map(|ground| ground.for_everybody.as_slice()).unwrap_or_default(),
            default: self.visibility_of(tenant),
        }
    }

    /// What holds in a tenant where no activation says otherwise.
    pub(crate) fn visibility_of(&self, tenant: &TenantId) -> VisibilityDefault {
        let own = self.grounds.get(tenant).and_then(|ground| ground.record.visibility);
        let unconfigured = || if tenant.is_home() { VisibilityDefault::Enabled } else { VisibilityDefault::ReadOnly };
        own.or(self.visibility).unwrap_or_else(unconfigured)
    }

    /// Has an administrator introduced this subject to this tenant?
    pub(crate) fn knows(&self, tenant: &TenantId, subject: &Subject) -> bool {
        self.grounds.get(tenant).is_some_and(|ground| ground.agents.contains_key(subject))
    }

    /// Is this the name of somebody else's agent? One of the home tenant, or, if it is a DID, which is one name for
    /// everybody, one of any other tenant.
    pub(crate) fn is_known_elsewhere(&self, tenant: &TenantId, subject: &Subject) -> bool {
        let is_did = subject.as_str().starts_with("did:");
        let mut others = self.grounds.iter().filter(|(other, _)| *other != tenant && (is_did || other.is_home()));
        !tenant.is_home() && others.any(|(_, ground)| ground.agents.contains_key(subject))
    }

    /// The policies that apply to everybody.
    pub fn platform(&self) -> &Arc<PolicyLayer> {
        &self.platform
    }

    /// The policies that a tenant has added.
    pub fn tenant_policies(&self, tenant: &TenantId) -> Option<&Arc<PolicyLayer>> {
        self.grounds.get(tenant)?.policies.as_ref()
    }

    /// A tenant by its name.
    pub fn tenant(&self, tenant: &TenantId) -> Option<&TenantRecord> {
        self.grounds.get(tenant).map(|ground| &ground.record)
    }

    /// All tenants, in the order of their names.
    pub fn tenants(&self) -> Vec<&TenantRecord> {
        let mut all: Vec<_> = self.grounds.values().map(|ground| &ground.record).collect();
        all.sort_by(|a, b| a.tenant.cmp(&b.tenant));
        all
    }

    /// The agents that were introduced to a tenant, in the order of their names.
    pub fn agents(&self, tenant: &TenantId) -> Vec<&AgentRecord> {
        let mut all: Vec<_> =
            self.grounds.get(tenant).map(|ground| ground.agents.values().collect()).unwrap_or_default();
        all.sort_by(|a: &&AgentRecord, b| a.agent.cmp(&b.agent));
        all
    }

    /// The activations of a tenant, by agent and tool.
    pub fn activations(&self, tenant: &TenantId) -> Vec<&Activation> {
        let ground = self.grounds.get(tenant);
        let mut all: Vec<&Activation> = ground
            .into_iter()
            .flat_map(|ground| ground.activations.values().flatten().chain(&ground.for_everybody))
            .collect();
        all.sort_by_cached_key(|activation: &&Activation| (activation.agent.clone(), activation.tool.to_string()));
        all
    }

    /// The activation of exactly this agent (or of everybody) and this pattern.
    pub(crate) fn activation(&self, tenant: &TenantId, agent: &Subject, tool: &ToolPattern) -> Option<&Activation> {
        let ground = self.grounds.get(tenant)?;
        let own = ground.activations.get(agent).into_iter().flatten();
        own.chain(&ground.for_everybody).find(|one| one.agent == *agent && one.tool == *tool)
    }
}

impl Ground {
    fn new(record: TenantRecord) -> Self {
        Self {
            record,
            agents: HashMap::new(),
            activations: HashMap::new(),
            for_everybody: Vec::new(),
            policies: None,
            revoked: HashMap::new(),
            revoked_tokens: HashMap::new(),
        }
    }
}

/// What one agent of a tenant has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AgentAccess<'a> {
    tenant: &'a TenantId,
    tools: &'a [ToolPattern],
    own: &'a [Activation],
    for_everybody: &'a [Activation],
    default: VisibilityDefault,
}

impl<'a> AgentAccess<'a> {
    /// Is the tool of the tenant's tier 2? `owner` is the tenant that published it.
    pub(crate) fn has(&self, owner: &TenantId, tool: &ToolId) -> bool {
        self.tools.iter().any(|pattern| pattern.matches(tool)) || owner == self.tenant
    }

    /// Is a tool of tier 2 in the agent's tier 3? If so, with which overrides?
    ///
    /// What an activation takes away under one of the tool's other names is taken away; what it gives is given by name only.
    ///
    /// `effects` is asked for only if it matters, because a listing would have to fetch it from far away for every tool.
    pub(crate) fn reach(
        &self,
        tool: &ToolId,
        aliases: &[ToolId],
        effects: impl FnOnce() -> SideEffectPolicy,
    ) -> Result<Vec<&'a PolicyOverrides>, WhyUnavailable> {
        let activation = self.activation(tool);
        if activation.is_some() || self.default != VisibilityDefault::Enabled {
            reach(activation.map(|found| found.enabled), self.default, effects())?;
        }
        let renamed = aliases.iter().filter_map(|alias| self.activation_of_name(alias));
        let all: Vec<&Activation> = activation.into_iter().chain(renamed).collect();
        if all.iter().any(|activation| !activation.enabled) {
            return Err(WhyUnavailable::DisabledForAgent);
        }
        Ok(all.into_iter().map(|activation| &activation.overrides).collect())
    }

    /// The record about exactly this name, and no pattern that happens to match it.
    fn activation_of_name(&self, name: &ToolId) -> Option<&'a Activation> {
        let is_about = |activation: &&Activation| matches!(&activation.tool, ToolPattern::One(one) if one == name);
        self.own.iter().chain(self.for_everybody).find(is_about)
    }

    /// The record that decides: the agent's own before the tenant's, the more specific before the more general.
    fn activation(&self, tool: &ToolId) -> Option<&'a Activation> {
        self.own.iter().chain(self.for_everybody).find(|activation| activation.tool.matches(tool))
    }
}

fn home_record(home: TenantId) -> TenantRecord {
    TenantRecord {
        tenant: home,
        name: "this installation".into(),
        visibility: None,
        tools: vec![ToolPattern::All],
        enabled: true,
    }
}

fn layer(record: PolicyRecord, known: Option<&Arc<PolicyLayer>>) -> Arc<PolicyLayer> {
    if let Some(known) = known
        && known.record.as_ref() == Some(&record)
    {
        return Arc::clone(known);
    }
    let policies = match Policies::compile_accepted(&record.text) {
        Ok(policies) => {
            let found = policies.warnings();
            if let Some(first) = found.first() {
                tracing::warn!(version = record.version, warnings = found.len(), %first, "a policy in force may never hold");
            }
            Some(policies)
        }
        Err(problems) => {
            let first = problems.first().map(ToString::to_string).unwrap_or_default();
            tracing::error!(
                version = record.version,
                problems = problems.len(),
                first,
                "stored policies cannot be used; every call they apply to is refused until they are replaced"
            );
            None
        }
    };
    Arc::new(PolicyLayer { record: Some(record), policies })
}
