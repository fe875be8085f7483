//! What makes several instances one installation: secrets they all have to know alike.
//!
//! The key that signs tokens is the example: a token that one instance minted must be good at every other. The first
//! instance to start brings its own, and all others take that one.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;

use crate::registry_store::StoreError;

/// Keeps secrets of the whole installation. Values are opaque here and may be sealed.
#[async_trait]
pub trait InstallationStore: Send + Sync + fmt::Debug {
    /// All of them by name.
    async fn secrets(&self) -> Result<BTreeMap<String, String>, StoreError>;

    /// Keeps `value` unless there is one already, and answers what is kept. Of instances that do this at the same time one
    /// wins, and all get the same answer.
    async fn keep(&self, name: &str, value: &str) -> Result<String, StoreError>;

    /// Puts `value` in the place of `former`; `false` if something else is kept by now.
    async fn replace(&self, name: &str, former: &str, value: &str) -> Result<bool, StoreError>;
}
