//! The change bus of a single instance: a bounded broadcast channel. A listener that falls behind is told, and reloads.

use async_trait::async_trait;
use ports::change_bus::{BusChange, ChangeBus};
use tokio::sync::broadcast;

/// Changes that may wait for a slow listener.
const WAITING_MAX: usize = 256;

/// A bus within this process.
#[derive(Debug)]
pub struct MemoryBus(broadcast::Sender<BusChange>);

impl Default for MemoryBus {
    fn default() -> Self {
        Self(broadcast::Sender::new(WAITING_MAX))
    }
}

#[async_trait]
impl ChangeBus for MemoryBus {
    async fn publish(&self, change: BusChange) {
        // An error means that nobody listens, and then nobody needs to know.
        let _nobody = self.0.send(change);
    }

    fn subscribe(&self) -> broadcast::Receiver<BusChange> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_listener_hears_of_changes_published_after_it_came() {
        let bus = MemoryBus::default();
        bus.publish(BusChange::Access { epoch: 1 }).await;
        let (mut first, mut second) = (bus.subscribe(), bus.subscribe());
        bus.publish(BusChange::Access { epoch: 2 }).await;
        assert_eq!(first.recv().await, Ok(BusChange::Access { epoch: 2 }));
        assert_eq!(second.recv().await, Ok(BusChange::Access { epoch: 2 }));
    }
}
