//! The audit log: one line of JSON per record, in files that are only ever appended to, under a Merkle tree whose roots are
//! signed. (AUD-002)
//!
//! ```text
//! audit/audit-000001.jsonl   the records; what is hashed is a line without its newline
//! audit/tree.bin             hashes of all complete subtrees; can be made again
//! audit/checkpoints          signed roots: whoever has the public key can check everything before them
//! audit/principals.json      how many records each principal has; can be made again
//! audit/log.json             which log this is
//! audit/quarantine-000001.…  what somebody else had written after its end
//! ```
//!
//! This is the embedded default of DESIGN §4. Records are durable when `append` returns: one write and one `fdatasync` per
//! batch. A file that has grown to its limit is left alone for ever and the next one begun.
//!
//! Invariants
//! - AUD-A: a line is whole or it is the last one; opening after a crash cuts off a torn last line.
//! - AUD-B: records never contain parameters or results, only their digests.

mod checkpoint;
mod cloud_event;
#[cfg(feature = "conformance")]
pub mod conformance;
mod export;
mod extent;
mod file_log;
mod head;
mod inspection;
mod key_file;
mod line;
mod line_check;
mod line_mac;
mod log_mark;
#[cfg(feature = "measure")]
pub mod measure;
pub mod merkle;
mod note;
mod options;
mod principals;
mod proof;
mod quarantine;
mod reader;
mod recovery;
mod room;
mod search;
mod segments;
pub mod sinks;
#[cfg(test)]
mod stage;
mod tree_file;
mod verify;
mod witness;
mod writer;

pub use checkpoint::{LogCheckpoint, notes_in};
pub use cloud_event::{CloudEventError, SOURCE, TYPE_PREFIX, cloud_event};
pub use export::{ExportHead, RecordRange, export};
pub use extent::{CoveredExtent, FileExtent, covered};
pub use file_log::FileLog;
pub use head::{SignedHead, heads_of, log_of_dir, log_of_export};
pub use line::SetAsideFile;
pub use line_check::LineFault;
pub use note::{NoteError, NoteKey, NoteSigner, SignedNote};
pub use options::LogOptions;
pub use proof::{InclusionProof, ProofError, prove_in};
pub use quarantine::set_aside;
pub use reader::{BATCH_BYTES_MAX, LogEntry, LogReader};
pub use recovery::{LogOpenError, records_in};
pub use verify::{LogFault, RecoveredRange, VerifyReport, VerifyTrust, verify_dir, verify_export};
pub use witness::{CheckpointWitness, FileWitness, WitnessGroup};
