//! Fills a queue, drains it, and says how fast at its fullest and at its emptiest: the rate must not depend on how much waits.
//!
//! `cargo run --release -p gantry-store --example queue_drain -- 100000`
#![expect(clippy::print_stdout, reason = "a measurement for people at a terminal")]

use gantry_store::measure::{StoreMeasureError, drain};

#[tokio::main]
async fn main() -> Result<(), StoreMeasureError> {
    let jobs: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(100_000);
    let directory = tempfile::tempdir()?;
    let drained = drain(&directory.path().join("gantry.db"), jobs).await?;
    println!("{jobs} jobs enqueued: {:.0} a second", drained.enqueued_per_second);
    for (part, rate) in drained.per_second.iter().enumerate() {
        println!("  part {:>2} of {}: {rate:>6.0} a second", part + 1, drained.per_second.len());
    }
    println!("slowest part: {:.0} % of the first", 100.0 * drained.slowest() / drained.first());
    Ok(())
}
