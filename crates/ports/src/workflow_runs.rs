//! What is kept of workflows that run outside: that they were asked for, and how they ended. (FLOW-005, FLOW-006, ASYNC-013)
//!
//! Invariants every adapter keeps
//! - RUN-1: of any number of concurrent `begin`s with one key, one makes a run and the others are told which.
//! - RUN-2: a run ends once. Whoever ends it again changes nothing.
//! - RUN-3: a run that is released was never one: its key is free. One that came to a success is never released.
//!
//! Not here: calling the workflow (`inbound_jobs`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, TenantId};
use serde_json::Value;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunState {
    Pending,
    Success,
    Failure,
}

impl RunState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Success, Self::Failure];

    /// The word on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Success => "success",
            Self::Failure => "failure",
        }
    }
}

/// A run on its way in.
#[derive(Debug, Clone, PartialEq)]
pub struct NewRun {
    pub tenant: TenantId,
    pub id: InvocationId,
    pub workflow: String,
    /// Unique per tenant and workflow.
    pub idempotency_key: String,
    pub input: Value,
}

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    pub tenant: TenantId,
    pub id: InvocationId,
    pub workflow: String,
    /// What it was asked with; none if that cannot be read any more.
    pub input: Option<Value>,
    pub state: RunState,
    pub output: Option<Value>,
    pub error: Option<Value>,
    pub created_at: UnixMillis,
    pub completed_at: Option<UnixMillis>,
}

/// What became of a `begin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunBeginOutcome {
    New,
    /// There is one under this key.
    Known(InvocationId),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEnd {
    Success(Value),
    Failure(Value),
}

/// What became of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnded {
    /// It ended with this; it took so long.
    Now {
        took: Duration,
    },
    /// It had ended before; nothing was changed.
    Before,
    Unknown,
}

/// Keeps runs. Every method is one atomic act, durable before it is answered; time is the store's.
#[async_trait]
pub trait WorkflowRuns: Send + Sync + fmt::Debug {
    /// Keeps a run as pending (RUN-1).
    async fn begin_run(&self, run: &NewRun) -> Result<RunBeginOutcome, StoreError>;

    /// Ends a run (RUN-2).
    async fn end_run(&self, tenant: &TenantId, id: InvocationId, end: &RunEnd) -> Result<RunEnded, StoreError>;

    /// Forgets a run that came to nothing, or never began, and so frees its key (RUN-3).
    async fn release_run(&self, tenant: &TenantId, id: InvocationId) -> Result<(), StoreError>;

    /// One run.
    async fn run(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<RunRecord>, StoreError>;

    /// Forgets up to `most` runs that ended longer than `retention` ago.
    async fn prune_runs(&self, retention: Duration, most: usize) -> Result<u64, StoreError>;
}
