//! Checking a log from outside: from its directory or an export, with nothing but a public key. One pass, no writing.
//!
//! What proves is the signature over a root and the root over the lines. Everything else is only there to say *what* is
//! wrong: the numbers in the lines show what is missing, twice or out of order, the tree file which line was changed. If
//! the tree file was changed as well, the fault is still found, between two checkpoints instead of at a line.
//!
//! Invariants
//! - VERIFY-1: a log is called whole only if every checkpoint was verified under a trusted key and leads to the lines.
//! - VERIFY-2: memory does not grow with the records, except for the names of principals and the checkpoints.
//! - VERIFY-3: lines are read by many hands and judged by one, in order: what is found does not depend on the machine.
//!
//! Not here: proofs of single records (`proof`), how exports are made (`export`).

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use serde::Serialize;

use crate::checkpoint::{self, LogCheckpoint};
use crate::export::ExportHead;
use crate::log_mark::LogMark;
use crate::merkle::TreeFrontier;
use crate::note::{NoteKey, SignedNote};
use crate::segments::{self, next_line};
use crate::tree_file::TreeFile;

mod checker;
mod fault;
mod lines;
mod signatures;
#[cfg(test)]
mod tests;

use checker::Checker;
pub use fault::LogFault;
use lines::Lines;
use signatures::Signatures;

/// How much of a file is read at once.
const READ_BYTES: usize = 1024 * 1024;
/// The largest file of checkpoints that is read.
const CHECKPOINTS_BYTES_MAX: u64 = 1 << 30;
/// Faults that are told; a log that is all wrong is wrong after the first hundred.
pub(crate) const FAULTS_MAX: usize = 100;

/// What is believed beforehand.
#[derive(Debug, Clone, Default)]
pub struct VerifyTrust {
    /// Public keys from a safe place. Without any, those the log names itself: then it is only checked against itself.
    pub keys: Vec<NoteKey>,
    /// Checkpoints that somebody else has kept, as notes.
    pub witnessed: Vec<String>,
}

/// What was found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    /// Nothing is wrong.
    pub whole: bool,
    pub records: u64,
    /// How many records the newest verified checkpoint covers, and when it was signed.
    pub covered: u64,
    pub covered_at: Option<String>,
    /// Records after it: nothing signed speaks for them yet.
    pub unsigned: u64,
    pub checkpoints: u64,
    pub first_at: Option<String>,
    pub last_at: Option<String>,
    /// The root over all records, in base64.
    pub root: String,
    /// The keys that were believed.
    pub keys: Vec<String>,
    /// Whether a key was handed in; if not, the log was checked against the key it names itself.
    pub key_given: bool,
    pub faults: Vec<LogFault>,
    /// Records that a crash had left unsigned, and that were signed when the log was opened again.
    pub recovered: Vec<RecoveredRange>,
    /// What is strange and no fault.
    pub notes: Vec<String>,
}

/// Records for which nothing signed spoke when the log was opened after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RecoveredRange {
    pub first: u64,
    pub last: u64,
    /// The record that says so.
    pub told_by: u64,
}

/// Checks the log in a directory.
pub fn verify_dir(dir: &Path, trust: &VerifyTrust) -> io::Result<VerifyReport> {
    let mark = LogMark::read(dir)?;
    let mut signatures = Signatures::new(trust, mark.as_ref().map(|mark| mark.key.as_str()));
    signatures.own(&checkpoints_in(dir)?);
    let tree = TreeFile::open_to_read(dir)?;
    let tree_leaves = tree.as_ref().map_or(Ok(0), TreeFile::leaves)?;
    let mut checker = Checker::new(signatures, tree, TreeFrontier::default(), true);
    if let Some(mark) = &mark {
        former_files(dir, mark, &mut checker)?;
    } else {
        checker.fault(LogFault::NoMark);
    }
    let first_file = mark.as_ref().map_or(0, |mark| mark.first_file);
    let mut lines = Lines::default();
    let numbers: Vec<u64> = segments::numbers(dir)?.into_iter().filter(|number| *number >= first_file).collect();
    for number in &numbers {
        let file = File::open(dir.join(segments::file_name(*number)))?;
        let mut reader = BufReader::with_capacity(READ_BYTES, file);
        while lines.read(&mut reader)? {
            lines.each(|looked| checker.take(looked));
        }
        if lines.take_torn() {
            checker.torn(numbers.last() == Some(number));
        }
    }
    // A server that starts while this reads takes the end back before it writes.
    let newest =
        checkpoint::newest_to_read(dir)?.and_then(|note| LogCheckpoint::of(&SignedNote::parse(&note).ok()?).ok());
    let is_ended = newest.is_some_and(|newest| newest.is_end);
    Ok(checker.end(tree_leaves, is_ended))
}

/// Checks an export.
pub fn verify_export(source: impl io::Read, trust: &VerifyTrust) -> io::Result<VerifyReport> {
    let mut reader = BufReader::with_capacity(READ_BYTES, source);
    let mut line = Vec::new();
    let head = if next_line(&mut reader, &mut line)? { ExportHead::parse(&line) } else { None };
    let Some((head, edge)) = head.and_then(|head| head.left().map(|edge| (head, edge))) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is not an export of an audit log"));
    };
    let mut signatures = Signatures::new(trust, head.keys.first().map(String::as_str));
    signatures.own(&head.checkpoints);
    let mut checker = Checker::new(signatures, None, edge, head.from == 0);
    let mut lines = Lines::default();
    while lines.read(&mut reader)? {
        lines.each(|looked| checker.take(looked));
    }
    if lines.take_torn() {
        checker.fault(LogFault::Truncated { records: checker.records(), signed: head.to });
    }
    Ok(checker.end_of_export(&head))
}

/// The notes of a log.
fn checkpoints_in(dir: &Path) -> io::Result<Vec<String>> {
    let path = dir.join(checkpoint::NAME);
    match fs::metadata(&path) {
        Ok(found) if found.len() > CHECKPOINTS_BYTES_MAX => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the file of checkpoints is too large"))
        }
        Ok(_) => Ok(checkpoint::notes_in(&String::from_utf8_lossy(&fs::read(&path)?))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Files from before the log are held against the digests that its first record names.
fn former_files(dir: &Path, mark: &LogMark, checker: &mut Checker) -> io::Result<()> {
    if mark.before.is_empty() {
        return Ok(());
    }
    let now = crate::log_mark::former_files(dir)?;
    for former in &mark.before {
        if !now.contains(former) {
            checker.fault(LogFault::FormerFile { name: former.name.clone() });
        }
    }
    Ok(())
}
