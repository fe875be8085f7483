//! Keys and signatures of tokens: the part of JOSE that Gantry speaks, and nothing else (AUTH-002, DESIGN §8.21).
//!
//! Three algorithms, all of them public-key: RS256, ES256, EdDSA (Ed25519). The algorithm is a property of the key, not
//! of the token's header: the header must agree with the key, and nothing in it can choose another. So there is no place
//! where a public key could be taken for a shared secret, nor one where `none` could be meant.
//!
//! Invariants
//! - JOSE-1: a [`VerifyingKey`] exists only if its material is sound: an RSA modulus of a decent size, a point on its
//!   curve, no small-order point. It is checked once, when the key is read, and not again with every token.
//! - JOSE-2: no private part of a key is ever kept, shown or echoed by a type other than [`SigningKey`].
//! - JOSE-3: a token has exactly one spelling; another spelling of the same bytes is refused.
//!
//! Not here: what the claims mean (`token`), fetching key sets (adapters of the kernel's `KeySource`), shared secrets (`message_code`),
//! RSA-PSS, other curves, encryption, and the header's offers to bring its own key (`jku`, `x5u`, `jwk`, `x5c`).

mod compact;
mod jwk;
mod key_set;
mod public_key_info;
mod signing_key;
mod verifying_key;

pub use compact::{JwsError, TOKEN_BYTES_MAX, decode_part, header_object, key_id, verified_payload};
pub use key_set::{KEYS_MAX, KeySet};
pub use signing_key::SigningKey;
pub use verifying_key::VerifyingKey;

pub(crate) use compact::{CompactToken, is_printable_name, write};
pub(crate) use jwk::{JwkProblem, read as read_jwk};
pub(crate) use public_key_info::rsa_public_key;
pub(crate) use verifying_key::KeyMaterial;

/// How a signature is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SignatureAlgorithm {
    /// RSA with PKCS#1 v1.5 padding and SHA-256.
    Rs256,
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl SignatureAlgorithm {
    /// As `alg` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// From `alg`, letter by letter: RFC 7515 has names in one spelling only.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Rs256, Self::Es256, Self::EdDsa].into_iter().find(|algorithm| algorithm.as_str() == name)
    }
}

/// Why a key or a set of keys could not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not an Ed25519 private key in PKCS#8 PEM.
    #[error("the signing key file is not an Ed25519 private key in PKCS#8 PEM")]
    Unreadable,
    /// Could not be written as PEM.
    #[error("the signing key could not be written as PEM")]
    Unwritable,
    /// A private key where a public one belongs. What it is is not said again.
    #[error("this holds a private key: give the public half only, and treat the private one as exposed")]
    Private,
    /// Not `BEGIN PUBLIC KEY`.
    #[error(
        "the public key is not one block of PEM with `BEGIN PUBLIC KEY`: write it with `openssl pkey -pubout`, for example"
    )]
    NotPublicPem,
    /// The key is of a kind or quality that is not accepted.
    #[error("the public key cannot be used: {0}")]
    Unusable(&'static str),
    /// A key's name is empty, too long or not printable.
    #[error("the name of a key (`kid`) must be 1 to 256 printable characters")]
    Name,
    /// Not a JWK set.
    #[error("the key set is not a JSON object with a list `keys` (RFC 7517)")]
    NotASet,
    /// Nothing in it can be used.
    #[error("the key set has no key that can be used here: RS256, ES256 or EdDSA, each with a `kid`")]
    NothingUsable,
    /// Two keys of one name.
    #[error("two keys of the set have the same name (`kid`)")]
    Duplicate,
    /// Too many keys.
    #[error("the key set has more than {KEYS_MAX} keys")]
    TooMany,
}
