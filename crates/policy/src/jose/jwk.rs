//! One JSON Web Key (RFC 7517, 7518, 8037), public halves only.
//!
//! A set of another party has keys for other purposes too; those are passed over, with a reason for the log. A key with
//! private parts is another matter: whoever publishes it has lost it, so nothing signed with it can be believed.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};

use super::VerifyingKey;
use super::verifying_key::KeyMaterial;

/// RFC 7518 §6.2.2 and §6.3.2: what only the owner of a key should have.
const PRIVATE_MEMBERS: [&str; 7] = ["d", "p", "q", "dp", "dq", "qi", "oth"];

/// Why a JWK is not a key of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JwkProblem {
    /// It has private parts.
    Private,
    /// It is for something else, or not sound.
    Skipped,
}

/// Reads one. `name` is used in place of its `kid`, for documents that name keys in another way.
pub(crate) fn read(jwk: &Value, name: Option<&str>) -> Result<VerifyingKey, JwkProblem> {
    let members = jwk.as_object().ok_or(JwkProblem::Skipped)?;
    if PRIVATE_MEMBERS.iter().any(|member| members.contains_key(*member)) {
        return Err(JwkProblem::Private);
    }
    public(members, name).ok_or(JwkProblem::Skipped)
}

fn public(members: &Map<String, Value>, name: Option<&str>) -> Option<VerifyingKey> {
    let material = match (text(members, "kty")?, members.get("crv").and_then(Value::as_str)) {
        ("RSA", None) => KeyMaterial::rsa(&number(members, "n")?, &number(members, "e")?),
        ("EC", Some("P-256")) => {
            let (x, y) = (number(members, "x")?, number(members, "y")?);
            // Both in full length: RFC 7518 §6.2.1.2.
            if (x.len(), y.len()) != (32, 32) {
                return None;
            }
            KeyMaterial::p256(&[&[4], x.as_slice(), y.as_slice()].concat())
        }
        ("OKP", Some("Ed25519")) => KeyMaterial::ed25519(&number(members, "x")?),
        _ => return None,
    };
    let name = match name {
        Some(name) => name,
        None => text(members, "kid")?,
    };
    let key = material.and_then(|material| VerifyingKey::new(name, material)).ok()?;
    (for_signatures(members) && right_algorithm(members, &key)).then_some(key)
}

/// `use` and `key_ops`, where they are there.
fn for_signatures(members: &Map<String, Value>) -> bool {
    let purpose = members.get("use").is_none_or(|purpose| purpose == "sig");
    let operations = members.get("key_ops").is_none_or(|operations| {
        operations.as_array().is_some_and(|operations| operations.iter().any(|operation| operation == "verify"))
    });
    purpose && operations
}

/// Without `alg` the kind of key says it: an RSA key is one for RS256.
fn right_algorithm(members: &Map<String, Value>, key: &VerifyingKey) -> bool {
    members.get("alg").is_none_or(|name| name == key.algorithm().as_str())
}

fn text<'m>(members: &'m Map<String, Value>, name: &str) -> Option<&'m str> {
    members.get(name)?.as_str()
}

/// The engine refuses padding, other alphabets and non-zero trailing bits.
fn number(members: &Map<String, Value>, name: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text(members, name)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::{SignatureAlgorithm, SigningKey};
    use serde_json::json;

    #[test]
    fn keys_survive_the_way_out_and_in() {
        let key = SigningKey::from_seed(&[1; 32]).verifying_key();
        assert_eq!(read(&key.to_jwk(), None), Ok(key));
    }

    #[test]
    fn keys_for_something_else_are_passed_over_and_private_ones_refused() {
        let good = SigningKey::from_seed(&[1; 32]).verifying_key().to_jwk();
        let with = |name: &str, value: Value| {
            let mut jwk = good.clone();
            jwk[name] = value;
            jwk
        };
        let without = |name: &str| {
            let mut jwk = good.clone();
            jwk.as_object_mut().unwrap().remove(name);
            jwk
        };
        for absent in ["alg", "use"] {
            assert_eq!(
                read(&without(absent), None).unwrap().algorithm(),
                SignatureAlgorithm::EdDsa,
                "without {absent}"
            );
        }
        assert!(read(&with("key_ops", json!(["verify"])), None).is_ok());
        assert_eq!(read(&without("kid"), Some("other")).unwrap().id(), "other");
        let skipped = [
            without("kid"),
            without("kty"),
            without("crv"),
            without("x"),
            with("kid", json!("")),
            with("kid", json!(7)),
            with("kid", json!("a\u{0}b")),
            with("use", json!("enc")),
            with("key_ops", json!(["sign"])),
            with("key_ops", json!("verify")),
            with("alg", json!("RS256")),
            with("alg", json!("none")),
            with("alg", Value::Null),
            with("kty", json!("EC")),
            with("kty", json!("oct")),
            with("crv", json!("Ed448")),
            with("x", json!("AAAA")),
            with("x", json!(format!("{}=", good["x"].as_str().unwrap()))),
            json!({"kty": "oct", "kid": "k", "alg": "HS256", "k": "AAAA"}),
            json!("a string"),
            json!(null),
        ];
        for jwk in skipped {
            assert_eq!(read(&jwk, None), Err(JwkProblem::Skipped), "{jwk}");
        }
        for member in PRIVATE_MEMBERS {
            assert_eq!(read(&with(member, json!("c2VjcmV0")), None), Err(JwkProblem::Private), "{member}");
        }
    }
}
