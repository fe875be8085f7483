//! Who is calling, once that has been verified.
//!
//! A caller is a value: what its token said, and a digest of everything that a decision can depend on, so that decisions
//! can be remembered per caller without remembering tokens. Times, budget and token id are not part of the digest: two
//! tokens of one agent with equal rights get equal decisions.

mod caller_record;

use contract::canonical;
use contract::ids::{Subject, TenantId, ToolId};
use contract::version::Version;
use serde_json::json;

use crate::argument_limit::ArgumentLimit;
use crate::budget::CallBudget;
use crate::call_owner::CallOwner;
use crate::delegation::{DelegatedRights, Delegator};
use crate::grant::ToolGrant;
use crate::role::{Action, Role};
use crate::scope::PermissionScope;
use crate::token::TokenClaims;

pub use caller_record::CallerRecord;

/// How the caller proved itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallerKind {
    /// The bootstrap secret of the data directory.
    AdminToken,
    /// A signed capability token.
    CapabilityToken,
}

/// A verified caller. Made by the [`Authenticator`](crate::Authenticator) and by [`verify`](crate::verify) only; a [`CallerRecord`]
/// is read back by the former.
#[derive(Debug, Clone, PartialEq)]
pub struct Caller {
    kind: CallerKind,
    subject: Subject,
    tenant: TenantId,
    roles: Vec<Role>,
    tools: Vec<ToolGrant>,
    scopes: Vec<PermissionScope>,
    limits: Vec<ArgumentLimit>,
    budget: Option<CallBudget>,
    user: Option<Subject>,
    session: Option<String>,
    issuer: Option<String>,
    token_id: Option<String>,
    /// Seconds since the epoch.
    issued_at: Option<i64>,
    /// Seconds since the epoch, as the token has it.
    expires_at: Option<i64>,
    /// Milliseconds since the epoch, with what clocks may differ.
    expires_at_ms: Option<i64>,
    chain: Vec<Delegator>,
    digest: [u8; 32],
}

impl Caller {
    /// The holder of the bootstrap secret: everything, for ever.
    pub(crate) fn administrator(
        subject: Subject,
        tenant: TenantId,
        tools: Vec<ToolGrant>,
        scopes: Vec<PermissionScope>,
    ) -> Self {
        Self {
            kind: CallerKind::AdminToken,
            subject,
            tenant,
            roles: vec![Role::Admin],
            tools,
            scopes,
            limits: Vec::new(),
            budget: None,
            user: None,
            session: None,
            issuer: None,
            token_id: None,
            issued_at: None,
            expires_at: None,
            expires_at_ms: None,
            chain: Vec::new(),
            digest: [0; 32],
        }
        .digested()
    }

    /// From claims that have been verified.
    pub(crate) fn from_token(claims: TokenClaims, chain: Vec<Delegator>, leeway_seconds: u32) -> Self {
        Self {
            kind: CallerKind::CapabilityToken,
            subject: claims.sub,
            tenant: claims.tenant,
            roles: claims.roles,
            tools: claims.tools,
            scopes: claims.scopes,
            limits: claims.limits,
            budget: claims.budget,
            user: claims.user_did,
            session: claims.session_id,
            issuer: Some(claims.iss),
            token_id: Some(claims.jti),
            issued_at: Some(claims.iat),
            expires_at: Some(claims.exp),
            expires_at_ms: Some(claims.exp.saturating_add(leeway_seconds.into()).saturating_mul(1000)),
            chain,
            digest: [0; 32],
        }
        .digested()
    }

    fn digested(mut self) -> Self {
        let facts = json!({
            "tenant": self.tenant, "subject": self.subject, "user": self.user, "session": self.session,
            "roles": self.roles, "tools": self.tools, "scopes": self.scopes, "limits": self.limits,
            // What is forbidden to those who handed the token on is forbidden with it.
            "chain": self.chain.iter().map(|link| json!([link.sub, link.roles, link.scopes])).collect::<Vec<_>>(),
        });
        self.digest = *canonical::digest(&facts).as_bytes();
        self
    }

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

    /// Who issued the token (`iss`).
    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// The token's `jti`. Unique per issuer.
    pub fn token_id(&self) -> Option<&str> {
        self.token_id.as_deref()
    }

    /// When the token was issued, in seconds since the epoch; the bootstrap secret was not.
    pub fn issued_at(&self) -> Option<i64> {
        self.issued_at
    }

    /// When the token ends for this server, in milliseconds since the epoch and with what clocks may differ; the
    /// bootstrap secret does not end.
    pub fn expires_at_ms(&self) -> Option<i64> {
        self.expires_at_ms
    }

    /// What the caller is to this server.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }

    /// Which tools the token names.
    pub fn tools(&self) -> &[ToolGrant] {
        &self.tools
    }

    /// What calls may touch.
    pub fn scopes(&self) -> &[PermissionScope] {
        &self.scopes
    }

    /// Which arguments calls may have.
    pub fn limits(&self) -> &[ArgumentLimit] {
        &self.limits
    }

    /// How much may be done with the token; `None` is without limit.
    pub fn budget(&self) -> Option<&CallBudget> {
        self.budget.as_ref()
    }

    /// Who handed the token on, nearest first; each without `act`.
    pub fn chain(&self) -> &[Delegator] {
        &self.chain
    }

    /// The root of the delegation chain: the subject an authority named, before any token exchange. Whatever is counted for
    /// a subject is counted for the root too, because names below it are of the holder's own making.
    pub fn root_subject(&self) -> &Subject {
        self.chain.last().map_or(&self.subject, |link| &link.sub)
    }

    /// Whose calls these are: what is kept for a caller is compared by this and never by its name alone.
    pub fn owner(&self) -> CallOwner {
        CallOwner::of(self)
    }

    /// SHA-256 of tenant, subject, user, session, roles, tools, scopes and limits in their canonical form.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// What may be handed on at most. The bootstrap secret has no end, so its rights end at the end of time.
    pub fn rights(&self) -> DelegatedRights {
        DelegatedRights {
            tools: self.tools.clone(),
            scopes: self.scopes.clone(),
            limits: self.limits.clone(),
            budget: self.budget.clone(),
            expires_at: self.expires_at.unwrap_or(i64::MAX),
        }
    }

    /// May the caller do this administrative act?
    pub fn may(&self, action: Action) -> bool {
        self.roles.iter().any(|role| role.may(action))
    }

    /// Does the token name this tool in this version?
    pub fn may_call(&self, tool: &ToolId, version: &Version) -> bool {
        self.tools.iter().any(|grant| grant.allows(tool, version))
    }

    /// Does the token name this tool in any version? Decides what may be told about it.
    pub fn names(&self, tool: &ToolId) -> bool {
        self.tools.iter().any(|grant| grant.tool_id.matches(tool))
    }

    /// The first of `required` that no granted scope covers.
    pub fn missing_scope<'r>(&self, required: impl IntoIterator<Item = &'r str>) -> Option<&'r str> {
        required.into_iter().find(|needed| !self.scopes.iter().any(|scope| scope.covers(needed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn caller(change: impl FnOnce(&mut Value)) -> Caller {
        let mut claims = json!({
            "iss": "gantry", "aud": "gantry", "sub": "s", "exp": 60, "nbf": 0, "iat": 0, "jti": "j", "tenant": "t",
            "roles": ["agent"], "tools": [{"tool_id": "demo.*"}], "scopes": ["tool:a"], "user_did": "u", "session_id": "i",
        });
        change(&mut claims);
        Caller::from_token(serde_json::from_value(claims).unwrap(), Vec::new(), 30)
    }

    #[test]
    fn the_digest_is_of_what_decisions_depend_on() {
        let digest = *caller(|_| {}).digest();
        let same = [("jti", json!("other")), ("exp", json!(70)), ("iat", json!(1)), ("budget", json!({"calls": 1}))];
        for (name, value) in same {
            assert_eq!(*caller(|claims| claims[name] = value).digest(), digest, "{name}");
        }
        let different = [
            ("tenant", json!("t2")),
            ("sub", json!("s2")),
            ("user_did", Value::Null),
            ("session_id", json!("i2")),
            ("roles", json!([])),
            ("tools", json!([{"tool_id": "demo.*", "version_range": "^1.0.0"}])),
            ("scopes", json!(["tool:b"])),
            ("limits", json!([{"tool_id": "*", "argument": "/a", "max": 1}])),
        ];
        for (name, value) in different {
            assert_ne!(*caller(|claims| claims[name] = value).digest(), digest, "{name}");
        }
    }

    #[test]
    fn leeway_lengthens_the_life_here_and_not_what_may_be_handed_on() {
        let caller = caller(|_| {});
        assert_eq!((caller.expires_at_ms(), caller.rights().expires_at), (Some(90_000), 60));
    }
}
