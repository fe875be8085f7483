//! The statements that read checkpoints.
//!
//! What is stored is handed over as it stands, digests of a wrong length included: whoever opens a checkpoint finds out that
//! it is damaged and looks for another, which a fault of the store would not let it do.

use contract::canonical::Digest;
use contract::envelope::CheckpointKind;
use contract::ids::{InvocationId, TenantId};
use ports::checkpoint_store::{
    CHAIN_MAX, CheckpointHead, CheckpointId, LIST_MAX, ListPage, ListedCheckpoint, SealedCheckpoint,
};
use ports::clock::UnixMillis;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::super::faults::{Fault, Unreadable};

pub(super) fn chain(
    connection: &Connection,
    tenant: &TenantId,
    id: CheckpointId,
    now: UnixMillis,
) -> Result<Vec<SealedCheckpoint>, Fault> {
    let mut found: Vec<SealedCheckpoint> = Vec::new();
    let mut statement =
        connection.prepare_cached("SELECT * FROM checkpoints WHERE checkpoint_id = ?1 AND tenant_id = ?2")?;
    let mut wanted = Some(id);
    // One more than a chain may have, so that a chain that is too long is seen to be.
    while let Some(id) = wanted.filter(|_| found.len() <= usize::from(CHAIN_MAX) + 1) {
        let mut rows = statement.query([id.to_string(), tenant.to_string()])?;
        let Some(row) = rows.next()? else { break };
        // Only what others stand on is there beyond its time.
        if found.is_empty() && row.get::<_, Option<i64>>("expires_at")?.is_some_and(|end| end <= now.0) {
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
                "SELECT rank FROM checkpoints WHERE checkpoint_id = ?1 AND tenant_id = ?2 AND invocation_id = ?3",
            )?
            .query_row(params![after.to_string(), tenant.as_str(), invocation], |row| row.get(0))
            .optional()?,
    };
    let mut statement = connection.prepare_cached(
        "SELECT checkpoint_id, tenant_id, invocation_id, owner, tool_id, tool_version, checkpoint_type, label, parent_id,
                saved_at, base_id, content_bytes, stored_bytes, expires_at
         FROM checkpoints
         WHERE tenant_id = ?1 AND invocation_id = ?2 AND rank < ?3 AND (expires_at IS NULL OR expires_at > ?4)
         ORDER BY rank DESC LIMIT ?5",
    )?;
    let limit = i64::try_from(page.limit.min(LIST_MAX)).unwrap_or(0);
    let mut rows = statement.query(params![tenant.as_str(), invocation, below.unwrap_or(i64::MAX), now.0, limit])?;
    let mut listed = Vec::new();
    while let Some(row) = rows.next()? {
        let of: String = row.get("checkpoint_id")?;
        listed.push(ListedCheckpoint {
            head: head(row)?,
            base: id(row, "base_id", &of)?,
            content_bytes: count(row, "content_bytes")?,
            stored_bytes: count(row, "stored_bytes")?,
            expires_at: row.get::<_, Option<i64>>("expires_at")?.map(UnixMillis),
        });
    }
    Ok(listed)
}

fn sealed(row: &Row<'_>) -> Result<SealedCheckpoint, Fault> {
    let of: String = row.get("checkpoint_id")?;
    let digest = |column| -> Result<Digest, Fault> {
        let bytes: Vec<u8> = row.get(column)?;
        Ok(Digest::from(<[u8; 32]>::try_from(bytes).unwrap_or([0; 32])))
    };
    Ok(SealedCheckpoint {
        head: head(row)?,
        base: id(row, "base_id", &of)?,
        chain: row.get("chain")?,
        schema_version: row.get("schema_version")?,
        is_gzip: row.get("is_gzip")?,
        content_bytes: count(row, "content_bytes")?,
        checksum: digest("checksum")?,
        seal: digest("seal")?,
        payload: row.get::<_, Vec<u8>>("payload")?.into(),
    })
}

fn head(row: &Row<'_>) -> Result<CheckpointHead, Fault> {
    let of: String = row.get("checkpoint_id")?;
    let kind: String = row.get("checkpoint_type")?;
    Ok(CheckpointHead {
        id: word(row, "checkpoint_id", &of)?,
        tenant: word(row, "tenant_id", &of)?,
        invocation: word(row, "invocation_id", &of)?,
        owner: word(row, "owner", &of)?,
        tool: word(row, "tool_id", &of)?,
        version: contract::version::Version::parse(&row.get::<_, String>("tool_version")?)
            .map_err(|_| unreadable("tool_version", &of))?,
        kind: CheckpointKind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind)
            .ok_or_else(|| unreadable("checkpoint_type", &of))?,
        label: row.get("label")?,
        parent: id(row, "parent_id", &of)?,
        saved_at: UnixMillis(row.get("saved_at")?),
    })
}

fn id(row: &Row<'_>, column: &'static str, of: &str) -> Result<Option<CheckpointId>, Fault> {
    let text: Option<String> = row.get(column)?;
    Ok(text.map(|text| text.parse()).transpose().map_err(|_| unreadable(column, of))?)
}

fn count(row: &Row<'_>, column: &'static str) -> Result<u64, Fault> {
    Ok(u64::try_from(row.get::<_, i64>(column)?).unwrap_or(u64::MAX))
}

/// A column with a type that is written as text.
fn word<T: std::str::FromStr>(row: &Row<'_>, column: &'static str, of: &str) -> Result<T, Fault> {
    row.get::<_, String>(column)?.parse().map_err(|_| unreadable(column, of).into())
}

fn unreadable(column: &'static str, of: &str) -> Unreadable {
    Unreadable { column, of: of.to_owned() }
}

pub(super) fn is_claimed(
    connection: &Connection,
    tenant: &TenantId,
    invocation: InvocationId,
    now: UnixMillis,
) -> Result<bool, Fault> {
    let found: Option<i64> = connection
        .prepare_cached(
            "SELECT 1 FROM checkpoint_attempts WHERE tenant_id = ?1 AND invocation_id = ?2 AND held_until > ?3",
        )?
        .query_row(rusqlite::params![tenant.as_str(), invocation.to_string(), now.0], |row| row.get(0))
        .optional()?;
    Ok(found.is_some())
}
