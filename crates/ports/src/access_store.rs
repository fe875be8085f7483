//! The durable truth about access: tenants, agents, activations, policies and their history, revocations, spending.
//!
//! Every change raises the *epoch*, one number for all of it: whoever holds a snapshot can tell whether it is old, and a
//! decision remembered under an older epoch is not used (DESIGN §8.6).

use std::fmt;

use async_trait::async_trait;
use contract::ids::{Subject, TenantId};
use policy::{PolicyOverrides, ToolPattern, VisibilityDefault};
use uuid::Uuid;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantRecord {
    pub tenant: TenantId,
    /// For people.
    pub name: String,
    /// What its agents may use without an activation; `None` leaves it to the configuration.
    pub visibility: Option<VisibilityDefault>,
    /// Which shared tools of the catalogue it has (tier 2). Its own tools it has anyway.
    pub tools: Vec<ToolPattern>,
    /// A tenant that is switched off gets nothing.
    pub enabled: bool,
}

/// An agent or other subject that somebody with the right to do so has introduced: the local DID registry (AUTH-012).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentRecord {
    pub tenant: TenantId,
    pub agent: Subject,
    /// The DID document, if one was given, as JSON text.
    pub document: Option<String>,
    pub added_at: UnixMillis,
    pub added_by: Subject,
}

/// What an agent may use, and how (VIS-003).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activation {
    /// Made when it is put for the first time; it stays when it is replaced.
    pub id: Uuid,
    pub tenant: TenantId,
    pub agent: Subject,
    /// A tool id, `namespace.*` or `*`; the most specific record decides.
    pub tool: ToolPattern,
    pub enabled: bool,
    pub overrides: PolicyOverrides,
    /// When it was put for the first time.
    pub created_at: UnixMillis,
    /// When it was put last.
    pub updated_at: UnixMillis,
}

/// One version of the policies of a tenant, or of the platform (`None`), as Cedar text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyRecord {
    pub tenant: Option<TenantId>,
    /// From 1, without gaps, per tenant.
    pub version: u64,
    pub text: String,
    pub added_at: UnixMillis,
    pub added_by: Subject,
}

/// Whose tokens are void.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RevokedTokens {
    /// One token of a tenant; revoked by the home tenant, of whichever tenant it is.
    Token(TenantId, String),
    /// Every token of a subject in a tenant that was issued up to the moment of revocation.
    Subject(TenantId, Subject),
}

/// Whose tokens a revocation of a token's id is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RevokedIssuers {
    /// Everybody's. So is the revocation of a subject, and every one from before issuers were kept.
    #[default]
    All,
    /// Those of these, in no particular order.
    These(Vec<String>),
}

impl RevokedIssuers {
    /// Those of one issuer. One whose name has line breaks cannot be kept, and stands for all.
    pub fn only(issuer: &str) -> Self {
        if issuer.is_empty() || issuer.contains(['\n', '\0']) {
            Self::All
        } else {
            Self::These(vec![issuer.to_owned()])
        }
    }

    /// As it is kept: one on each line, nothing for all.
    pub fn to_lines(&self) -> Option<String> {
        match self {
            Self::All => None,
            Self::These(issuers) => Some(issuers.join("\n")),
        }
    }

    /// From what was kept.
    pub fn of_lines(lines: Option<&str>) -> Self {
        lines.map_or(Self::All, |lines| Self::These(lines.lines().map(str::to_owned).collect()))
    }

    /// What either of two says.
    #[must_use]
    pub fn joined(self, other: &Self) -> Self {
        match (self, other) {
            (Self::These(mut issuers), Self::These(others)) => {
                issuers.extend(others.iter().filter(|other| !issuers.contains(other)).cloned().collect::<Vec<_>>());
                Self::These(issuers)
            }
            (Self::All, _) | (_, Self::All) => Self::All,
        }
    }

    /// Is a token of this issuer void by it? Of one whose issuer nobody knows, too.
    pub fn includes(&self, issuer: Option<&str>) -> bool {
        match (self, issuer) {
            (Self::All, _) | (_, None) => true,
            (Self::These(issuers), Some(issuer)) => issuers.iter().any(|one| one == issuer),
        }
    }
}

/// A revocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    pub what: RevokedTokens,
    /// The issuers of the token that is void, whose id is unique among those of one issuer only. Of two revocations of one
    /// token, what is void is joined.
    pub issuers: RevokedIssuers,
    pub at: UnixMillis,
    pub by: Subject,
    /// From when on its tokens could not be used anyway; `None` if nobody knows.
    pub needless_from: Option<UnixMillis>,
}

/// Everything that is in force.
#[derive(Debug, Clone, Default)]
pub struct AccessState {
    pub epoch: u64,
    pub tenants: Vec<TenantRecord>,
    pub agents: Vec<AgentRecord>,
    pub activations: Vec<Activation>,
    /// The newest version of each tenant's policies and of the platform's.
    pub policies: Vec<PolicyRecord>,
    pub revocations: Vec<Revocation>,
}

/// One count against one budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetSpending {
    /// The token, or one it was delegated from.
    pub token: String,
    pub calls_max: u64,
}

/// Keeps it. Every change is durable before it is answered, atomic, and answers the new epoch.
#[async_trait]
pub trait AccessStore: Send + Sync + fmt::Debug {
    /// Everything that is in force.
    async fn load(&self) -> Result<AccessState, StoreError>;

    /// Adds or replaces tenants.
    async fn put_tenants(&self, tenants: &[TenantRecord]) -> Result<u64, StoreError>;

    /// Adds agents; one that is there keeps its first record unless the new one brings a document.
    async fn put_agents(&self, agents: &[AgentRecord]) -> Result<u64, StoreError>;

    /// Removes an agent; `None` if it was not there (and nothing has changed).
    async fn remove_agent(&self, tenant: &TenantId, agent: &Subject) -> Result<Option<u64>, StoreError>;

    /// Adds or replaces activations, each by its (tenant, agent, tool).
    async fn put_activations(&self, activations: &[Activation]) -> Result<u64, StoreError>;

    /// Adds a version of a tenant's policies. `version` of the record must be the next one: otherwise somebody else was
    /// faster, nothing is changed and `None` is answered.
    async fn add_policies(&self, record: &PolicyRecord) -> Result<Option<u64>, StoreError>;

    /// All versions of a tenant's policies, or of the platform's, newest first, at most `limit`.
    async fn policy_history(&self, tenant: Option<&TenantId>, limit: usize) -> Result<Vec<PolicyRecord>, StoreError>;

    /// Adds a revocation; one that is there keeps the later time and the later end, and none at all if either has none.
    /// Forgets those that are needless at its time.
    async fn revoke(&self, revocation: &Revocation) -> Result<u64, StoreError>;

    /// Counts one call against every budget, or against none: answers the first token whose budget is used up.
    async fn spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError>;

    /// What [`AccessStore::spend`] would answer. Nothing is counted.
    async fn would_spend(&self, spendings: &[BudgetSpending]) -> Result<Result<(), String>, StoreError>;
}
