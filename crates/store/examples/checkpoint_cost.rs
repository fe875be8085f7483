//! What does a checkpoint cost? Build it in release: `cargo run --release -p gantry-store --example checkpoint_cost`.
//!
//! The goals: saving 1 MB within 20 ms, the difference after a change of one percent under a tenth of the whole. One JSON
//! object on stdout: medians in milliseconds, sizes in bytes.
#![expect(clippy::print_stdout, reason = "a command: its output is its purpose")]

use gantry_store::measure::{StoreMeasureError, checkpoint_cost};

/// Saves of each kind.
const ROUNDS: u32 = 20;

fn main() -> Result<(), StoreMeasureError> {
    let directory = tempfile::tempdir()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let cost = runtime.block_on(checkpoint_cost(&directory.path().join("cost.db"), ROUNDS))?;
    println!("{}", serde_json::to_string(&cost)?);
    Ok(())
}
