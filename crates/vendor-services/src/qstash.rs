//! Is a message from the queue it claims to be from? Signatures as QStash makes them. (ASYNC-010, X-54)
//!
//! The `Upstash-Signature` header is a compact JWT, signed with HMAC-SHA256 under one of two keys: the current one, or the
//! next one while keys are being rolled. It says who sent it (`iss`), to which address (`sub`), from when to when it holds
//! (`nbf`, `exp`), and the SHA-256 of the body in base64url (`body`), with or without padding.
//!
//! Invariants
//! - QST-1: nothing in the token chooses how it is verified: the algorithm is HS256 and nothing else, the keys are ours.
//! - QST-2: the address must be the one that was called, so that a message to one door is not valid at another.
//! - QST-3: a token that would hold for longer than [`LIFETIME_MAX_SECONDS`] is refused, so that what has to be remembered
//!   against a replay is bounded.
//!
//! Not here: remembering what was seen (`jobs::inbound_jobs`), tokens of callers (`policy::token`).

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::error::Refusal;
use contract::json::{self, JsonLimits};
use jobs::inbound_jobs::{MessageVerifier, not_genuine};
use policy::is_message_code;
use policy::jose::{TOKEN_BYTES_MAX, decode_part, header_object};
use ports::clock::UnixMillis;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// The issuer of every such token.
const ISSUER: &str = "Upstash";
/// How far two clocks may be apart.
const LEEWAY_SECONDS: i64 = 30;
/// The longest a token may hold. The queue makes them for five minutes.
const LIFETIME_MAX_SECONDS: i64 = 3_600;
/// Longest name of a token.
const TOKEN_ID_CHARS_MAX: usize = 200;

/// Checks signatures.
#[derive(Clone)]
pub struct QstashReceiver {
    current: Box<[u8]>,
    next: Option<Box<[u8]>>,
}

/// What a genuine signature says.
#[derive(Debug, Clone, PartialEq, Eq)]
struct QstashClaims {
    /// The name of the token (`jti`), another one for every attempt to deliver.
    token_id: String,
    /// The digest of the body it is for, as the token has it.
    body: String,
}

impl QstashClaims {
    /// Is this the body it is for?
    fn covers(&self, body: &[u8]) -> Result<(), QstashError> {
        // Not a secret: both sides of the comparison are known to whoever sent the request.
        let fits = self.body.trim_end_matches('=') == URL_SAFE_NO_PAD.encode(Sha256::digest(body));
        if fits { Ok(()) } else { Err(QstashError::Body) }
    }
}

/// Why a signature was refused. For the log: strangers only learn that it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum QstashError {
    /// It has another shape.
    #[error("the signature is malformed: {0}")]
    Malformed(&'static str),
    /// Neither key has made it.
    #[error("the signature was made with another key")]
    Signature,
    /// Somebody else's.
    #[error("the signature has another issuer")]
    Issuer,
    /// For another address.
    #[error("the signature is for another address")]
    Address,
    /// Too late, too early, or for too long.
    #[error("the signature does not hold now")]
    Time,
    /// For another body.
    #[error("the signature is for another body")]
    Body,
}

impl fmt::Debug for QstashReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QstashReceiver").field("next", &self.next.is_some()).finish_non_exhaustive()
    }
}

impl QstashReceiver {
    /// With the current key, and the next one while keys are being rolled. An empty key is none.
    pub fn new(current: &[u8], next: Option<&[u8]>) -> Option<Self> {
        let next = next.filter(|key| !key.is_empty()).map(Into::into);
        (!current.is_empty()).then(|| Self { current: current.into(), next })
    }

    /// Is this a signature for a message to this address, at this time (seconds since 1970)? Everything but whether it is the
    /// one of the body, so that nobody's body is read for nothing ([`QstashClaims::covers`]).
    fn claims_at(&self, signature: &str, address: &str, now_seconds: i64) -> Result<QstashClaims, QstashError> {
        let claims = self.claims(signature)?;
        if claims.get("iss").and_then(Value::as_str) != Some(ISSUER) {
            return Err(QstashError::Issuer);
        }
        if claims.get("sub").and_then(Value::as_str) != Some(address) {
            return Err(QstashError::Address);
        }
        let time = |name: &str| claims.get(name).and_then(Value::as_i64);
        let (Some(until), Some(from)) = (time("exp"), time("nbf")) else { return Err(QstashError::Time) };
        let holds = from.saturating_sub(LEEWAY_SECONDS) <= now_seconds
            && now_seconds < until.saturating_add(LEEWAY_SECONDS)
            && until.saturating_sub(from) <= LIFETIME_MAX_SECONDS;
        if !holds {
            return Err(QstashError::Time);
        }
        let token_id = claims.get("jti").and_then(Value::as_str).filter(|id| {
            !id.is_empty() && id.len() <= TOKEN_ID_CHARS_MAX && id.bytes().all(|byte| byte.is_ascii_graphic())
        });
        let token_id = token_id.ok_or(QstashError::Malformed("it has no name (`jti`)"))?.to_owned();
        let body = claims.get("body").and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(QstashClaims { token_id, body })
    }

    /// QST-1.
    fn claims(&self, signature: &str) -> Result<Map<String, Value>, QstashError> {
        const PARTS: QstashError = QstashError::Malformed("it does not have three parts");
        const ENCODING: QstashError = QstashError::Malformed("it is not base64url without padding");
        if signature.len() > TOKEN_BYTES_MAX {
            return Err(QstashError::Malformed("it is too long"));
        }
        let (signed, code) = signature.rsplit_once('.').ok_or(PARTS)?;
        let (header, payload) = signed.split_once('.').ok_or(PARTS)?;
        if payload.contains('.') {
            return Err(PARTS);
        }
        let header = header_object(header).map_err(|_| QstashError::Malformed("its header is not a JSON object"))?;
        if header.get("alg").and_then(Value::as_str) != Some("HS256") || header.contains_key("crit") {
            return Err(QstashError::Malformed("its algorithm is not HS256"));
        }
        let code = decode_part(code, "").map_err(|_| ENCODING)?;
        let keys = std::iter::once(&self.current).chain(&self.next);
        let parts: &[&[u8]] = &[signed.as_bytes()];
        // Both are tried, always: which of them fits is nobody's business.
        let genuine = keys.fold(false, |genuine, key| is_message_code(key, parts, &code) | genuine);
        if !genuine {
            return Err(QstashError::Signature);
        }
        let payload = decode_part(payload, "").map_err(|_| ENCODING)?;
        match json::read(&payload, &JsonLimits::default()) {
            Ok(Value::Object(claims)) => Ok(claims),
            _ => Err(QstashError::Malformed("its claims are not a JSON object")),
        }
    }
}

impl MessageVerifier for QstashReceiver {
    fn queue(&self) -> &'static str {
        "qstash"
    }

    fn lifetime_max(&self) -> Duration {
        Duration::from_secs(LIFETIME_MAX_SECONDS.unsigned_abs())
    }

    fn judge(&self, signature: &str, address: &str, now: UnixMillis) -> Result<(), Refusal> {
        self.claims_at(signature, address, now.0.div_euclid(1000)).map(drop).map_err(refused)
    }

    fn verify(&self, signature: &str, address: &str, now: UnixMillis, body: &[u8]) -> Result<String, Refusal> {
        let claims = self.claims_at(signature, address, now.0.div_euclid(1000)).map_err(refused)?;
        claims.covers(body).map_err(refused)?;
        Ok(claims.token_id)
    }
}

fn refused(error: QstashError) -> Refusal {
    tracing::warn!(%error, "a message at the door of jobs was refused");
    not_genuine()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use policy::message_code;

    const NOW: i64 = 1_800_000_000;
    const ADDRESS: &str = "https://gantry.example.com/jobs/generate_embedding";

    fn token(key: &[u8], header: &Value, claims: &Value) -> String {
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
        let code = message_code(key, &[signed.as_bytes()]);
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(code))
    }

    fn header() -> Value {
        json!({ "alg": "HS256", "typ": "JWT" })
    }

    fn claims(body: &[u8]) -> Value {
        json!({
            "iss": "Upstash", "sub": ADDRESS, "exp": NOW + 300, "nbf": NOW, "iat": NOW, "jti": "jwt_1",
            "body": base64::engine::general_purpose::URL_SAFE.encode(Sha256::digest(body)),
        })
    }

    fn with(name: &str, value: Value) -> Value {
        let mut changed = claims(b"{}");
        changed[name] = value;
        changed
    }

    fn receiver() -> QstashReceiver {
        QstashReceiver::new(b"current", Some(b"next")).unwrap()
    }

    /// The name of a signature that is good for `{}`.
    fn verify(receiver: &QstashReceiver, signature: &str) -> Result<String, QstashError> {
        let claims = receiver.claims_at(signature, ADDRESS, NOW)?;
        claims.covers(b"{}").map(|()| claims.token_id)
    }

    #[test]
    fn either_key_is_good_and_no_other() {
        for (key, expected) in [
            (&b"current"[..], Ok("jwt_1".to_owned())),
            (b"next", Ok("jwt_1".to_owned())),
            (b"older", Err(QstashError::Signature)),
            (b"", Err(QstashError::Signature)),
        ] {
            let signature = token(key, &header(), &claims(b"{}"));
            assert_eq!(verify(&receiver(), &signature), expected);
        }
        let only = QstashReceiver::new(b"current", Some(b"")).unwrap();
        let empty = token(b"", &header(), &claims(b"{}"));
        assert_eq!(verify(&only, &empty), Err(QstashError::Signature), "an empty key is none");
        assert!(QstashReceiver::new(b"", None).is_none());
    }

    #[test]
    fn every_claim_counts() {
        let other = URL_SAFE_NO_PAD.encode(Sha256::digest(b"[]"));
        for (changed, expected) in [
            (with("iss", json!("upstash")), QstashError::Issuer),
            (with("sub", json!("https://gantry.example.com/jobs/execute_workflow")), QstashError::Address),
            (with("sub", Value::Null), QstashError::Address),
            (with("exp", json!(NOW - 31)), QstashError::Time),
            (with("nbf", json!(NOW + 31)), QstashError::Time),
            (with("exp", json!(NOW + 3_601)), QstashError::Time),
            (with("exp", json!("never")), QstashError::Time),
            (with("body", json!(other)), QstashError::Body),
            (with("body", Value::Null), QstashError::Body),
            (with("jti", json!("")), QstashError::Malformed("it has no name (`jti`)")),
            (with("jti", json!("a b")), QstashError::Malformed("it has no name (`jti`)")),
        ] {
            let signature = token(b"current", &header(), &changed);
            assert_eq!(verify(&receiver(), &signature), Err(expected), "{changed}");
        }
    }

    #[test]
    fn the_token_chooses_nothing() {
        for header in
            [json!({ "alg": "none" }), json!({ "alg": "hs256" }), json!({}), json!({ "alg": "HS256", "crit": [] })]
        {
            let signature = token(b"current", &header, &claims(b"{}"));
            assert!(matches!(verify(&receiver(), &signature), Err(QstashError::Malformed(_))));
        }
        for text in ["", ".", "..", "a.b.c", "a.b.c.d", "x".repeat(20_000).as_str()] {
            assert!(verify(&receiver(), text).is_err(), "{text:.20}");
        }
    }
}
