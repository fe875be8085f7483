//! Checkpoints out of rows.
//!
//! What is stored is handed over as it stands, digests of a wrong length included: whoever opens a checkpoint finds out that
//! it is damaged and looks for another, which a fault of the store would not let it do.

use contract::canonical::Digest;
use contract::envelope::CheckpointKind;
use ports::checkpoint_store::{CheckpointHead, ListedCheckpoint, SealedCheckpoint};

use crate::stored_row::StoredRow;

pub(crate) fn listed<R: StoredRow>(row: &R) -> Result<ListedCheckpoint, R::Fault> {
    let of = row.text("checkpoint_id")?;
    Ok(ListedCheckpoint {
        head: head(row)?,
        base: row.opt_word("base_id", of)?,
        content_bytes: count(row, "content_bytes")?,
        stored_bytes: count(row, "stored_bytes")?,
        expires_at: row.opt_time("expires_at")?,
    })
}

pub(crate) fn sealed<R: StoredRow>(row: &R) -> Result<SealedCheckpoint, R::Fault> {
    let of = row.text("checkpoint_id")?;
    Ok(SealedCheckpoint {
        head: head(row)?,
        base: row.opt_word("base_id", of)?,
        chain: row.number("chain", of)?,
        schema_version: row.text("schema_version")?.to_owned(),
        is_gzip: row.flag("is_gzip")?,
        content_bytes: count(row, "content_bytes")?,
        checksum: digest(row, "checksum")?,
        seal: digest(row, "seal")?,
        payload: row.bytes("payload")?.into(),
    })
}

fn head<R: StoredRow>(row: &R) -> Result<CheckpointHead, R::Fault> {
    let of = row.text("checkpoint_id")?;
    let kind = |word: &str| CheckpointKind::ALL.into_iter().find(|known| known.as_str() == word);
    Ok(CheckpointHead {
        id: row.word("checkpoint_id", of)?,
        tenant: row.word("tenant_id", of)?,
        invocation: row.word("invocation_id", of)?,
        owner: row.word("owner", of)?,
        tool: row.word("tool_id", of)?,
        version: row.word("tool_version", of)?,
        kind: row.one_of("checkpoint_type", of, kind)?,
        label: row.opt_text("label")?.map(str::to_owned),
        parent: row.opt_word("parent_id", of)?,
        saved_at: row.time("saved_at")?,
    })
}

fn digest<R: StoredRow>(row: &R, column: &'static str) -> Result<Digest, R::Fault> {
    Ok(Digest::from(<[u8; 32]>::try_from(row.bytes(column)?).unwrap_or([0; 32])))
}

fn count<R: StoredRow>(row: &R, column: &'static str) -> Result<u64, R::Fault> {
    Ok(u64::try_from(row.int(column)?).unwrap_or(u64::MAX))
}
