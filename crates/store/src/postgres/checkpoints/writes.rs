//! The statements that change checkpoints. Each is atomic by itself.

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use policy::CallOwner;
use ports::checkpoint_store::{CheckpointId, PromoteOutcome, SaveOutcome, SealedCheckpoint};

use crate::postgres::PostgresStore;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{NOW, Value, boolean, bytes, column, int, text};
use crate::postgres::transaction::Scope;
use crate::time::milliseconds;

/// `None`: another instance took the rank; look again.
pub(super) async fn save(
    store: &PostgresStore,
    checkpoint: &SealedCheckpoint,
    fence: Option<u64>,
    keep: Option<Duration>,
) -> Result<Option<SaveOutcome>, Fault> {
    let sql = format!(
        "WITH there AS (SELECT seal FROM checkpoints WHERE checkpoint_id = $2),
         newest AS (
             SELECT owner, tool_id, rank,
                 (SELECT max(fence) FROM checkpoints WHERE tenant_id = $3 AND invocation_id = $4) AS highest
             FROM checkpoints WHERE tenant_id = $3 AND invocation_id = $4 ORDER BY rank DESC LIMIT 1),
         attempt AS (
             SELECT fence FROM checkpoint_attempts WHERE tenant_id = $3 AND invocation_id = $4 FOR SHARE),
         verdict AS (
             SELECT CASE
                 WHEN EXISTS (SELECT 1 FROM there WHERE seal = $5) THEN 'kept'
                 WHEN EXISTS (SELECT 1 FROM there) THEN 'foreign'
                 WHEN EXISTS (SELECT 1 FROM newest WHERE owner <> $6 OR tool_id <> $7) THEN 'foreign'
                 WHEN $8 < (SELECT highest FROM newest) OR $8 < (SELECT fence FROM attempt) THEN 'fenced'
                 WHEN $9 IS NOT NULL AND NOT EXISTS (SELECT 1 FROM checkpoints
                     WHERE checkpoint_id = $9 AND tenant_id = $3 AND invocation_id = $4) THEN 'base_gone'
                 ELSE 'new' END AS word),
         added AS (
             INSERT INTO checkpoints
                 (checkpoint_id, tenant_id, invocation_id, owner, tool_id, tool_version, checkpoint_type, label, parent_id,
                  saved_at, base_id, chain, schema_version, is_gzip, content_bytes, stored_bytes, checksum, seal, fence,
                  rank, expires_at, payload)
             SELECT $2, $3, $4, $6, $7, $10, $11, $12, $13, $14, $9, $15, $16, $17, $18, $19, $20, $5,
                    coalesce($8, (SELECT highest FROM newest), 0), coalesce((SELECT rank FROM newest), 0) + 1,
                    {NOW} + $21, $22
             FROM verdict WHERE word = 'new' ON CONFLICT DO NOTHING RETURNING 1)
         SELECT word, EXISTS (SELECT 1 FROM added) AS is_added FROM verdict"
    );
    let head = &checkpoint.head;
    let (now, id, invocation) = (store.now(), head.id.to_string(), head.invocation.to_string());
    let (tenant, owner, tool) = (head.tenant.as_str(), head.owner.as_str(), head.tool.as_str());
    let fence = as_int(fence);
    let (base, parent) = (checkpoint.base.map(|id| id.to_string()), head.parent.map(|id| id.to_string()));
    let (version, kind) = (head.version.to_string(), head.kind.as_str());
    let chain = i64::from(checkpoint.chain);
    let content = i64::saturating_from(checkpoint.content_bytes);
    let stored = i64::saturating_from(checkpoint.payload.len());
    let (checksum, seal) = (checkpoint.checksum.as_bytes().as_slice(), checkpoint.seal.as_bytes().as_slice());
    let (keep, payload) = (keep.map(milliseconds), &*checkpoint.payload);
    let values: [Value<'_>; 22] = [
        int(&now),
        text(&id),
        text(&tenant),
        text(&invocation),
        bytes(&seal),
        text(&owner),
        text(&tool),
        int(&fence),
        text(&base),
        text(&version),
        text(&kind),
        text(&head.label),
        text(&parent),
        int(&head.saved_at.0),
        int(&chain),
        text(&checkpoint.schema_version),
        boolean(&checkpoint.is_gzip),
        int(&content),
        int(&stored),
        bytes(&checksum),
        int(&keep),
        bytes(&payload),
    ];
    let rows = match store.pool.query(Scope::Tenant(tenant), &sql, &values).await {
        // The base was there when we looked and is not any more.
        Err(fault) if super::is_overtaken(&fault) => return Ok(None),
        other => other?,
    };
    let Some(row) = rows.first() else { return Ok(None) };
    let saved = match column::<&str>(row, "word")? {
        "kept" => SaveOutcome::Kept,
        "foreign" => SaveOutcome::Foreign,
        "fenced" => SaveOutcome::Fenced,
        "base_gone" => SaveOutcome::BaseGone,
        _ if column(row, "is_added")? => SaveOutcome::Kept,
        _ if is_of_other(store, &id, tenant).await? => SaveOutcome::Foreign,
        _ => return Ok(None),
    };
    Ok(Some(saved))
}

/// The newest attempt at an invocation, locked: who takes it over meanwhile waits, and whom this waited for is seen (CKPT-C).
const ATTEMPT: &str = "attempt AS MATERIALIZED (
             SELECT fence FROM checkpoint_attempts WHERE tenant_id = $2 AND invocation_id = $3 FOR SHARE)";
/// How long a row outlives its attempt if there is nothing left to protect.
const ATTEMPT_KEPT_MS: i64 = 7 * 86_400_000;

pub(super) async fn claim(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
    fence: Option<u64>,
    span: Duration,
) -> Result<Option<u64>, Fault> {
    let tenant = tenant.as_str();
    let sql = format!(
        "INSERT INTO checkpoint_attempts AS kept (tenant_id, invocation_id, fence, held_until)
         VALUES ($2, $3, coalesce($4,
             (SELECT max(fence) + 1 FROM checkpoints WHERE tenant_id = $2 AND invocation_id = $3), 0), {NOW} + $5)
         ON CONFLICT (tenant_id, invocation_id) DO UPDATE
         SET fence = coalesce($4, greatest(kept.fence + 1, EXCLUDED.fence)), held_until = EXCLUDED.held_until
         WHERE CASE WHEN $4 IS NULL THEN kept.held_until <= {NOW} ELSE kept.fence <= $4 END
         RETURNING fence"
    );
    let (now, invocation, span) = (store.now(), invocation.to_string(), milliseconds(span));
    let fence = as_int(fence);
    let values = [int(&now), text(&tenant), text(&invocation), int(&fence), int(&span)];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(u64::saturating_from(column::<i64>(row, "fence")?)))
}

fn as_int(fence: Option<u64>) -> Option<i64> {
    fence.map(i64::saturating_from)
}

/// Does a checkpoint of another tenant have this id? One of the same tenant will be seen when looking again.
async fn is_of_other(store: &PostgresStore, id: &str, tenant: &str) -> Result<bool, Fault> {
    let sql = "SELECT 1 FROM checkpoints WHERE checkpoint_id = $1 AND tenant_id <> $2";
    Ok(!store.pool.query(Scope::System, sql, &[text(&id), text(&tenant)]).await?.is_empty())
}

pub(super) async fn promote(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
    id: CheckpointId,
    keep: Duration,
    if_idle: bool,
) -> Result<PromoteOutcome, Fault> {
    let tenant = tenant.as_str();
    // Whoever saves holds the row of the attempt meanwhile, so the fence rises before or after it. What was the newest is what
    // somebody may want back.
    let sql = format!(
        "WITH present AS MATERIALIZED (SELECT {NOW} AS now),
         alive AS (
             SELECT checkpoint_id, rank FROM checkpoints, present
             WHERE tenant_id = $2 AND invocation_id = $3 AND (expires_at IS NULL OR expires_at > present.now)),
         raised AS (
             INSERT INTO checkpoint_attempts AS kept (tenant_id, invocation_id, fence, held_until)
             SELECT $2, $3, (SELECT max(fence) + 1 FROM checkpoints WHERE tenant_id = $2 AND invocation_id = $3), present.now
             FROM present WHERE EXISTS (SELECT 1 FROM alive WHERE checkpoint_id = $4)
             ON CONFLICT (tenant_id, invocation_id) DO UPDATE
             SET fence = greatest(kept.fence + 1, EXCLUDED.fence), held_until = least(kept.held_until, EXCLUDED.held_until)
             WHERE NOT $6 OR kept.held_until <= EXCLUDED.held_until
             RETURNING 1),
         promoted AS (
         UPDATE checkpoints
         SET expires_at = CASE WHEN expires_at IS NULL THEN NULL ELSE greatest(expires_at, present.now + $5) END,
             rank = CASE WHEN checkpoint_id <> $4 THEN rank ELSE
                 (SELECT max(rank) + 1 FROM checkpoints WHERE tenant_id = $2 AND invocation_id = $3) END
         FROM present
         WHERE tenant_id = $2 AND EXISTS (SELECT 1 FROM raised)
             AND (checkpoint_id = $4 OR checkpoint_id = (SELECT checkpoint_id FROM alive ORDER BY rank DESC LIMIT 1)))
         SELECT EXISTS (SELECT 1 FROM alive WHERE checkpoint_id = $4) AS is_there,
                EXISTS (SELECT 1 FROM raised) AS is_raised"
    );
    let (now, invocation, id, keep) = (store.now(), invocation.to_string(), id.to_string(), milliseconds(keep));
    let values = [int(&now), text(&tenant), text(&invocation), text(&id), int(&keep), boolean(&if_idle)];
    let rows = store.pool.query(Scope::Tenant(tenant), &sql, &values).await?;
    let Some(row) = rows.first() else { return Ok(PromoteOutcome::NotThere) };
    Ok(match (column(row, "is_there")?, column(row, "is_raised")?) {
        (false, _) => PromoteOutcome::NotThere,
        (true, false) => PromoteOutcome::Running,
        (true, true) => PromoteOutcome::Newest,
    })
}

pub(super) async fn complete(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
    owner: &CallOwner,
    fence: Option<u64>,
) -> Result<(), Fault> {
    let which = "expires_at IS NOT NULL AND owner = $4 AND checkpoint_type = 'micro'";
    end(store, tenant, invocation, which, owner.as_str(), fence).await.map(drop)
}

pub(super) async fn delete(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
    id: CheckpointId,
) -> Result<bool, Fault> {
    end(store, tenant, invocation, "checkpoint_id = $4", &id.to_string(), None).await
}

/// Ends the time of those of an invocation that `which` says about `$4`, and frees what is over and not stood on, its
/// bases included; nothing if the fence is old (CKPT-C). Was any of them there?
async fn end(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
    which: &str,
    value: &str,
    fence: Option<u64>,
) -> Result<bool, Fault> {
    let tenant = tenant.as_str();
    let sql = format!(
        "WITH RECURSIVE present AS MATERIALIZED (SELECT {NOW} AS now),
         {ATTEMPT},
         over AS MATERIALIZED (
             SELECT checkpoint_id, expires_at IS NULL OR expires_at > present.now AS was_there
             FROM checkpoints, present
             WHERE tenant_id = $2 AND invocation_id = $3 AND (expires_at <= present.now OR ({which}))
                 AND NOT EXISTS (SELECT 1 FROM attempt WHERE fence > $5)),
         held AS (
             SELECT base_id FROM checkpoints
             WHERE tenant_id = $2 AND invocation_id = $3 AND base_id IS NOT NULL
                 AND checkpoint_id NOT IN (SELECT checkpoint_id FROM over)
             UNION
             SELECT c.base_id FROM checkpoints c JOIN held ON c.checkpoint_id = held.base_id
             WHERE c.base_id IS NOT NULL),
         freed AS (
             DELETE FROM checkpoints
             WHERE checkpoint_id IN (SELECT checkpoint_id FROM over)
                 AND checkpoint_id NOT IN (SELECT base_id FROM held)),
         ended AS (
             UPDATE checkpoints SET expires_at = least(expires_at, present.now) FROM present
             WHERE checkpoint_id IN (SELECT checkpoint_id FROM over) AND checkpoint_id IN (SELECT base_id FROM held))
         SELECT 1 FROM over WHERE was_there"
    );
    let (now, invocation) = (store.now(), invocation.to_string());
    let fence = as_int(fence);
    let values = [int(&now), text(&tenant), text(&invocation), text(&value), int(&fence)];
    Ok(!store.pool.query(Scope::Tenant(tenant), &sql, &values).await?.is_empty())
}

pub(super) async fn keep_for(
    store: &PostgresStore,
    tenant: &TenantId,
    invocation: InvocationId,
    owner: &CallOwner,
    fence: Option<u64>,
    keep: Duration,
) -> Result<(), Fault> {
    let tenant = tenant.as_str();
    let sql = format!(
        "WITH present AS MATERIALIZED (SELECT {NOW} AS now),
         {ATTEMPT}
         UPDATE checkpoints SET expires_at = present.now + $6 FROM present
         WHERE tenant_id = $2 AND invocation_id = $3 AND owner = $4
             AND NOT EXISTS (SELECT 1 FROM attempt WHERE fence > $5) AND (checkpoint_type = 'macro' OR checkpoint_id =
             (SELECT checkpoint_id FROM checkpoints, present
              WHERE tenant_id = $2 AND invocation_id = $3 AND owner = $4 AND checkpoint_type = 'micro'
                  AND expires_at > present.now
              ORDER BY rank DESC LIMIT 1))"
    );
    let (now, invocation, keep) = (store.now(), invocation.to_string(), milliseconds(keep));
    let (owner, fence) = (owner.as_str(), as_int(fence));
    let values = [int(&now), text(&tenant), text(&invocation), text(&owner), int(&fence), int(&keep)];
    store.pool.execute(Scope::Tenant(tenant), &sql, &values).await?;
    Ok(())
}

pub(super) async fn prune(store: &PostgresStore, batch: usize) -> Result<usize, Fault> {
    // Rows that another instance is at are left to it.
    let sql = format!(
        "DELETE FROM checkpoints WHERE checkpoint_id IN
             (SELECT checkpoint_id FROM checkpoints AS over
              WHERE expires_at <= {NOW} AND NOT EXISTS
                  (SELECT 1 FROM checkpoints AS above WHERE above.base_id = over.checkpoint_id)
              ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED)"
    );
    let (now, batch) = (store.now(), i64::saturating_from(batch));
    let freed = store.pool.execute(Scope::System, &sql, &[int(&now), int(&batch)]).await?;
    let forgotten = format!(
        "DELETE FROM checkpoint_attempts WHERE (tenant_id, invocation_id) IN
             (SELECT tenant_id, invocation_id FROM checkpoint_attempts AS over
              WHERE held_until < {NOW} - {ATTEMPT_KEPT_MS} AND NOT EXISTS
                  (SELECT 1 FROM checkpoints AS kept
                   WHERE kept.tenant_id = over.tenant_id AND kept.invocation_id = over.invocation_id)
              ORDER BY held_until LIMIT $2 FOR UPDATE SKIP LOCKED)"
    );
    store.pool.execute(Scope::System, &forgotten, &[int(&now), int(&batch)]).await?;
    Ok(usize::saturating_from(freed))
}
