//! Files of audit lines: `audit-000001.jsonl`, `audit-000002.jsonl`, …

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use kernel::ports::audit_sink::{AuditError, AuditRecord, AuditSink};

use crate::line;

/// A file is closed for ever once it has this many bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How much of the end of a file is read when looking for a torn line. A line is far shorter.
const TAIL_BYTES: u64 = 64 * 1024;

/// Why the log could not be opened. Says what to do; shows no path, because the caller knows which directory it named.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the audit directory cannot be created or read: check that it is a directory this user may write to")]
    Directory(#[source] io::Error),
    #[error("the newest audit file cannot be opened for appending: check its owner and mode, and the disk")]
    File(#[source] io::Error),
}

/// Appends to the newest file of a directory.
#[derive(Debug)]
pub struct FileLog {
    /// Locked only inside blocking tasks, one at a time by the recorder's own order.
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    number: u64,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl FileLog {
    /// Opens the log in `dir`, making the directory if need be, and mends a line that a crash tore.
    pub fn open(dir: &Path) -> Result<Self, OpenError> {
        Self::open_with_limit(dir, FILE_BYTES_MAX)
    }

    fn open_with_limit(dir: &Path, bytes_max: u64) -> Result<Self, OpenError> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(OpenError::Directory)?;
        let number = newest(dir).map_err(OpenError::Directory)?.unwrap_or(1);
        let (file, bytes) = open_file(dir, number).map_err(OpenError::File)?;
        let inner = Inner { dir: dir.to_owned(), number, file, bytes, bytes_max };
        Ok(Self { inner: Arc::new(Mutex::new(inner)) })
    }
}

#[async_trait]
impl AuditSink for FileLog {
    async fn append(&self, records: &[AuditRecord]) -> Result<(), AuditError> {
        let mut bytes = Vec::with_capacity(records.len().saturating_mul(320));
        for record in records {
            line::write(record, &mut bytes).map_err(|error| AuditError(error.into()))?;
        }
        let inner = Arc::clone(&self.inner);
        let written =
            tokio::task::spawn_blocking(move || inner.lock().unwrap_or_else(PoisonError::into_inner).append(&bytes));
        match written.await {
            Ok(result) => result.map_err(|error| AuditError(error.into())),
            Err(gone) => Err(AuditError(gone.into())),
        }
    }
}

impl Inner {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes >= self.bytes_max {
            let next = self.number.saturating_add(1);
            let (file, size) = open_file(&self.dir, next)?;
            (self.number, self.file, self.bytes) = (next, file, size);
        }
        let written = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        if written.is_err() {
            // Whatever part arrived is taken back, so that the repeated batch does not follow half a line.
            self.file.set_len(self.bytes)?;
            self.file.seek(SeekFrom::Start(self.bytes))?;
            return written;
        }
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        Ok(())
    }
}

fn file_name(number: u64) -> String {
    format!("audit-{number:06}.jsonl")
}

/// The highest number in the directory.
fn newest(dir: &Path) -> io::Result<Option<u64>> {
    let mut highest = None;
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok());
        highest = highest.max(number);
    }
    Ok(highest)
}

/// Opens a file for appending at the end of its last whole line, and makes its directory entry durable.
fn open_file(dir: &Path, number: u64) -> io::Result<(File, u64)> {
    let path = dir.join(file_name(number));
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    let whole = end_of_last_line(&mut file, length)?;
    if whole != length {
        tracing::warn!(bytes = length - whole, "the last audit line was torn by a crash and is cut off");
        file.set_len(whole)?;
    }
    file.seek(SeekFrom::Start(whole))?;
    file.sync_all()?;
    File::open(dir)?.sync_all()?;
    Ok((file, whole))
}

fn end_of_last_line(file: &mut File, length: u64) -> io::Result<u64> {
    let start = length.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => start + at as u64 + 1,
        None => start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::ids::TraceId;
    use kernel::ports::audit_sink::{AuditAction, Link, Who};
    use kernel::ports::clock::UnixMillis;
    use kernel::ports::executor::Usage;

    fn record(note: &str) -> AuditRecord {
        AuditRecord {
            at: UnixMillis(1_800_000_000_000),
            action: AuditAction::InvocationFinished,
            trace_id: TraceId::from_bytes([7; 16]),
            invocation_id: None,
            who: Some(Arc::new(Who {
                tenant: "acme".parse().unwrap(),
                subject: "did:example:bot".parse().unwrap(),
                user: Some("did:example:ann".parse().unwrap()),
                token_id: Some("t-2".into()),
                chain: vec![Link { subject: "did:example:ann".parse().unwrap(), token_id: Some("t-1".into()) }],
            })),
            tool: Some("calculator".parse().unwrap()),
            version: None,
            status: None,
            code: None,
            parameters_digest: None,
            parameters: None,
            duration_ms: Some(1),
            usage: Some(Usage { memory_peak_mb: 9, ..Usage::default() }),
            cost: None,
            note: Some(note.into()),
        }
    }

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn records_are_lines_of_json_even_with_newlines_in_them() {
        let dir = tempfile::tempdir().unwrap();
        let log = FileLog::open(dir.path()).unwrap();
        log.append(&[record("one\ntwo"), record("three")]).await.unwrap();
        let lines = lines(&dir.path().join("audit-000001.jsonl"));
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["note"], "one\ntwo");
        assert_eq!(lines[0]["at"], "2027-01-15T08:00:00.000Z");
        assert_eq!(lines[0]["usage"]["memory_peak_mb"], 9);
    }

    #[tokio::test]
    async fn a_record_says_who_acted_for_whom_and_through_whose_hands() {
        let dir = tempfile::tempdir().unwrap();
        FileLog::open(dir.path()).unwrap().append(&[record("x")]).await.unwrap();
        let line = &lines(&dir.path().join("audit-000001.jsonl"))[0];
        assert_eq!(
            (&line["tenant"], &line["subject"], &line["user"]),
            (&"acme".into(), &"did:example:bot".into(), &"did:example:ann".into())
        );
        assert_eq!(line["token_id"], "t-2");
        assert_eq!(line["chain"], serde_json::json!([{ "subject": "did:example:ann", "token_id": "t-1" }]));
    }

    #[tokio::test]
    async fn reopening_goes_on_after_the_last_whole_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit-000001.jsonl");
        FileLog::open(dir.path()).unwrap().append(&[record("whole")]).await.unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"torn\":tr").unwrap();
        let log = FileLog::open(dir.path()).unwrap();
        log.append(&[record("after")]).await.unwrap();
        let notes: Vec<_> = lines(&path).into_iter().map(|line| line["note"].clone()).collect();
        assert_eq!(notes, ["whole", "after"]);
    }

    #[tokio::test]
    async fn a_full_file_is_followed_by_the_next_number() {
        let dir = tempfile::tempdir().unwrap();
        let log = FileLog::open_with_limit(dir.path(), 1).unwrap();
        for note in ["a", "b", "c"] {
            log.append(&[record(note)]).await.unwrap();
        }
        drop(log);
        for (number, note) in [(1, "a"), (2, "b"), (3, "c")] {
            assert_eq!(lines(&dir.path().join(file_name(number)))[0]["note"], note);
        }
        assert_eq!(newest(dir.path()).unwrap(), Some(3));
    }

    #[test]
    fn a_file_in_the_directorys_place_is_a_clear_refusal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("taken");
        fs::write(&path, "x").unwrap();
        let error = FileLog::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Directory(_)));
        assert!(!error.to_string().contains("taken"));
    }
}
