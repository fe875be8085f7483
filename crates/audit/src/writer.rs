//! The writing side of a log: lines, tree, counts and checkpoints, kept in step. Blocking; `file_log` calls it.
//!
//! Two steps make a record safe. *Written* lines are with the operating system: the end of this process cannot take them,
//! the end of the machine can. *Synced* lines are on the disk. The hashes of written lines wait in memory until the next sync,
//! because the tree is made again from the lines after a crash. The tree file is made durable before a checkpoint is signed
//! over it, so after a crash it is believed up to the newest checkpoint and the few lines after that are hashed again.
//!
//! A sync and a signature are taken apart into what needs the writer and what only waits for the disk ([`LineSync`],
//! [`PendingSignature`]), so that lines can be written while the disk works.
//!
//! Invariants
//! - AWRITE-1: what the frontier and the counts say is what is written; `synced` says what is durable.
//! - AWRITE-2: a checkpoint is signed only over durable lines, and sizes of checkpoints never shrink.
//! - AWRITE-3: a system that could not sync may have forgotten what it did not sync, so that is written again before the next
//!   sync is believed.
//! - AWRITE-4: no line is written while the newest checkpoint says that the log has ended in order. One that does not is signed
//!   first, durably: so whatever stands after an end is somebody else's, whenever this process is killed.
//!
//! Not here: opening and what is refused then (`recovery`), time and tasks (`file_log`).

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use ports::audit_sink::AuditRecord;
use ports::clock::UnixMillis;

use crate::checkpoint::{self, LogCheckpoint};
use crate::key_file;
use crate::line::{self, OwnWord, RecordStamp};
use crate::line_mac::MacKey;
use crate::log_mark::LogMark;
use crate::merkle::{TreeFrontier, TreeHash, leaf_hash};
use crate::note::NoteSigner;
use crate::principals::PrincipalCounts;
use crate::recovery::open_file;
use crate::room;
use crate::tree_file::TreeFile;
use crate::witness::CheckpointWitness;

/// The counts of principals are saved after this many records, and at the end.
pub(crate) const SAVE_RECORDS: u64 = 65_536;

/// A log that is open for appending.
#[derive(Debug)]
pub(crate) struct LogWriter {
    pub(crate) dir: PathBuf,
    pub(crate) mark: LogMark,
    pub(crate) key_file: PathBuf,
    pub(crate) signer: Arc<NoteSigner>,
    /// What makes the codes of lines; of the same key.
    pub(crate) mac: MacKey,
    pub(crate) number: u64,
    pub(crate) file: Arc<File>,
    pub(crate) bytes: u64,
    pub(crate) bytes_max: u64,
    /// Up to here the disk has room for the file.
    pub(crate) room_until: u64,
    pub(crate) tree: Arc<TreeFile>,
    pub(crate) frontier: TreeFrontier,
    /// The hash of the last line; the next one's code is over it, too.
    pub(crate) leaf: TreeHash,
    /// Lines before this edge have not been held against it yet (`line_check`).
    pub(crate) unread: TreeFrontier,
    pub(crate) unsynced: UnsyncedWrites,
    pub(crate) principals: PrincipalCounts,
    /// After how many records the counts were saved.
    pub(crate) saved: u64,
    /// The newest checkpoint, and how many records it covers.
    pub(crate) newest: Option<(u64, String)>,
    /// It says that the log has ended.
    pub(crate) is_ended: bool,
    /// The time of the newest checkpoint: later ones never say an earlier one, whatever the clock does.
    pub(crate) signed_at: UnixMillis,
    pub(crate) witness: Option<Arc<dyn CheckpointWitness>>,
    /// Something was half written and must be cut off first.
    pub(crate) torn: bool,
}

/// What was written and is not known to be durable.
#[derive(Debug)]
pub(crate) struct UnsyncedWrites {
    /// How many records are durable.
    synced: u64,
    /// Written since, in the newest file.
    lines: Vec<WrittenLines>,
    /// Hashes that are not in the tree file yet, and how many leaves it has.
    hashes: Vec<u8>,
    hashed: u64,
    /// The system could not sync, so the lines are to be written again.
    is_doubtful: bool,
}

#[derive(Debug)]
struct WrittenLines {
    /// How many records the log has with them.
    size: u64,
    offset: u64,
    text: Vec<u8>,
}

/// A sync of lines that needs the disk only.
#[derive(Debug)]
pub(crate) struct LineSync {
    file: Arc<File>,
    size: u64,
}

/// A checkpoint that needs the disk only.
#[derive(Debug)]
pub(crate) struct PendingSignature {
    lines: LineSync,
    tree: Arc<TreeFile>,
    signer: Arc<NoteSigner>,
    root: TreeHash,
    at: UnixMillis,
    notes: PathBuf,
    witness: Option<Arc<dyn CheckpointWitness>>,
    is_end: bool,
}

/// A batch that is ready to be written.
struct Batch {
    lines: Vec<u8>,
    hashes: Vec<u8>,
    frontier: TreeFrontier,
    leaf: TreeHash,
}

impl LogWriter {
    /// How many records there are.
    pub(crate) fn size(&self) -> u64 {
        self.frontier.size()
    }

    /// How many of them are durable.
    pub(crate) fn synced(&self) -> u64 {
        self.unsynced.synced
    }

    /// Would the next append have to wait for the disk?
    pub(crate) fn must_wait(&self) -> bool {
        let is_short_of_room = self.room_until < self.bytes.saturating_add(room::AHEAD_BYTES_MIN / 2);
        self.torn || self.is_ended || self.bytes >= self.bytes_max || is_short_of_room
    }

    /// Writes records, or none of them.
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
        let stamp = RecordStamp { log: &self.mark.id, seq: self.size(), turn: None };
        let mut batch = self.begin_batch(0);
        line::write_own(word, now, stamp, &mut batch.lines)?;
        batch.take_in(0, &self.mac);
        self.write(batch)
    }

    fn batch(&mut self, records: &[AuditRecord]) -> io::Result<Batch> {
        let mut batch = self.begin_batch(records.len());
        let mut name = String::new();
        for record in records {
            let turn = record.who.as_deref().map(|who| {
                PrincipalCounts::write_name(who.tenant.as_str(), who.subject.as_str(), &mut name);
                self.principals.count(&name)
            });
            let stamp = RecordStamp { log: &self.mark.id, seq: batch.frontier.size(), turn };
            let start = batch.lines.len();
            line::write(record, stamp, &mut batch.lines)?;
            batch.take_in(start, &self.mac);
        }
        Ok(batch)
    }

    fn begin_batch(&self, records: usize) -> Batch {
        Batch {
            lines: Vec::with_capacity(records.saturating_mul(512)),
            hashes: Vec::with_capacity(records.saturating_mul(64)),
            frontier: self.frontier.clone(),
            leaf: self.leaf,
        }
    }

    fn write(&mut self, batch: Batch) -> io::Result<()> {
        if self.torn {
            self.mend()?;
        }
        if self.is_ended {
            // AWRITE-4
            self.sign(self.signed_at)?;
        }
        if self.bytes >= self.bytes_max {
            // Only the newest file has lines that are not durable.
            self.sync()?;
            let next = self.number.saturating_add(1);
            let (file, size) = open_file(&self.dir, next)?;
            // What was taken ahead for the former file. Not given back, it would only be lost until the next start.
            let _ = self.file.set_len(self.bytes);
            (self.number, self.file, self.bytes, self.room_until) = (next, Arc::new(file), size, 0);
        }
        self.torn = true;
        if let Err(error) = (&*self.file).write_all(&batch.lines) {
            // Whatever part arrived is taken back, so that the repeated batch does not follow half a line.
            self.mend()?;
            return Err(error);
        }
        self.torn = false;
        let offset = self.bytes;
        self.bytes = self.bytes.saturating_add(batch.lines.len() as u64);
        (self.frontier, self.leaf) = (batch.frontier, batch.leaf);
        self.unsynced.hashes.extend_from_slice(&batch.hashes);
        self.unsynced.lines.push(WrittenLines { size: self.frontier.size(), offset, text: batch.lines });
        Ok(())
    }

    fn mend(&mut self) -> io::Result<()> {
        self.room_until = 0;
        self.file.set_len(self.bytes)?;
        (&*self.file).seek(SeekFrom::Start(self.bytes))?;
        self.torn = false;
        Ok(())
    }

    /// Makes durable what was written.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let lines = self.begin_sync()?;
        let done = lines.run();
        self.end_sync(&lines, done)
    }

    /// Begins a sync of what was written so far.
    pub(crate) fn begin_sync(&mut self) -> io::Result<LineSync> {
        self.write_hashes()?;
        if self.unsynced.is_doubtful {
            for lines in &self.unsynced.lines {
                self.file.write_all_at(&lines.text, lines.offset)?;
            }
            self.unsynced.is_doubtful = false;
        }
        Ok(LineSync { file: Arc::clone(&self.file), size: self.size() })
    }

    /// Takes in what came of a sync.
    pub(crate) fn end_sync(&mut self, lines: &LineSync, done: io::Result<()>) -> io::Result<()> {
        if done.is_ok() {
            self.unsynced.synced = self.unsynced.synced.max(lines.size);
            self.unsynced.lines.retain(|written| written.size > lines.size);
        } else {
            self.unsynced.is_doubtful = true;
        }
        done
    }

    fn write_hashes(&mut self) -> io::Result<()> {
        if !self.unsynced.hashes.is_empty() {
            self.tree.append(self.unsynced.hashed, &self.unsynced.hashes)?;
            self.unsynced.hashes.clear();
        }
        self.unsynced.hashed = self.size();
        Ok(())
    }

    /// Sees to it that the records of calls that are let in now will fit. False if they may not.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.room_until >= self.bytes.saturating_add(room::AHEAD_BYTES_MIN) {
            return true;
        }
        let lines = room::take_ahead(&self.file, self.bytes, self.bytes_max);
        let taken = lines.map(|taken| taken.filter(|_| self.tree.make_room(self.size()).unwrap_or(false)));
        match taken {
            Ok(Some(bytes)) => self.room_until = self.bytes.saturating_add(bytes),
            Ok(None) => return false,
            // ROOM-2: not asked again for this file.
            Err(_) => self.room_until = u64::MAX,
        }
        true
    }

    /// How many records no checkpoint covers yet.
    pub(crate) fn uncovered(&self) -> u64 {
        self.size() - self.newest.as_ref().map_or(0, |(size, _)| *size)
    }

    /// The newest checkpoint, signed now if records came since, or if it says that the log has ended.
    pub(crate) fn checkpoint(&mut self, now: UnixMillis) -> io::Result<String> {
        match &self.newest {
            Some((size, note)) if *size == self.size() && !self.is_ended => Ok(note.clone()),
            _ => self.sign(now),
        }
    }

    pub(crate) fn sign(&mut self, now: UnixMillis) -> io::Result<String> {
        let signature = self.begin_signature(now)?;
        let done = signature.run();
        self.end_signature(&signature, done)
    }

    /// Begins to sign what was written so far.
    pub(crate) fn begin_signature(&mut self, now: UnixMillis) -> io::Result<PendingSignature> {
        self.signed_at = self.signed_at.max(now);
        Ok(PendingSignature {
            lines: self.begin_sync()?,
            tree: Arc::clone(&self.tree),
            signer: Arc::clone(&self.signer),
            root: self.frontier.root(),
            at: self.signed_at,
            notes: self.dir.join(checkpoint::NAME),
            witness: self.witness.clone(),
            is_end: false,
        })
    }

    /// Takes in what came of a signature. One after the other only: sizes of checkpoints never shrink.
    pub(crate) fn end_signature(&mut self, signature: &PendingSignature, done: SignOutcome) -> io::Result<String> {
        self.end_sync(&signature.lines, done.lines)?;
        let note = done.note?;
        self.newest = Some((signature.lines.size, note.clone()));
        self.is_ended = signature.is_end;
        if self.size() - self.saved >= SAVE_RECORDS {
            self.save_counts()?;
        }
        Ok(note)
    }

    /// The counts are of all that is written, so that is made durable first.
    fn save_counts(&mut self) -> io::Result<()> {
        self.sync()?;
        self.principals.save(&self.dir, self.size(), &self.frontier.root())?;
        self.saved = self.size();
        Ok(())
    }

    /// The last checkpoint of this run, which says that it is the last, and the counts.
    pub(crate) fn close(&mut self, now: UnixMillis) -> io::Result<()> {
        if !self.is_ended {
            let signature = PendingSignature { is_end: true, ..self.begin_signature(now)? };
            let done = signature.run();
            self.end_signature(&signature, done)?;
        }
        // Room that was taken ahead is nobody's from here on; if it cannot be given back, the next start does.
        self.room_until = 0;
        let _ = self.file.set_len(self.bytes);
        let _ = self.tree.cut(self.size());
        if self.saved == self.size() { Ok(()) } else { self.save_counts() }
    }

    /// Signs with another key from now on. The log says so itself, under the former key; then the new key signs the same.
    pub(crate) fn rotate(&mut self, next: NoteSigner, now: UnixMillis) -> io::Result<String> {
        let (from, to) = (self.signer.verifier().to_string(), next.verifier().to_string());
        key_file::write(&key_file::next(&self.key_file), &next)?;
        self.append_own(OwnWord::KeyChanged { from: &from, to: &to }, now)?;
        self.end_rotation(next, now)?;
        Ok(to)
    }

    /// The log has named the next key. That is signed with the former one before it is given up.
    pub(crate) fn end_rotation(&mut self, next: NoteSigner, now: UnixMillis) -> io::Result<()> {
        self.checkpoint(now)?;
        key_file::promote(&self.key_file)?;
        self.mac = MacKey::of(&next);
        self.signer = Arc::new(next);
        self.sign(now)?;
        Ok(())
    }
}

impl UnsyncedWrites {
    /// Nothing is: the log has so many records, and their hashes.
    pub(crate) fn none(size: u64) -> Self {
        Self { synced: size, lines: Vec::new(), hashes: Vec::new(), hashed: size, is_doubtful: false }
    }
}

impl LineSync {
    /// How many records are durable afterwards.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Waits for the disk.
    pub(crate) fn run(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// What came of a signature.
#[derive(Debug)]
pub(crate) struct SignOutcome {
    lines: io::Result<()>,
    note: io::Result<String>,
}

impl PendingSignature {
    /// Waits for the disk, signs, and keeps the note.
    pub(crate) fn run(&self) -> SignOutcome {
        let lines = self.lines.run();
        let note = match &lines {
            Ok(()) => self.sign(),
            Err(error) => Err(error.kind().into()),
        };
        SignOutcome { lines, note }
    }

    /// How many records it covers.
    pub(crate) fn size(&self) -> u64 {
        self.lines.size
    }

    fn sign(&self) -> io::Result<String> {
        self.tree.sync()?;
        let note = LogCheckpoint::sign(&self.signer, self.lines.size, &self.root, self.at, self.is_end);
        checkpoint::append_note(&self.notes, &note)?;
        if let Some(witness) = &self.witness {
            witness.tell(&note);
        }
        Ok(note)
    }
}

impl Batch {
    /// Gives the line that begins at `start` its code and takes it into the tree. The newline is no part of it.
    fn take_in(&mut self, start: usize, mac: &MacKey) {
        mac.add(&self.leaf, &mut self.lines, start);
        let line = self.lines.get(start..self.lines.len().saturating_sub(1)).unwrap_or_default();
        let hashes = &mut self.hashes;
        self.leaf = leaf_hash(line);
        self.frontier.push(self.leaf, |hash| hashes.extend_from_slice(hash));
    }
}
