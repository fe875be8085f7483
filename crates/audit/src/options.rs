//! What a log needs to be opened, and how often it signs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Clock;
use ports::entropy::Entropy;

use crate::witness::CheckpointWitness;

/// A file is closed for ever once it has this many bytes.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// A checkpoint is signed after this many records,
const CHECKPOINT_RECORDS: u64 = 1_024;
/// and after this long if there were any.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(30);

/// Lines that are read before a start: some hundred thousand records, a fraction of a second.
const READ_BYTES_MAX: u64 = 96 * 1024 * 1024;

/// What a log needs.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Where the key that signs checkpoints is; made with the log.
    pub key_file: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Who is told every checkpoint.
    pub witness: Option<Arc<dyn CheckpointWitness>>,
    /// A checkpoint is signed once this many records are not covered by one.
    pub checkpoint_records: u64,
    /// And this long after the last look, if a record is not covered.
    pub checkpoint_every: Duration,
    /// A file is closed once it has this many bytes.
    pub file_bytes_max: u64,
    /// Files that have no more bytes than this together, the newest first, are read before the log is opened; the others after
    /// that, while it is used.
    pub read_bytes_max: u64,
}

impl LogOptions {
    /// The usual ones.
    pub fn new(key_file: PathBuf, clock: Arc<dyn Clock>, entropy: Arc<dyn Entropy>) -> Self {
        Self {
            key_file,
            clock,
            entropy,
            witness: None,
            checkpoint_records: CHECKPOINT_RECORDS,
            checkpoint_every: CHECKPOINT_EVERY,
            file_bytes_max: FILE_BYTES_MAX,
            read_bytes_max: READ_BYTES_MAX,
        }
    }
}
