//! Keeping the snapshot what other instances have made of the registry.
//!
//! One instance alone needs none of this: its snapshot is swapped after each change of its own. Where several share a
//! store, each hears of the others' changes and reads the registry again. Versions never change once published, so what was
//! compiled for those that are known is kept.

use std::sync::Arc;
use std::time::Duration;

use ports::change_bus::{BusChange, ChangeBus};
use ports::registry_store::StoreError;
use ports::tool_version::ToolVersion;
use tokio::sync::broadcast::error::RecvError;

use super::{Registry, RegistrySnapshot};

/// How often the registry is read again without a word from anybody.
const REFRESH: Duration = Duration::from_secs(60);
/// The shortest time from one reading to the next: of a hundred publications in a row, a few are read.
const PAUSE: Duration = Duration::from_millis(200);

impl Registry {
    /// Reads the registry again whenever another instance has changed it, and now and then without being told. Never ends.
    pub async fn follow(&self, bus: &dyn ChangeBus) {
        let mut changes = bus.subscribe();
        loop {
            let told = tokio::select! {
                told = changes.recv() => told,
                () = self.clock.sleep(REFRESH) => Err(RecvError::Lagged(0)),
            };
            match told {
                Ok(
                    BusChange::Access { .. }
                    | BusChange::Servers
                    | BusChange::Decisions
                    | BusChange::DecisionsOf { .. },
                ) => {
                    continue;
                }
                Ok(BusChange::Registry { .. } | BusChange::Lost) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return std::future::pending().await,
            }
            if let Err(error) = self.reload().await {
                tracing::error!(%error, "the registry could not be read anew; what was known stays in force");
            }
            self.clock.sleep(PAUSE).await;
        }
    }

    /// Reads everything that was published and swaps the snapshot. Nobody here publishes meanwhile, so nothing of our own
    /// is lost.
    async fn reload(&self) -> Result<(), StoreError> {
        let _turn = self.turns.of_everything().await;
        let stored = self.store.load().await?;
        let before = self.snapshot().clone();
        let snapshot = stored.into_iter().fold(RegistrySnapshot::default(), |snapshot, stored| {
            let known = before
                .tool(&stored.tenant, &stored.tool)
                .filter(|tool| tool.tenant == stored.tenant)
                .and_then(|tool| tool.version(&stored.version))
                .filter(|known| known.digest == stored.digest);
            let version = match known {
                Some(known) if known.lifecycle == stored.lifecycle => Arc::clone(known),
                Some(known) => Arc::new(known.with_lifecycle(stored.lifecycle)),
                None => Arc::new(ToolVersion::new(stored)),
            };
            snapshot.with(version)
        });
        self.observer.registry_swapped(snapshot.tool_count(), snapshot.version_count());
        self.snapshot.store(Arc::new(snapshot));
        self.reload_quarantines().await
    }
}
