//! Runs of workflows outside with seals on what they were asked with, what they answered and with what they failed.
//!
//! Invariants
//! - RUN-SEAL-1: with a seal, nothing of these is written but sealed, bound to its run. What is there in clear, from before, is
//!   read, and sealed by `former_texts`.
//! - RUN-SEAL-2: what cannot be opened is not there; the run is there all the same, and how it ended.
//!
//! Not here: where the keys come from (`store_keys`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, TenantId};
use ports::registry_store::StoreError;
use ports::workflow_runs::{NewRun, RunBeginOutcome, RunEnd, RunEnded, RunRecord, WorkflowRuns};
use serde_json::Value;

use crate::store_seal::StoreSeals;

/// A store of runs whose contents are sealed.
#[derive(Debug)]
pub(crate) struct SealedRuns {
    inner: Arc<dyn WorkflowRuns>,
    seals: StoreSeals,
}

impl SealedRuns {
    pub(crate) fn new(inner: Arc<dyn WorkflowRuns>, seals: StoreSeals) -> Self {
        Self { inner, seals }
    }

    fn sealed(&self, what: &str, value: &Value) -> Result<Value, StoreError> {
        Ok(self.seals.sealed_json(what, value)?.unwrap_or_else(|| value.clone()))
    }

    fn opened(&self, what: &str, value: Option<Value>) -> Option<Value> {
        let opened = self.seals.opened_json(what, value?);
        if opened.is_none() {
            tracing::error!(what, "what belongs to the run of a workflow is sealed with another key, or was changed");
        }
        opened
    }
}

/// What belongs to one member of one run is no other's. `row` is the id of the run, `member` the column.
pub(crate) fn what(tenant: &TenantId, row: &str, member: &str) -> String {
    format!("gantry workflow run {member} {row} {tenant}")
}

#[async_trait]
impl WorkflowRuns for SealedRuns {
    async fn begin_run(&self, run: &NewRun) -> Result<RunBeginOutcome, StoreError> {
        let input = self.sealed(&what(&run.tenant, &run.id.to_string(), "input"), &run.input)?;
        self.inner.begin_run(&NewRun { input, ..run.clone() }).await
    }

    async fn end_run(&self, tenant: &TenantId, id: InvocationId, end: &RunEnd) -> Result<RunEnded, StoreError> {
        let of = |member| what(tenant, &id.to_string(), member);
        let end = match end {
            RunEnd::Success(output) => RunEnd::Success(self.sealed(&of("output"), output)?),
            RunEnd::Failure(error) => RunEnd::Failure(self.sealed(&of("error"), error)?),
        };
        self.inner.end_run(tenant, id, &end).await
    }

    async fn release_run(&self, tenant: &TenantId, id: InvocationId) -> Result<(), StoreError> {
        self.inner.release_run(tenant, id).await
    }

    async fn run(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<RunRecord>, StoreError> {
        let of = |member| what(tenant, &id.to_string(), member);
        Ok(self.inner.run(tenant, id).await?.map(|run| RunRecord {
            input: self.opened(&of("input"), run.input),
            output: self.opened(&of("output"), run.output),
            error: self.opened(&of("error"), run.error),
            ..run
        }))
    }

    async fn prune_runs(&self, retention: Duration, most: usize) -> Result<u64, StoreError> {
        self.inner.prune_runs(retention, most).await
    }
}
