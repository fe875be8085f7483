//! This server's own signing keys: Ed25519, each named by the first half of its public key's SHA-256, so that a name
//! cannot be chosen.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::Signer as _;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, KeypairBytes};
use sha2::{Digest as _, Sha256};
use spki::der::pem::LineEnding;

use super::verifying_key::KeyMaterial;
use super::{KeyError, VerifyingKey};

/// A private key that mints tokens. Its `Debug` shows only its name.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    public: [u8; 32],
    id: String,
}

impl SigningKey {
    /// From 32 unpredictable bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self::wrap(ed25519_dalek::SigningKey::from_bytes(seed))
    }

    /// From PKCS#8 PEM, of version 1 or 2.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        ed25519_dalek::SigningKey::from_pkcs8_pem(pem).map(Self::wrap).map_err(|_| KeyError::Unreadable)
    }

    /// As PKCS#8 PEM, for a file that only its owner may read. Of version 1, without the public key beside the private one
    /// (RFC 8410 §7): OpenSSL reads no other for Ed25519.
    pub fn to_pem(&self) -> Result<String, KeyError> {
        let private = KeypairBytes { secret_key: self.key.to_bytes(), public_key: None };
        let pem = private.to_pkcs8_pem(LineEnding::LF).map_err(|_| KeyError::Unwritable)?;
        Ok(pem.as_str().to_owned())
    }

    /// The key's name in token headers.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public half.
    pub fn verifying_key(&self) -> VerifyingKey {
        // A key made from a seed is a multiple of the base point and so never of small order.
        VerifyingKey::named(self.id.clone(), KeyMaterial::Ed25519(self.public))
    }

    /// The public half as bytes.
    pub(crate) fn public_bytes(&self) -> &[u8; 32] {
        &self.public
    }

    /// Signs a message.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message).to_bytes()
    }

    fn wrap(key: ed25519_dalek::SigningKey) -> Self {
        let public = key.verifying_key().to_bytes();
        let digest = Sha256::digest(public);
        let id = URL_SAFE_NO_PAD.encode(digest.get(..16).unwrap_or(&[]));
        Self { key, public, id }
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_written_as_version_1_and_both_versions_are_read() {
        let key = SigningKey::from_seed(&[7; 32]);
        let written = key.to_pem().unwrap();
        assert_eq!(SigningKey::from_pem(&written).unwrap().id(), key.id());
        // 48 bytes of DER, of which the last 32 are the key (RFC 8410 §10.3).
        assert_eq!(written.lines().nth(1).map(str::len), Some(64), "{written}");
        let earlier = key.key.to_pkcs8_pem(LineEnding::LF).unwrap();
        assert_ne!(earlier.as_str(), written);
        assert_eq!(SigningKey::from_pem(&earlier).unwrap().id(), key.id());
    }
}
