//! The change bus in memory against the suite every bus must pass.

use std::sync::Arc;

use async_trait::async_trait;
use gantry_shared_state::MemoryBus;
use gantry_shared_state::bus_suite::BusUnderTest;
use ports::change_bus::ChangeBus;

/// In memory there is one replica: whoever comes is that one.
struct OneReplica(Arc<MemoryBus>);

#[async_trait]
impl BusUnderTest for OneReplica {
    async fn join(&self) -> Arc<dyn ChangeBus> {
        Arc::clone(&self.0) as _
    }
}

async fn hall() -> OneReplica {
    OneReplica(Arc::default())
}

mod bus {
    gantry_shared_state::bus_suite!(super::hall);
}
