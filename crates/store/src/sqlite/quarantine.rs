//! Tools that people have taken out of use, as rows. (REG-024)

use kernel::ports::clock::UnixMillis;
use kernel::ports::registry_store::Quarantine;
use rusqlite::{Connection, params};

use super::columns::word;
use super::faults::Fault;

/// Every tool in quarantine.
pub(super) fn all(connection: &Connection) -> Result<Vec<Quarantine>, Fault> {
    // A file that is only looked at may have the shape of an earlier release.
    let made = "SELECT count(*) FROM sqlite_schema WHERE name = 'tool_quarantines'";
    if connection.query_row(made, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let mut statement =
        connection.prepare_cached("SELECT tenant_id, tool_id, reason, set_by, set_at FROM tool_quarantines")?;
    let mut rows = statement.query([])?;
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let of: String = row.get("tool_id")?;
        all.push(Quarantine {
            tenant: word(row, "tenant_id", &of)?,
            tool: word(row, "tool_id", &of)?,
            reason: row.get("reason")?,
            by: word(row, "set_by", &of)?,
            at: UnixMillis(row.get("set_at")?),
        });
    }
    Ok(all)
}

/// Puts a tool into quarantine, or gives it a new reason.
pub(super) fn put(connection: &Connection, new: &Quarantine) -> Result<(), Fault> {
    connection
        .prepare_cached(
            "INSERT INTO tool_quarantines (tenant_id, tool_id, reason, set_by, set_at) VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO UPDATE
             SET reason = excluded.reason, set_by = excluded.set_by, set_at = excluded.set_at",
        )?
        .execute(params![new.tenant.as_str(), new.tool.as_str(), new.reason, new.by.as_str(), new.at.0])?;
    Ok(())
}

/// Takes a tool out of quarantine; false if it was not in it.
pub(super) fn remove(connection: &Connection, tenant: &str, tool: &str) -> Result<bool, Fault> {
    let sql = "DELETE FROM tool_quarantines WHERE tenant_id = ?1 AND tool_id = ?2";
    Ok(connection.prepare_cached(sql)?.execute([tenant, tool])? > 0)
}
