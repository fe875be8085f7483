//! Where the signing key is kept.

use std::fmt;

use async_trait::async_trait;
use policy::SigningKey;

/// Why a new key could not be kept. Goes to the log.
#[derive(Debug, thiserror::Error)]
#[error("the new signing key could not be kept: {0}")]
pub struct KeyVaultError(pub String);

/// Keeps signing keys.
#[async_trait]
pub trait KeyVault: Send + Sync + fmt::Debug {
    /// Makes `key` the one that signs after the next start, and keeps the public half of the one it follows, so that its
    /// tokens stay valid. Durable before it answers; on an error the former key stays.
    async fn replace(&self, key: &SigningKey) -> Result<(), KeyVaultError>;
}
