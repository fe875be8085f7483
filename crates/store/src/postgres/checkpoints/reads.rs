//! The statements that read checkpoints.

use contract::ids::{InvocationId, TenantId};
use ports::checkpoint_store::{CHAIN_MAX, CheckpointId, LIST_MAX, ListPage, ListedCheckpoint, SealedCheckpoint};

use crate::postgres::PostgresStore;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{NOW, int, text};
use crate::postgres::transaction::Scope;
use crate::records::checkpoints::{listed, sealed};

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
