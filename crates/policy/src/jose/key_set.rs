//! Keys by name. One name means one key: with two of them, which one verified a token would be a matter of order.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use contract::json::{self, JsonLimits};

use super::{JwkProblem, KeyError, VerifyingKey, read_jwk};

/// More keys than this are not a key set but a mistake.
pub const KEYS_MAX: usize = 1000;

/// A set of public keys. May be empty: then nothing verifies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet {
    keys: BTreeMap<String, VerifyingKey>,
}

impl KeySet {
    /// From keys that were read one by one.
    pub fn new(keys: impl IntoIterator<Item = VerifyingKey>) -> Result<Self, KeyError> {
        let mut set = Self::default();
        for key in keys {
            set.add(key)?;
        }
        Ok(set)
    }

    /// From a JWK set (RFC 7517 §5), with the number of keys in it that are for something else or not sound.
    ///
    /// A set with private parts, with two keys of one name, or without any key that can be used is refused as a whole:
    /// the keys that were in force before stay the better ones.
    pub fn from_jwks(text: &[u8]) -> Result<(Self, usize), KeyError> {
        let set = json::read(text, &JsonLimits::default()).map_err(|_| KeyError::NotASet)?;
        let entries = set.get("keys").and_then(|keys| keys.as_array()).ok_or(KeyError::NotASet)?;
        if entries.len() > KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        let (mut keys, mut skipped) = (Self::default(), 0);
        for entry in entries {
            match read_jwk(entry, None) {
                Ok(key) => keys.add(key)?,
                Err(JwkProblem::Private) => return Err(KeyError::Private),
                Err(JwkProblem::Skipped) => skipped += 1,
            }
        }
        if keys.is_empty() { Err(KeyError::NothingUsable) } else { Ok((keys, skipped)) }
    }

    /// The key of this name.
    pub fn get(&self, id: &str) -> Option<&VerifyingKey> {
        self.keys.get(id)
    }

    /// All keys, by name.
    pub fn iter(&self) -> impl Iterator<Item = &VerifyingKey> {
        self.keys.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Is there none?
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn add(&mut self, key: VerifyingKey) -> Result<(), KeyError> {
        if self.keys.len() >= KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        match self.keys.entry(key.id().to_owned()) {
            Entry::Occupied(_) => Err(KeyError::Duplicate),
            Entry::Vacant(place) => {
                place.insert(key);
                Ok(())
            }
        }
    }
}

impl From<VerifyingKey> for KeySet {
    fn from(key: VerifyingKey) -> Self {
        Self { keys: BTreeMap::from([(key.id().to_owned(), key)]) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::SigningKey;
    use serde_json::{Value, json};

    fn jwk(seed: u8) -> Value {
        SigningKey::from_seed(&[seed; 32]).verifying_key().to_jwk()
    }

    fn read(keys: &Value) -> Result<(KeySet, usize), KeyError> {
        KeySet::from_jwks(json!({ "keys": keys }).to_string().as_bytes())
    }

    #[test]
    fn usable_keys_are_taken_and_others_counted() {
        let (set, skipped) = read(&json!([jwk(1), {"kty": "oct", "k": "AAAA"}, jwk(2), 5])).unwrap();
        assert_eq!((set.len(), skipped), (2, 2));
        let own = SigningKey::from_seed(&[1; 32]).verifying_key();
        assert_eq!(set.get(own.id()), Some(&own));
        assert_eq!(set.get("nobody"), None);
    }

    #[test]
    fn sets_that_cannot_be_trusted_are_refused_whole_and_never_echoed() {
        let mut private = jwk(2);
        private["d"] = json!("c2VjcmV0");
        let error = read(&json!([jwk(1), private])).unwrap_err();
        assert_eq!(error, KeyError::Private);
        assert!(!error.to_string().contains("c2VjcmV0"));
        assert_eq!(read(&json!([jwk(1), jwk(1)])).unwrap_err(), KeyError::Duplicate);
        assert_eq!(read(&json!([])).unwrap_err(), KeyError::NothingUsable);
        assert_eq!(read(&json!([{"kty": "oct", "k": "AAAA"}])).unwrap_err(), KeyError::NothingUsable);
        assert_eq!(read(&json!(vec![1; KEYS_MAX + 1])).unwrap_err(), KeyError::TooMany);
        for text in ["", "[]", "{}", r#"{"keys": {}}"#, r#"{"keys": [], "keys": []}"#, "<html>"] {
            assert_eq!(KeySet::from_jwks(text.as_bytes()).unwrap_err(), KeyError::NotASet, "{text}");
        }
        let huge = format!(r#"{{"x": "{}", "keys": []}}"#, "a".repeat(1 << 20));
        assert_eq!(KeySet::from_jwks(huge.as_bytes()).unwrap_err(), KeyError::NotASet);
    }
}
