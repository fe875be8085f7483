//! Where the keys of another issuer come from: a JWK set behind a URL or in a file (AUTH-005).

use std::fmt;

use async_trait::async_trait;

/// Why there are no keys. Goes to the log, never to a caller.
#[derive(Debug, thiserror::Error)]
#[error("the key set cannot be had: {0}")]
pub struct KeySourceError(pub String);

/// Fetches a JWK set.
#[async_trait]
pub trait KeySource: Send + Sync + fmt::Debug {
    /// The text of the set. Bounded in size and time by the adapter. The caller decides when and how often to ask.
    async fn fetch(&self) -> Result<Vec<u8>, KeySourceError>;
}
