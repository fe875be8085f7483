//! A record with the proof that it is in the log: all that a third party needs besides the public key.
//!
//! ```json
//! { "gantry_audit_proof": 1, "record": "{\"seq\":41,…}", "index": 41, "path": ["…"], "checkpoint": "gantry-audit/…" }
//! ```

use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::checkpoint::{self, LogCheckpoint};
use crate::log_mark::LogMark;
use crate::merkle::{TreeHash, TreeNodes, inclusion_path, leaf_hash, verify_inclusion};
use crate::note::{NoteError, NoteKey, SignedNote};
use crate::reader::LogReader;
use crate::tree_file::TreeFile;

/// The form of a proof.
const FORMAT: u32 = 1;

/// A record and the way from it to a signed root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InclusionProof {
    /// The form of the proof.
    pub gantry_audit_proof: u32,
    /// The exact line.
    pub record: String,
    pub index: u64,
    /// Hashes from the leaf upwards, in base64.
    pub path: Vec<String>,
    /// The signed note.
    pub checkpoint: String,
}

/// Why a proof proves nothing.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    #[error("it is not a proof of an audit record")]
    Malformed,
    #[error("its checkpoint is not to be believed: {0}")]
    Checkpoint(#[source] NoteError),
    #[error("the record is not in the tree that was signed: record, index or path was changed")]
    NotIncluded,
}

impl InclusionProof {
    /// Reads a proof.
    pub fn parse(text: &str) -> Result<Self, ProofError> {
        let proof: Self = serde_json::from_str(text).map_err(|_| ProofError::Malformed)?;
        if proof.gantry_audit_proof == FORMAT { Ok(proof) } else { Err(ProofError::Malformed) }
    }

    /// Holds it against a public key: was this record in the log when the checkpoint was signed?
    pub fn verify(&self, key: &NoteKey) -> Result<LogCheckpoint, ProofError> {
        let checkpoint = LogCheckpoint::verified(&self.checkpoint, key).map_err(ProofError::Checkpoint)?;
        let path: Option<Vec<TreeHash>> =
            self.path.iter().map(|step| STANDARD.decode(step).ok()?.try_into().ok()).collect();
        let leaf = leaf_hash(self.record.as_bytes());
        let holds =
            verify_inclusion(self.index, checkpoint.size, &leaf, &path.ok_or(ProofError::Malformed)?, &checkpoint.root);
        if holds { Ok(checkpoint) } else { Err(ProofError::NotIncluded) }
    }
}

/// The number in a record's id, if it is of this log.
pub(crate) fn sequence_of(id: &str, log: &str) -> Option<u64> {
    let digits = id.strip_prefix(log)?.strip_prefix('-')?;
    let seq: u64 = digits.parse().ok()?;
    (seq.to_string() == digits).then_some(seq)
}

/// Makes the proof of record `seq` under a checkpoint that covers it.
pub(crate) fn make(reader: &LogReader, tree: &impl TreeNodes, seq: u64, note: &str) -> io::Result<InclusionProof> {
    let invalid = |error: NoteError| io::Error::new(io::ErrorKind::InvalidData, error);
    let checkpoint = LogCheckpoint::of(&SignedNote::parse(note).map_err(invalid)?).map_err(invalid)?;
    let path = inclusion_path(tree, seq, checkpoint.size)?;
    let entry = reader.read(seq, 1)?.pop().ok_or(io::ErrorKind::NotFound)?;
    // A proof that does not hold is never handed out: better to learn here that the log is damaged.
    if !verify_inclusion(seq, checkpoint.size, &leaf_hash(entry.line.as_bytes()), &path, &checkpoint.root) {
        let message = "the audit log does not agree with its checkpoint: `gantry audit verify` says where";
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    Ok(InclusionProof {
        gantry_audit_proof: FORMAT,
        record: entry.line,
        index: seq,
        path: path.iter().map(|hash| STANDARD.encode(hash)).collect(),
        checkpoint: note.to_owned(),
    })
}

/// Makes a proof from a directory that nobody needs to be writing; `None` if there is no such record, or no checkpoint
/// covers it yet.
pub fn prove_in(dir: &Path, id: &str) -> io::Result<Option<InclusionProof>> {
    let (Some(mark), Some(note), Some(tree)) =
        (LogMark::read(dir)?, checkpoint::newest_to_read(dir)?, TreeFile::open_to_read(dir)?)
    else {
        return Ok(None);
    };
    let size = SignedNote::parse(&note)
        .ok()
        .and_then(|note| LogCheckpoint::of(&note).ok())
        .map_or(0, |checkpoint| checkpoint.size);
    match sequence_of(id, &mark.id).filter(|seq| *seq < size) {
        Some(seq) => make(&LogReader::open(dir)?, &tree, seq, &note).map(Some),
        None => Ok(None),
    }
}
