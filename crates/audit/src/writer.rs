//! The writing side of a log: lines, tree, counts and checkpoints, kept in step. Blocking; `file_log` calls it.
//!
//! A batch is written in this order: lines, hashes, `fdatasync` of the lines. Only then is it part of the log; before that
//! it is taken back whole. The tree file is made durable before a checkpoint is signed over it, so after a crash it is
//! believed up to the newest checkpoint and the few lines after that are hashed again.
//!
//! Invariants
//! - WRITE-1: what the frontier, the counts and `durable` say is what is durable.
//! - WRITE-2: a checkpoint is signed only over durable lines, and sizes of checkpoints never shrink.
//!
//! Not here: opening and what is refused then (`recovery`), time and tasks (`file_log`).

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use kernel::ports::audit_sink::AuditRecord;
use kernel::ports::clock::UnixMillis;
use rustix::fs::FallocateFlags;

use crate::checkpoint::{self, Checkpoint};
use crate::key_file;
use crate::line::{self, OwnWord, Stamp};
use crate::log_mark::LogMark;
use crate::merkle::{Frontier, leaf_hash};
use crate::note::NoteSigner;
use crate::principals::Principals;
use crate::recovery::open_file;
use crate::tree_file::TreeFile;
use crate::witness::Witness;

/// A file that has so many bytes will be filled: the room for the rest of it is taken at once. Taken bit by bit it comes to lie
/// in many pieces, of which the system then has to keep account with every sync.
const ROOM_FROM_BYTES: u64 = 1024 * 1024;
/// It is not taken if it is more than this part of what is free.
const ROOM_SHARE: u64 = 16;
/// The counts of principals are saved after this many records, and at the end.
pub(crate) const SAVE_RECORDS: u64 = 65_536;

/// A log that is open for appending.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) dir: PathBuf,
    pub(crate) mark: LogMark,
    pub(crate) key_file: PathBuf,
    pub(crate) signer: NoteSigner,
    pub(crate) number: u64,
    pub(crate) file: File,
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
    /// The room for the rest of the file was asked for.
    pub(crate) has_room: bool,
    pub(crate) tree: TreeFile,
    pub(crate) frontier: Frontier,
    pub(crate) principals: Principals,
    /// After how many records the counts were saved.
    pub(crate) saved: u64,
    /// The newest checkpoint, and how many records it covers.
    pub(crate) newest: Option<(u64, String)>,
    /// The time of the newest checkpoint: later ones never say an earlier one, whatever the clock does.
    pub(crate) signed_at: UnixMillis,
    pub(crate) witness: Option<Arc<dyn Witness>>,
    /// Something was half written and must be cut off first.
    pub(crate) torn: bool,
}

/// A batch that is ready to be written.
struct Batch {
    lines: Vec<u8>,
    hashes: Vec<u8>,
    frontier: Frontier,
}

impl Writer {
    /// How many records there are, all of them durable.
    pub(crate) fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// Appends records durably, or not at all.
    pub(crate) fn append(&mut self, records: &[AuditRecord]) -> io::Result<()> {
        self.principals.begin();
        let written = self.batch(records).and_then(|batch| self.write(batch));
        if written.is_ok() {
            self.principals.commit()
        } else {
            self.principals.roll_back()
        }
        written
    }

    /// Appends a record of the log about itself.
    pub(crate) fn append_own(&mut self, word: OwnWord<'_>, now: UnixMillis) -> io::Result<()> {
        let stamp = Stamp { log: &self.mark.id, seq: self.size(), turn: None };
        let mut batch = Batch { lines: Vec::new(), hashes: Vec::new(), frontier: self.frontier.clone() };
        line::write_own(word, now, stamp, &mut batch.lines)?;
        batch.take_in(0);
        self.write(batch)
    }

    fn batch(&mut self, records: &[AuditRecord]) -> io::Result<Batch> {
        let lines = Vec::with_capacity(records.len().saturating_mul(512));
        let hashes = Vec::with_capacity(records.len().saturating_mul(64));
        let mut batch = Batch { lines, hashes, frontier: self.frontier.clone() };
        let mut name = String::new();
        for record in records {
            let turn = record.who.as_deref().map(|who| {
                Principals::write_name(who.tenant.as_str(), who.subject.as_str(), &mut name);
                self.principals.count(&name)
            });
            let stamp = Stamp { log: &self.mark.id, seq: batch.frontier.size(), turn };
            let start = batch.lines.len();
            line::write(record, stamp, &mut batch.lines)?;
            batch.take_in(start);
        }
        Ok(batch)
    }

    fn write(&mut self, batch: Batch) -> io::Result<()> {
        if self.torn {
            self.mend()?;
        }
        if self.bytes >= self.bytes_max {
            let next = self.number.saturating_add(1);
            let (file, size) = open_file(&self.dir, next)?;
            (self.number, self.file, self.bytes, self.has_room) = (next, file, size, false);
        }
        if self.bytes >= ROOM_FROM_BYTES && !self.has_room {
            self.take_room();
        }
        self.torn = true;
        let written = self
            .file
            .write_all(&batch.lines)
            .and_then(|()| self.tree.append(self.size(), &batch.hashes))
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // Whatever part arrived is taken back, so that the repeated batch does not follow half a line.
            self.mend()?;
            return Err(error);
        }
        self.torn = false;
        self.bytes = self.bytes.saturating_add(batch.lines.len() as u64);
        self.frontier = batch.frontier;
        Ok(())
    }

    /// Takes the room for the rest of the file, without making it longer: readers see nothing of it. Where there is little
    /// left it is left to others, and where it cannot be done the file grows as it is written to.
    fn take_room(&mut self) {
        self.has_room = true;
        let rest = self.bytes_max.saturating_sub(self.bytes);
        let free = rustix::fs::fstatvfs(&self.file).map_or(0, |place| place.f_bavail.saturating_mul(place.f_frsize));
        if free / ROOM_SHARE < rest {
            return;
        }
        if rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.bytes, rest).is_err() {
            // Part of it may have been taken; what is behind the end of the file goes back.
            let _ = self.file.set_len(self.bytes);
        }
    }

    fn mend(&mut self) -> io::Result<()> {
        self.has_room = false;
        self.file.set_len(self.bytes)?;
        self.file.seek(SeekFrom::Start(self.bytes))?;
        self.tree.cut(self.size())?;
        self.torn = false;
        Ok(())
    }

    /// How many records no checkpoint covers yet.
    pub(crate) fn uncovered(&self) -> u64 {
        self.size() - self.newest.as_ref().map_or(0, |(size, _)| *size)
    }

    /// The newest checkpoint, signed now if records came since.
    pub(crate) fn checkpoint(&mut self, now: UnixMillis) -> io::Result<String> {
        match &self.newest {
            Some((size, note)) if *size == self.size() => Ok(note.clone()),
            _ => self.sign(now),
        }
    }

    fn sign(&mut self, now: UnixMillis) -> io::Result<String> {
        self.tree.sync()?;
        self.signed_at = self.signed_at.max(now);
        let note = Checkpoint::sign(&self.signer, self.size(), &self.frontier.root(), self.signed_at);
        checkpoint::append_note(&self.dir.join(checkpoint::NAME), &note)?;
        if let Some(witness) = &self.witness {
            witness.tell(&note);
        }
        self.newest = Some((self.size(), note.clone()));
        if self.size() - self.saved >= SAVE_RECORDS {
            self.save_counts()?;
        }
        Ok(note)
    }

    fn save_counts(&mut self) -> io::Result<()> {
        self.principals.save(&self.dir, self.size(), &self.frontier.root())?;
        self.saved = self.size();
        Ok(())
    }

    /// The last checkpoint of this run, and the counts.
    pub(crate) fn close(&mut self, now: UnixMillis) -> io::Result<()> {
        self.checkpoint(now)?;
        if self.saved == self.size() { Ok(()) } else { self.save_counts() }
    }

    /// Signs with another key from now on. The log says so itself, under the former key; then the new key signs the same.
    pub(crate) fn rotate(&mut self, next: NoteSigner, now: UnixMillis) -> io::Result<String> {
        let (from, to) = (self.signer.verifier().to_string(), next.verifier().to_string());
        key_file::write(&key_file::next(&self.key_file), &next)?;
        self.append_own(OwnWord::KeyChanged { from: &from, to: &to }, now)?;
        self.checkpoint(now)?;
        key_file::promote(&self.key_file)?;
        self.signer = next;
        self.sign(now)?;
        Ok(to)
    }
}

impl Batch {
    /// Takes the line that begins at `start` into the tree. The newline is no part of it.
    fn take_in(&mut self, start: usize) {
        let line = self.lines.get(start..self.lines.len().saturating_sub(1)).unwrap_or_default();
        let hashes = &mut self.hashes;
        self.frontier.push(leaf_hash(line), |hash| hashes.extend_from_slice(hash));
    }
}
