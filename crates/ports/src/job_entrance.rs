//! The way into the queue for jobs that are no calls of tools: webhooks, and what comes through the signed door.
//!
//! Narrower than the queue itself: whoever only puts jobs in cannot take, end or cancel any.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use contract::error::Refusal;
use contract::ids::{InvocationId, TenantId};
use serde_json::Value;

/// A job on its way in.
#[derive(Debug, Clone, PartialEq)]
pub struct EnteringJob {
    pub kind: &'static str,
    pub tenant: TenantId,
    /// What lists show.
    pub label: String,
    /// Whose turns it takes within its tenant.
    pub flow: String,
    pub payload: Value,
    pub delay: Duration,
    /// How often it may be started.
    pub attempts_max: u32,
    /// Unique per tenant and kind for `window`: of any number of jobs with one key, one is kept (IDEM-017).
    pub key: String,
    pub window: Duration,
    /// Does it follow from work that was let in? Then it finds as much room again as there is for new work: what was accepted
    /// is told, however full somebody keeps the queue.
    pub is_follow_up: bool,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntranceOutcome {
    New,
    /// One with its key is there, or was; `same` if what goes in is the same.
    Known {
        same: bool,
    },
}

/// Puts jobs in.
#[async_trait]
pub trait JobEntrance: Send + Sync + fmt::Debug {
    /// One atomic act, durable before it answers. A full queue is E3701, and nothing was kept.
    async fn enter(&self, job: EnteringJob) -> Result<EntranceOutcome, Refusal>;

    /// Somebody outside says how a job ended that was put in here: one that waits for this ends, and so does one of which
    /// nobody knew. Nothing happens to any other.
    async fn told_end(&self, tenant: &TenantId, id: InvocationId, end: Result<Value, Refusal>) -> Result<(), Refusal>;
}
