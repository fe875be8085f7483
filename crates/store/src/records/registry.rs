//! Published versions, their lifecycle and quarantines out of rows.

use ports::lifecycle::{Lifecycle, LifecycleNotice};
use ports::registry_store::{StoredVersion, ToolQuarantine};

use crate::stored_row::StoredRow;

/// The columns that [`lifecycle`] reads.
pub(crate) const LIFECYCLE_COLUMNS: &str =
    "lifecycle_state, deprecated_at, sunset_at, removal_at, successor, migration_guide";

/// A version out of a row with [`LIFECYCLE_COLUMNS`] and those of its own.
pub(crate) fn stored_version<R: StoredRow>(row: &R) -> Result<StoredVersion, R::Fault> {
    let tool = row.text("tool_id")?;
    Ok(StoredVersion {
        version: row.word("version_text", tool)?,
        manifest: row.json("manifest", tool)?,
        digest: row.word("digest", tool)?,
        lifecycle: lifecycle(row, tool)?,
        published_at: row.moment("published_at", tool)?,
        tenant: row.word("tenant_id", tool)?,
        published_by: row.word("published_by", tool)?,
        tool: row.word("tool_id", tool)?,
    })
}

/// The lifecycle of a version of `tool`, out of a row with [`LIFECYCLE_COLUMNS`].
pub(crate) fn lifecycle<R: StoredRow>(row: &R, tool: &str) -> Result<Lifecycle, R::Fault> {
    let moment = |column| row.opt_moment(column, tool);
    let notice = match (moment("deprecated_at")?, moment("sunset_at")?, moment("removal_at")?) {
        (Some(deprecated_at), Some(sunset_at), Some(removal_at)) => Some(LifecycleNotice {
            deprecated_at,
            sunset_at,
            removal_at,
            successor: row.opt_free_text("successor")?,
            migration_guide: row.opt_free_text("migration_guide")?,
        }),
        _ => None,
    };
    Ok(Lifecycle { recorded: row.tagged("lifecycle_state", tool)?, notice })
}

/// A tool that was taken out of use.
pub(crate) fn quarantine<R: StoredRow>(row: &R) -> Result<ToolQuarantine, R::Fault> {
    let tool = row.text("tool_id")?;
    Ok(ToolQuarantine {
        tenant: row.word("tenant_id", tool)?,
        tool: row.word("tool_id", tool)?,
        reason: row.free_text("reason")?,
        by: row.word("set_by", tool)?,
        by_tenant: row.word("set_by_tenant", tool)?,
        at: row.time("set_at")?,
    })
}
