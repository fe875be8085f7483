//! Exports: a run of records that can be checked away from the log, with only the public key.
//!
//! The first line says what follows and carries the proof; the records follow as they are. The proof of a run is what stands
//! left and right of it in the tree, about twice the logarithm of the log's size, and not a path per record.

use std::io::{self, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, LogCheckpoint};
use crate::line::KEY_CHANGED;
use crate::log_mark::LogMark;
use crate::merkle::{TreeFrontier, TreeHash, range_tail, root_of};
use crate::note::SignedNote;
use crate::reader::LogReader;
use crate::tree_file::TreeFile;

/// The form of an export.
const FORMAT: u32 = 1;
/// Records read at once.
const AT_ONCE: usize = 4_096;

/// The first line of an export.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExportHead {
    gantry_audit_export: u32,
    /// The first record, and the one after the last.
    pub from: u64,
    pub to: u64,
    /// Public keys of the log, the first one first; for convenience, not for trust.
    pub keys: Vec<String>,
    /// The signed note that the proof leads to; before it, in an export from the start, those that vouch for later keys.
    pub checkpoints: Vec<String>,
    left: Vec<String>,
    right: Vec<(u32, String)>,
}

impl ExportHead {
    /// Reads a first line; `None` if it is none.
    pub(crate) fn parse(line: &[u8]) -> Option<Self> {
        let head: Self = serde_json::from_slice(line).ok()?;
        (head.gantry_audit_export == FORMAT && head.from <= head.to).then_some(head)
    }

    /// The tree before the run.
    pub(crate) fn left(&self) -> Option<TreeFrontier> {
        TreeFrontier::from_peaks(self.from, self.left.iter().map(|hash| decode(hash)).collect::<Option<_>>()?)
    }

    /// What stands after the run.
    pub(crate) fn right(&self) -> Option<Vec<(u32, TreeHash)>> {
        self.right.iter().map(|(level, hash)| Some((*level, decode(hash)?))).collect()
    }
}

/// Which records.
#[derive(Debug, Clone, Copy, Default)]
pub struct RecordRange {
    /// From this one on.
    pub from: u64,
    /// Before this one; without it, as far as the newest checkpoint covers.
    pub to: Option<u64>,
}

/// Writes an export of the log in `dir`, as far as a checkpoint covers it; answers the number of records.
pub fn export(dir: &Path, run: RecordRange, out: &mut impl Write) -> io::Result<u64> {
    let (Some(mark), Some(note), Some(tree)) =
        (LogMark::read(dir)?, checkpoint::newest_to_read(dir)?, TreeFile::open_to_read(dir)?)
    else {
        return Err(invalid("there is no audit log with a checkpoint in this directory"));
    };
    let checkpoint = SignedNote::parse(&note).and_then(|note| LogCheckpoint::of(&note));
    let size = checkpoint.map_err(|_| invalid("the newest checkpoint cannot be read"))?.size;
    let to = run.to.unwrap_or(size).min(size);
    let from = run.from.min(to);
    let reader = LogReader::open(dir)?;
    let (keys, mut checkpoints) = keys_of(dir, &mark, &reader, from == 0 && to == size)?;
    checkpoints.push(note);
    let head = ExportHead {
        gantry_audit_export: FORMAT,
        from,
        to,
        keys,
        checkpoints,
        left: root_of(&tree, from)?.peaks().iter().map(|hash| STANDARD.encode(hash)).collect(),
        right: range_tail(&tree, to, size)?.into_iter().map(|(level, hash)| (level, STANDARD.encode(hash))).collect(),
    };
    serde_json::to_writer(&mut *out, &head)?;
    out.write_all(b"\n")?;
    let mut next = from;
    while next < to {
        let most = usize::try_from(to - next).unwrap_or(AT_ONCE).min(AT_ONCE);
        let entries = reader.read(next, most)?;
        if entries.is_empty() {
            return Err(invalid("the log ends before its newest checkpoint"));
        }
        next += entries.len() as u64;
        for entry in entries {
            out.write_all(entry.line.as_bytes())?;
            out.write_all(b"\n")?;
        }
    }
    out.flush()?;
    Ok(to - from)
}

/// The keys of the log, the first one first, and the checkpoints under which each later one was named.
fn keys_of(dir: &Path, mark: &LogMark, reader: &LogReader, whole: bool) -> io::Result<(Vec<String>, Vec<String>)> {
    let mut keys = vec![mark.key.clone()];
    let text = std::fs::read(dir.join(checkpoint::NAME))?;
    let mut vouching = Vec::new();
    let mut last: Option<String> = None;
    for note in checkpoint::notes_in(&String::from_utf8_lossy(&text)) {
        let Some(said) = SignedNote::parse(&note).ok() else { continue };
        let (Ok(checkpoint), Some(key)) = (LogCheckpoint::of(&said), keys.last().and_then(|key| key.parse().ok()))
        else {
            continue;
        };
        if said.verify(&key).is_err() {
            // Another key signs from here on. The record that names it is the last one of the former checkpoint.
            let named = reader.read(checkpoint.size.saturating_sub(1), 1)?.pop();
            let named: Option<serde_json::Value> = named.and_then(|entry| serde_json::from_str(&entry.line).ok());
            let named = named.filter(|line| line.get("action").is_some_and(|action| action == KEY_CHANGED));
            if let Some(key) = named.as_ref().and_then(|line| line.get("key")?.as_str()) {
                keys.push(key.to_owned());
                vouching.extend(last.take().filter(|_| whole));
            }
        }
        last = Some(note);
    }
    Ok((keys, vouching))
}

fn decode(hash: &str) -> Option<TreeHash> {
    STANDARD.decode(hash).ok()?.try_into().ok()
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}
