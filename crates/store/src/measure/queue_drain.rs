//! Fills a queue, drains it, and says how fast at its fullest and at its emptiest: the rate must not depend on how much waits.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::canonical;
use contract::ids::InvocationId;
use ports::job_store::{AttemptEnd, JobKey, JobPriority, JobStore, NewJob, OwnerId, QueueBounds, TakeRules};
use serde::Serialize;
use serde_json::json;

use super::StoreMeasureError;
use crate::sqlite::{SqliteOptions, SqliteStore};

/// Enqueuers and drainers at once.
const HANDS: u64 = 16;
/// Tenants whose jobs are mixed.
const TENANTS: u64 = 10;
/// Parts of the drain whose rates are told.
const PARTS: u64 = 10;
/// Longer than any drain.
const LEASE: Duration = Duration::from_secs(3_600);

/// How it went.
#[derive(Debug, Clone, Serialize)]
pub struct DrainCost {
    pub jobs: u64,
    pub enqueued_per_second: f64,
    /// Of each part, the fullest first.
    pub per_second: Vec<f64>,
}

impl DrainCost {
    /// The rate of the first part.
    pub fn first(&self) -> f64 {
        self.per_second.first().copied().unwrap_or_default()
    }

    /// The rate of the last part.
    pub fn last(&self) -> f64 {
        self.per_second.last().copied().unwrap_or_default()
    }

    /// The rate of the slowest part.
    pub fn slowest(&self) -> f64 {
        self.per_second.iter().copied().reduce(f64::min).unwrap_or_default()
    }
}

/// Enqueues so many jobs in a fresh file and takes and ends them all.
pub async fn drain(file: &Path, jobs: u64) -> Result<DrainCost, StoreMeasureError> {
    let store = Arc::new(SqliteStore::open(file, &SqliteOptions::default())?);
    let owner = OwnerId(uuid::Uuid::from_u128(1));
    store.enlist(owner, LEASE, true).await?;

    let (start, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    each_hand(|| {
        let (store, next) = (Arc::clone(&store), Arc::clone(&next));
        async move {
            while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < jobs) {
                store.enqueue(job(number)?).await?;
            }
            Ok(())
        }
    })
    .await?;
    let enqueued_per_second = rate(jobs, start.elapsed());

    let ends = Arc::new(AtomicU64::new(0));
    let mut per_second = Vec::new();
    for part in 1..=PARTS {
        let (start, goal) = (Instant::now(), jobs * part / PARTS);
        let before = ends.load(Ordering::Relaxed);
        each_hand(|| drain_until(Arc::clone(&store), owner, Arc::clone(&ends), goal)).await?;
        per_second.push(rate(ends.load(Ordering::Relaxed) - before, start.elapsed()));
    }
    store.close().await;
    Ok(DrainCost { jobs, enqueued_per_second, per_second })
}

async fn drain_until(
    store: Arc<SqliteStore>,
    owner: OwnerId,
    ends: Arc<AtomicU64>,
    goal: u64,
) -> Result<(), StoreMeasureError> {
    while ends.load(Ordering::Relaxed) < goal {
        let rules = TakeRules { most: 4, running_per_tenant: 1_000, running_per_flow: 1_000 };
        for job in store.take(owner, rules).await?.jobs {
            store.finish(&job.record.key, job.fence, AttemptEnd::Done(json!({ "ok": true }))).await?;
            ends.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

async fn each_hand<F>(work: impl Fn() -> F) -> Result<(), StoreMeasureError>
where
    F: Future<Output = Result<(), StoreMeasureError>> + Send + 'static,
{
    let hands: Vec<_> = (0..HANDS).map(|_| tokio::spawn(work())).collect();
    for hand in hands {
        hand.await??;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
fn rate(count: u64, span: Duration) -> f64 {
    count as f64 / span.as_secs_f64()
}

fn job(number: u64) -> Result<NewJob, StoreMeasureError> {
    let payload =
        json!({ "request": { "tool_id": "demo.echo", "parameters": { "text": "x".repeat(200) } }, "number": number });
    let id: InvocationId = format!("01900000-0000-7000-8000-{number:012x}").parse()?;
    Ok(NewJob {
        key: JobKey { tenant: format!("tenant-{}", number % TENANTS).parse()?, id },
        kind: "tool_call".into(),
        label: "demo.echo".into(),
        owner: "agent-1".parse()?,
        flow: "agent-1".into(),
        digest: canonical::digest(&payload),
        payload,
        priority: JobPriority::near(u8::try_from(number % 10)? + 1),
        delay: Duration::ZERO,
        attempts_max: 3,
        dedupe: None,
        bounds: QueueBounds { per_flow: u64::MAX, per_tenant: u64::MAX, total: u64::MAX },
        act: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_is_drained_to_its_end_and_every_part_has_a_rate() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("gantry.db");
        let drained = drain(&file, 100).await.unwrap();
        assert_eq!(drained.per_second.len(), 10);
        assert!(drained.enqueued_per_second > 0.0 && drained.first() >= drained.slowest(), "{drained:?}");
        let store = SqliteStore::open(&file, &SqliteOptions::default()).unwrap();
        let owner = OwnerId(uuid::Uuid::from_u128(1));
        store.enlist(owner, LEASE, true).await.unwrap();
        let left =
            store.take(owner, TakeRules { most: 4, running_per_tenant: 1_000, running_per_flow: 1_000 }).await.unwrap();
        assert!(left.jobs.is_empty(), "{left:?}");
        store.close().await;
    }
}
