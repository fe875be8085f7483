//! Signing keys. Ed25519, each named by the first half of its public key's SHA-256, so that a name cannot be chosen.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, spki::der::pem::LineEnding};
use ed25519_dalek::{Signer as _, Verifier as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Why a key could not be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Not an Ed25519 private key in PKCS#8 PEM.
    #[error("the signing key file is not an Ed25519 private key in PKCS#8 PEM")]
    Unreadable,
    /// Could not be written as PEM.
    #[error("the signing key could not be written as PEM")]
    Unwritable,
}

/// A private key that mints tokens. Its `Debug` shows only its name.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    id: String,
}

/// A public key that verifies them.
#[derive(Debug, Clone)]
pub struct VerifyingKey {
    key: ed25519_dalek::VerifyingKey,
    id: String,
}

impl SigningKey {
    /// From 32 unpredictable bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::wrap(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// From PKCS#8 PEM.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        ed25519_dalek::SigningKey::from_pkcs8_pem(pem).map(Self::wrap).map_err(|_| KeyError::Unreadable)
    }

    /// As PKCS#8 PEM, for a file that only its owner may read.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        let pem = self.key.to_pkcs8_pem(LineEnding::LF).map_err(|_| KeyError::Unwritable)?;
        Ok(pem.as_str().to_owned())
    }

    /// The key's name in token headers.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public half.
    pub fn verifying_key(&self) -> VerifyingKey {
        VerifyingKey { key: self.key.verifying_key(), id: self.id.clone() }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }

    fn wrap(key: ed25519_dalek::SigningKey) -> Self {
        let id = key_id(&key.verifying_key());
        Self { key, id }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl VerifyingKey {
    /// The key's name in token headers.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// As a member of a JWK set (RFC 8037).
    pub fn to_jwk(&self) -> Value {
        json!({
            "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
            "kid": self.id, "x": URL_SAFE_NO_PAD.encode(self.key.as_bytes()),
        })
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let Ok(bytes) = <[u8; 64]>::try_from(signature) else { return false };
        self.key.verify(message, &ed25519_dalek::Signature::from_bytes(&bytes)).is_ok()
    }
}

fn key_id(key: &ed25519_dalek::VerifyingKey) -> String {
    let digest = Sha256::digest(key.as_bytes());
    URL_SAFE_NO_PAD.encode(digest.get(..16).unwrap_or(&[]))
}
