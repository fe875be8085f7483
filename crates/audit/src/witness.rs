//! Witnesses: places outside the log to which every checkpoint is copied.
//!
//! Whoever can write the whole directory and has the key can make another history; only somebody else who remembers the
//! former one can tell. A witness that cannot be reached never stops the log: it is told the next checkpoint, which covers
//! everything the missed one did.
//!
//! Invariants
//! - WIT-1: a file that does not answer, as on a disk of the network that is gone, holds the log up once, for
//!   [`PATIENCE`]; from then on nobody waits for it until it has answered again.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::time::Duration;

use crate::checkpoint;

/// How long a checkpoint waits for the file.
const PATIENCE: Duration = Duration::from_millis(500);
/// Checkpoints that wait for a file which does not answer. What does not fit is left out: the next one covers it.
const WAITING_MAX: usize = 16;

/// Somebody who remembers checkpoints.
pub trait CheckpointWitness: Send + Sync + fmt::Debug {
    /// Tells it a signed checkpoint. Must not wait for long: it is called while the log is held.
    fn tell(&self, note: &str);
}

/// A file on another disk, to which checkpoints are appended by a thread of its own.
#[derive(Debug)]
pub struct FileWitness {
    notes: SyncSender<(String, SyncSender<()>)>,
    /// WIT-1: it owes an answer.
    silent: Arc<AtomicBool>,
}

impl FileWitness {
    /// At this path.
    pub fn new(path: PathBuf) -> Self {
        let (notes, waiting) = mpsc::sync_channel::<(String, SyncSender<()>)>(WAITING_MAX);
        let silent = Arc::new(AtomicBool::new(false));
        let owes = Arc::clone(&silent);
        let started = std::thread::Builder::new().name("audit-witness".to_owned()).spawn(move || {
            for (note, done) in waiting {
                if let Err(error) = checkpoint::append_note(&path, &note) {
                    tracing::warn!(%error, "the witness file of the audit log cannot be written");
                }
                owes.store(false, Ordering::Release);
                // Whoever told it may have stopped waiting.
                let _ = done.try_send(());
            }
        });
        if let Err(error) = started {
            tracing::error!(%error, "the witness file of the audit log gets nothing: there is no thread for it");
        }
        Self { notes, silent }
    }
}

impl CheckpointWitness for FileWitness {
    fn tell(&self, note: &str) {
        let (done, answer) = mpsc::sync_channel(1);
        if self.notes.try_send((note.to_owned(), done)).is_err() {
            tracing::warn!("the witness file of the audit log takes nothing; a checkpoint is missing there");
            return;
        }
        if self.silent.load(Ordering::Acquire) {
            return;
        }
        if answer.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            self.silent.store(true, Ordering::Release);
            tracing::warn!("the witness file of the audit log does not answer; the log goes on without it");
        }
    }
}

/// Several witnesses as one.
#[derive(Debug)]
pub struct WitnessGroup(pub Vec<Box<dyn CheckpointWitness>>);

impl CheckpointWitness for WitnessGroup {
    fn tell(&self, note: &str) {
        self.0.iter().for_each(|witness| witness.tell(note));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_in_the_file_and_a_file_that_cannot_be_stops_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let witness = FileWitness::new(folder.path().join("kept"));
        witness.tell("first");
        witness.tell("second");
        assert_eq!(std::fs::read_to_string(folder.path().join("kept")).unwrap(), "first\nsecond\n");
        let nowhere = FileWitness::new(folder.path().join("no/such/folder"));
        (0..100).for_each(|_| nowhere.tell("lost"));
    }
}
