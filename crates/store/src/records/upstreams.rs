//! MCP servers and the pins of their tools out of rows.

use contract::canonical::Digest;
use ports::upstream_store::{PinRecord, PinState, ServerRead, ServerRecord, ToolDefinition};

use crate::stored_row::{StoredRow, unreadable};

/// The columns that [`pin`] reads.
pub(crate) const PIN_COLUMNS: &str = "tenant_id, server, upstream_tool, tool_id, version, accepted, accepted_digest, \
                                      proposed, proposed_digest, state, findings, classification, seen_at";

/// What tells one registration of a server from the next.
pub(crate) fn server_read<R: StoredRow>(row: &R) -> Result<ServerRead, R::Fault> {
    let name = row.free_text("name")?;
    Ok(ServerRead { added_at: row.moment("added_at", &name)?, name })
}

pub(crate) fn server<R: StoredRow>(row: &R) -> Result<ServerRecord, R::Fault> {
    let of = row.free_text("name")?;
    Ok(ServerRecord {
        tenant: row.word("tenant_id", &of)?,
        spec: row.json("spec", &of)?,
        added_at: row.moment("added_at", &of)?,
        added_by: row.word("added_by", &of)?,
        name: of,
    })
}

/// A pin out of a row with [`PIN_COLUMNS`].
pub(crate) fn pin<R: StoredRow>(row: &R) -> Result<PinRecord, R::Fault> {
    let of = row.text("tool_id")?;
    let state = |word: &str| PinState::ALL.into_iter().find(|known| known.as_str() == word);
    Ok(PinRecord {
        tenant: row.word("tenant_id", of)?,
        server: row.free_text("server")?,
        upstream_tool: row.free_text("upstream_tool")?,
        tool: row.word("tool_id", of)?,
        version: row.opt_word("version", of)?,
        accepted: definition(row, "accepted", "accepted_digest", of)?,
        proposed: definition(row, "proposed", "proposed_digest", of)?,
        state: row.one_of("state", of, state)?,
        findings: row.json("findings", of)?,
        classification: row.opt_tagged("classification", of)?,
        seen_at: row.moment("seen_at", of)?,
    })
}

/// A definition whose digest is another one was changed behind our back; to offer it would be to accept that.
fn definition<R: StoredRow>(
    row: &R,
    column: &'static str,
    digest_column: &'static str,
    of: &str,
) -> Result<Option<ToolDefinition>, R::Fault> {
    let Some(value) = row.opt_json(column, of)? else { return Ok(None) };
    let digest: Digest = row.word(digest_column, of)?;
    if ToolDefinition::digest_of(&value) != digest {
        return Err(unreadable(digest_column, of).into());
    }
    Ok(Some(ToolDefinition { value, digest }))
}
