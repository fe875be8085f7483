//! Who is there: instances that say so again and again, and are forgotten when they stop. (DESIGN §4)
//!
//! Invariants every adapter keeps
//! - PRES-1: an instance is there from its announcement until its `ttl` has passed, by the clock of whoever keeps this.
//! - PRES-2: the newest word counts; a `ttl` of zero is a farewell.
//! - PRES-3: nothing depends on it but what people are shown: it proves nobody and may be lost.
//!
//! Not here: what the word says (`membership`), leases of calls and jobs (`ledger`, `job_store`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

pub use crate::shared_state::PresentReplica;

/// Most instances that are told of.
pub const PRESENT_MAX: usize = 1_000;
/// Longest word of an instance, in bytes.
pub const WORD_BYTES_MAX: usize = 4_096;

/// Nobody could be asked.
#[derive(Debug, thiserror::Error)]
#[error("who is there cannot be asked at the moment")]
pub struct PresenceError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Knows who is there.
#[async_trait]
pub trait Presence: Send + Sync + fmt::Debug {
    /// `instance` is there for the next `ttl`. A `ttl` of zero: it leaves.
    async fn announce(&self, instance: &str, word: &str, ttl: Duration) -> Result<(), PresenceError>;

    /// Those that are there, by name; at most [`PRESENT_MAX`].
    async fn present(&self) -> Result<Vec<PresentReplica>, PresenceError>;
}
