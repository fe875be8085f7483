//! Calls of versions by the hour out of rows.

use base::SaturatingFrom as _;
use ports::tool_version::VersionKey;
use ports::version_use::{Hour, HourOfUse};

use crate::stored_row::StoredRow;

pub(crate) fn hour_of_use<R: StoredRow>(row: &R) -> Result<HourOfUse, R::Fault> {
    let of = row.text("tool_id")?;
    Ok(HourOfUse {
        version: version(row, of)?,
        hour: Hour(row.int("hour")?),
        calls: u64::saturating_from(row.int("calls")?),
    })
}

/// Which version of a tool of a tenant: the columns `tenant_id`, `tool_id` and `version`.
pub(super) fn version<R: StoredRow>(row: &R, of: &str) -> Result<VersionKey, R::Fault> {
    Ok(VersionKey {
        tenant: row.word("tenant_id", of)?,
        tool: row.word("tool_id", of)?,
        version: row.word("version", of)?,
    })
}
