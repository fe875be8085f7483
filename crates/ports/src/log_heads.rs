//! The newest signed checkpoint of every instance's audit log, where all instances can read it.
//!
//! Each instance keeps a log of its own. One that writes down how far the others had come is a witness of them: whoever makes
//! one log anew, or shortens it, would have to change the logs of all. (AUD-002)
//!
//! Invariants every adapter keeps
//! - HEAD-1: of one log the largest head is kept; a smaller one, or another root for the same size, never takes its place.
//! - HEAD-2: whoever tells a head that does not go with the kept one is told so.
//!
//! Not here: what a checkpoint says and who has signed it (`audit`). What is kept here proves nothing by itself.

use std::fmt;

use async_trait::async_trait;

use crate::registry_store::StoreError;

/// Most heads that are told of.
pub const HEADS_MAX: usize = 1_000;
/// Longest note, in bytes.
pub const NOTE_BYTES_MAX: usize = 4_096;

/// How far a log had come, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHead {
    /// Whose log it is.
    pub origin: String,
    /// How many records it had.
    pub size: u64,
    /// The root over them, in base64.
    pub root: String,
    /// The signed note that says so.
    pub note: String,
}

/// What became of a head that was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadReport {
    /// It is the newest.
    Kept,
    /// It was there already.
    Known,
    /// HEAD-2: the log had come further, or said something else.
    Contradicted(LogHead),
}

/// Keeps heads of logs.
#[async_trait]
pub trait LogHeads: Send + Sync + fmt::Debug {
    /// Tells the newest head of a log.
    async fn tell(&self, head: &LogHead) -> Result<HeadReport, StoreError>;

    /// The newest head of every log, by origin; at most [`HEADS_MAX`].
    async fn heads(&self) -> Result<Vec<LogHead>, StoreError>;
}
