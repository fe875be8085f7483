//! Tools that people have taken out of use, as rows. (REG-024)

use contract::ids::TenantId;
use ports::registry_store::{QuarantineChange, StoreError, ToolQuarantine};

use super::PostgresStore;
use super::faults::Fault;
use super::registry::tell;
use super::statement::{int, text};
use super::stored_text::kept;
use super::transaction::{Scope, Transaction};
use crate::records::registry::quarantine;

/// Every tool in quarantine.
pub(super) async fn all(store: &PostgresStore) -> Result<Vec<ToolQuarantine>, StoreError> {
    let sql = "SELECT tenant_id, tool_id, reason, set_by, set_by_tenant, set_at FROM tool_quarantines";
    let rows = store.pool.query(Scope::System, sql, &[]).await?;
    Ok(rows.iter().map(quarantine).collect::<Result<Vec<_>, Fault>>()?)
}

/// Puts a tool into quarantine, or gives it a new reason if the one that is there yields.
pub(super) async fn put(tx: &Transaction, new: &ToolQuarantine, by: i64) -> Result<QuarantineChange, Fault> {
    let home = TenantId::home();
    // Of two at once the second waits for the first, and its condition is asked of what the first has left.
    let changed = tx
        .execute(
            "INSERT INTO tool_quarantines AS there (tenant_id, tool_id, reason, set_by, set_by_tenant, set_at)
             VALUES ($1, $2, $3, $4, $5, $6)
             ON CONFLICT (tenant_id, tool_id) DO UPDATE
             SET reason = excluded.reason, set_by = excluded.set_by, set_by_tenant = excluded.set_by_tenant,
                 set_at = excluded.set_at
             WHERE excluded.set_by_tenant = $7 OR there.set_by_tenant <> $7",
            &[
                text(&new.tenant.as_str()),
                text(&new.tool.as_str()),
                text(&kept(&new.reason)),
                text(&new.by.as_str()),
                text(&new.by_tenant.as_str()),
                int(&new.at.0),
                text(&home.as_str()),
            ],
        )
        .await?;
    if changed == 0 {
        return Ok(QuarantineChange::Withheld);
    }
    tell(tx, by).await?;
    Ok(QuarantineChange::Done)
}

/// Takes a tool out of quarantine for people of the tenant `for_tenant`, if it yields to them.
pub(super) async fn remove(
    tx: &Transaction,
    (tenant, tool): (&str, &str),
    for_tenant: &TenantId,
    by: i64,
) -> Result<QuarantineChange, Fault> {
    let sql = "SELECT tenant_id, tool_id, reason, set_by, set_by_tenant, set_at FROM tool_quarantines
               WHERE tenant_id = $1 AND tool_id = $2 FOR UPDATE";
    let Some(row) = tx.query_opt(sql, &[text(&tenant), text(&tool)]).await? else {
        return Ok(QuarantineChange::Unknown);
    };
    if !quarantine(&row)?.yields_to(for_tenant) {
        return Ok(QuarantineChange::Withheld);
    }
    let sql = "DELETE FROM tool_quarantines WHERE tenant_id = $1 AND tool_id = $2";
    tx.execute(sql, &[text(&tenant), text(&tool)]).await?;
    tell(tx, by).await?;
    Ok(QuarantineChange::Done)
}
