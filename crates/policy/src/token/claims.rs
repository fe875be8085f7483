//! What a token says, and which of it is checked before anything else.
//!
//! Dates are whole seconds between 1970 and 9999: RFC 7519 allows fractions and anything else a number can be, but no
//! issuer needs them, and every one of them has been somebody's bug. Claims that are not known here are ignored.

use contract::ids::{Subject, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TokenError;
use crate::argument_limit::ArgumentLimit;
use crate::budget::CallBudget;
use crate::delegation::{DelegatedRights, Delegator};
use crate::grant::ToolGrant;
use crate::jose::is_printable_name;
use crate::role::Role;
use crate::scope::PermissionScope;

/// 9999-12-31T23:59:59Z.
const DATE_MAX: i64 = 253_402_300_799;
/// Longest life of a token, whoever issued it.
const LIFE_SECONDS_MAX: i64 = 31_536_000;
/// Most entries of `aud`.
const AUDIENCES_MAX: usize = 64;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenClaims {
    pub iss: String,
    pub aud: TokenAudience,
    pub sub: Subject,
    /// Seconds since the epoch, like `nbf` and `iat`.
    pub exp: i64,
    pub nbf: i64,
    pub iat: i64,
    pub jti: String,
    pub tenant: TenantId,
    #[serde(default)]
    pub roles: Vec<Role>,
    #[serde(default)]
    pub tools: Vec<ToolGrant>,
    #[serde(default)]
    pub scopes: Vec<PermissionScope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_did: Option<Subject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<ArgumentLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<CallBudget>,
    /// Who handed the token on, nearest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub act: Option<Box<Delegator>>,
}

/// Whom a token is for: RFC 7519 has one name or a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TokenAudience {
    One(String),
    Many(Vec<String>),
}

impl TokenAudience {
    /// Is this one of them?
    pub fn contains(&self, name: &str) -> bool {
        match self {
            Self::One(one) => one == name,
            Self::Many(many) => many.iter().any(|one| one == name),
        }
    }
}

impl TokenClaims {
    /// Reads the claims of ours out of those of a token.
    pub(super) fn read(claims: Value) -> Result<Self, TokenError> {
        // serde's own words would repeat the claim, so only the rule is said.
        let claims: Self = serde_json::from_value(claims).map_err(|_| {
            TokenError::Malformed(
                "its claims are not those of a capability token: iss, aud, sub, exp, nbf, iat, jti and tenant are required, the others must have their documented form",
            )
        })?;
        let session = claims.session_id.as_deref().is_none_or(is_printable_name);
        if !is_printable_name(&claims.jti) || !session {
            return Err(TokenError::Malformed("`jti` and `session_id` must be 1 to 256 printable characters"));
        }
        if claims.exp.saturating_sub(claims.iat) > LIFE_SECONDS_MAX {
            return Err(TokenError::Malformed("it lives longer than a year (`iat` to `exp`)"));
        }
        Ok(claims)
    }

    /// What the token allows.
    pub fn rights(&self) -> DelegatedRights {
        DelegatedRights {
            tools: self.tools.clone(),
            scopes: self.scopes.clone(),
            limits: self.limits.clone(),
            budget: self.budget.clone(),
            expires_at: self.exp,
        }
    }
}

/// `aud`, which must be there.
pub(super) fn audience(claims: &Value) -> Result<TokenAudience, TokenError> {
    const PROBLEM: TokenError =
        TokenError::Malformed("it has no audience (`aud`): a text, or a list of at most 64 texts");
    match claims.get("aud").map(TokenAudience::deserialize) {
        Some(Ok(TokenAudience::Many(many))) if many.len() > AUDIENCES_MAX => Err(PROBLEM),
        Some(Ok(audience)) => Ok(audience),
        Some(Err(_)) | None => Err(PROBLEM),
    }
}

/// `exp`, `nbf` and `iat` against the clock, in seconds. `exp` must be there.
pub(super) fn in_time(claims: &Value, leeway: i64, now: i64) -> Result<(), TokenError> {
    let exp = date(claims, "exp")?.ok_or(TokenError::Malformed("it does not say when it ends (`exp`)"))?;
    let nbf = date(claims, "nbf")?;
    let iat = date(claims, "iat")?;
    if has_passed(exp, leeway, now) {
        return Err(TokenError::Expired);
    }
    if nbf.is_some_and(|nbf| nbf.saturating_sub(leeway) > now) {
        return Err(TokenError::NotYetValid);
    }
    if iat.is_some_and(|iat| iat.saturating_sub(leeway) > now) {
        return Err(TokenError::Malformed(
            "it was issued in the future (`iat`): compare the clocks of issuer and server",
        ));
    }
    Ok(())
}

/// A token is dead in the very second that `exp` names.
pub(super) fn has_passed(exp: i64, leeway: i64, now: i64) -> bool {
    exp.saturating_add(leeway) <= now
}

/// Is it a date between 1970 and 9999?
pub(super) fn is_date(seconds: i64) -> bool {
    (0..=DATE_MAX).contains(&seconds)
}

fn date(claims: &Value, name: &str) -> Result<Option<i64>, TokenError> {
    match claims.get(name) {
        None => Ok(None),
        Some(value) => value.as_i64().filter(|seconds| is_date(*seconds)).map(Some).ok_or(TokenError::Malformed(
            "`exp`, `nbf` and `iat` must be whole seconds since the epoch, before the year 10000",
        )),
    }
}
