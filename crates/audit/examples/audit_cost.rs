//! What does the audit log cost? The goals: appending to a million records costs at most a tenth more than to a thousand,
//! 200,000 records a second are verified, a proof takes less than a millisecond.
//!
//! `cargo run --release -p gantry-audit --example audit_cost -- 1000000`, one JSON object on stdout.
#![expect(clippy::print_stdout, reason = "a command: its output is its purpose")]

use gantry_audit::measure::{LogMeasureError, MeasureExtent, log_cost};

fn main() -> Result<(), LogMeasureError> {
    let records = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    // Beside the build, because a folder for temporary files may be in memory and forgive every sync to disk.
    let folder = tempfile::tempdir_in(".")?;
    let cost = log_cost(folder.path(), MeasureExtent { records, appends: 200, proofs: 1_000 })?;
    println!("{}", serde_json::to_string_pretty(&cost)?);
    Ok(())
}
