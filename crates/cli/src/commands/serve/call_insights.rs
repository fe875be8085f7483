//! What the server learns from its calls: opened before the kernel, written every few seconds, and a last time at the end.

use std::path::Path;
use std::sync::Arc;

use insights::{InsightParts, Insights};
use ports::clock::Clock;
use ports::event_announcer::EventAnnouncer;
use server::FreeSpace;

use super::assembly::KernelAssembly;
use crate::config::GantryConfig;
use crate::failure::CommandFailure;

/// Goes on from what was kept. Alerts and events are told by `announcer`.
pub(super) async fn open(
    assembly: &KernelAssembly,
    config: &GantryConfig,
    announcer: Arc<dyn EventAnnouncer>,
) -> Result<Arc<Insights>, CommandFailure> {
    let parts = InsightParts {
        usage: Arc::clone(&assembly.store.usage),
        health: Arc::clone(&assembly.store.health),
        version_use: Arc::clone(&assembly.store.version_use),
        clock: Arc::clone(&assembly.clock) as Arc<dyn Clock>,
        entropy: assembly.entropy(),
        thresholds: config.health.thresholds,
        prices: config.usage.prices,
        retention_days: config.usage.retention_days,
        announcer: Some(announcer),
    };
    let insights = Insights::open(parts).await;
    insights
        .map(Arc::new)
        .map_err(|error| CommandFailure::new(error.to_string()).hint("`gantry doctor` looks at the data directory"))
}

/// How much room there is where the data is.
pub(super) fn free_space(data_dir: &Path, config: &GantryConfig) -> FreeSpace {
    let data_dir = data_dir.to_owned();
    FreeSpace::new(config.health.disk_free_bytes, move || {
        let found = rustix::fs::statvfs(&data_dir).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    })
}
