//! What a verified caller was, written down for work that goes on without its token.
//!
//! A caller record holds the claims and never the token: whoever reads it can prove nothing to anybody with it. It does not end
//! with the token, because the work it stands for was let in while the token was good; whoever honours it asks again what
//! can be asked without a token (revocation, the tenant's standing, activation, policies) and has a limit of age of its own.
//!
//! Not here: how old a record may be, and where it is kept (`jobs`).

use contract::ids::{Subject, TenantId};
use serde::{Deserialize, Serialize};

use super::{Caller, CallerKind};
use crate::argument_limit::ArgumentLimit;
use crate::budget::CallBudget;
use crate::delegation::Delegator;
use crate::grant::ToolGrant;
use crate::role::Role;
use crate::scope::PermissionScope;

/// A caller, written down. Read back by [`Authenticator::honour`](crate::Authenticator::honour) only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallerRecord(Held);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Held {
    /// The holder of the bootstrap secret, whose rights are not written down but looked up.
    Administrator,
    Token(Box<HeldClaims>),
}

/// The members of a [`Caller`] that come from its token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeldClaims {
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
    issued_at: Option<i64>,
    chain: Vec<Delegator>,
    /// When the token ends. What was let in goes on without it; what is begun anew does not. Absent in records of earlier
    /// releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires_at_ms: Option<i64>,
}

impl CallerRecord {
    /// Could the token be shown at this moment, in milliseconds since the epoch? Not if nobody knows when it ends.
    pub fn is_current(&self, now_ms: i64) -> bool {
        match &self.0 {
            Held::Administrator => true,
            Held::Token(held) => held.expires_at_ms.is_some_and(|end| now_ms < end),
        }
    }

    /// Writes a verified caller down.
    pub fn of(caller: &Caller) -> Self {
        if caller.kind == CallerKind::AdminToken {
            return Self(Held::Administrator);
        }
        Self(Held::Token(Box::new(HeldClaims {
            subject: caller.subject.clone(),
            tenant: caller.tenant.clone(),
            roles: caller.roles.clone(),
            tools: caller.tools.clone(),
            scopes: caller.scopes.clone(),
            limits: caller.limits.clone(),
            budget: caller.budget.clone(),
            user: caller.user.clone(),
            session: caller.session.clone(),
            issuer: caller.issuer.clone(),
            token_id: caller.token_id.clone(),
            issued_at: caller.issued_at,
            chain: caller.chain.clone(),
            expires_at_ms: caller.expires_at_ms,
        })))
    }

    /// The caller it was, who cannot hand anything on any more.
    pub(crate) fn caller(self, administrator: &Caller) -> Caller {
        let held = match self.0 {
            Held::Administrator => return administrator.clone(),
            Held::Token(held) => *held,
        };
        Caller {
            kind: CallerKind::CapabilityToken,
            subject: held.subject,
            tenant: held.tenant,
            roles: held.roles,
            tools: held.tools,
            scopes: held.scopes,
            limits: held.limits,
            budget: held.budget,
            user: held.user,
            session: held.session,
            issuer: held.issuer,
            token_id: held.token_id,
            issued_at: held.issued_at,
            // Nothing may be delegated from it: what it could hand on has ended.
            expires_at: Some(0),
            expires_at_ms: None,
            chain: held.chain,
            digest: [0; 32],
        }
        .digested()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::jose::SigningKey;
    use crate::{Authenticator, BearerSecret, TokenTrust};

    #[test]
    fn a_caller_record_gives_the_same_caller_back_and_holds_no_token() {
        let claims = json!({
            "iss": "gantry", "aud": "gantry", "sub": "s", "exp": 60, "nbf": 0, "iat": 0, "jti": "j", "tenant": "t",
            "roles": ["agent"], "tools": [{"tool_id": "demo.*"}], "scopes": ["tool:a"], "user_did": "u", "session_id": "i",
            "limits": [{"tool_id": "*", "argument": "/a", "max": 1}], "budget": {"calls": 3},
        });
        let caller = Caller::from_token(serde_json::from_value(claims).unwrap(), Vec::new(), 30);
        let key = SigningKey::from_seed(&[3; 32]);
        let authenticator = Authenticator::new("s3cret", TokenTrust::own(key.verifying_key())).unwrap();
        let text = serde_json::to_string(&CallerRecord::of(&caller)).unwrap();
        let back = authenticator.honour(serde_json::from_str(&text).unwrap());
        assert_eq!(back.digest(), caller.digest());
        assert_eq!((back.token_id(), back.issued_at(), back.budget()), (Some("j"), Some(0), caller.budget()));
        assert_eq!((back.expires_at_ms(), back.rights().expires_at), (None, 0));

        let admin = authenticator.authenticate(Some(BearerSecret("s3cret")), 0).unwrap();
        let text = serde_json::to_string(&CallerRecord::of(&admin)).unwrap();
        assert_eq!(text, r#"{"kind":"administrator"}"#);
        assert_eq!(authenticator.honour(serde_json::from_str(&text).unwrap()), admin);
    }
}
