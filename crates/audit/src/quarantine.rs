//! Setting aside what somebody else has written after the end of a log: moved byte for byte into a file of its own, never
//! deleted, never signed.
//!
//! ```text
//! quarantine-000001.pending   a copy, durable before anything is cut off
//! quarantine-000001.jsonl     the same, once a record of the log names it and its digest
//! ```
//!
//! A crash in between leaves a copy and the lines where they were, or the copy alone: the next time the log is opened it is named
//! in a record, whoever opens it. A copy never takes the place of another.

use contract::hex::lower_hex;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::inspection::ForeignTail;
use crate::line::SetAsideFile;
use crate::log_mark::LogMark;
use crate::options::LogOptions;
use crate::recovery::{self, LogOpenError};
use crate::segments;

const HEAD: &str = "quarantine-";
const PENDING: &str = "pending";
const RECORDED: &str = "jsonl";
/// Copies of one directory. Whoever has so many has another trouble.
const FILES_MAX: u64 = 10_000;
/// Copies that are named at one start.
const PENDING_MAX: usize = 100;

/// Moves what stands after the end of the log in `dir`, if something does, into a file of its own, which the next opening of
/// the log records. Nobody may be writing the log. Answers how many lines it was.
pub fn set_aside(dir: &Path, options: &LogOptions) -> Result<Option<u64>, LogOpenError> {
    if LogMark::read(dir).map_err(|_| LogOpenError::Format)?.is_none() {
        return Ok(None);
    }
    let Some(foreign) = recovery::find(dir, options)?.inspected.foreign else { return Ok(None) };
    move_tail(dir, foreign).map_err(LogOpenError::File)?;
    Ok(Some(foreign.lines))
}

fn move_tail(dir: &Path, foreign: ForeignTail) -> io::Result<()> {
    let mut later: Vec<u64> = segments::numbers(dir)?.into_iter().filter(|number| *number > foreign.number).collect();
    let place = dir.join(segments::file_name(foreign.number));
    let mut copy = new_copy(dir)?;
    let mut first = File::open(&place)?;
    first.seek(SeekFrom::Start(foreign.offset))?;
    io::copy(&mut first, &mut copy)?;
    for number in &later {
        io::copy(&mut File::open(dir.join(segments::file_name(*number)))?, &mut copy)?;
    }
    copy.sync_all()?;
    File::open(dir)?.sync_all()?;
    // From the end, so that what is left after a crash is still the tail.
    while let Some(number) = later.pop() {
        fs::remove_file(dir.join(segments::file_name(number)))?;
    }
    File::open(dir)?.sync_all()?;
    let file = OpenOptions::new().write(true).open(place)?;
    file.set_len(foreign.offset)?;
    file.sync_all()
}

fn new_copy(dir: &Path) -> io::Result<File> {
    for number in 1..=FILES_MAX {
        let name = |end: &str| dir.join(format!("{HEAD}{number:06}.{end}"));
        if name(RECORDED).try_exists()? {
            continue;
        }
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(name(PENDING)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened,
        }
    }
    Err(io::Error::other("there are too many files of lines that were set aside"))
}

/// A copy that no record names yet.
#[derive(Debug)]
pub(crate) struct PendingCopy {
    path: PathBuf,
    described: SetAsideFile,
}

/// The copies that no record names yet, oldest first.
pub(crate) fn pending(dir: &Path) -> io::Result<Vec<PendingCopy>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.extend(entry?.file_name().into_string().ok().filter(|name| name.starts_with(HEAD)));
    }
    names.sort_unstable();
    let mut copies = Vec::new();
    for stem in names.iter().filter_map(|name| name.strip_suffix(PENDING)).take(PENDING_MAX) {
        let path = dir.join(format!("{stem}{PENDING}"));
        let mut hasher = Sha256::new();
        let bytes = io::copy(&mut File::open(&path)?, &mut hasher)?;
        let described =
            SetAsideFile { file: format!("{stem}{RECORDED}"), bytes, sha256: lower_hex(&hasher.finalize()) };
        copies.push(PendingCopy { path, described });
    }
    Ok(copies)
}

impl PendingCopy {
    /// What the record says of it.
    pub(crate) fn described(&self) -> &SetAsideFile {
        &self.described
    }

    /// A record names it now, durably.
    pub(crate) fn recorded(&self) -> io::Result<()> {
        fs::rename(&self.path, self.path.with_extension(RECORDED))
    }
}
