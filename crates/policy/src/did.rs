//! Decentralised identifiers (W3C DID core 1.0): the names of agents and users, and the keys behind them (AUTH-012).
//!
//! `did:key` is its own proof: the name *is* the key ([`Did::self_certified_key`]). `did:web` names a document on a host;
//! finding and fetching it is an adapter's work, reading it is done here ([`DidDocument::read`]). Every
//! other method is a name without keys, as far as this server knows.
//!
//! Not here: the registry of DIDs (a store's), fetching and caching (adapters), DID URLs with path or query.

mod document;
mod multikey;

pub use document::DidDocument;

use std::fmt;
use std::str::FromStr;

use contract::ids::{SUBJECT_CHARS_MAX, Subject};

use crate::jose::{SigningKey, VerifyingKey};

/// A DID, without path, query or fragment.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Did(Box<str>);

/// Why something is not a DID, or has no key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDidError {
    #[error(
        "a DID is `did:method:id` of at most {SUBJECT_CHARS_MAX} characters, for example `did:web:agents.example.com`"
    )]
    Syntax,
    #[error("the `did:key` does not hold an Ed25519, P-256 or RSA key in its one spelling")]
    Key,
    #[error("the DID's method does not say where its keys are: `did:key` and `did:web` do")]
    Method,
    #[error("the DID document cannot be used: {0}")]
    Document(&'static str),
}

impl Did {
    /// The DID as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands between the first two colons.
    pub fn method(&self) -> &str {
        self.parts().0
    }

    /// What stands behind them.
    pub fn specific_id(&self) -> &str {
        self.parts().1
    }

    /// The key that a `did:key` is, named as documents name it: `did:key:z6Mk…#z6Mk…`. For an RSA key that name is longer
    /// than a token's `kid` may be.
    pub fn self_certified_key(&self) -> Result<VerifyingKey, InvalidDidError> {
        let ("key", id) = self.parts() else { return Err(InvalidDidError::Method) };
        let material = multikey::decode(id).ok_or(InvalidDidError::Key)?;
        Ok(VerifyingKey::named(format!("{self}#{id}"), material))
    }

    /// The `did:key` of one of our own keys.
    pub fn of_key(key: &SigningKey) -> Self {
        Self(format!("did:key:{}", multikey::encode_ed25519(key.public_bytes())).into())
    }

    fn parts(&self) -> (&str, &str) {
        // The syntax was checked when the value was made.
        self.0.strip_prefix("did:").and_then(|rest| rest.split_once(':')).unwrap_or_default()
    }
}

impl FromStr for Did {
    type Err = InvalidDidError;

    fn from_str(text: &str) -> Result<Self, InvalidDidError> {
        let fine = text.len() <= SUBJECT_CHARS_MAX
            && text.strip_prefix("did:").and_then(|rest| rest.split_once(':')).is_some_and(|(method, id)| {
                !method.is_empty()
                    && method.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
                    && !id.ends_with(':')
                    && is_specific_id(id)
            });
        if fine { Ok(Self(text.into())) } else { Err(InvalidDidError::Syntax) }
    }
}

impl fmt::Display for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Did {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Did({})", self.0)
    }
}

/// The one rule for subjects, of agents and of people: what looks like a DID, in any case of letters, must be one, and a
/// `did:key` must hold a key. Every other name is free. Answers the DID if it is one.
///
/// Asked wherever a subject is let in: when a token is made, when one is accepted, and when an agent is introduced.
pub fn did_of_subject(subject: &Subject) -> Result<Option<Did>, InvalidDidError> {
    let text = subject.as_str();
    if !text.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("did:")) {
        return Ok(None);
    }
    let did: Did = text.parse()?;
    if did.method() == "key" {
        did.self_certified_key()?;
    }
    Ok(Some(did))
}

/// Letters, digits, `.-_:` and whole percent encodings.
fn is_specific_id(id: &str) -> bool {
    let mut bytes = id.bytes();
    while let Some(byte) = bytes.next() {
        let fine = match byte {
            b'%' => [bytes.next(), bytes.next()].iter().all(|digit| digit.is_some_and(|b| b.is_ascii_hexdigit())),
            b'.' | b'-' | b'_' | b':' => true,
            other => other.is_ascii_alphanumeric(),
        };
        if !fine {
            return false;
        }
    }
    !id.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jose::SignatureAlgorithm;

    #[test]
    fn the_syntax_is_that_of_did_core() {
        for good in ["did:key:z6Mk", "did:web:example.com%3A3000:a", "did:x1:a:b::c", "did:a:_.-"] {
            let did: Did = good.parse().unwrap();
            assert_eq!(did.as_str(), good);
        }
        let did: Did = "did:web:example.com:a".parse().unwrap();
        assert_eq!((did.method(), did.specific_id()), ("web", "example.com:a"));
        let long = format!("did:x:{}", "a".repeat(495));
        for bad in [
            "",
            "did",
            "did:",
            "did:key",
            "did:key:",
            "did::x",
            "DID:key:x",
            "did:Key:x",
            "did:k-y:x",
            "did:x:a:",
            "did:x:a b",
            "did:x:a/b",
            "did:x:a#b",
            "did:x:a?b",
            "did:x:%",
            "did:x:%4",
            "did:x:%zz",
            "did:x:é",
            " did:x:a",
            "did:x:a\n",
            &long,
        ] {
            assert!(bad.parse::<Did>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_subject_that_looks_like_a_did_must_be_one() {
        let own = Did::of_key(&SigningKey::from_seed(&[7; 32])).to_string();
        for (subject, expected) in [
            ("admin", Ok(false)),
            ("Jürgen", Ok(false)),
            ("dido:x", Ok(false)),
            ("did:example:ann", Ok(true)),
            ("did:web:agents.example.com", Ok(true)),
            (&own, Ok(true)),
            ("did:", Err(InvalidDidError::Syntax)),
            ("did:key", Err(InvalidDidError::Syntax)),
            ("did:web:", Err(InvalidDidError::Syntax)),
            ("DID:example:ann", Err(InvalidDidError::Syntax)),
            ("dId:", Err(InvalidDidError::Syntax)),
            ("did:key:z6Mkbroken", Err(InvalidDidError::Key)),
            ("did:key:x", Err(InvalidDidError::Key)),
        ] {
            let found = did_of_subject(&subject.parse().unwrap()).map(|did| did.is_some());
            assert_eq!(found, expected, "{subject}");
        }
    }

    #[test]
    fn a_did_of_our_own_key_is_that_key() {
        let own = SigningKey::from_seed(&[7; 32]);
        let did = Did::of_key(&own);
        assert_eq!(did.as_str().parse(), Ok(did.clone()));
        let key = did.self_certified_key().unwrap();
        assert_eq!(key.algorithm(), SignatureAlgorithm::EdDsa);
        assert_eq!(key.thumbprint(), own.verifying_key().thumbprint());
        assert_eq!(key.id(), format!("{did}#{}", did.specific_id()));
        assert!(key.verifies(b"m", &own.sign(b"m")));
        assert_eq!("did:web:a.b".parse::<Did>().unwrap().self_certified_key(), Err(InvalidDidError::Method));
    }
}
