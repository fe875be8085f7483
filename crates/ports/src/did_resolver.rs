//! Finding the document of a DID that neither certifies itself nor is in the local registry (`did:web`).

use std::fmt;

use async_trait::async_trait;
use contract::ids::Subject;

/// Why a DID has no document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DidError {
    /// There is none, or it is not allowed to ask for it: the DID is unknown.
    #[error("the DID is not known")]
    Unknown,
    /// Nobody could say.
    #[error("the DID could not be resolved")]
    Unreachable,
}

/// Resolves DIDs.
#[async_trait]
pub trait DidResolver: Send + Sync + fmt::Debug {
    /// Is there a valid document for this DID? Bounded in time and cached by the adapter.
    async fn resolve(&self, did: &Subject) -> Result<(), DidError>;
}
