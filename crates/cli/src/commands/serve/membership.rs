//! This server among the others: what it says of itself, and through what: Redis, else the database, else nobody but itself.

use contract::hex::lower_hex;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jobs::membership::{InstanceMember, InstanceRole, Membership};
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::presence::{Presence, PresenceError, PresentReplica};
use ports::shared_state::SharedState;
use tokio::task::JoinHandle;

use super::assembly::KernelAssembly;
use super::worker;
use crate::config::GantryConfig;
use crate::config::shared_state::SharedStateSection;
use crate::data_dir::RunningServer;

/// Joins the other instances, and goes on saying so.
pub(super) fn join(
    assembly: &KernelAssembly,
    config: &GantryConfig,
    shared: &Arc<dyn SharedState>,
    running: &RunningServer,
) -> (Arc<Membership>, JoinHandle<()>) {
    let through_state = || Arc::new(ThroughState(Arc::clone(shared))) as Arc<dyn Presence>;
    let presence = match config.shared_state {
        SharedStateSection::Redis(_) => through_state(),
        SharedStateSection::Memory => assembly.store.presence().unwrap_or_else(through_state),
    };
    let me = InstanceMember {
        id: name(&*assembly.entropy()),
        role: if worker::is_worker_only(config) { InstanceRole::Worker } else { InstanceRole::Serve },
        version: running.version.clone(),
        schema: assembly.store.shape(),
        address: running.url.clone(),
        started_ms: assembly.clock.now().0,
    };
    let membership = Arc::new(Membership::new(me, presence, Arc::clone(&assembly.clock) as Arc<dyn Clock>));
    let keeping = Arc::clone(&membership);
    (membership, tokio::spawn(async move { keeping.keep().await }))
}

/// Another one at every start, so that what an instance said before it died is not taken for its own.
fn name(entropy: &dyn Entropy) -> String {
    let mut random = [0_u8; 6];
    entropy.fill(&mut random);
    format!("i-{}", lower_hex(&random))
}

/// Presence in the state that replicas share; in memory, that is this one.
#[derive(Debug)]
struct ThroughState(Arc<dyn SharedState>);

#[async_trait]
impl Presence for ThroughState {
    async fn announce(&self, instance: &str, word: &str, ttl: Duration) -> Result<(), PresenceError> {
        self.0.announce(instance, word, ttl).await.map_err(|error| PresenceError(Box::new(error)))
    }

    async fn present(&self) -> Result<Vec<PresentReplica>, PresenceError> {
        self.0.present().await.map_err(|error| PresenceError(Box::new(error)))
    }
}
