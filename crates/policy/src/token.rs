//! Capability tokens: who calls, what for and until when (AUTH-002…004, AUTH-014, AUTH-015, DESIGN §8.21).
//!
//! Verification is a function of (token, trust, now), in three steps that each take the former's word: the signature
//! ([`jose`](crate::jose)), the registered claims ([`verify_registered`]: issuer, audience, time), and the meaning of the
//! rest ([`verify`]: tenant, rights, chain of delegation). Nothing a token says is looked at before its signature is
//! verified, except which key it names. A token that is not spelt as one is malformed, whoever signed it.
//!
//! Invariants
//! - TOK-1: the issuer that a token names is the one whose key has signed it. A key of one issuer cannot speak for another.
//! - TOK-2: an issuer gives the roles it was trusted with and no others.
//! - TOK-3: every link of a chain is at least as wide and lives at least as long as the next one.
//! - TOK-4: who leaves roles out gains nothing: of an issuer that speaks of agents only, a token without roles is an agent's.
//!
//! Not here: revocation and caching (the kernel's), rights compared link by link (`delegation`).

mod chain;
mod claims;
mod mint;
mod trust;

pub use claims::{TokenAudience, TokenClaims};
pub use mint::{MintError, MintRequest, TokenMinter, mint};
pub use trust::{DELEGATION_DEPTH_MAX, TokenIssuerKeys, TokenTrust};

use contract::error::ErrorCode;
use contract::ids::Subject;
use contract::json::{self, JsonLimits};
use serde_json::Value;

use crate::authenticator::ADMIN_SUBJECT;
use crate::caller::Caller;
use crate::jose::{CompactToken, JwsError};
use crate::role::Role;

/// Who issues this server's own tokens, unless it is told otherwise.
pub const ISSUER: &str = "gantry";
/// The audience of tokens meant for this server, unless it is told otherwise.
pub const AUDIENCE: &str = "gantry";

/// Why a token was refused. Closed on purpose: a new reason needs a code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Another shape than that of a token.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// `iss` is not the owner of the key.
    #[error("the token's issuer (`iss`) is not the one whose key has signed it")]
    WrongIssuer,
    /// `aud` is somebody else.
    #[error("the token is meant for another service (`aud`)")]
    WrongAudience,
    /// The signature is not that of the key.
    #[error("the token's signature is not valid")]
    Signature,
    /// The key is not (or not yet) known: a key set that is fetched again may have it.
    #[error("the token is signed by a key this server does not know")]
    UnknownKey,
    /// `exp` has come.
    #[error("the token has expired")]
    Expired,
    /// `exp` of a link of the chain has come.
    #[error("a token that this one was delegated from has expired")]
    ParentExpired,
    /// `nbf` has not come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// Too many links.
    #[error("the token was handed on more than {max} times (`act`)")]
    TooDeep { max: usize },
    /// Somebody or some token stands twice in the chain.
    #[error("the token's chain of delegation (`act`) comes back to where it was")]
    Cyclic,
    /// More than its parent had.
    #[error("the token has rights that it cannot have been delegated: {0}")]
    Widened(String),
}

impl TokenError {
    /// The row of the error table.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed(_)
            | Self::WrongIssuer
            | Self::WrongAudience
            | Self::NotYetValid
            | Self::TooDeep { .. }
            | Self::Cyclic => ErrorCode::E3203,
            Self::Signature | Self::UnknownKey => ErrorCode::E3202,
            Self::Expired | Self::ParentExpired => ErrorCode::E3201,
            Self::Widened(_) => ErrorCode::E3206,
        }
    }

    /// What to do about it, where the table's general word does not say it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Malformed(_) | Self::Signature => None,
            Self::WrongIssuer => Some("ask for a token from an issuer that this server is configured to trust"),
            Self::WrongAudience => Some("ask the issuer for a token whose `aud` is this server's audience"),
            Self::UnknownKey => {
                Some("sign with a published key, or add the issuer's keys to this server's configuration")
            }
            Self::Expired => Some("obtain a new token"),
            Self::ParentExpired => Some("obtain a new token from the first link of the chain on"),
            Self::NotYetValid => Some("wait until `nbf`, and compare the clocks of issuer and server"),
            Self::TooDeep { .. } => Some("delegate from a token nearer to the user"),
            Self::Cyclic => Some("delegate to somebody who is not in the chain yet, under a new `jti`"),
            Self::Widened(_) => Some("ask for no more than the delegating token has"),
        }
    }
}

impl From<JwsError> for TokenError {
    fn from(error: JwsError) -> Self {
        match error {
            JwsError::Malformed(what) => Self::Malformed(what),
            JwsError::UnknownKey => Self::UnknownKey,
            JwsError::Signature => Self::Signature,
        }
    }
}

/// The claims of a token whose signature, issuer, audience and time are in order, and who has issued it.
#[derive(Debug)]
pub struct VerifiedClaims<'t> {
    pub issuer: &'t TokenIssuerKeys,
    /// A JSON object; its other members have not been looked at.
    pub claims: Value,
}

/// Verifies a token and says who calls. `now_ms` is milliseconds since the epoch.
pub fn verify(token: &str, trust: &TokenTrust, now_ms: i64) -> Result<Caller, TokenError> {
    let VerifiedClaims { issuer, claims } = verify_registered(token, trust, now_ms)?;
    let mut claims = TokenClaims::read(claims)?;
    if claims.roles.iter().any(|role| !issuer.roles.contains(role)) {
        return Err(TokenError::Malformed("it gives a role that its issuer may not give (`roles`)"));
    }
    if claims.limits.iter().any(|limit| limit.check().is_err()) {
        return Err(TokenError::Malformed("one of its limits bounds nothing, or no call can keep it (`limits`)"));
    }
    // TOK-4.
    if claims.roles.is_empty() && issuer.gives_agents_only() {
        claims.roles.push(Role::Agent);
    }
    let chain = chain::verified(&claims, trust, now_ms)?;
    // What the secret of this installation has done belongs to its administrator: nobody else is called so.
    let is_admin = |name: &Subject| name.as_str() == ADMIN_SUBJECT;
    if !issuer.roles.contains(&Role::Admin) && (is_admin(&claims.sub) || chain.iter().any(|link| is_admin(&link.sub))) {
        return Err(TokenError::Malformed("its subject is the administrator of this installation (`sub`)"));
    }
    Ok(Caller::from_token(claims, chain, trust.leeway_seconds))
}

/// Verifies what every JWT has: signature, issuer, audience and time. `exp`, `iss` and `aud` must be there; `nbf` and
/// `iat` must be in order if they are.
pub fn verify_registered<'t>(
    token: &str,
    trust: &'t TokenTrust,
    now_ms: i64,
) -> Result<VerifiedClaims<'t>, TokenError> {
    let compact = CompactToken::read(token)?;
    let signers = trust.signers(&compact)?;
    let Ok(claims @ Value::Object(_)) = json::read(compact.payload(), &JsonLimits::default()) else {
        return Err(TokenError::Malformed("its claims are not a JSON object with each member once"));
    };
    let name = claims.get("iss").and_then(Value::as_str).ok_or(TokenError::Malformed("it has no issuer (`iss`)"))?;
    // TOK-1.
    let issuer = signers.into_iter().find(|issuer| issuer.name == name).ok_or(TokenError::WrongIssuer)?;
    if !claims::audience(&claims)?.contains(&trust.audience) {
        return Err(TokenError::WrongAudience);
    }
    claims::in_time(&claims, trust.leeway(), now_ms.div_euclid(1000))?;
    Ok(VerifiedClaims { issuer, claims })
}
