//! Tools that people have taken out of use, as rows. (REG-024)

use contract::ids::TenantId;
use ports::registry_store::{QuarantineChange, ToolQuarantine};
use rusqlite::{Connection, named_params};

use super::columns;
use super::faults::Fault;
use crate::records::registry::quarantine;

/// Every tool in quarantine.
pub(super) fn all(connection: &Connection) -> Result<Vec<ToolQuarantine>, Fault> {
    // A file that is only looked at may have the shape of an earlier release.
    let made = "SELECT count(*) FROM sqlite_schema WHERE name = 'tool_quarantines'";
    if connection.query_row(made, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(Vec::new());
    }
    let said = "SELECT count(*) FROM pragma_table_info('tool_quarantines') WHERE name = 'set_by_tenant'";
    let by_tenant = match connection.query_row(said, [], |row| row.get::<_, i64>(0))? {
        0 => "'local'",
        _ => "set_by_tenant",
    };
    let mut statement = connection.prepare_cached(&format!(
        "SELECT tenant_id, tool_id, reason, set_by, {by_tenant} AS set_by_tenant, set_at FROM tool_quarantines"
    ))?;
    columns::all(statement.query([])?, quarantine)
}

/// Puts a tool into quarantine, or gives it a new reason if the one that is there yields.
pub(super) fn put(connection: &Connection, new: &ToolQuarantine) -> Result<QuarantineChange, Fault> {
    let changed = connection
        .prepare_cached(
            "INSERT INTO tool_quarantines (tenant_id, tool_id, reason, set_by, set_by_tenant, set_at)
             VALUES (:tenant_id, :tool_id, :reason, :by, :by_tenant, :at)
             ON CONFLICT DO UPDATE
             SET reason = excluded.reason, set_by = excluded.set_by, set_by_tenant = excluded.set_by_tenant,
                 set_at = excluded.set_at
             WHERE excluded.set_by_tenant = :home OR tool_quarantines.set_by_tenant <> :home",
        )?
        .execute(named_params! {
            ":tenant_id": new.tenant.as_str(),
            ":tool_id": new.tool.as_str(),
            ":reason": new.reason,
            ":by": new.by.as_str(),
            ":by_tenant": new.by_tenant.as_str(),
            ":at": new.at.0,
            ":home": TenantId::home().as_str(),
        })?;
    Ok(if changed > 0 { QuarantineChange::Done } else { QuarantineChange::Withheld })
}

/// Takes a tool out of quarantine for people of the tenant `by`, if it yields to them. The writer is one, so nobody comes
/// between the two statements.
pub(super) fn remove(
    connection: &Connection,
    (tenant, tool): (&str, &str),
    by: &str,
) -> Result<QuarantineChange, Fault> {
    let sql = "DELETE FROM tool_quarantines
               WHERE tenant_id = :tenant_id AND tool_id = :tool_id AND (:by = :home OR set_by_tenant <> :home)";
    let home = TenantId::home();
    if connection
        .prepare_cached(sql)?
        .execute(named_params! { ":tenant_id": tenant, ":tool_id": tool, ":by": by, ":home": home.as_str() })?
        > 0
    {
        return Ok(QuarantineChange::Done);
    }
    let sql = "SELECT count(*) FROM tool_quarantines WHERE tenant_id = :tenant_id AND tool_id = :tool_id";
    let there: i64 = connection
        .prepare_cached(sql)?
        .query_row(named_params! { ":tenant_id": tenant, ":tool_id": tool }, |row| row.get(0))?;
    Ok(if there > 0 { QuarantineChange::Withheld } else { QuarantineChange::Unknown })
}
