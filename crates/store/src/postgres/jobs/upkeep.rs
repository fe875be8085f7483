//! What keeps a queue in order beside its work: keys that are given up, waits that are cut short, bodies that are written anew,
//! and ends that are forgotten.

use std::time::Duration;

use ports::job_store::JobKey;
use ports::registry_store::StoreError;
use serde_json::Value;

use crate::postgres::PostgresStore;
use crate::postgres::columns::{limit, millis, with_clock};
use crate::postgres::statement::{int, text};
use crate::postgres::transaction::Scope;

pub(super) async fn release_key(store: &PostgresStore, key: &JobKey) -> Result<(), StoreError> {
    let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
    let statement = "UPDATE jobs SET dedupe_key = NULL, dedupe_until = NULL
                     WHERE tenant_id = $1 AND id = $2 AND ended_at IS NOT NULL";
    store.pool.execute(Scope::Tenant(tenant), statement, &[text(&tenant), text(&id)]).await?;
    Ok(())
}

pub(super) async fn hasten(store: &PostgresStore, key: &JobKey) -> Result<(), StoreError> {
    let (tenant, id) = (key.tenant.as_str(), key.id.to_string());
    let statement = format!(
        "{} UPDATE jobs SET rank = rank - due_at + clock.now, due_at = clock.now FROM clock
         WHERE tenant_id = $2 AND id = $3 AND state = 'delayed' AND due_at > clock.now",
        with_clock()
    );
    store.pool.execute(Scope::Tenant(tenant), &statement, &[int(&store.now()), text(&tenant), text(&id)]).await?;
    Ok(())
}

pub(super) async fn rewrite_payload(store: &PostgresStore, key: &JobKey, payload: &Value) -> Result<bool, StoreError> {
    let (tenant, id, payload) = (key.tenant.as_str(), key.id.to_string(), payload.to_string());
    let statement = "UPDATE job_bodies SET payload = $3 FROM jobs
                     WHERE jobs.tenant_id = $1 AND jobs.id = $2 AND job_bodies.seq = jobs.seq
                       AND job_bodies.payload <> 'null'";
    let rewritten =
        store.pool.execute(Scope::Tenant(tenant), statement, &[text(&tenant), text(&id), text(&payload)]).await?;
    Ok(rewritten > 0)
}

pub(super) async fn prune(
    store: &PostgresStore,
    retention: Duration,
    dead_retention: Duration,
    most: usize,
) -> Result<u64, StoreError> {
    // What another instance forgets at the moment is left to it.
    let statement = format!(
        "{}, over AS (
             SELECT seq FROM jobs, clock
             WHERE ended_at < clock.now - CASE state WHEN 'dead' THEN $3 ELSE $2 END
               AND ended_at < clock.now - least($2, $3) AND (dedupe_until IS NULL OR dedupe_until <= clock.now)
             ORDER BY ended_at LIMIT $4 FOR UPDATE OF jobs SKIP LOCKED
         ), events AS (DELETE FROM job_events USING over WHERE job_events.seq = over.seq),
         bodies AS (DELETE FROM job_bodies USING over WHERE job_bodies.seq = over.seq)
         DELETE FROM jobs USING over WHERE jobs.seq = over.seq",
        with_clock()
    );
    let forgotten = store
        .pool
        .execute(
            Scope::System,
            &statement,
            &[int(&store.now()), int(&millis(retention)), int(&millis(dead_retention)), int(&limit(most))],
        )
        .await?;
    // Tenants that have nothing to do with the queue any more need no turn.
    let idle = "WITH idle AS (
                    SELECT tenant_id FROM job_tenants WHERE waiting = 0 AND running = 0
                    ORDER BY tenant_id FOR UPDATE SKIP LOCKED
                )
                DELETE FROM job_tenants USING idle WHERE job_tenants.tenant_id = idle.tenant_id";
    store.pool.execute(Scope::System, idle, &[]).await?;
    Ok(forgotten)
}
