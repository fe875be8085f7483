//! Who is calling, once that has been verified.

use contract::ids::{Subject, TenantId, ToolId};
use contract::version::Version;

use crate::grant::ToolGrant;
use crate::role::{Action, Role};
use crate::scope::Scope;

/// How the caller proved itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// The bootstrap secret of the data directory.
    AdminToken,
    /// A signed capability token.
    CapabilityToken,
}

/// A verified caller. Made by the [`Authenticator`](crate::Authenticator) only.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    pub(crate) kind: CallerKind,
    pub(crate) subject: Subject,
    pub(crate) tenant: TenantId,
    pub(crate) roles: Vec<Role>,
    pub(crate) tools: Vec<ToolGrant>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) user: Option<Subject>,
    pub(crate) session: Option<String>,
    pub(crate) token_id: Option<String>,
    /// Milliseconds since the epoch.
    pub(crate) expires_at_ms: Option<i64>,
}

impl Caller {
    /// How the caller proved itself.
    pub fn kind(&self) -> CallerKind {
        self.kind
    }

    /// The agent, person or service that calls.
    pub fn subject(&self) -> &Subject {
        &self.subject
    }

    /// On whose ground.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// On whose behalf, if the token says so.
    pub fn user(&self) -> Option<&Subject> {
        self.user.as_ref()
    }

    /// In which session, if the token says so.
    pub fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// The token's `jti`.
    pub fn token_id(&self) -> Option<&str> {
        self.token_id.as_deref()
    }

    /// When the token ends, in milliseconds since the epoch; the bootstrap secret does not.
    pub fn expires_at_ms(&self) -> Option<i64> {
        self.expires_at_ms
    }

    /// May the caller do this administrative act?
    pub fn may(&self, action: Action) -> bool {
        self.roles.iter().any(|role| role.may(action))
    }

    /// Does the token name this tool in this version?
    pub fn may_call(&self, tool: &ToolId, version: &Version) -> bool {
        self.tools.iter().any(|grant| grant.allows(tool, version))
    }

    /// Does the token name this tool in any version? Decides what listings show.
    pub fn may_know(&self, tool: &ToolId) -> bool {
        self.may(Action::SeeWholeCatalogue) || self.tools.iter().any(|grant| grant.tool_id.matches(tool))
    }

    /// The first of `required` that no granted scope covers.
    pub fn missing_scope<'r>(&self, required: impl IntoIterator<Item = &'r str>) -> Option<&'r str> {
        required.into_iter().find(|needed| !self.scopes.iter().any(|scope| scope.covers(needed)))
    }
}
