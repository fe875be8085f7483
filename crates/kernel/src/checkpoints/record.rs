//! What a checkpoint holds, and its text (CKPT-003): the complete state, so that resuming gives back exactly what was saved
//! (CKPT-004).
//!
//! The text is JSON with the names of the requirement. It repeats what the head says, so that a record which was put under
//! another head is noticed. Numbers keep the spelling they were parsed from, as far as `serde_json` knows it.
//!
//! Not here: compression, deltas, checksums (`codec`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use contract::envelope::CheckpointKind;
use ports::checkpoint_store::{CheckpointHead, CheckpointId};
use ports::saved_state::{BINARY_BYTES_MAX, PART_NAME_CHARS_MAX, PARTS_MAX, STATE_BYTES_MAX, SavedState};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::codec::CodecError;

/// The version that this program writes, and the only one it reads (CKPT-017).
pub const SCHEMA_VERSION: &str = "1.0";
/// Longest label.
pub const LABEL_CHARS_MAX: usize = 255;
/// Deepest nesting of a state; what reads it again goes a little deeper than this.
const DEPTH_MAX: usize = 100;
/// What stands before the text of an inline part.
const DATA_URI: &str = "data:application/octet-stream;base64,";

/// One checkpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckpointRecord {
    pub head: CheckpointHead,
    pub state: SavedState,
}

/// Is a state within every bound? Gives about how many bytes it will take as text.
pub(crate) fn checked_size(state: &SavedState) -> Result<usize, CodecError> {
    let mut room = SizeLimit { left: STATE_BYTES_MAX };
    if serde_json::to_writer(&mut room, &state.custom_state).is_err() {
        return Err(CodecError::TooLarge { what: "state", max: STATE_BYTES_MAX });
    }
    if is_deeper(&state.custom_state, DEPTH_MAX) {
        return Err(CodecError::TooDeep { max: DEPTH_MAX });
    }
    if state.binaries.values().any(|bytes| bytes.len() >= BINARY_BYTES_MAX) {
        return Err(CodecError::TooLarge { what: "binary part", max: BINARY_BYTES_MAX - 1 });
    }
    let parts = [state.binaries.len(), state.counters.len(), state.document_versions.len()];
    let mut names = state.binaries.keys().chain(state.counters.keys()).chain(state.document_versions.keys());
    if parts.into_iter().any(|count| count > PARTS_MAX) {
        return Err(CodecError::TooLarge { what: "number of parts", max: PARTS_MAX });
    }
    if names.any(|name| name.chars().count() > PART_NAME_CHARS_MAX) {
        return Err(CodecError::TooLarge { what: "name of a part", max: PART_NAME_CHARS_MAX });
    }
    Ok(STATE_BYTES_MAX - room.left + state.binaries.values().map(Vec::len).sum::<usize>())
}

impl CheckpointRecord {
    /// The text.
    pub(super) fn content(&self) -> Result<Vec<u8>, CodecError> {
        let Self { head, state } = self;
        let wire = Wire {
            schema_version: SCHEMA_VERSION.into(),
            checkpoint_id: head.id.to_string(),
            tenant_id: head.tenant.to_string(),
            invocation_id: head.invocation.to_string(),
            tool_id: head.tool.to_string(),
            tool_version: head.version.to_string(),
            checkpoint_type: head.kind,
            timestamp: head.saved_at.to_string(),
            parent_checkpoint_id: head.parent.as_ref().map(CheckpointId::to_string),
            label: head.label.clone(),
            document_versions: state.document_versions.clone(),
            binary_refs: state.binaries.iter().map(inline).collect(),
            state: WireState {
                progress_percent: state.progress_percent,
                phase: state.phase.clone(),
                counters: state.counters.clone(),
                custom_state: std::borrow::Cow::Borrowed(&state.custom_state),
            },
        };
        serde_json::to_vec(&wire).map_err(|_| CodecError::Corrupt)
    }

    /// What a text says, if it belongs to this head.
    pub(super) fn read(head: &CheckpointHead, content: &[u8]) -> Result<Self, CodecError> {
        let wire: Wire<'_> = serde_json::from_slice(content).map_err(|_| CodecError::Corrupt)?;
        let same = wire.schema_version == SCHEMA_VERSION
            && wire.checkpoint_id == head.id.to_string()
            && wire.tenant_id == head.tenant.as_str()
            && wire.invocation_id == head.invocation.to_string()
            && wire.tool_id == head.tool.as_str()
            && wire.tool_version == head.version.to_string()
            && wire.checkpoint_type == head.kind
            && wire.parent_checkpoint_id == head.parent.as_ref().map(CheckpointId::to_string)
            && wire.label == head.label;
        if !same {
            return Err(CodecError::Corrupt);
        }
        let binaries = wire.binary_refs.into_iter().map(bytes).collect::<Result<_, _>>()?;
        let WireState { progress_percent, phase, counters, custom_state } = wire.state;
        let custom_state = custom_state.into_owned();
        let document_versions = wire.document_versions;
        let state = SavedState { progress_percent, phase, counters, custom_state, binaries, document_versions };
        Ok(Self { head: head.clone(), state })
    }
}

// ------------------------------------------------------------------------------------------------------------- text

/// The record as it is written. Members in the order in which they change least, which is what a delta likes.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    schema_version: String,
    checkpoint_id: String,
    tenant_id: String,
    invocation_id: String,
    tool_id: String,
    tool_version: String,
    checkpoint_type: CheckpointKind,
    timestamp: String,
    parent_checkpoint_id: Option<String>,
    label: Option<String>,
    document_versions: BTreeMap<String, String>,
    binary_refs: Vec<BinaryRef>,
    state: WireState<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WireState<'a> {
    progress_percent: Option<f64>,
    phase: Option<String>,
    counters: BTreeMap<String, Number>,
    custom_state: std::borrow::Cow<'a, Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BinaryRef {
    key: String,
    storage: Storage,
    uri: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Storage {
    Inline,
}

fn inline((key, bytes): (&String, &Vec<u8>)) -> BinaryRef {
    let uri = format!("{DATA_URI}{}", STANDARD.encode(bytes));
    BinaryRef { key: key.clone(), storage: Storage::Inline, uri }
}

fn bytes(part: BinaryRef) -> Result<(String, Vec<u8>), CodecError> {
    let text = part.uri.strip_prefix(DATA_URI).ok_or(CodecError::Corrupt)?;
    Ok((part.key, STANDARD.decode(text).map_err(|_| CodecError::Corrupt)?))
}

fn is_deeper(value: &Value, than: usize) -> bool {
    let Some(left) = than.checked_sub(1) else { return value.is_array() || value.is_object() };
    match value {
        Value::Array(items) => items.iter().any(|item| is_deeper(item, left)),
        Value::Object(members) => members.values().any(|member| is_deeper(member, left)),
        _ => false,
    }
}

/// Counts what is written, and stops at the bound.
struct SizeLimit {
    left: usize,
}

impl std::io::Write for SizeLimit {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(|| std::io::Error::other("no room"))?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
