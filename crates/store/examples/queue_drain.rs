//! Fills a queue, drains it, and says how fast at its fullest and at its emptiest: the rate must not depend on how much waits.
//!
//! `cargo run --release -p gantry-store --example queue_drain -- 100000`
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement for people at a terminal")]
#![expect(clippy::disallowed_methods, reason = "measures by the machine's clock")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::canonical;
use contract::ids::InvocationId;
use gantry_store::sqlite::{Options, SqliteStore};
use kernel::ports::job_store::{End, JobKey, JobPriority, JobStore, NewJob, OwnerId, QueueBounds, TakeRules};
use serde_json::json;

/// Enqueuers and drainers at once.
const HANDS: u64 = 16;
/// Tenants whose jobs are mixed.
const TENANTS: u64 = 10;
/// Parts of the drain whose rates are told.
const PARTS: u64 = 10;

#[tokio::main]
async fn main() {
    let jobs: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&directory.path().join("gantry.db"), &Options::default()).unwrap());
    let owner = OwnerId(id(0).0);
    store.enlist(owner, Duration::from_secs(3_600), true).await.unwrap();

    let (start, next) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    each(|| {
        let (store, next) = (Arc::clone(&store), Arc::clone(&next));
        async move {
            while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < jobs) {
                store.enqueue(job(number)).await.unwrap();
            }
        }
    })
    .await;
    println!("{jobs} jobs enqueued: {:.0} a second", rate(jobs, start.elapsed()));

    let ends = Arc::new(AtomicU64::new(0));
    let mut rates = Vec::new();
    for part in 1..=PARTS {
        let (start, goal) = (Instant::now(), jobs * part / PARTS);
        let before = ends.load(Ordering::Relaxed);
        each(|| {
            let (store, ends) = (Arc::clone(&store), Arc::clone(&ends));
            async move {
                while ends.load(Ordering::Relaxed) < goal {
                    let rules = TakeRules { most: 4, running_per_tenant: 1_000 };
                    for job in store.take(owner, rules).await.unwrap().jobs {
                        store.finish(&job.record.key, job.fence, End::Done(json!({ "ok": true }))).await.unwrap();
                        ends.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        })
        .await;
        let drained = ends.load(Ordering::Relaxed) - before;
        rates.push(rate(drained, start.elapsed()));
        println!("  {:>7} left: {:>6.0} a second", jobs.saturating_sub(goal), rates.last().unwrap());
    }
    let slowest = rates.iter().copied().fold(f64::INFINITY, f64::min);
    println!("slowest part: {:.0} % of the first", 100.0 * slowest / rates.first().unwrap());
    store.close().await;
}

async fn each<F: Future<Output = ()> + Send + 'static>(work: impl Fn() -> F) {
    let hands: Vec<_> = (0..HANDS).map(|_| tokio::spawn(work())).collect();
    for hand in hands {
        hand.await.unwrap();
    }
}

fn rate(count: u64, span: Duration) -> f64 {
    f64::from(u32::try_from(count).unwrap()) / span.as_secs_f64()
}

fn id(number: u64) -> InvocationId {
    format!("01900000-0000-7000-8000-{number:012x}").parse().unwrap()
}

fn job(number: u64) -> NewJob {
    let payload =
        json!({ "request": { "tool_id": "demo.echo", "parameters": { "text": "x".repeat(200) } }, "number": number });
    NewJob {
        key: JobKey { tenant: format!("tenant-{}", number % TENANTS).parse().unwrap(), id: id(number + 1) },
        kind: "tool_call".into(),
        label: "demo.echo".into(),
        subject: "agent-1".parse().unwrap(),
        digest: canonical::digest(&payload),
        payload,
        priority: JobPriority::near(u8::try_from(number % 10).unwrap() + 1),
        delay: Duration::ZERO,
        attempts_max: 3,
        dedupe: None,
        bounds: QueueBounds { per_tenant: u64::MAX, total: u64::MAX },
    }
}
