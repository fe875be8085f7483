//! The archive of all instances while the server runs: what brings this instance's audit log there, and what keeps its
//! months in order. Only with a store that instances share.
//!
//! Every instance maintains the archive: the database lets one at a time make and drop months, and those that come later find
//! nothing to do.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use audit::FileLog;
use audit::sinks::archive::{self, ArchiveSink};
use audit::sinks::{BatchLimits, ForwarderHandle, ForwarderPace, ForwarderParts, LogSource, SinkCursor, SinkForwarder};
use ports::clock::Clock;
use ports::record_archive::{RecordArchive, Retention};
use telemetry::Metrics;
use tokio::task::JoinHandle;

use super::assembly::KernelAssembly;
use super::audit_sinks::Counted;
use crate::failure::CommandFailure;

/// How much is brought at once: far more than other sinks get, because a statement costs the same for one record as for many.
const LIMITS: BatchLimits = BatchLimits { records: 4_000, bytes: 4 * 1024 * 1024 };
/// Nobody waits for the archive, and calls need the processors that it needs too: so it gathers for a while, and works a
/// quarter of the time as long as it is not far behind (`gantry_audit_sink_lag_seconds` says how far).
const PACE: ForwarderPace =
    ForwarderPace { gather: Duration::from_millis(500), rests: 3, lag_max: Duration::from_secs(30) };

/// How often months are made and dropped.
const HOUSEKEEPING: Duration = Duration::from_hours(1);

/// Sets a courier to work that brings the log to the archive, if there is one.
pub(super) async fn start(
    assembly: &KernelAssembly,
    dir: &Path,
    log: &FileLog,
) -> Result<Option<ForwarderHandle>, CommandFailure> {
    let Some(archive) = assembly.store.archive() else { return Ok(None) };
    let unusable = |error: String| CommandFailure::new(format!("the archive of audit records: {error}"));
    let mut cursor =
        SinkCursor::open(&dir.join("sinks"), archive::NAME).map_err(|error| unusable(error.to_string()))?;
    archive::align(&mut cursor, &*archive, log.id()).await.map_err(|error| unusable(error.to_string()))?;
    let courier = SinkForwarder::new(ForwarderParts {
        sink: Arc::new(ArchiveSink::new(archive, log.id().to_owned())),
        source: Arc::new(LogSource::following(dir, log.reader())),
        cursor: cursor.known_elsewhere(),
        limits: LIMITS,
        pace: PACE,
        grown: log.subscribe(),
        clock: Arc::clone(&assembly.clock) as Arc<dyn Clock>,
        entropy: assembly.entropy(),
        watcher: Arc::new(Counted(Arc::clone(&assembly.metrics))),
    });
    Ok(Some(courier.start()))
}

/// Keeps the months in order until it is aborted.
pub(super) fn keep(assembly: &KernelAssembly, retention: Retention) -> Option<JoinHandle<()>> {
    let archive = assembly.store.archive()?;
    let (clock, metrics) = (Arc::clone(&assembly.clock) as Arc<dyn Clock>, Arc::clone(&assembly.metrics));
    Some(tokio::spawn(async move {
        loop {
            maintain(&*archive, &retention, &*clock, &metrics).await;
            clock.sleep(HOUSEKEEPING).await;
        }
    }))
}

async fn maintain(archive: &dyn RecordArchive, retention: &Retention, clock: &dyn Clock, metrics: &Metrics) {
    let now = clock.now();
    match archive.provide(now).await {
        Ok(0) => {}
        Ok(made) => tracing::info!(made, "months of the archive of audit records made ready"),
        // What comes finds its month missing and makes it.
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "months of the archive of audit records could not be made ready");
        }
    }
    match archive.retain(retention, now).await {
        Ok(dropped) => {
            for of in dropped {
                metrics.archive().dropped(of.table.as_str());
                let (table, month) = (of.table.as_str(), of.month.to_string());
                tracing::info!(table, month, "a month of the archive was dropped: it is older than it is kept");
            }
        }
        Err(error) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "old months of the archive could not be dropped; they are tried again in an hour");
        }
    }
    match archive.stats().await {
        Ok(stats) => metrics.archive().stands(stats.records, stats.months.len()),
        Err(error) => tracing::debug!(error = &error as &dyn std::error::Error, "the archive was not counted"),
    }
}
