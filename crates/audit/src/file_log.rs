//! A log of files as the kernel's [`AuditSink`]: the blocking [`LogWriter`] behind a lock, and when it signs.
//!
//! The lock of the writer is held while lines are made and handed to the system, not while the disk works: a sync and a
//! checkpoint take the lock to begin and to end. Only a key that changes, a file that is full and the last checkpoint hold it
//! longer. So a record can be written on the thread of the call it is about ([`AuditSink::write_now`]).
//!
//! Checkpoints are signed after a sync once enough records are not covered, and by [`FileLog::keep_signing`] for what came
//! since. A checkpoint that cannot be written fails nobody's record: it is tried again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use ports::clock::Clock;
use ports::entropy::Entropy;
use tokio::sync::watch;

use crate::head::SignedHead;
use crate::key_file;
use crate::line::OwnWord;
use crate::note::NoteKey;
use crate::options::LogOptions;
use crate::proof::{self, InclusionProof};
use crate::reader::LogReader;
use crate::recovery::{self, LogOpenError};
use crate::writer::LogWriter;

/// Appends to the newest file of a directory.
#[derive(Debug)]
pub struct FileLog {
    /// Waited for only inside blocking tasks.
    writer: Arc<Mutex<LogWriter>>,
    /// One checkpoint at a time. Taken before the writer.
    signing: Arc<Mutex<()>>,
    dir: PathBuf,
    log_id: String,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    durable: Arc<AtomicU64>,
    /// Whether the records of calls that are let in now will fit.
    room: AtomicBool,
    /// No record was found to be missing or changed since the log was opened.
    whole: AtomicBool,
    synced: Arc<watch::Sender<u64>>,
    checkpoint_records: u64,
    checkpoint_every: Duration,
}

impl FileLog {
    /// Opens the log in `dir`, making the directory and the key if need be, and mends what a crash left. Blocks: a log
    /// whose tree is lost is hashed again.
    pub fn open(dir: &Path, options: &LogOptions) -> Result<Self, LogOpenError> {
        let mut writer = recovery::open(dir, options)?;
        let room = AtomicBool::new(writer.make_room());
        Ok(Self {
            room,
            whole: AtomicBool::new(true),
            dir: dir.to_owned(),
            log_id: writer.mark.id.clone(),
            clock: Arc::clone(&options.clock),
            entropy: Arc::clone(&options.entropy),
            durable: Arc::new(AtomicU64::new(writer.synced())),
            synced: Arc::new(watch::Sender::new(writer.synced())),
            checkpoint_records: options.checkpoint_records,
            checkpoint_every: options.checkpoint_every,
            writer: Arc::new(Mutex::new(writer)),
            signing: Arc::new(Mutex::new(())),
        })
    }

    /// Is every record there and what was signed, as far as anybody has looked?
    pub fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Relaxed)
    }

    pub(crate) fn found_fault(&self) {
        self.whole.store(false, Ordering::Relaxed);
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Reads what is durable.
    pub fn reader(&self) -> LogReader {
        LogReader::following(self.dir.clone(), Arc::clone(&self.durable))
    }

    /// The log's name, the first part of the ids of its records.
    pub fn id(&self) -> &str {
        &self.log_id
    }

    /// How many records are durable.
    pub fn size(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Tells how many records are durable whenever there are more.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.synced.subscribe()
    }

    /// The newest checkpoint, signed now if records came since.
    pub async fn checkpoint(&self) -> Result<String, AuditError> {
        let now = self.clock.now();
        let (writer, signing) = (Arc::clone(&self.writer), Arc::clone(&self.signing));
        let (note, size) = blocking(move || {
            let _turn = lock(&signing);
            let signature = {
                let mut writer = lock(&writer);
                match &writer.newest {
                    Some((size, note)) if *size == writer.size() => return Ok((note.clone(), *size)),
                    _ => writer.begin_signature(now)?,
                }
            };
            let done = signature.run();
            let note = lock(&writer).end_signature(&signature, done)?;
            Ok((note, signature.size()))
        })
        .await?;
        self.tell(size);
        Ok(note)
    }

    /// The proof that the record of this id is in the log; `None` if there is no such record.
    pub async fn prove(&self, id: &str) -> Result<Option<InclusionProof>, AuditError> {
        let Some(seq) = proof::sequence_of(id, &self.log_id).filter(|seq| *seq < self.size()) else { return Ok(None) };
        // The newest checkpoint that covers it will do, so that asking often is not signing often.
        let newest = self.with_writer(|writer| Ok(writer.newest.clone())).await?;
        let note = match newest {
            Some((size, note)) if size > seq => note,
            _ => self.checkpoint().await?,
        };
        let reader = self.reader();
        self.with_writer(move |writer| proof::make(&reader, &*writer.tree, seq, &note).map(Some)).await
    }

    /// The public half of the key that signs now.
    pub async fn key(&self) -> Result<NoteKey, AuditError> {
        self.with_writer(|writer| Ok(writer.signer.verifier())).await
    }

    /// Signs what came since the last look, again and again. Runs until it is dropped.
    pub async fn keep_signing(&self) {
        loop {
            self.clock.sleep(self.checkpoint_every).await;
            if let Err(error) = self.checkpoint().await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "no checkpoint of the audit log could be made"
                );
            }
        }
    }

    /// Signs with a new key from now on; answers its public half.
    pub async fn rotate_key(&self) -> Result<String, AuditError> {
        let (now, entropy) = (self.clock.now(), Arc::clone(&self.entropy));
        let (key, size) = self
            .while_nobody_signs(move |writer| {
                let next = key_file::fresh(&writer.mark.origin, &*entropy);
                Ok((writer.rotate(next, now)?, writer.synced()))
            })
            .await?;
        self.tell(size);
        Ok(key)
    }

    /// Writes down how far other logs have come, so that none of them can be shortened or made anew without this one.
    pub async fn bear_witness(&self, heads: Vec<SignedHead>) -> Result<(), AuditError> {
        let now = self.clock.now();
        self.with_writer(move |writer| writer.append_own(OwnWord::HeadsSeen(&heads), now)).await?;
        self.sync().await
    }

    /// The last checkpoint, which says that it is the last. Appending afterwards is possible; that takes it back first.
    pub async fn close(&self) -> Result<(), AuditError> {
        let now = self.clock.now();
        self.while_nobody_signs(move |writer| writer.close(now)).await
    }

    /// So many records are durable, and perhaps somebody has said more.
    fn tell(&self, size: u64) {
        self.durable.fetch_max(size, Ordering::AcqRel);
        self.synced.send_if_modified(|told| {
            let is_more = size > *told;
            *told = size.max(*told);
            is_more
        });
    }

    pub(crate) async fn with_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut LogWriter) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuditError> {
        let writer = Arc::clone(&self.writer);
        blocking(move || work(&mut lock(&writer))).await
    }

    async fn while_nobody_signs<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut LogWriter) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuditError> {
        let (writer, signing) = (Arc::clone(&self.writer), Arc::clone(&self.signing));
        blocking(move || {
            let _turn = lock(&signing);
            work(&mut lock(&writer))
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock_unpoisoned()
}

pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, AuditError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| AuditError(error.into())),
        Err(gone) => Err(AuditError(gone.into())),
    }
}

#[async_trait]
impl AuditSink for FileLog {
    async fn write(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        let room = self
            .with_writer(move |writer| {
                writer.append(&records)?;
                Ok(writer.make_room())
            })
            .await?;
        self.room.store(room, Ordering::Relaxed);
        Ok(())
    }

    fn write_now(&self, records: &[AuditRecord]) -> Option<Result<(), AuditError>> {
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        if writer.must_wait() {
            return None;
        }
        Some(writer.append(records).map_err(|error| AuditError(error.into())))
    }

    async fn sync(&self) -> Result<(), AuditError> {
        let writer = Arc::clone(&self.writer);
        let size = blocking(move || {
            let lines = lock(&writer).begin_sync()?;
            let done = lines.run();
            lock(&writer).end_sync(&lines, done)?;
            Ok(lines.size())
        })
        .await?;
        self.tell(size);
        Ok(())
    }

    async fn maintain(&self) {
        self.make_room().await;
        let most = self.checkpoint_records;
        // A writer that cannot be had is asked again after the next sync.
        let is_due = self.with_writer(move |writer| Ok(writer.uncovered() >= most)).await.unwrap_or(false);
        if is_due && let Err(error) = self.checkpoint().await {
            tracing::error!(error = &error as &dyn std::error::Error, "no checkpoint of the audit log could be made");
        }
    }

    fn has_room(&self) -> bool {
        self.room.load(Ordering::Relaxed)
    }

    async fn make_room(&self) {
        // A writer that cannot be had has none.
        let room = self.with_writer(|writer| Ok(writer.make_room())).await.unwrap_or(false);
        self.room.store(room, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
