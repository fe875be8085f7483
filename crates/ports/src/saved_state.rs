//! What a tool saves, and goes on from: complete, so that resuming gives back exactly what was saved. A value and no port. (CKPT-003,
//! CKPT-004)
//!
//! The bounds stand beside it, because an executor reads no more from its tool than may be saved.
//!
//! Not here: when it is written, its text and its checks (`kernel::checkpoints`), and where it is kept
//! ([`crate::checkpoint_store`]).

use std::collections::BTreeMap;

use serde_json::{Number, Value};

/// Bytes of a tool's own state, as JSON.
pub const STATE_BYTES_MAX: usize = 4 << 20;
/// Bytes of one binary part: it stands in the record, and larger ones would need an object store (CKPT-008).
pub const BINARY_BYTES_MAX: usize = 1 << 20;
/// Most binary parts, counters and documents of one checkpoint, and the longest name of one.
pub const PARTS_MAX: usize = 64;
pub const PART_NAME_CHARS_MAX: usize = 255;

/// What a tool saves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SavedState {
    /// How far the call had come, by its last word about that.
    pub progress_percent: Option<f64>,
    pub phase: Option<String>,
    pub counters: BTreeMap<String, Number>,
    /// Any JSON: the tool's own.
    pub custom_state: Value,
    /// Bytes by name.
    pub binaries: BTreeMap<String, Vec<u8>>,
    /// Which version of which document the state was made from.
    pub document_versions: BTreeMap<String, String>,
}
