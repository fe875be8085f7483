//! Events as lines of files that are closed by size and age, compressed, and one day removed.
//!
//! `events-000001.jsonl` is written; a closed one becomes `events-000001.jsonl.gz`, so the newest is always plain text that
//! can be followed. Each line is a whole CloudEvent.
//!
//! Invariants
//! - FILE-1: a batch is acknowledged once it is on the disk; a write that fails is taken back to where the file ended.
//! - FILE-2: a line is whole or it is the last one; opening after a crash cuts off a torn last line.
//! - FILE-3: a closed file goes away only when its compressed copy is durable, or when retention says so; the one that is
//!   written never goes away.
//!
//! Not here: the audit log itself, which is kept elsewhere and never compressed or removed by this.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use flate2::Compression;
use flate2::write::GzEncoder;
use ports::clock::{Clock, UnixMillis};

use super::{RecordSink, SinkError, SinkEvent};

const PREFIX: &str = "events-";
const PLAIN: &str = ".jsonl";
const COMPRESSED: &str = ".jsonl.gz";
const UNFINISHED: &str = ".new";
/// How much of the end of a file is looked at for a torn line at once.
const TAIL_BYTES: u64 = 64 * 1024;

/// When files are closed and removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRotation {
    /// A file is closed once it has this many bytes.
    pub bytes: u64,
    /// A file is closed once it is this old.
    pub age: Duration,
    /// Are closed files compressed?
    pub compress: bool,
    /// Closed files that are kept; `None`: all.
    pub keep_files: Option<usize>,
    /// For how long closed files are kept; `None`: for ever.
    pub keep_for: Option<Duration>,
}

impl Default for FileRotation {
    fn default() -> Self {
        Self {
            bytes: 64 * 1024 * 1024,
            age: Duration::from_secs(24 * 3600),
            compress: true,
            keep_files: None,
            keep_for: None,
        }
    }
}

/// Writes files.
#[derive(Debug)]
pub struct FileSink {
    /// Locked only inside blocking tasks.
    writer: Arc<Mutex<Writer>>,
}

#[derive(Debug)]
struct Writer {
    dir: PathBuf,
    rotation: FileRotation,
    clock: Arc<dyn Clock>,
    /// Opened at the first delivery, so that a disk that is away at the start is a failure like one that goes away later.
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    number: u64,
    file: File,
    bytes: u64,
    begun: UnixMillis,
}

impl FileSink {
    /// Writes into `dir`, which is made if need be.
    pub fn new(dir: PathBuf, rotation: FileRotation, clock: Arc<dyn Clock>) -> Self {
        Self { writer: Arc::new(Mutex::new(Writer { dir, rotation, clock, current: None })) }
    }

    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let writer = Arc::clone(&self.writer);
        let done = tokio::task::spawn_blocking(move || {
            let mut writer = writer.lock_unpoisoned();
            // After a failure everything is opened and judged anew.
            work(&mut writer).inspect_err(|_| writer.current = None)
        });
        done.await.unwrap_or_else(|gone| Err(io::Error::other(gone)))
    }
}

#[async_trait]
impl RecordSink for FileSink {
    async fn deliver(&self, batch: &[SinkEvent]) -> Result<(), SinkError> {
        let mut lines = Vec::with_capacity(batch.iter().map(|event| event.json().len() + 1).sum());
        for event in batch {
            lines.extend_from_slice(event.json().as_bytes());
            lines.push(b'\n');
        }
        let written = self.with(move |writer| writer.append(&lines)).await;
        written.map_err(|error| SinkError::later(format!("the files of events cannot be written: {error}")))
    }

    async fn tend(&self) {
        if let Err(error) = self.with(Writer::rotate_if_due).await {
            tracing::warn!(%error, "files of events cannot be closed or removed");
        }
    }
}

impl Writer {
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        self.rotate_if_due()?;
        let current = match &mut self.current {
            Some(current) => current,
            none => none.insert(Current::open(&self.dir, self.clock.now())?),
        };
        let written = current.file.write_all(lines).and_then(|()| current.file.sync_data());
        if written.is_err() {
            // FILE-1.
            current.file.set_len(current.bytes)?;
            return written;
        }
        current.bytes = current.bytes.saturating_add(lines.len() as u64);
        Ok(())
    }

    fn rotate_if_due(&mut self) -> io::Result<()> {
        let now = self.clock.now();
        let due = |current: &Current| {
            current.bytes > 0 && (current.bytes >= self.rotation.bytes || now.since(current.begun) >= self.rotation.age)
        };
        if self.current.is_none() {
            self.current = Some(Current::open(&self.dir, now)?);
            self.sweep(now)?;
        }
        if let Some(full) = self.current.take_if(|current| due(current)) {
            self.current = Some(Current::create(&self.dir, full.number.saturating_add(1), now)?);
            self.sweep(now)?;
        }
        Ok(())
    }

    /// Compresses what is closed and removes what is too much or too old.
    fn sweep(&self, now: UnixMillis) -> io::Result<()> {
        let newest = self.current.as_ref().map_or(u64::MAX, |current| current.number);
        let (unfinished, whole): (Vec<_>, Vec<_>) =
            files(&self.dir)?.into_iter().partition(|(_, name)| name.ends_with(UNFINISHED));
        for (_, name) in unfinished {
            fs::remove_file(self.dir.join(name))?;
        }
        let mut closed = Vec::new();
        for (number, name) in whole.into_iter().filter(|(number, _)| *number < newest) {
            closed.push((number, self.closed(self.dir.join(&name), &name)?));
        }
        closed.sort();
        closed.dedup();
        let too_many = self.rotation.keep_files.map_or(0, |keep| closed.len().saturating_sub(keep));
        for (index, (_, path)) in closed.iter().enumerate() {
            let modified = millis(fs::metadata(path)?.modified()?);
            let too_old = self.rotation.keep_for.is_some_and(|keep| now.since(modified) >= keep);
            if index < too_many || too_old {
                fs::remove_file(path)?;
            }
        }
        File::open(&self.dir)?.sync_all()
    }

    /// FILE-3: the compressed copy of a closed file, made if there is none. It keeps the file's time, by which it grows old.
    fn closed(&self, path: PathBuf, name: &str) -> io::Result<PathBuf> {
        if !self.rotation.compress || name.ends_with(COMPRESSED) {
            return Ok(path);
        }
        let place = self.dir.join(format!("{name}.gz"));
        let new = self.dir.join(format!("{name}.gz{UNFINISHED}"));
        let mut plain = File::open(&path)?;
        let modified = plain.metadata()?.modified()?;
        let out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        let mut encoder = GzEncoder::new(out, Compression::default());
        io::copy(&mut plain, &mut encoder)?;
        let out = encoder.finish()?;
        out.set_modified(modified)?;
        out.sync_all()?;
        fs::rename(&new, &place)?;
        File::open(&self.dir)?.sync_all()?;
        fs::remove_file(&path)?;
        Ok(place)
    }
}

impl Current {
    /// The newest file, or the first one.
    fn open(dir: &Path, now: UnixMillis) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let files = files(dir)?;
        let highest = files.iter().map(|(number, _)| *number).max();
        let plain = |number: u64| files.iter().any(|(_, name)| *name == file_name(number));
        match highest {
            Some(number) if plain(number) => Self::reopen(dir, number),
            other => Self::create(dir, other.map_or(1, |number| number.saturating_add(1)), now),
        }
    }

    fn create(dir: &Path, number: u64, now: UnixMillis) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(dir.join(file_name(number)))?;
        File::open(dir)?.sync_all()?;
        Ok(Self { number, file, bytes: 0, begun: now })
    }

    /// FILE-2.
    fn reopen(dir: &Path, number: u64) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).append(true).open(dir.join(file_name(number)))?;
        let metadata = file.metadata()?;
        let bytes = end_of_last_line(&mut file, metadata.len())?;
        if bytes != metadata.len() {
            file.set_len(bytes)?;
            file.sync_all()?;
        }
        // Not every file system knows when a file was made.
        let begun = metadata.created().or_else(|_| metadata.modified()).map_or(UnixMillis(0), millis);
        Ok(Self { number, file, bytes, begun })
    }
}

fn file_name(number: u64) -> String {
    format!("{PREFIX}{number:06}{PLAIN}")
}

/// Our files in the directory, with their numbers, in no order.
fn files(dir: &Path) -> io::Result<Vec<(u64, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let Ok(name) = entry?.file_name().into_string() else { continue };
        let whole = name.strip_suffix(UNFINISHED).unwrap_or(&name);
        let middle = whole.strip_suffix(COMPRESSED).or_else(|| whole.strip_suffix(PLAIN));
        if let Some(number) = middle.and_then(|middle| middle.strip_prefix(PREFIX)?.parse().ok()) {
            found.push((number, name));
        }
    }
    Ok(found)
}

fn end_of_last_line(file: &mut File, length: u64) -> io::Result<u64> {
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut part = Vec::new();
        (&mut *file).take(end - start).read_to_end(&mut part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

fn millis(time: SystemTime) -> UnixMillis {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    UnixMillis(i64::saturating_from(since.as_millis()))
}

#[cfg(test)]
mod tests;
