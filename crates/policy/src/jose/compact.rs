//! The compact form of signed tokens (RFC 7515 §7.1), in its one spelling.
//!
//! What a token says about how to verify it is three words: `alg`, `kid` and `typ`. `alg` must agree with the key,
//! `kid` is looked up and nothing else: it is no path, no query and no address. A header that demands extensions
//! (`crit`, `b64`, `zip`) is refused; a header that brings a key (`jwk`, `x5c`) or says where to get one (`jku`, `x5u`)
//! gains nothing, because nobody looks.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::json::{self, JsonLimits};
use serde_json::{Map, Value, json};

use super::{KeySet, SignatureAlgorithm, SigningKey, VerifyingKey};

/// A longer token is refused unread.
pub const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Longest name of a key.
const NAME_CHARS_MAX: usize = 256;

/// Why a signed text was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwsError {
    /// It has another shape.
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    /// Its `kid` names no key that is trusted here.
    #[error("the token is signed by a key this server does not know")]
    UnknownKey,
    /// The key is known, the signature is not its.
    #[error("the token's signature is not valid")]
    Signature,
}

/// A token taken apart, not yet believed.
#[derive(Debug)]
pub(crate) struct CompactToken<'t> {
    algorithm: SignatureAlgorithm,
    key_id: String,
    signed: &'t str,
    payload: Vec<u8>,
    signature: Vec<u8>,
}

/// The payload of a token that one of the keys has signed.
pub fn verified_payload(token: &str, keys: &KeySet) -> Result<Vec<u8>, JwsError> {
    let compact = CompactToken::read(token)?;
    let key = keys.get(compact.key_id()).ok_or(JwsError::UnknownKey)?;
    compact.verify(key)?;
    Ok(compact.payload)
}

/// The name of the key that a token of the right shape claims to be signed with. Nothing is verified: this is only for
/// asking whether the key has meanwhile been published.
pub fn key_id(token: &str) -> Option<String> {
    CompactToken::read(token).ok().map(|compact| compact.key_id)
}

/// Signs a payload.
pub(crate) fn write(payload: &[u8], key: &SigningKey) -> String {
    let header = json!({ "alg": SignatureAlgorithm::EdDsa.as_str(), "typ": "JWT", "kid": key.id() }).to_string();
    let mut token = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = key.sign(token.as_bytes());
    token.push('.');
    token.push_str(&URL_SAFE_NO_PAD.encode(signature));
    token
}

/// 1 to 256 characters, none of them a control character.
pub(crate) fn is_printable_name(name: &str) -> bool {
    !name.is_empty() && name.chars().count() <= NAME_CHARS_MAX && !name.chars().any(char::is_control)
}

impl<'t> CompactToken<'t> {
    /// Takes a token apart and reads its header.
    pub(crate) fn read(token: &'t str) -> Result<Self, JwsError> {
        const PARTS: JwsError = JwsError::Malformed("it does not have three parts");
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwsError::Malformed("it is longer than 16 KiB"));
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(PARTS)?;
        let (header, payload) = signed.split_once('.').ok_or(PARTS)?;
        if payload.contains('.') {
            return Err(PARTS);
        }
        let header = header_object(header)?;
        let (algorithm, key_id) = read_header(&header)?;
        let payload = decode_part(payload, "its claims are not base64url without padding")?;
        let signature = decode_part(signature, "its signature is not base64url without padding")?;
        Ok(Self { algorithm, key_id, signed, payload, signature })
    }

    /// Which key it names.
    pub(crate) fn key_id(&self) -> &str {
        &self.key_id
    }

    /// Does the key belong to the algorithm, and the signature to the key?
    pub(crate) fn verify(&self, key: &VerifyingKey) -> Result<(), JwsError> {
        if self.algorithm != key.algorithm() {
            return Err(JwsError::Malformed("its algorithm (`alg`) is not that of the key it names"));
        }
        if key.verifies(self.signed.as_bytes(), &self.signature) { Ok(()) } else { Err(JwsError::Signature) }
    }

    /// What was signed. To be read after [`verify`](Self::verify).
    pub(crate) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

fn read_header(header: &Map<String, Value>) -> Result<(SignatureAlgorithm, String), JwsError> {
    if ["crit", "b64", "zip"].iter().any(|extension| header.contains_key(*extension)) {
        return Err(JwsError::Malformed("its header demands extensions (`crit`, `b64` or `zip`)"));
    }
    let typ = header.get("typ").is_none_or(|typ| {
        typ.as_str().is_some_and(|typ| typ.eq_ignore_ascii_case("JWT") || typ.eq_ignore_ascii_case("at+jwt"))
    });
    if !typ {
        return Err(JwsError::Malformed("it is of another type (`typ`): `JWT` and `at+jwt` are accepted"));
    }
    let algorithm = header
        .get("alg")
        .and_then(Value::as_str)
        .and_then(SignatureAlgorithm::named)
        .ok_or(JwsError::Malformed("its algorithm (`alg`) is not accepted: RS256, ES256 and EdDSA are"))?;
    let key_id = header
        .get("kid")
        .and_then(Value::as_str)
        .filter(|name| is_printable_name(name))
        .ok_or(JwsError::Malformed("its header names no key (`kid`, 1 to 256 printable characters)"))?;
    Ok((algorithm, key_id.to_owned()))
}

/// The header of a compact token, which must be a JSON object.
pub fn header_object(part: &str) -> Result<Map<String, Value>, JwsError> {
    const PROBLEM: &str = "its header is not a JSON object in base64url";
    let bytes = decode_part(part, PROBLEM)?;
    // The strict reader refuses duplicate members, which other readers resolve differently.
    match json::read(&bytes, &JsonLimits::default()) {
        Ok(Value::Object(members)) => Ok(members),
        _ => Err(JwsError::Malformed(PROBLEM)),
    }
}

/// A part of a compact token, decoded. The engine refuses padding, whitespace, the standard alphabet and non-zero trailing bits.
pub fn decode_part(part: &str, problem: &'static str) -> Result<Vec<u8>, JwsError> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| JwsError::Malformed(problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_verified_and_names_its_key() {
        let key = SigningKey::from_seed(&[1; 32]);
        let keys = KeySet::from(key.verifying_key());
        let token = write(b"not even JSON", &key);
        assert_eq!(verified_payload(&token, &keys).unwrap(), b"not even JSON");
        assert_eq!(verified_payload(&token, &KeySet::default()), Err(JwsError::UnknownKey));
        assert_eq!(key_id(&token).as_deref(), Some(key.id()));
        assert_eq!(key_id("not a token"), None);
    }

    #[test]
    fn a_token_has_one_spelling() {
        let key = SigningKey::from_seed(&[1; 32]);
        let keys = KeySet::from(key.verifying_key());
        let token = write(b"{}", &key);
        for place in 0..=token.len() {
            for added in [".", "=", " ", "\n", "A", "+"] {
                let (before, after) = token.split_at(place);
                let changed = format!("{before}{added}{after}");
                assert!(verified_payload(&changed, &keys).is_err(), "{added:?} at {place}");
            }
        }
        for place in 0..token.len() {
            let mut changed = token.clone();
            changed.remove(place);
            assert!(verified_payload(&changed, &keys).is_err(), "without {place}");
        }
    }
}
