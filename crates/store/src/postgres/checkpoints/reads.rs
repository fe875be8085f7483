//! The statements that read checkpoints.
//!
//! What is stored is handed over as it stands, digests of a wrong length included: whoever opens a checkpoint finds out that
//! it is damaged and looks for another, which a fault of the store would not let it do.

use contract::canonical::Digest;
use contract::envelope::CheckpointKind;
use contract::ids::{InvocationId, TenantId};
use contract::version::Version;
use ports::checkpoint_store::{
    CHAIN_MAX, CheckpointHead, CheckpointId, LIST_MAX, ListPage, ListedCheckpoint, SealedCheckpoint,
};
use ports::clock::UnixMillis;
use tokio_postgres::Row;

use crate::postgres::PostgresStore;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{NOW, column, int, text, unreadable, word};
use crate::postgres::transaction::Scope;

pub(super) async fn chain(
    store: &PostgresStore,
    tenant: &TenantId,
    id: CheckpointId,
) -> Result<Vec<SealedCheckpoint>, Fault> {
    let tenant = tenant.as_str();
    // One more than a chain may have, so that a chain that is too long is seen to be. Only what others stand on is there
    // beyond its time.
    let sql = format!(
        "WITH RECURSIVE down AS (
             SELECT c.*, 0 AS depth FROM checkpoints c
             WHERE checkpoint_id = $2 AND tenant_id = $3 AND (expires_at IS NULL OR expires_at > {NOW})
             UNION ALL
             SELECT c.*, down.depth + 1 FROM down JOIN checkpoints c
                 ON c.checkpoint_id = down.base_id AND c.tenant_id = $3
             WHERE down.depth <= $4)
         SELECT * FROM down ORDER BY depth"
    );
    let (now, id, most) = (store.now(), id.to_string(), i64::from(CHAIN_MAX));
    let values = [int(&now), text(&id), text(&tenant), int(&most)];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    rows.iter().map(sealed).collect()
}

pub(super) async fn list(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
    page: ListPage,
) -> Result<Vec<ListedCheckpoint>, Fault> {
    let tenant = tenant.as_str();
    let sql = format!(
        "SELECT checkpoint_id, tenant_id, invocation_id, owner, tool_id, tool_version, checkpoint_type, label, parent_id,
                saved_at, base_id, content_bytes, stored_bytes, expires_at
         FROM checkpoints
         WHERE tenant_id = $2 AND invocation_id = $3 AND (expires_at IS NULL OR expires_at > {NOW})
             AND rank < coalesce((SELECT rank FROM checkpoints
                                  WHERE checkpoint_id = $4 AND tenant_id = $2 AND invocation_id = $3), $5)
         ORDER BY rank DESC LIMIT $6"
    );
    let (now, invocation) = (store.now(), invocation.to_string());
    let after = page.after.map(|id| id.to_string());
    let limit = i64::try_from(page.limit.min(LIST_MAX)).unwrap_or(0);
    let values = [int(&now), text(&tenant), text(&invocation), text(&after), int(&i64::MAX), int(&limit)];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    rows.iter().map(listed).collect()
}

fn listed(row: &Row) -> Result<ListedCheckpoint, Fault> {
    let of: &str = column(row, "checkpoint_id")?;
    Ok(ListedCheckpoint {
        head: head(row)?,
        base: id(row, "base_id", of)?,
        content_bytes: count(row, "content_bytes")?,
        stored_bytes: count(row, "stored_bytes")?,
        expires_at: column::<Option<i64>>(row, "expires_at")?.map(UnixMillis),
    })
}

fn sealed(row: &Row) -> Result<SealedCheckpoint, Fault> {
    let of: &str = column(row, "checkpoint_id")?;
    let digest = |name| -> Result<Digest, Fault> {
        let bytes: &[u8] = column(row, name)?;
        Ok(Digest::from(<[u8; 32]>::try_from(bytes).unwrap_or([0; 32])))
    };
    Ok(SealedCheckpoint {
        head: head(row)?,
        base: id(row, "base_id", of)?,
        chain: u8::try_from(column::<i64>(row, "chain")?).map_err(|_| unreadable("chain", of))?,
        schema_version: column(row, "schema_version")?,
        is_gzip: column(row, "is_gzip")?,
        content_bytes: count(row, "content_bytes")?,
        checksum: digest("checksum")?,
        seal: digest("seal")?,
        payload: column::<&[u8]>(row, "payload")?.into(),
    })
}

fn head(row: &Row) -> Result<CheckpointHead, Fault> {
    let of: &str = column(row, "checkpoint_id")?;
    let kind: &str = column(row, "checkpoint_type")?;
    Ok(CheckpointHead {
        id: word(row, "checkpoint_id", of)?,
        tenant: word(row, "tenant_id", of)?,
        invocation: word(row, "invocation_id", of)?,
        owner: word(row, "owner", of)?,
        tool: word(row, "tool_id", of)?,
        version: Version::parse(column(row, "tool_version")?).map_err(|_| unreadable("tool_version", of))?,
        kind: CheckpointKind::ALL
            .into_iter()
            .find(|known| known.as_str() == kind)
            .ok_or_else(|| unreadable("checkpoint_type", of))?,
        label: column(row, "label")?,
        parent: id(row, "parent_id", of)?,
        saved_at: UnixMillis(column(row, "saved_at")?),
    })
}

fn id(row: &Row, name: &'static str, of: &str) -> Result<Option<CheckpointId>, Fault> {
    let text: Option<&str> = column(row, name)?;
    Ok(text.map(str::parse).transpose().map_err(|_| unreadable(name, of))?)
}

fn count(row: &Row, name: &'static str) -> Result<u64, Fault> {
    Ok(u64::try_from(column::<i64>(row, name)?).unwrap_or(u64::MAX))
}

pub(super) async fn is_claimed(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
) -> Result<bool, Fault> {
    let tenant = tenant.as_str();
    let sql =
        format!("SELECT 1 FROM checkpoint_attempts WHERE tenant_id = $2 AND invocation_id = $3 AND held_until > {NOW}");
    let (now, invocation) = (store.now(), invocation.to_string());
    let values = [int(&now), text(&tenant), text(&invocation)];
    Ok(!store.pool.query(Scope::Tenant(tenant), &sql, &values).await?.is_empty())
}
