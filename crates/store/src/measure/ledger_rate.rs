//! How many calls a second the ledger takes from so many callers at once: begin, durably; settle, durably; the next.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ports::ledger::{BeginOutcome, Ledger, SettleOutcome};

use super::StoreMeasureError;
use super::sample_call::{OWNER, intent, settlement};
use crate::sqlite::{SqliteOptions, SqliteStore};

/// Longer than any round.
const LEASE: Duration = Duration::from_secs(3_600);

/// Calls a second of `callers` for a while, in a fresh file.
pub async fn ledger_rate(file: &Path, callers: usize, span: Duration) -> Result<f64, StoreMeasureError> {
    let store = Arc::new(SqliteStore::open(file, &SqliteOptions::default())?);
    store.renew(OWNER, LEASE).await?;
    let (next, start) = (Arc::new(AtomicU64::new(0)), Instant::now());
    let hands: Vec<_> =
        (0..callers).map(|_| tokio::spawn(call_until(Arc::clone(&store), Arc::clone(&next), start + span))).collect();
    let mut calls = 0;
    for hand in hands {
        calls += hand.await??;
    }
    let taken = start.elapsed();
    store.close().await;
    Ok(f64::from(calls) / taken.as_secs_f64())
}

async fn call_until(store: Arc<SqliteStore>, next: Arc<AtomicU64>, until: Instant) -> Result<u32, StoreMeasureError> {
    let mut calls = 0;
    while Instant::now() < until {
        let intent = intent(next.fetch_add(1, Ordering::Relaxed))?;
        let id = intent.invocation;
        let BeginOutcome::Fresh(fence) = store.begin(intent).await? else {
            return Err("the call was begun before".into());
        };
        let SettleOutcome::Kept = store.settle(id, fence, settlement()).await? else {
            return Err("the call was settled before".into());
        };
        calls += 1;
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn callers_at_once_are_all_served() {
        let directory = tempfile::tempdir().unwrap();
        let rate = ledger_rate(&directory.path().join("gantry.db"), 8, Duration::from_millis(50)).await.unwrap();
        assert!(rate > 0.0, "{rate}");
    }
}
