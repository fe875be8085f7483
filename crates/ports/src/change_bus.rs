//! Telling every instance that something has changed, so that snapshots are reloaded and decisions forgotten.
//!
//! A message is a hint, not the truth: the truth is in the store, and whoever hears of a change reads it there. Lost
//! messages cost freshness, never correctness of what is durable, because snapshots are also refreshed by time.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use contract::ids::Subject;
use tokio::sync::broadcast;

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BusChange {
    /// Tenants, agents, activations, policies or revocations; the epoch after it.
    Access { epoch: u64 },
    /// Tools or versions of them; the generation after it.
    Registry { generation: u64 },
    /// MCP servers behind Gantry, or what was accepted of their tools. (REG-023)
    Servers,
    /// An authority outside decides otherwise from now on: all remembered decisions are void. (AUTH-011)
    Decisions,
    /// The same of these subjects only; what is remembered about others stays. An adapter that cannot say it to other
    /// instances says [`BusChange::Decisions`]: too much is forgotten then, never too little.
    DecisionsOf { subjects: Arc<[Subject]> },
    /// Words may have been lost, or say what this build does not understand: whoever hears it reads everything anew.
    Lost,
}

/// Carries changes between instances, the own one included.
#[async_trait]
pub trait ChangeBus: Send + Sync + fmt::Debug {
    /// Tells everybody. Must not wait for listeners.
    async fn publish(&self, change: BusChange);

    /// Hears of every change published after this call. A listener that is too slow is told so by the channel
    /// (`Lagged`) and reloads.
    fn subscribe(&self) -> broadcast::Receiver<BusChange>;
}
