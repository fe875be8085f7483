//! `WorkflowRuns` on PostgreSQL: that a workflow outside was asked for, and how it ended. (FLOW-005, FLOW-006)
//!
//! Beginning is one `INSERT` that gives way to the run which has the key (RUN-1), ending one `UPDATE` of a pending run
//! (RUN-2).

use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, TenantId};
use ports::registry_store::StoreError;
use ports::workflow_runs::{NewRun, RunBeginOutcome, RunEnd, RunEnded, RunRecord, RunState, WorkflowRuns};

use super::PostgresStore;
use super::columns::{limit, millis, with_clock};
use super::faults::{Busy, Fault};
use super::statement::{bytes, column, int, text};
use super::transaction::Scope;
use crate::records::workflow_runs::run;
use crate::stored_row::StoredRow as _;

/// So often a run is begun because somebody else was quicker with its key and is not to be seen yet.
const BEGIN_TRIES: u32 = 4;

#[async_trait]
impl WorkflowRuns for PostgresStore {
    async fn begin_run(&self, run: &NewRun) -> Result<RunBeginOutcome, StoreError> {
        begin(self, run).await
    }

    async fn end_run(&self, tenant: &TenantId, id: InvocationId, end: &RunEnd) -> Result<RunEnded, StoreError> {
        end_one(self, tenant, id, end).await
    }

    async fn release_run(&self, tenant: &TenantId, id: InvocationId) -> Result<(), StoreError> {
        let statement = "DELETE FROM workflow_runs WHERE tenant_id = $1 AND id = $2 AND state <> 'success'";
        let (tenant, id) = (tenant.as_str(), id.to_string());
        self.pool.execute(Scope::Tenant(tenant), statement, &[text(&tenant), text(&id)]).await?;
        Ok(())
    }

    async fn run(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<RunRecord>, StoreError> {
        one(self, tenant, id).await
    }

    async fn prune_runs(&self, retention: Duration, most: usize) -> Result<u64, StoreError> {
        let statement = format!(
            "{}, over AS (
                 SELECT tenant_id, id FROM workflow_runs, clock WHERE completed_at < clock.now - $2
                 ORDER BY completed_at LIMIT $3 FOR UPDATE OF workflow_runs SKIP LOCKED
             )
             DELETE FROM workflow_runs USING over
             WHERE workflow_runs.tenant_id = over.tenant_id AND workflow_runs.id = over.id",
            with_clock()
        );
        Ok(self
            .pool
            .execute(Scope::System, &statement, &[int(&self.now()), int(&millis(retention)), int(&limit(most))])
            .await?)
    }
}

async fn begin(store: &PostgresStore, run: &NewRun) -> Result<RunBeginOutcome, StoreError> {
    let (tenant, id, input) = (run.tenant.as_str(), run.id.to_string(), run.input.to_string());
    let (workflow, key) = (run.workflow.as_bytes(), run.idempotency_key.as_bytes());
    let statement = format!(
        "{}, new AS (
             INSERT INTO workflow_runs (tenant_id, id, workflow, idempotency_key, input, state, created_at)
             SELECT $2, $3, $4, $5, $6, 'pending', clock.now FROM clock ON CONFLICT DO NOTHING RETURNING id
         )
         SELECT id, true AS is_new FROM new
         UNION ALL
         SELECT id, false FROM workflow_runs
         WHERE tenant_id = $2 AND sha256(workflow) = sha256($4) AND sha256(idempotency_key) = sha256($5)",
        with_clock()
    );
    for _ in 0..BEGIN_TRIES {
        let rows = store
            .pool
            .query(
                Scope::Tenant(tenant),
                &statement,
                &[int(&store.now()), text(&tenant), text(&id), bytes(&workflow), bytes(&key), text(&input)],
            )
            .await?;
        if let Some(row) = rows.first() {
            return Ok(if column(row, "is_new")? {
                RunBeginOutcome::New
            } else {
                RunBeginOutcome::Known(row.word("id", &id)?)
            });
        }
    }
    Err(Fault::from(Busy::Contended).into())
}

async fn end_one(
    store: &PostgresStore,
    tenant: &TenantId,
    id: InvocationId,
    end: &RunEnd,
) -> Result<RunEnded, StoreError> {
    let (tenant, id) = (tenant.as_str(), id.to_string());
    let (state, output, error) = match end {
        RunEnd::Success(output) => (RunState::Success, Some(output.to_string()), None),
        RunEnd::Failure(error) => (RunState::Failure, None, Some(error.to_string())),
    };
    let statement = format!(
        "{}, ended AS (
             UPDATE workflow_runs SET state = $4, output = $5, error = $6, completed_at = clock.now FROM clock
             WHERE tenant_id = $2 AND id = $3 AND state = 'pending' RETURNING created_at
         )
         SELECT clock.now, (SELECT created_at FROM ended) AS ended FROM workflow_runs, clock
         WHERE tenant_id = $2 AND id = $3",
        with_clock()
    );
    let rows = store
        .pool
        .query(
            Scope::Tenant(tenant),
            &statement,
            &[int(&store.now()), text(&tenant), text(&id), text(&state.as_str()), text(&output), text(&error)],
        )
        .await?;
    let Some(row) = rows.first() else { return Ok(RunEnded::Unknown) };
    let now = row.time("now")?;
    Ok(match row.opt_time("ended")? {
        Some(created) => RunEnded::Now { took: now.since(created) },
        None => RunEnded::Before,
    })
}

async fn one(store: &PostgresStore, tenant: &TenantId, id: InvocationId) -> Result<Option<RunRecord>, StoreError> {
    let statement = "SELECT tenant_id, id, workflow, input, state, output, error, created_at, completed_at
                     FROM workflow_runs WHERE tenant_id = $1 AND id = $2";
    let rows = store
        .pool
        .query(Scope::Tenant(tenant.as_str()), statement, &[text(&tenant.as_str()), text(&id.to_string())])
        .await?;
    Ok(rows.first().map(run).transpose()?)
}
