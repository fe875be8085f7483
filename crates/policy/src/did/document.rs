//! DID documents, as far as keys are concerned.
//!
//! The document must be about the DID it was asked for, and a key counts only under the DID's own name: a document that
//! lists somebody else's key says nothing about that somebody. What a key may be used for (`authentication`,
//! `assertionMethod`) is not looked at; whoever holds one of the keys speaks for the DID.

use contract::json::{self, JsonLimits};
use serde_json::Value;

use super::{Did, InvalidDidError, multikey};
use crate::jose::{JwkProblem, KeyError, KeySet, VerifyingKey, read_jwk};

/// Most entries of `verificationMethod`.
const METHODS_MAX: usize = 100;
/// Longest document.
const BYTES_MAX: usize = 256 * 1024;

/// What a document says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DidDocument {
    pub id: Did,
    /// By the names of their entries: `did:web:example.com#key-1`. May be empty.
    pub keys: KeySet,
    /// Entries that are of another kind, not sound, or not the DID's own.
    pub skipped: usize,
}

impl DidDocument {
    /// Reads the document of `did`.
    pub fn read(text: &[u8], did: &Did) -> Result<Self, InvalidDidError> {
        let limits = JsonLimits { bytes_max: BYTES_MAX, ..JsonLimits::default() };
        let document = json::read(text, &limits)
            .map_err(|_| InvalidDidError::Document("it is not JSON of at most 256 KiB with each member once"))?;
        if document.get("id").and_then(Value::as_str) != Some(did.as_str()) {
            return Err(InvalidDidError::Document("it is about another DID (`id`)"));
        }
        let none = Vec::new();
        let entries = match document.get("verificationMethod") {
            None => &none,
            Some(Value::Array(entries)) if entries.len() <= METHODS_MAX => entries,
            Some(_) => {
                return Err(InvalidDidError::Document("`verificationMethod` must be a list of at most 100 entries"));
            }
        };
        let (mut keys, mut skipped) = (Vec::new(), 0);
        for entry in entries {
            match method(entry, did) {
                Ok(key) => keys.push(key),
                Err(JwkProblem::Skipped) => skipped += 1,
                Err(JwkProblem::Private) => {
                    return Err(InvalidDidError::Document("it holds a private key, which is exposed thereby"));
                }
            }
        }
        let keys = KeySet::new(keys).map_err(|error| match error {
            KeyError::Duplicate => InvalidDidError::Document("two of its keys have one name"),
            _ => InvalidDidError::Document("it has too many keys"),
        })?;
        Ok(Self { id: did.clone(), keys, skipped })
    }
}

/// One entry of `verificationMethod`.
fn method(entry: &Value, did: &Did) -> Result<VerifyingKey, JwkProblem> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).ok_or(JwkProblem::Skipped);
    let id = text("id")?;
    // DID core allows `#key-1` for a key of the document's own DID.
    let fragment = id.strip_prefix(did.as_str()).unwrap_or(id).strip_prefix('#').ok_or(JwkProblem::Skipped)?;
    if fragment.is_empty() || text("controller")? != did.as_str() {
        return Err(JwkProblem::Skipped);
    }
    let name = format!("{did}#{fragment}");
    match (entry.get("publicKeyJwk"), entry.get("publicKeyMultibase")) {
        (Some(jwk), None) => read_jwk(jwk, Some(&name)),
        (None, Some(Value::String(multibase))) => multikey::decode(multibase)
            .and_then(|material| VerifyingKey::new(&name, material).ok())
            .ok_or(JwkProblem::Skipped),
        _ => Err(JwkProblem::Skipped),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::SigningKey;
    use serde_json::json;

    fn did() -> Did {
        "did:web:agents.example.com".parse().unwrap()
    }

    fn read(document: &Value) -> Result<DidDocument, InvalidDidError> {
        DidDocument::read(document.to_string().as_bytes(), &did())
    }

    #[test]
    fn keys_of_both_forms_are_found_under_full_names() {
        let (one, two) = (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]));
        let multibase = Did::of_key(&two).specific_id().to_owned();
        let found = read(&json!({
            "@context": "https://www.w3.org/ns/did/v1", "id": did().as_str(),
            "verificationMethod": [
                {"id": "#a", "type": "JsonWebKey2020", "controller": did().as_str(), "publicKeyJwk": one.verifying_key().to_jwk()},
                {"id": format!("{}#b", did()), "type": "Multikey", "controller": did().as_str(), "publicKeyMultibase": multibase},
                {"id": "#c", "controller": "did:web:evil.example.com", "publicKeyJwk": one.verifying_key().to_jwk()},
                {"id": "did:web:evil.example.com#d", "controller": did().as_str(), "publicKeyMultibase": multibase},
                {"id": "#", "controller": did().as_str(), "publicKeyMultibase": multibase},
                {"id": "#e", "controller": did().as_str(), "publicKeyMultibase": "zzz"},
                {"id": "#f", "controller": did().as_str(), "publicKeyMultibase": multibase, "publicKeyJwk": {}},
                7,
            ],
        }))
        .unwrap();
        assert_eq!((found.keys.len(), found.skipped), (2, 6));
        let key = found.keys.get("did:web:agents.example.com#b").unwrap();
        assert!(key.verifies(b"m", &two.sign(b"m")));
    }

    #[test]
    fn documents_of_others_and_exposed_keys_are_refused() {
        let mut private = SigningKey::from_seed(&[1; 32]).verifying_key().to_jwk();
        private["d"] = json!("c2VjcmV0");
        let entry = json!({"id": "#a", "controller": did().as_str(), "publicKeyJwk": private});
        let multibase = Did::of_key(&SigningKey::from_seed(&[2; 32])).specific_id().to_owned();
        let twin = json!({"id": "#a", "controller": did().as_str(), "publicKeyMultibase": multibase});
        let with = |methods: Value| json!({"id": did().as_str(), "verificationMethod": methods});
        for document in [
            json!({}),
            json!([]),
            json!({"id": "did:web:evil.example.com"}),
            json!({"id": "did:web:agents.example.com#a"}),
            with(json!({})),
            with(json!(vec![1; METHODS_MAX + 1])),
            with(json!([entry])),
            with(json!([twin, twin])),
        ] {
            assert!(matches!(read(&document), Err(InvalidDidError::Document(_))), "{document}");
        }
        assert!(DidDocument::read(b"{\"id\":1,\"id\":2}", &did()).is_err());
        assert!(read(&json!({"id": did().as_str()})).unwrap().keys.is_empty());
    }
}
