//! Sealing and opening checkpoints: text, delta, compression, and the two digests that notice when anything was changed.
//! (CKPT-003…008, CKPT-013, CKPT-017)
//!
//! ```text
//!  record ──▶ content ──▶ delta against the base, if that saves at least half ──▶ gzip, if wanted ──▶ payload
//!             └ checksum                                                                              └ seal
//! ```
//!
//! The *checksum* is of the content, whole and decoded: it says that what was put together again is what was saved. The
//! *seal* is of everything that is stored: it is asked first, so that nothing damaged is ever unpacked.
//!
//! Invariants
//! - CODEC-1: `open(seal(record)) = record`, through any chain of deltas.
//! - CODEC-2: one flipped bit anywhere in what is stored is noticed.
//! - CODEC-3: nothing is unpacked beyond [`CONTENT_BYTES_MAX`], whatever the stored numbers say.
//! - CODEC-4: a schema version that is not known is refused before anything is looked at.
//! - CODEC-5: no chain is longer than [`CHAIN_MAX`], and a named checkpoint, which may live for ever, stands alone.
//!
//! A seal is no signature: whoever can write the store can make one.
//!
//! Not here: where the base comes from (`keeper`), where it is kept (the port).

use std::io::{Read as _, Write as _};
use std::sync::Arc;

use base::SaturatingFrom as _;
use contract::canonical::Digest;
use contract::envelope::CheckpointKind;
use contract::error::{ErrorCode, Refusal};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use ports::checkpoint_store::{CHAIN_MAX, CheckpointHead, CheckpointId, SealedCheckpoint};
use serde_json::json;

use super::delta::{self, DeltaError};
use super::record::{CheckpointRecord, SCHEMA_VERSION, checked_size};

/// Bytes of one checkpoint's content, decoded.
pub const CONTENT_BYTES_MAX: usize = 8 << 20;
/// Micro-checkpoints are compressed from this size on, unless the manifest says otherwise (CKPT-006).
pub const GZIP_FROM_BYTES: usize = 10_240;
/// Below this a delta saves nothing that is worth reading two rows for.
const DELTA_FROM_BYTES: usize = 2_048;

/// Why a checkpoint cannot be made or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// More than there is room for.
    #[error("the {what} of a checkpoint may have at most {max}")]
    TooLarge { what: &'static str, max: usize },
    /// Too many arrays and objects inside each other.
    #[error("the state of a checkpoint is nested deeper than {max}")]
    TooDeep { max: usize },
    /// Written by a program that knows more than this one.
    #[error("the checkpoint has schema version `{version}`, which this server does not know")]
    UnknownVersion { version: String },
    /// Damaged, incomplete, or not what it says it is.
    #[error("the checkpoint is damaged")]
    Corrupt,
}

impl CodecError {
    /// The row of the error table.
    pub fn refusal(&self) -> Refusal {
        let (code, hint) = match self {
            Self::TooLarge { .. } | Self::TooDeep { .. } => {
                (ErrorCode::E3906, "save less: what can be computed again need not be kept")
            }
            Self::UnknownVersion { .. } => {
                (ErrorCode::E3905, "resume it on the server that saved it, or call the tool from the beginning")
            }
            Self::Corrupt => (ErrorCode::E3904, "resume from an earlier checkpoint of the call"),
        };
        Refusal::new(code, self.to_string()).hint(hint).retryable(false).caused_by(self.clone())
    }
}

/// What a later checkpoint may be a delta against.
#[derive(Debug, Clone)]
pub struct DeltaBase {
    pub id: CheckpointId,
    /// How many deltas are below it.
    pub chain: u8,
    pub content: Arc<[u8]>,
}

/// Seals a record. `gzip_from` is the size from which a micro-checkpoint is compressed.
///
/// # Errors
/// If something is beyond its bound.
pub fn seal(
    record: &CheckpointRecord,
    base: Option<&DeltaBase>,
    gzip_from: usize,
) -> Result<(SealedCheckpoint, DeltaBase), CodecError> {
    checked_size(&record.state)?;
    let content: Arc<[u8]> = record.content()?.into();
    if content.len() > CONTENT_BYTES_MAX {
        return Err(CodecError::TooLarge { what: "content", max: CONTENT_BYTES_MAX });
    }
    let head = record.head.clone();
    let standing = (head.kind != CheckpointKind::Named && content.len() >= DELTA_FROM_BYTES)
        .then_some(base)
        .flatten()
        .filter(|base| base.chain < CHAIN_MAX);
    let change = standing
        .map(|base| (base, delta::diff(&base.content, &content)))
        .filter(|(_, change)| change.len() <= content.len() / 2);
    let (raw, base, chain) = match &change {
        Some((base, change)) => (change.as_slice(), Some(base.id), base.chain + 1),
        None => (&*content, None, 0),
    };
    let is_gzip = head.kind != CheckpointKind::Micro || raw.len() > gzip_from;
    let payload: Arc<[u8]> = if is_gzip { gzip(raw)?.into() } else { raw.into() };
    let id = head.id;
    let mut sealed = SealedCheckpoint {
        head,
        base,
        chain,
        schema_version: SCHEMA_VERSION.to_owned(),
        is_gzip,
        content_bytes: content.len() as u64,
        checksum: Digest::of_bytes(&content),
        seal: Digest::from([0; 32]),
        payload,
    };
    sealed.seal = seal_of(&sealed);
    Ok((sealed, DeltaBase { id, chain, content }))
}

/// Opens the first of a chain; the others are what it is based on, in this order.
///
/// # Errors
/// If any of them is damaged, too large, of an unknown version, or not the one that is needed.
pub fn open(chain: &[SealedCheckpoint]) -> Result<(CheckpointRecord, DeltaBase), CodecError> {
    if chain.is_empty() || chain.len() > usize::from(CHAIN_MAX) + 1 {
        return Err(CodecError::Corrupt);
    }
    let mut below: Option<(CheckpointId, Vec<u8>)> = None;
    for sealed in chain.iter().rev() {
        // What stands on nothing begins anew; everything else stands on exactly the one before.
        let base = match (&sealed.base, &below) {
            (None, None) => None,
            (Some(wanted), Some((id, content))) if wanted == id => Some(content.as_slice()),
            _ => return Err(CodecError::Corrupt),
        };
        let content = content_of(sealed, base)?;
        below = Some((sealed.head.id, content));
    }
    let (Some(first), Some((id, content))) = (chain.first(), below) else { return Err(CodecError::Corrupt) };
    let record = CheckpointRecord::read(&first.head, &content)?;
    Ok((record, DeltaBase { id, chain: first.chain, content: content.into() }))
}

fn content_of(sealed: &SealedCheckpoint, base: Option<&[u8]>) -> Result<Vec<u8>, CodecError> {
    if sealed.schema_version != SCHEMA_VERSION {
        let version = sealed.schema_version.chars().filter(|c| !c.is_control()).take(20).collect();
        return Err(CodecError::UnknownVersion { version });
    }
    if seal_of(sealed) != sealed.seal {
        return Err(CodecError::Corrupt);
    }
    let too_large = || CodecError::TooLarge { what: "content", max: CONTENT_BYTES_MAX };
    let bytes = usize::try_from(sealed.content_bytes).ok().filter(|bytes| *bytes <= CONTENT_BYTES_MAX);
    let bytes = bytes.ok_or_else(too_large)?;
    // A delta is never larger than what it makes: it would not have been used.
    let raw = if sealed.is_gzip { gunzip(&sealed.payload, bytes)? } else { sealed.payload.to_vec() };
    if raw.len() > CONTENT_BYTES_MAX {
        return Err(too_large());
    }
    let content = match base {
        None => raw,
        Some(base) => delta::apply(base, &raw, bytes).map_err(|error| match error {
            DeltaError::Malformed => CodecError::Corrupt,
            DeltaError::TooLarge { .. } => too_large(),
        })?,
    };
    if content.len() != bytes || Digest::of_bytes(&content) != sealed.checksum {
        return Err(CodecError::Corrupt);
    }
    Ok(content)
}

/// Of all that is stored and never changes.
fn seal_of(sealed: &SealedCheckpoint) -> Digest {
    let SealedCheckpoint { head, base, chain, schema_version, is_gzip, content_bytes, checksum, seal: _, payload } =
        sealed;
    let CheckpointHead { id, tenant, invocation, owner, tool, version, kind, label, parent, saved_at } = head;
    let header = json!([
        schema_version,
        id.to_string(),
        tenant.as_str(),
        invocation.to_string(),
        owner.as_str(),
        tool.as_str(),
        version.to_string(),
        kind.as_str(),
        label,
        parent.map(|parent| parent.to_string()),
        saved_at.0,
        base.map(|base| base.to_string()),
        chain,
        is_gzip,
        content_bytes,
        checksum.to_string(),
        payload.len(),
    ]);
    let mut text = header.to_string().into_bytes();
    text.extend_from_slice(Digest::of_bytes(payload).as_bytes());
    Digest::of_bytes(&text)
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
    // The tool waits meanwhile, and the fastest level takes most of what there is to take from JSON.
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(|_| CodecError::Corrupt)
}

fn gunzip(bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, CodecError> {
    let mut out = Vec::with_capacity(bytes_max.min(bytes.len().saturating_mul(8)));
    let most = u64::saturating_from(bytes_max).saturating_add(1);
    GzDecoder::new(bytes).take(most).read_to_end(&mut out).map_err(|_| CodecError::Corrupt)?;
    if out.len() > bytes_max {
        return Err(CodecError::TooLarge { what: "content", max: bytes_max });
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
