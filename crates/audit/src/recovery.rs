//! Opening a log: what a crash left is mended, and what no crash can have done is refused.
//!
//! A crash can tear the last line and the last note, and leave hashes without lines or lines without hashes. It cannot take
//! away a line that a checkpoint covers, nor change one: then the log was tampered with, and nothing is added to it. What is
//! there is looked at first (`inspection`), and the log is changed only if it is good.
//!
//! Invariants
//! - OPEN-1: a record that no checkpoint covered is signed only if it carries the code of the log's key, and together with a
//!   record that says so (`log_recovered`).
//! - OPEN-2: another key is used only after the former one has signed the record that names it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;

use ports::clock::UnixMillis;

use crate::checkpoint::{self, LogCheckpoint};
use crate::inspection::{self, InspectedLog, InspectionBasis};
use crate::key_file;
use crate::line::{KEY_CHANGED, OwnWord};
use crate::line_mac::MacKey;
use crate::log_mark::{self, FORMAT, LogMark};
use crate::merkle::root_of;
use crate::note::{NoteSigner, SignedNote};
use crate::options::LogOptions;
use crate::principals::{PrincipalCounts, PrincipalTurn};
use crate::quarantine;
use crate::reader::{LogEntry, LogReader};
use crate::segments::{self, LINE_BYTES_MAX};
use crate::tree_file::TreeFile;
use crate::writer::{LogWriter, UnsyncedWrites};

/// Lines read at once while something is made again.
const LINES_AT_ONCE: usize = 4_096;

/// Why the log could not be opened. Says what to do; shows no path, because the caller knows which directory it named.
#[derive(Debug, thiserror::Error)]
pub enum LogOpenError {
    #[error("the audit directory cannot be created or read: check that it is a directory this user may write to")]
    Directory(#[source] io::Error),
    #[error("the newest audit file cannot be opened for appending: check its owner and mode, and the disk")]
    File(#[source] io::Error),
    #[error("the audit log is of a form that this version does not know: use the version that wrote it")]
    Format,
    #[error(
        "the audit directory has lost its `log.json`: bring it back, or move the directory away to begin a new log"
    )]
    Mark,
    #[error(
        "the key that signs the audit log is missing or cannot be read: bring it back, or move the log away to begin a new one"
    )]
    Key(#[source] Option<io::Error>),
    #[error(
        "the audit log holds {lines} line(s) after its {records} records that this server did not write, so nothing is added to \
        it and nothing of them is signed: `gantry audit verify` says how the log stands, `gantry audit set-aside` moves them \
        into a file of their own and records that it did"
    )]
    Foreign { lines: u64, records: u64 },
    #[error(
        "the audit log does not agree with its own checkpoints, so nothing is added to it: `gantry audit verify` says where; \
        move the directory away to begin a new log"
    )]
    Tampered,
}

/// Opens a log, or begins one.
pub(crate) fn open(dir: &Path, options: &LogOptions) -> Result<LogWriter, LogOpenError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(LogOpenError::Directory)?;
    let now = options.clock.now();
    let FoundLog { mark, signer, newest, inspected } = find(dir, options)?;
    if let Some(foreign) = inspected.foreign {
        return Err(LogOpenError::Foreign { lines: foreign.lines, records: inspected.frontier.size() });
    }
    let number = segments::numbers(dir).map_err(LogOpenError::Directory)?.last().copied();
    let number = number.unwrap_or(mark.first_file).max(mark.first_file);
    let (file, bytes) = open_file(dir, number).map_err(LogOpenError::File)?;
    let InspectedLog { tree, frontier, leaf, unread, .. } = inspected;
    let size = frontier.size();
    let covered = newest.as_ref().map_or(0, |(checkpoint, _)| checkpoint.size);
    let (principals, saved) = principals(dir, &tree, size).map_err(LogOpenError::File)?;
    let mut writer = LogWriter {
        dir: dir.to_owned(),
        mark,
        key_file: options.key_file.clone(),
        mac: MacKey::of(&signer),
        signer: Arc::new(signer),
        number,
        file: Arc::new(file),
        bytes,
        bytes_max: options.file_bytes_max,
        room_until: 0,
        tree: Arc::new(tree),
        frontier,
        leaf,
        unread,
        unsynced: UnsyncedWrites::none(size),
        principals,
        saved,
        is_ended: newest.as_ref().is_some_and(|(checkpoint, _)| checkpoint.is_end),
        newest: newest.map(|(checkpoint, note)| (checkpoint.size, note)),
        signed_at: UnixMillis(i64::MIN),
        witness: options.witness.clone(),
        torn: false,
    };
    resume(&mut writer, options, covered, now)?;
    // A log whose checkpoints are gone is refused, so the file's name must be durable before a second record is.
    File::open(dir).and_then(|folder| folder.sync_all()).map_err(LogOpenError::Directory)?;
    Ok(writer)
}

/// What the log says of itself before anybody else writes to it.
fn resume(writer: &mut LogWriter, options: &LogOptions, covered: u64, now: UnixMillis) -> Result<(), LogOpenError> {
    let size = writer.size();
    end_rotation(writer, options, now)?;
    if size == 0 {
        let mark = writer.mark.clone();
        writer.append_own(OwnWord::Begun(&mark), now).map_err(LogOpenError::File)?;
    } else if let Some(last) = size.checked_sub(1).filter(|last| *last >= covered && covered > 0) {
        tracing::warn!(
            first = covered,
            last,
            "AUDIT_LOG_RECOVERED: these records were in the audit log and no checkpoint covered them, as a crash leaves it"
        );
        writer.append_own(OwnWord::Recovered { first: covered, last }, now).map_err(LogOpenError::File)?;
    }
    let pending = quarantine::pending(&writer.dir).map_err(LogOpenError::Directory)?;
    for file in &pending {
        writer.append_own(OwnWord::SetAside(file.described()), now).map_err(LogOpenError::File)?;
    }
    writer.checkpoint(now).map_err(LogOpenError::File)?;
    pending.iter().try_for_each(|file| file.recorded()).map_err(LogOpenError::Directory)
}

/// What is there, before anything is changed.
#[derive(Debug)]
pub(crate) struct FoundLog {
    mark: LogMark,
    signer: NoteSigner,
    newest: Option<(LogCheckpoint, String)>,
    pub(crate) inspected: InspectedLog,
}

/// Looks at a log and the key that signs it.
pub(crate) fn find(dir: &Path, options: &LogOptions) -> Result<FoundLog, LogOpenError> {
    let mark = match LogMark::read(dir).map_err(|_| LogOpenError::Format)? {
        Some(mark) if mark.format == FORMAT => mark,
        Some(_) => return Err(LogOpenError::Format),
        None => begin(dir, options)?,
    };
    let signer = read_key(&options.key_file)?.ok_or(LogOpenError::Key(None))?;
    let newest = newest_checkpoint(dir, &signer, &mark)?;
    let measure = InspectionBasis {
        mark: &mark,
        checkpoint: newest.as_ref().map(|(checkpoint, _)| checkpoint),
        mac: &MacKey::of(&signer),
        read_bytes_max: options.read_bytes_max,
    };
    let inspected = inspection::inspect(dir, measure)?;
    let size = inspected.frontier.size();
    // The first record is covered before a second one comes.
    match &newest {
        None if size > 1 => Err(LogOpenError::Tampered),
        Some((checkpoint, _)) if size > 0 && checkpoint.size == 0 => Err(LogOpenError::Tampered),
        _ => Ok(FoundLog { mark, signer, newest, inspected }),
    }
}

/// A directory without a marker: new, or from before logs were numbered.
fn begin(dir: &Path, options: &LogOptions) -> Result<LogMark, LogOpenError> {
    if !segments::list(dir).map_err(LogOpenError::Directory)?.iter().all(|file| file.first.is_none()) {
        return Err(LogOpenError::Mark);
    }
    let before = log_mark::former_files(dir).map_err(LogOpenError::Directory)?;
    let last = segments::numbers(dir).map_err(LogOpenError::Directory)?.last().copied().unwrap_or(0);
    let id = log_mark::fresh_id(&*options.entropy);
    let origin = format!("gantry-audit/{id}");
    let signer = key_file::fresh(&origin, &*options.entropy);
    key_file::write(&options.key_file, &signer).map_err(|error| LogOpenError::Key(Some(error)))?;
    let key = signer.verifier().to_string();
    let mark = LogMark { format: FORMAT, id, origin, key, first_file: last.saturating_add(1), before };
    mark.write(dir).map_err(LogOpenError::Directory)?;
    Ok(mark)
}

fn read_key(path: &Path) -> Result<Option<NoteSigner>, LogOpenError> {
    key_file::read(path).map_err(|error| LogOpenError::Key(Some(error)))
}

/// A rotation that a crash interrupted is ended one way or the other: the last record says which. It has the code of the former
/// key, or the log would have been refused.
fn end_rotation(writer: &mut LogWriter, options: &LogOptions, now: UnixMillis) -> Result<(), LogOpenError> {
    let Some(next) = read_key(&key_file::next(&options.key_file))? else { return Ok(()) };
    let last = last_record(&writer.dir, writer.size());
    if last.is_some_and(|line| named_key(&line).is_some_and(|key| key == next.verifier().to_string())) {
        writer.end_rotation(next, now).map_err(LogOpenError::File)
    } else {
        key_file::discard_next(&options.key_file).map_err(|error| LogOpenError::Key(Some(error)))
    }
}

/// The last of so many records.
fn last_record(dir: &Path, size: u64) -> Option<serde_json::Value> {
    let last = size.checked_sub(1)?;
    let entry = LogReader::open(dir).and_then(|reader| reader.read(last, 1)).ok()?.pop()?;
    serde_json::from_str(&entry.line).ok()
}

/// The key that a record says is used from then on.
fn named_key(line: &serde_json::Value) -> Option<&str> {
    line.get("action").filter(|action| *action == KEY_CHANGED)?;
    line.get("key")?.as_str()
}

/// The newest checkpoint, which must be of this log.
fn newest_checkpoint(
    dir: &Path,
    signer: &NoteSigner,
    mark: &LogMark,
) -> Result<Option<(LogCheckpoint, String)>, LogOpenError> {
    let Some(text) = checkpoint::newest(dir).map_err(LogOpenError::File)? else { return Ok(None) };
    let note = SignedNote::parse(&text).map_err(|_| LogOpenError::Tampered)?;
    let checkpoint = LogCheckpoint::of(&note).map_err(|_| LogOpenError::Tampered)?;
    let is_ours = note.verify(&signer.verifier()).is_ok() || signed_by_former(dir, &note, &checkpoint, signer);
    if !is_ours || checkpoint.origin != mark.origin {
        return Err(LogOpenError::Tampered);
    }
    Ok(Some((checkpoint, text)))
}

/// After a crash in a rotation the newest checkpoint is of the key that the last record it covers calls the former one: the
/// former key has signed that record. What names itself the next key proves nothing.
fn signed_by_former(dir: &Path, note: &SignedNote, checkpoint: &LogCheckpoint, signer: &NoteSigner) -> bool {
    let Some(line) = last_record(dir, checkpoint.size) else { return false };
    let names_ours = named_key(&line).is_some_and(|key| key == signer.verifier().to_string());
    let former = line.get("former_key").and_then(|key| key.as_str()?.parse().ok());
    names_ours && former.is_some_and(|key| note.verify(&key).is_ok())
}

/// The counts: the saved ones if they belong to this log, and the lines since.
fn principals(dir: &Path, tree: &TreeFile, size: u64) -> io::Result<(PrincipalCounts, u64)> {
    let saved = PrincipalCounts::load(dir)
        .filter(|(_, at, root)| *at <= size && root_of(tree, *at).is_ok_and(|edge| edge.root() == *root));
    let (mut counts, from) = saved.map_or_else(|| (PrincipalCounts::default(), 0), |(counts, at, _)| (counts, at));
    each_line(dir, from, |batch| {
        for entry in batch {
            if let Ok(OfPrincipal {
                tenant: Some(tenant),
                subject: Some(subject),
                principal_seq: Some(seq),
                principal_era,
            }) = serde_json::from_str(&entry.line)
            {
                let turn = PrincipalTurn { era: principal_era, seq };
                let name = PrincipalCounts::name(&tenant, &subject);
                // The lines are the truth. Counting along would say the same, except in a log that was tampered with.
                if counts.count(&name) != turn {
                    counts.resume(&name, turn);
                }
            }
        }
        Ok(())
    })?;
    Ok((counts, from))
}

/// What a line says about its principal.
#[derive(serde::Deserialize)]
struct OfPrincipal {
    tenant: Option<String>,
    subject: Option<String>,
    principal_seq: Option<u64>,
    #[serde(default)]
    principal_era: u64,
}

fn each_line(dir: &Path, from: u64, mut take: impl FnMut(&[LogEntry]) -> io::Result<()>) -> io::Result<()> {
    let reader = LogReader::open(dir)?;
    let mut next = from;
    loop {
        let batch = reader.read(next, LINES_AT_ONCE)?;
        if batch.is_empty() {
            return Ok(());
        }
        next += batch.len() as u64;
        take(&batch)?;
    }
}

/// How many records the log in `dir` has, by the number of its last whole line.
pub fn records_in(dir: &Path) -> io::Result<u64> {
    let files = segments::list(dir)?;
    let Some(last) = files.iter().rfind(|segment| segment.first.is_some()) else { return Ok(0) };
    let mut file = File::open(&last.path)?;
    let start = file.metadata()?.len().saturating_sub(LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut tail)?;
    // Somebody may be writing the line after it.
    let whole = tail.iter().rposition(|byte| *byte == b'\n').and_then(|at| tail.get(..at));
    let line = whole.and_then(|whole| whole.rsplit(|byte| *byte == b'\n').next());
    let seq = line.and_then(segments::sequence);
    seq.map(|seq| seq.saturating_add(1))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the last audit line is no record"))
}

/// Opens a file for appending at the end of its last whole line, and makes its directory entry durable.
pub(crate) fn open_file(dir: &Path, number: u64) -> io::Result<(File, u64)> {
    let path = dir.join(segments::file_name(number));
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
    // A torn line is the end of one batch, and several lines of it may be whole.
    let start = length.saturating_sub(LINE_BYTES_MAX);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut tail)?;
    Ok(match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => start + at as u64 + 1,
        None => start,
    })
}

#[cfg(test)]
mod tests;
