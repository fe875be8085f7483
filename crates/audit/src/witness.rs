//! Witnesses: places outside the log to which every checkpoint is copied.
//!
//! Whoever can write the whole directory and has the key can make another history; only somebody else who remembers the
//! former one can tell. A witness that cannot be reached never stops the log: it is told the next checkpoint, which covers
//! everything the missed one did.

use std::fmt;
use std::path::PathBuf;

use crate::checkpoint;

/// Somebody who remembers checkpoints.
pub trait Witness: Send + Sync + fmt::Debug {
    /// Tells it a signed checkpoint. Must not wait for long: it is called while the log is held.
    fn tell(&self, note: &str);
}

/// A file on another disk, to which checkpoints are appended.
#[derive(Debug)]
pub struct FileWitness {
    path: PathBuf,
}

impl FileWitness {
    /// At this path.
    pub fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

impl Witness for FileWitness {
    fn tell(&self, note: &str) {
        if let Err(error) = checkpoint::append_note(&self.path, note) {
            tracing::warn!(%error, "the witness file of the audit log cannot be written");
        }
    }
}

/// Several witnesses as one.
#[derive(Debug)]
pub struct Witnesses(pub Vec<Box<dyn Witness>>);

impl Witness for Witnesses {
    fn tell(&self, note: &str) {
        self.0.iter().for_each(|witness| witness.tell(note));
    }
}
