//! `WorkflowRuns` on SQLite: that a workflow outside was asked for, and how it ended. (FLOW-005, FLOW-006)

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::workflow_runs::{NewRun, RunBeginOutcome, RunEnd, RunEnded, RunRecord, RunState, WorkflowRuns};
use rusqlite::{Connection, OptionalExtension as _, named_params};

use super::SqliteStore;
use super::columns::{ago, first, limit};
use super::faults::Fault;
use crate::records::workflow_runs::run;
use crate::stored_row::unreadable;

#[async_trait]
impl WorkflowRuns for SqliteStore {
    async fn begin_run(&self, run: &NewRun) -> Result<RunBeginOutcome, StoreError> {
        let (run, now) = (run.clone(), self.now());
        self.writer()?.run(move |connection| begin(connection, &run, now)).await
    }

    async fn end_run(&self, tenant: &TenantId, id: InvocationId, end: &RunEnd) -> Result<RunEnded, StoreError> {
        let (tenant, end, now) = (tenant.clone(), end.clone(), self.now());
        self.writer()?.run(move |connection| end_one(connection, (&tenant, id), &end, now)).await
    }

    async fn release_run(&self, tenant: &TenantId, id: InvocationId) -> Result<(), StoreError> {
        let tenant = tenant.clone();
        let release = move |connection: &Connection| {
            connection
                .prepare_cached(
                    "DELETE FROM workflow_runs WHERE tenant_id = :tenant_id AND id = :id AND state <> 'success'",
                )?
                .execute(named_params! { ":tenant_id": tenant.as_str(), ":id": id.to_string() })?;
            Ok(())
        };
        self.writer()?.run(release).await
    }

    async fn run(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<RunRecord>, StoreError> {
        let tenant = tenant.clone();
        self.readers.run(move |connection| one(connection, &tenant, id)).await
    }

    async fn prune_runs(&self, retention: Duration, most: usize) -> Result<u64, StoreError> {
        let old = ago(self.now(), retention);
        let prune = move |connection: &Connection| {
            let forgotten = connection
                .prepare_cached(
                    "DELETE FROM workflow_runs WHERE (tenant_id, id) IN
                         (SELECT tenant_id, id FROM workflow_runs WHERE completed_at < :old LIMIT :most)",
                )?
                .execute(named_params! { ":old": old, ":most": limit(most) })?;
            Ok(u64::saturating_from(forgotten))
        };
        self.writer()?.run(prune).await
    }
}

fn begin(connection: &Connection, run: &NewRun, now: UnixMillis) -> Result<RunBeginOutcome, Fault> {
    let key = named_params! {
        ":tenant_id": run.tenant.as_str(),
        ":workflow": run.workflow,
        ":idempotency_key": run.idempotency_key,
    };
    let known: Option<String> = connection
        .prepare_cached(
            "SELECT id FROM workflow_runs
             WHERE tenant_id = :tenant_id AND workflow = :workflow AND idempotency_key = :idempotency_key",
        )?
        .query_row(key, |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(RunBeginOutcome::Known(id.parse().map_err(|_| unreadable("id", &id))?));
    }
    connection
        .prepare_cached(
            "INSERT INTO workflow_runs (tenant_id, id, workflow, idempotency_key, input, state, created_at)
             VALUES (:tenant_id, :id, :workflow, :idempotency_key, :input, 'pending', :now)",
        )?
        .execute(named_params! {
            ":tenant_id": run.tenant.as_str(),
            ":id": run.id.to_string(),
            ":workflow": run.workflow,
            ":idempotency_key": run.idempotency_key,
            ":input": run.input.to_string(),
            ":now": now.0,
        })?;
    Ok(RunBeginOutcome::New)
}

fn end_one(
    connection: &Connection,
    (tenant, id): (&TenantId, InvocationId),
    end: &RunEnd,
    now: UnixMillis,
) -> Result<RunEnded, Fault> {
    let Some(record) = one(connection, tenant, id)? else { return Ok(RunEnded::Unknown) };
    if record.state != RunState::Pending {
        return Ok(RunEnded::Before);
    }
    let (state, output, error) = match end {
        RunEnd::Success(output) => (RunState::Success, Some(output.to_string()), None),
        RunEnd::Failure(error) => (RunState::Failure, None, Some(error.to_string())),
    };
    connection
        .prepare_cached(
            "UPDATE workflow_runs SET state = :state, output = :output, error = :error, completed_at = :now
             WHERE tenant_id = :tenant_id AND id = :id",
        )?
        .execute(named_params! {
            ":tenant_id": tenant.as_str(),
            ":id": id.to_string(),
            ":state": state.as_str(),
            ":output": output,
            ":error": error,
            ":now": now.0,
        })?;
    Ok(RunEnded::Now { took: now.since(record.created_at) })
}

fn one(connection: &Connection, tenant: &TenantId, id: InvocationId) -> Result<Option<RunRecord>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT tenant_id, id, workflow, input, state, output, error, created_at, completed_at
         FROM workflow_runs WHERE tenant_id = :tenant_id AND id = :id",
    )?;
    first(statement.query(named_params! { ":tenant_id": tenant.as_str(), ":id": id.to_string() })?, run)
}
