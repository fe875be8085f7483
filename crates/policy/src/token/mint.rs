//! Making tokens with this server's own key.

use contract::ids::{Subject, TenantId};

use super::{AUDIENCE, Audience, Claims, ISSUER};
use crate::argument_limit::ArgumentLimit;
use crate::budget::Budget;
use crate::delegation::Delegator;
use crate::grant::ToolGrant;
use crate::jose::{self, SigningKey, TOKEN_BYTES_MAX};
use crate::role::Role;
use crate::scope::Scope;

/// Shortest and longest life of a token.
const TTL_SECONDS: std::ops::RangeInclusive<u64> = 1..=31_536_000;

/// In whose name and for whom tokens are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Minter {
    pub issuer: String,
    pub audience: String,
}

/// What a new token should say.
#[derive(Debug, Clone, PartialEq)]
pub struct MintRequest {
    pub sub: Subject,
    pub tenant: TenantId,
    pub roles: Vec<Role>,
    pub tools: Vec<ToolGrant>,
    pub scopes: Vec<Scope>,
    pub user_did: Option<Subject>,
    pub session_id: Option<String>,
    pub ttl_seconds: u64,
    pub limits: Vec<ArgumentLimit>,
    pub budget: Option<Budget>,
    /// Who hands it on. Whether it is narrower than theirs is the business of whoever asks; verification checks it.
    pub act: Option<Box<Delegator>>,
}

/// Why a token was not minted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    #[error("ttl_seconds must be between {} and {}", TTL_SECONDS.start(), TTL_SECONDS.end())]
    Ttl,
    #[error("the token would be longer than {TOKEN_BYTES_MAX} bytes: name fewer tools or scopes")]
    TooLong,
}

impl Default for Minter {
    fn default() -> Self {
        Self { issuer: ISSUER.to_owned(), audience: AUDIENCE.to_owned() }
    }
}

impl Minter {
    /// Mints a token. `token_id` must be unique; `now_ms` is milliseconds since the epoch.
    pub fn mint(
        &self,
        request: &MintRequest,
        key: &SigningKey,
        token_id: String,
        now_ms: i64,
    ) -> Result<(String, Claims), MintError> {
        if !TTL_SECONDS.contains(&request.ttl_seconds) {
            return Err(MintError::Ttl);
        }
        let now = now_ms.div_euclid(1000);
        let claims = Claims {
            iss: self.issuer.clone(),
            aud: Audience::One(self.audience.clone()),
            sub: request.sub.clone(),
            exp: now.saturating_add_unsigned(request.ttl_seconds),
            nbf: now,
            iat: now,
            jti: token_id,
            tenant: request.tenant.clone(),
            roles: request.roles.clone(),
            tools: request.tools.clone(),
            scopes: request.scopes.clone(),
            user_did: request.user_did.clone(),
            session_id: request.session_id.clone(),
            limits: request.limits.clone(),
            budget: request.budget.clone(),
            act: request.act.clone(),
        };
        // Claims are plain data: there is nothing in them that JSON cannot have.
        let payload = serde_json::to_vec(&claims).unwrap_or_default();
        let token = jose::write(&payload, key);
        if token.len() > TOKEN_BYTES_MAX { Err(MintError::TooLong) } else { Ok((token, claims)) }
    }
}

/// Mints a token in the names this server has without configuration.
pub fn mint(
    request: &MintRequest,
    key: &SigningKey,
    token_id: String,
    now_ms: i64,
) -> Result<(String, Claims), MintError> {
    Minter::default().mint(request, key, token_id, now_ms)
}
