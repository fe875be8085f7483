//! The statements that read checkpoints.

use contract::ids::{InvocationId, TenantId};
use ports::checkpoint_store::{CHAIN_MAX, CheckpointId, LIST_MAX, ListPage, ListedCheckpoint, SealedCheckpoint};
use ports::clock::UnixMillis;
use rusqlite::{Connection, OptionalExtension as _, named_params};

use crate::records::checkpoints::{listed, sealed};
use crate::sqlite::columns::all;
use crate::sqlite::faults::Fault;
use crate::stored_row::StoredRow as _;

pub(super) fn chain(
    connection: &Connection,
    tenant: &TenantId,
    id: CheckpointId,
    now: UnixMillis,
) -> Result<Vec<SealedCheckpoint>, Fault> {
    let mut found: Vec<SealedCheckpoint> = Vec::new();
    let mut statement =
        connection.prepare_cached("SELECT * FROM checkpoints WHERE checkpoint_id = :id AND tenant_id = :tenant_id")?;
    let mut wanted = Some(id);
    // One more than a chain may have, so that a chain that is too long is seen to be.
    while let Some(id) = wanted.filter(|_| found.len() <= usize::from(CHAIN_MAX) + 1) {
        let mut rows = statement.query(named_params! { ":id": id.to_string(), ":tenant_id": tenant.to_string() })?;
        let Some(row) = rows.next()? else { break };
        // Only what others stand on is there beyond its time.
        if found.is_empty() && row.opt_time("expires_at")?.is_some_and(|end| end <= now) {
            break;
        }
        let one = sealed(row)?;
        wanted = one.base;
        found.push(one);
    }
    Ok(found)
}

pub(super) fn list(
    connection: &Connection,
    tenant: &TenantId,
    invocation: InvocationId,
    page: ListPage,
    now: UnixMillis,
) -> Result<Vec<ListedCheckpoint>, Fault> {
    let invocation = invocation.to_string();
    let below: Option<i64> = match page.after {
        None => None,
        Some(after) => connection
            .prepare_cached(
                "SELECT rank FROM checkpoints WHERE checkpoint_id = :after AND tenant_id = :tenant_id
                 AND invocation_id = :invocation",
            )?
            .query_row(
                named_params! {
                    ":after": after.to_string(),
                    ":tenant_id": tenant.as_str(),
                    ":invocation": invocation,
                },
                |row| row.get(0),
            )
            .optional()?,
    };
    let mut statement = connection.prepare_cached(
        "SELECT checkpoint_id, tenant_id, invocation_id, owner, tool_id, tool_version, checkpoint_type, label, parent_id,
                saved_at, base_id, content_bytes, stored_bytes, expires_at
         FROM checkpoints
         WHERE tenant_id = :tenant_id AND invocation_id = :invocation AND rank < :below
         AND (expires_at IS NULL OR expires_at > :now)
         ORDER BY rank DESC LIMIT :most",
    )?;
    let limit = i64::try_from(page.limit.min(LIST_MAX)).unwrap_or(0);
    all(
        statement.query(named_params! {
            ":tenant_id": tenant.as_str(),
            ":invocation": invocation,
            ":below": below.unwrap_or(i64::MAX),
            ":now": now.0,
            ":most": limit,
        })?,
        listed,
    )
}

pub(super) fn is_claimed(
    connection: &Connection,
    tenant: &TenantId,
    invocation: InvocationId,
    now: UnixMillis,
) -> Result<bool, Fault> {
    let found: Option<i64> = connection
        .prepare_cached(
            "SELECT 1 FROM checkpoint_attempts WHERE tenant_id = :tenant_id AND invocation_id = :invocation
             AND held_until > :now",
        )?
        .query_row(
            named_params! {
                ":tenant_id": tenant.as_str(),
                ":invocation": invocation.to_string(),
                ":now": now.0,
            },
            |row| row.get(0),
        )
        .optional()?;
    Ok(found.is_some())
}
