//! Inspection of a log before anything is added to it: do its lines lead to the newest signed root, and who wrote those after it?
//!
//! ```text
//!  records of older files        files that are read              after the newest checkpoint
//!  ────────────────────────┬───────────────────────────────────┬──────────────────────────────
//!  believed by the tree    │ hashed; must lead to the signed   │ each line carries the code of this
//!  file; read after the    │ root, or the log was tampered     │ log's key, or it is somebody else's
//!  start (`line_check`)    │ with                              │ (`ForeignTail`)
//! ```
//!
//! The root over all records is made of the edge of the tree before the files that are read, and of the lines in them. So a
//! root that fits proves both: those lines, and that edge. The records before it are compared with the edge later.
//!
//! Nothing is changed here except the tree file, which gets the hashes of this log's own lines and is made again only beside
//! the former one: what somebody did stays as it is for `verify`, which names it.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::Path;

use crate::checkpoint::LogCheckpoint;
use crate::line_mac::{MacKey, MacVerdict};
use crate::log_mark::LogMark;
use crate::merkle::{TreeFrontier, TreeHash, TreeNodes as _, leaf_hash, root_of};
use crate::recovery::LogOpenError;
use crate::segments::{self, next_line};
use crate::tree_file::TreeFile;

/// How much of a file is read at once.
const READ_BYTES: usize = 1024 * 1024;
/// Hashes are written to the tree file when there are this many bytes of them.
const HASHES_BYTES: usize = 256 * 1024;

/// A log whose lines are what was signed, as far as they were read.
#[derive(Debug)]
pub(crate) struct InspectedLog {
    pub(crate) tree: TreeFile,
    /// Over all records that are this log's own.
    pub(crate) frontier: TreeFrontier,
    /// The hash of the last of them.
    pub(crate) leaf: TreeHash,
    /// The edge of the tree before the first line that was read.
    pub(crate) unread: TreeFrontier,
    /// What stands after them, if anything does.
    pub(crate) foreign: Option<ForeignTail>,
}

/// Lines after the end of the log that this log has not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ForeignTail {
    /// The file in which they begin, and where. All files after it belong to them.
    pub(crate) number: u64,
    pub(crate) offset: u64,
    /// How many lines, a torn one too.
    pub(crate) lines: u64,
}

/// What is held against the lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InspectionBasis<'a> {
    pub(crate) mark: &'a LogMark,
    pub(crate) checkpoint: Option<&'a LogCheckpoint>,
    pub(crate) mac: &'a MacKey,
    /// Files from the newest backwards are read as long as they have no more bytes than this together.
    pub(crate) read_bytes_max: u64,
}

impl InspectionBasis<'_> {
    fn covered(&self) -> u64 {
        self.checkpoint.map_or(0, |checkpoint| checkpoint.size)
    }
}

/// Inspects the log in `dir`.
pub(crate) fn inspect(dir: &Path, measure: InspectionBasis<'_>) -> Result<InspectedLog, LogOpenError> {
    let tree = TreeFile::open(dir).map_err(LogOpenError::File)?;
    let leads_to_root = |checkpoint: &LogCheckpoint| {
        tree.leaves().is_ok_and(|leaves| leaves >= checkpoint.size)
            && root_of(&tree, checkpoint.size).is_ok_and(|edge| edge.root() == checkpoint.root)
    };
    if measure.checkpoint.is_none_or(leads_to_root) {
        let (number, first) = first_read(dir, measure).map_err(LogOpenError::Directory)?;
        let edge = root_of(&tree, first).ok();
        let walked = edge.map(|edge| Walk::new(&tree, edge, measure, false).run(dir, number)).transpose();
        match walked.map_err(LogOpenError::File)? {
            Some(Some(walked)) => {
                tree.cut(walked.frontier.size()).map_err(LogOpenError::File)?;
                return Ok(walked.with(tree));
            }
            // All lines were read and are not what was signed, whatever the tree file says.
            _ if first == 0 => return Err(LogOpenError::Tampered),
            _ => {}
        }
    }
    // The tree file is damaged. It is made again beside the former one, which names what was changed if something was.
    tracing::warn!("the tree of the audit log is made again from its records");
    let made = TreeFile::begin_anew(dir).map_err(LogOpenError::File)?;
    let walked = Walk::new(&made, TreeFrontier::default(), measure, true).run(dir, measure.mark.first_file);
    let walked = walked.map_err(LogOpenError::File)?.ok_or(LogOpenError::Tampered)?;
    made.put_in_place(dir).map_err(LogOpenError::File)?;
    Ok(walked.with(made))
}

/// The number and the first record of the oldest file that is read.
fn first_read(dir: &Path, measure: InspectionBasis<'_>) -> io::Result<(u64, u64)> {
    let mut found = None;
    let mut bytes = 0_u64;
    for segment in segments::list(dir)?.iter().rev().filter(|segment| segment.number >= measure.mark.first_file) {
        let Some(first) = segment.first else { continue };
        bytes = bytes.saturating_add(fs::metadata(&segment.path)?.len());
        // What no checkpoint covers is read in any case, and so is the last line that one does.
        let is_needed = found.is_none_or(|(_, first)| first >= measure.covered());
        if !is_needed && bytes > measure.read_bytes_max {
            break;
        }
        found = Some((segment.number, first));
    }
    Ok(found.filter(|(_, first)| *first > 0).unwrap_or((measure.mark.first_file, 0)))
}

// -------------------------------------------------------------------------------------------------------------- Walk

/// Line after line.
struct Walk<'a> {
    measure: InspectionBasis<'a>,
    frontier: TreeFrontier,
    leaf: TreeHash,
    unread: TreeFrontier,
    /// A line with a code has come, so every one after it has one.
    has_macs: bool,
    tree: &'a TreeFile,
    /// The tree has nothing yet; otherwise it has what is covered.
    is_new_tree: bool,
    /// Hashes for it, and how many leaves it has.
    hashes: Vec<u8>,
    written: u64,
    foreign: Option<ForeignTail>,
}

/// An [`InspectedLog`] that has no tree yet.
struct Walked {
    frontier: TreeFrontier,
    leaf: TreeHash,
    unread: TreeFrontier,
    foreign: Option<ForeignTail>,
}

impl Walked {
    fn with(self, tree: TreeFile) -> InspectedLog {
        let Self { frontier, leaf, unread, foreign } = self;
        InspectedLog { tree, frontier, leaf, unread, foreign }
    }
}

impl<'a> Walk<'a> {
    fn new(tree: &'a TreeFile, edge: TreeFrontier, measure: InspectionBasis<'a>, is_new_tree: bool) -> Self {
        // Of a tree that was damaged here another one is read, and then nothing fits.
        let leaf = edge.size().checked_sub(1).and_then(|last| tree.node(0, last).ok()).unwrap_or_default();
        let has_macs = measure.checkpoint.is_some_and(|checkpoint| checkpoint.has_macs);
        let (unread, hashes, written) = (edge.clone(), Vec::new(), if is_new_tree { 0 } else { measure.covered() });
        Self { measure, frontier: edge, leaf, unread, has_macs, tree, is_new_tree, hashes, written, foreign: None }
    }

    /// Reads all files from this number on; `None` if what is covered is not what was signed.
    fn run(mut self, dir: &Path, from: u64) -> io::Result<Option<Walked>> {
        let numbers: Vec<u64> = segments::numbers(dir)?.into_iter().filter(|number| *number >= from).collect();
        for (at, number) in numbers.iter().enumerate() {
            let is_last = at + 1 == numbers.len();
            let mut reader = BufReader::with_capacity(READ_BYTES, File::open(dir.join(segments::file_name(*number)))?);
            let (mut line, mut offset) = (Vec::new(), 0);
            loop {
                let is_good = match next_line(&mut reader, &mut line) {
                    Ok(true) => self.take(&line)?,
                    Ok(false) if line.is_empty() => break,
                    // Half a line at the end is what a crash leaves; nothing leaves one anywhere else.
                    Ok(false) if is_last && !self.has_ended() => break,
                    Ok(false) => false,
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => false,
                    Err(error) => return Err(error),
                };
                if is_good {
                    offset += line.len() as u64 + 1;
                    continue;
                }
                if self.frontier.size() < self.measure.covered() || self.is_wrong_root() {
                    return Ok(None);
                }
                let lines = count_lines(dir, numbers.get(at..).unwrap_or_default(), offset)?;
                self.foreign = Some(ForeignTail { number: *number, offset, lines });
                return self.end().map(Some);
            }
        }
        let is_whole = self.frontier.size() >= self.measure.covered() && !self.is_wrong_root();
        if is_whole { self.end().map(Some) } else { Ok(None) }
    }

    /// The next line: is it one of this log's?
    fn take(&mut self, line: &[u8]) -> io::Result<bool> {
        let size = self.frontier.size();
        if segments::sequence(line) != Some(size) || self.is_wrong_root() {
            return Ok(false);
        }
        let is_covered = size < self.measure.covered();
        if !is_covered && (self.has_ended() || !self.is_own(line)) {
            return Ok(false);
        }
        self.leaf = leaf_hash(line);
        let (keeps, hashes) = (!is_covered || self.is_new_tree, &mut self.hashes);
        self.frontier.push(self.leaf, |hash| {
            if keeps {
                hashes.extend_from_slice(hash);
            }
        });
        if self.hashes.len() >= HASHES_BYTES {
            self.flush()?;
        }
        Ok(true)
    }

    /// Of a line that no checkpoint covers.
    fn is_own(&mut self, line: &[u8]) -> bool {
        match self.measure.mac.check(&self.leaf, line) {
            MacVerdict::Genuine => {
                self.has_macs = true;
                true
            }
            MacVerdict::Wrong => false,
            // Only a version that knew no codes leaves some without.
            MacVerdict::Missing => !self.has_macs,
        }
    }

    fn has_ended(&self) -> bool {
        self.measure.checkpoint.is_some_and(|checkpoint| checkpoint.is_end)
            && self.frontier.size() == self.measure.covered()
    }

    fn is_wrong_root(&self) -> bool {
        let due = self.measure.checkpoint.filter(|checkpoint| checkpoint.size == self.frontier.size());
        due.is_some_and(|checkpoint| checkpoint.root != self.frontier.root())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tree.append(self.written, &self.hashes)?;
        self.hashes.clear();
        self.written = self.frontier.size();
        Ok(())
    }

    fn end(mut self) -> io::Result<Walked> {
        self.flush()?;
        let Self { frontier, leaf, unread, foreign, .. } = self;
        Ok(Walked { frontier, leaf, unread, foreign })
    }
}

/// Lines from `offset` of the first file on, a torn one too.
fn count_lines(dir: &Path, numbers: &[u64], offset: u64) -> io::Result<u64> {
    let (mut lines, mut skip) = (0, offset);
    for number in numbers {
        let mut file = File::open(dir.join(segments::file_name(*number)))?;
        io::Seek::seek(&mut file, io::SeekFrom::Start(std::mem::take(&mut skip)))?;
        let mut reader = BufReader::with_capacity(READ_BYTES, file);
        let mut is_torn = false;
        loop {
            let part = io::BufRead::fill_buf(&mut reader)?;
            let Some(last) = part.last() else { break };
            is_torn = *last != b'\n';
            lines += part.iter().filter(|byte| **byte == b'\n').count() as u64;
            let length = part.len();
            io::BufRead::consume(&mut reader, length);
        }
        lines += u64::from(is_torn);
    }
    Ok(lines)
}
