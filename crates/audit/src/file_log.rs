//! A log of files as the kernel's [`AuditSink`]: the blocking [`Writer`] behind a lock, and when it signs.
//!
//! Checkpoints are signed while appending once enough records are not covered, and by [`FileLog::keep_signing`] for what
//! came since. A checkpoint that cannot be written does not fail the append, whose records are durable: it is tried again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use kernel::ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use kernel::ports::clock::Clock;
use kernel::ports::entropy::Entropy;
use tokio::sync::watch;

use crate::head::Head;
use crate::key_file;
use crate::line::OwnWord;
use crate::note::NoteKey;
use crate::options::LogOptions;
use crate::proof::{self, Proof};
use crate::reader::LogReader;
use crate::recovery::{self, OpenError};
use crate::writer::Writer;

/// Appends to the newest file of a directory.
#[derive(Debug)]
pub struct FileLog {
    /// Locked only inside blocking tasks.
    writer: Arc<Mutex<Writer>>,
    dir: PathBuf,
    log_id: String,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    durable: Arc<AtomicU64>,
    /// Whether the records of calls that are let in now will fit.
    room: AtomicBool,
    news: Arc<watch::Sender<u64>>,
    checkpoint_records: u64,
    checkpoint_every: Duration,
}

impl FileLog {
    /// Opens the log in `dir`, making the directory and the key if need be, and mends what a crash left. Blocks: a log
    /// whose tree is lost is hashed again.
    pub fn open(dir: &Path, options: &LogOptions) -> Result<Self, OpenError> {
        let mut writer = recovery::open(dir, options)?;
        let room = AtomicBool::new(writer.make_room());
        Ok(Self {
            room,
            dir: dir.to_owned(),
            log_id: writer.mark.id.clone(),
            clock: Arc::clone(&options.clock),
            entropy: Arc::clone(&options.entropy),
            durable: Arc::new(AtomicU64::new(writer.size())),
            news: Arc::new(watch::Sender::new(writer.size())),
            checkpoint_records: options.checkpoint_records,
            checkpoint_every: options.checkpoint_every,
            writer: Arc::new(Mutex::new(writer)),
        })
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
        self.news.subscribe()
    }

    /// The newest checkpoint, signed now if records came since.
    pub async fn checkpoint(&self) -> Result<String, AuditError> {
        let now = self.clock.now();
        self.with_writer(move |writer| writer.checkpoint(now)).await
    }

    /// The proof that the record of this id is in the log; `None` if there is no such record.
    pub async fn prove(&self, id: &str) -> Result<Option<Proof>, AuditError> {
        let Some(seq) = proof::sequence_of(id, &self.log_id).filter(|seq| *seq < self.size()) else { return Ok(None) };
        let (now, reader) = (self.clock.now(), self.reader());
        self.with_writer(move |writer| {
            // The newest checkpoint that covers it will do, so that asking often is not signing often.
            let note = match &writer.newest {
                Some((size, note)) if *size > seq => note.clone(),
                _ => writer.checkpoint(now)?,
            };
            proof::make(&reader, &writer.tree, seq, &note).map(Some)
        })
        .await
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
        let key = self
            .with_writer(move |writer| {
                let next = key_file::fresh(&writer.mark.origin, &*entropy);
                writer.rotate(next, now)
            })
            .await?;
        self.tell(self.with_writer(|writer| Ok(writer.size())).await?);
        Ok(key)
    }

    /// Writes down how far other logs have come, so that none of them can be shortened or made anew without this one.
    pub async fn bear_witness(&self, heads: Vec<Head>) -> Result<(), AuditError> {
        let now = self.clock.now();
        let size = self
            .with_writer(move |writer| {
                writer.append_own(OwnWord::HeadsSeen(&heads), now)?;
                Ok(writer.size())
            })
            .await?;
        self.tell(size);
        Ok(())
    }

    /// The last checkpoint. Appending afterwards is possible and will want another.
    pub async fn close(&self) -> Result<(), AuditError> {
        let now = self.clock.now();
        self.with_writer(move |writer| writer.close(now)).await
    }

    fn tell(&self, size: u64) {
        self.durable.store(size, Ordering::Release);
        self.news.send_replace(size);
    }

    async fn with_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuditError> {
        let writer = Arc::clone(&self.writer);
        let done =
            tokio::task::spawn_blocking(move || work(&mut writer.lock().unwrap_or_else(PoisonError::into_inner)));
        match done.await {
            Ok(result) => result.map_err(|error| AuditError(error.into())),
            Err(gone) => Err(AuditError(gone.into())),
        }
    }
}

#[async_trait]
impl AuditSink for FileLog {
    async fn append(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        let (now, most) = (self.clock.now(), self.checkpoint_records);
        let (size, room) = self
            .with_writer(move |writer| {
                writer.append(&records)?;
                if writer.uncovered() >= most
                    && let Err(error) = writer.checkpoint(now)
                {
                    tracing::error!(%error, "no checkpoint of the audit log could be made");
                }
                Ok((writer.size(), writer.make_room()))
            })
            .await?;
        self.room.store(room, Ordering::Relaxed);
        self.tell(size);
        Ok(())
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
