//! The state that replicas share, as the configuration says: in memory, or in Redis with this server's own behind it.

use std::sync::Arc;
use std::time::Duration;

use ports::change_bus::ChangeBus;
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::observer::Observer;
use ports::shared_state::SharedState;
use shared_state::{FallingBack, LinkState, MemoryState, RedisState, RedisTrouble};
use telemetry::Metrics;

use crate::config::shared_state::SharedStateSection;
use crate::failure::CommandFailure;

/// How often it is asked how it is.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long it may take to say so.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// Both halves of it.
pub(super) struct Shared {
    /// None in memory: whoever shares a store but no state is told by the store.
    pub(super) bus: Option<Arc<dyn ChangeBus>>,
    pub(super) state: Arc<dyn SharedState>,
}

/// Opens it. A Redis that is away is no reason not to start: everything that must not be done without it is refused.
pub(super) async fn open(
    section: &SharedStateSection,
    clock: &Arc<dyn Clock>,
    entropy: &dyn Entropy,
    observer: &Arc<dyn Observer>,
) -> Result<Shared, CommandFailure> {
    let (clock, observer) = (Arc::clone(clock), Arc::clone(observer));
    match section {
        SharedStateSection::Memory => Ok(Shared { bus: None, state: Arc::new(MemoryState::observed(clock, observer)) }),
        SharedStateSection::Redis(redis) => {
            let opened = RedisState::open(&redis.settings(replica_name(entropy)))
                .map_err(|error| CommandFailure::new(error.to_string()).hint("mend `[shared_state]`"))?;
            // What can never be used must not look like a server that will be back in a moment.
            if opened.settled().await == (LinkState::Away { trouble: RedisTrouble::Cluster }) {
                return Err(CommandFailure::new("the Redis of `[shared_state]` is a cluster, which is not supported")
                    .hint("name a single Redis 7 server, or one behind Sentinel (docs/shared-state.md)"));
            }
            Ok(Shared {
                bus: Some(opened.bus()),
                state: Arc::new(FallingBack::new(Arc::new(opened), redis.fallback, clock, observer)),
            })
        }
    }
}

/// Keeps `gantry_shared_state_up` true; ends at once where nothing is shared.
pub(super) async fn watch(state: Arc<dyn SharedState>, metrics: Arc<Metrics>, clock: Arc<dyn Clock>) {
    loop {
        let health = tokio::time::timeout(LOOK_MAX, state.health()).await;
        if health.as_ref().is_ok_and(|health| health.kind == "memory") {
            return;
        }
        metrics.shared_state_is_up(health.is_ok_and(|health| health.trouble.is_none()));
        clock.sleep(LOOK_EVERY).await;
    }
}

/// Another one at every start, so that what a replica said before it died is not taken for its own.
fn replica_name(entropy: &dyn Entropy) -> String {
    let mut random = [0_u8; 8];
    entropy.fill(&mut random);
    format!("r-{:016x}", u64::from_be_bytes(random))
}
