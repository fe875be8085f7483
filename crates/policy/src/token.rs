//! Capability tokens: compact JWS, EdDSA only, strict claims (AUTH-002…004, DESIGN §8.21).
//!
//! Verification is a function of (token, keys, now). The algorithm is a property of the key, not of the header: the
//! header must agree, and nothing in it can choose another. `jku`, `x5u`, `jwk` and the like are refused with `crit`,
//! and otherwise never looked at.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::ids::{Subject, TenantId};
use contract::json::{self, JsonLimits};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::caller::{Caller, CallerKind};
use crate::grant::ToolGrant;
use crate::keys::{SigningKey, VerifyingKey};
use crate::role::Role;
use crate::scope::Scope;

/// Who issues tokens and whom they are for.
pub const ISSUER: &str = "gantry";
/// The audience of tokens meant for this server.
pub const AUDIENCE: &str = "gantry";
/// A longer token is refused unread.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Clocks of two machines may differ by this much.
const LEEWAY_SECONDS: i64 = 0;
/// Shortest and longest life of a token.
const TTL_SECONDS: std::ops::RangeInclusive<u64> = 1..=31_536_000;

/// What a token says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    pub iss: String,
    pub aud: String,
    pub sub: Subject,
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
    pub scopes: Vec<Scope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_did: Option<Subject>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    typ: Option<String>,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crit: Option<Value>,
}

/// Why a token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// E3203.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// E3202.
    #[error("the token's signature is not valid")]
    Signature,
    /// E3202.
    #[error("the token is signed by a key this server does not know")]
    UnknownKey,
    /// E3201.
    #[error("the token has expired")]
    Expired,
    /// E3203.
    #[error("the token is not valid yet")]
    NotYetValid,
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
}

/// Why a token was not minted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    #[error("ttl_seconds must be between {} and {}", TTL_SECONDS.start(), TTL_SECONDS.end())]
    Ttl,
    #[error("the token would be longer than {TOKEN_BYTES_MAX} bytes: name fewer tools or scopes")]
    TooLong,
}

/// Mints a token. `token_id` must be unique; `now_ms` is milliseconds since the epoch.
pub fn mint(
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
        iss: ISSUER.into(),
        aud: AUDIENCE.into(),
        sub: request.sub.clone(),
        exp: now.saturating_add(i64::try_from(request.ttl_seconds).unwrap_or(i64::MAX)),
        nbf: now,
        iat: now,
        jti: token_id,
        tenant: request.tenant.clone(),
        roles: request.roles.clone(),
        tools: request.tools.clone(),
        scopes: request.scopes.clone(),
        user_did: request.user_did.clone(),
        session_id: request.session_id.clone(),
    };
    let header = Header { alg: "EdDSA".into(), typ: Some("JWT".into()), kid: Some(key.id().into()), crit: None };
    let part = |json: Result<Vec<u8>, serde_json::Error>| URL_SAFE_NO_PAD.encode(json.unwrap_or_default());
    let mut token = format!("{}.{}", part(serde_json::to_vec(&header)), part(serde_json::to_vec(&claims)));
    let signature = key.sign(token.as_bytes());
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature));
    if token.len() > TOKEN_BYTES_MAX { Err(MintError::TooLong) } else { Ok((token, claims)) }
}

/// Verifies a token and says who calls.
pub fn verify(token: &str, keys: &[VerifyingKey], now_ms: i64) -> Result<Caller, TokenError> {
    let claims = verified_claims(token, keys)?;
    if claims.iss != ISSUER {
        return Err(TokenError::Malformed("it was issued by somebody else (`iss`)"));
    }
    if claims.aud != AUDIENCE {
        return Err(TokenError::Malformed("it is meant for another service (`aud`)"));
    }
    let now = now_ms.div_euclid(1000);
    if claims.exp.saturating_add(LEEWAY_SECONDS) <= now {
        return Err(TokenError::Expired);
    }
    if claims.nbf.saturating_sub(LEEWAY_SECONDS) > now {
        return Err(TokenError::NotYetValid);
    }
    Ok(Caller {
        kind: CallerKind::CapabilityToken,
        subject: claims.sub,
        tenant: claims.tenant,
        roles: claims.roles,
        tools: claims.tools,
        scopes: claims.scopes,
        user: claims.user_did,
        session: claims.session_id,
        token_id: Some(claims.jti),
        expires_at_ms: Some(claims.exp.saturating_mul(1000)),
    })
}

/// Structure and signature; time and meaning come after.
fn verified_claims(token: &str, keys: &[VerifyingKey]) -> Result<Claims, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenError::Malformed("it is too long"));
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed("it does not have three parts"))?;
    let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed("it does not have three parts"))?;
    let header: Header = part(header, "its header is not base64url JSON")?;
    if header.crit.is_some() {
        return Err(TokenError::Malformed("its header demands extensions (`crit`)"));
    }
    if header.alg != "EdDSA" {
        return Err(TokenError::Malformed("its algorithm is not accepted: EdDSA is"));
    }
    let kid = header.kid.ok_or(TokenError::Malformed("its header names no key (`kid`)"))?;
    let key = keys.iter().find(|key| key.id() == kid).ok_or(TokenError::UnknownKey)?;
    let signature =
        URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed("its signature is not base64url"))?;
    if !key.verifies(signed.as_bytes(), &signature) {
        return Err(TokenError::Signature);
    }
    part(claims, "its claims are not what this server understands")
}

fn part<T: serde::de::DeserializeOwned>(text: &str, problem: &'static str) -> Result<T, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed(problem))?;
    // The strict reader refuses duplicate members, which other readers resolve differently.
    let value = json::read(&bytes, &JsonLimits::default()).map_err(|_| TokenError::Malformed(problem))?;
    serde_json::from_value(value).map_err(|_| TokenError::Malformed(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000_000;

    fn request() -> MintRequest {
        MintRequest {
            sub: "did:key:z6Mk".parse().unwrap(),
            tenant: "acme".parse().unwrap(),
            roles: vec![Role::Agent],
            tools: vec![ToolGrant { tool_id: "demo.*".parse().unwrap(), version_range: None }],
            scopes: vec!["tool:*".parse().unwrap()],
            user_did: None,
            session_id: None,
            ttl_seconds: 60,
        }
    }

    fn forge(header: &str, claims: &str, key: &SigningKey) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(key.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }

    #[test]
    fn a_minted_token_verifies_until_the_second_it_expires() {
        let key = SigningKey::from_seed(&[1; 32]);
        let (token, claims) = mint(&request(), &key, "t-1".into(), NOW).unwrap();
        let keys = [key.verifying_key()];
        let caller = verify(&token, &keys, NOW).unwrap();
        assert_eq!(caller.subject().as_str(), "did:key:z6Mk");
        assert_eq!(caller.token_id(), Some("t-1"));
        assert!(verify(&token, &keys, claims.exp * 1000 - 1).is_ok());
        assert_eq!(verify(&token, &keys, claims.exp * 1000), Err(TokenError::Expired));
        assert_eq!(verify(&token, &keys, NOW - 1000), Err(TokenError::NotYetValid));
    }

    #[test]
    fn tokens_that_were_tampered_with_are_refused() {
        let (key, other) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
        let keys = [key.verifying_key()];
        let (token, claims) = mint(&request(), &key, "t-1".into(), NOW).unwrap();
        let body = serde_json::to_string(&claims).unwrap();
        let good = format!(r#"{{"alg":"EdDSA","kid":"{}"}}"#, key.id());
        assert!(verify(&forge(&good, &body, &key), &keys, NOW).is_ok());

        let (signed, signature) = token.rsplit_once('.').unwrap();
        let first = if signature.starts_with('A') { "B" } else { "A" };
        let flipped = format!("{signed}.{first}{}", signature.split_at(1).1);
        let cases = [
            ("flipped signature", flipped, TokenError::Signature),
            ("other key under our name", forge(&good, &body, &other), TokenError::Signature),
            ("key of a stranger", mint(&request(), &other, "x".into(), NOW).unwrap().0, TokenError::UnknownKey),
            ("no signature", format!("{signed}."), TokenError::Signature),
        ];
        for (what, token, error) in cases {
            assert_eq!(verify(&token, &keys, NOW), Err(error), "{what}");
        }
        let kid = key.id();
        let malformed = [
            ("empty", String::new()),
            ("one part", "abc".into()),
            ("two parts", "abc.def".into()),
            ("alg none", forge(&format!(r#"{{"alg":"none","kid":"{kid}"}}"#), &body, &key)),
            ("alg HS256", forge(&format!(r#"{{"alg":"HS256","kid":"{kid}"}}"#), &body, &key)),
            ("no kid", forge(r#"{"alg":"EdDSA"}"#, &body, &key)),
            ("crit", forge(&format!(r#"{{"alg":"EdDSA","kid":"{kid}","crit":["x"]}}"#), &body, &key)),
            ("duplicate claim", forge(&good, &body.replacen('{', r#"{"tenant":"evil","#, 1), &key)),
            ("wrong issuer", forge(&good, &body.replace(r#""iss":"gantry""#, r#""iss":"evil""#), &key)),
            ("wrong audience", forge(&good, &body.replace(r#""aud":"gantry""#, r#""aud":"evil""#), &key)),
            ("claims of another shape", forge(&good, r#"{"sub":"x"}"#, &key)),
            ("too long", "a".repeat(TOKEN_BYTES_MAX + 1)),
        ];
        for (what, token) in malformed {
            assert!(matches!(verify(&token, &keys, NOW), Err(TokenError::Malformed(_))), "{what}");
        }
    }

    #[test]
    fn lifetimes_outside_the_range_are_not_minted() {
        let key = SigningKey::from_seed(&[1; 32]);
        for ttl in [0, 31_536_001] {
            let request = MintRequest { ttl_seconds: ttl, ..request() };
            assert_eq!(mint(&request, &key, "t".into(), NOW).unwrap_err(), MintError::Ttl);
        }
    }
}
