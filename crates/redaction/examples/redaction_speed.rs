//! How much JSON goes through redaction on one core? The goal: 100 MB/s.
//!
//! `cargo run --release -p gantry-redaction --example redaction_speed`
#![expect(clippy::print_stdout, reason = "a measurement for people at a terminal")]

use redaction::measure::{RedactionMeasureError, speeds};

/// Bytes of each kind of document, and how often they are looked at.
const BYTES: usize = 16 << 20;
const ROUNDS: u32 = 5;

fn main() -> Result<(), RedactionMeasureError> {
    for speed in speeds(BYTES, ROUNDS)? {
        println!(
            "{:<20} as text {:>4.0} MB/s, as value {:>4.0} MB/s, {} findings",
            speed.what, speed.text_mb_per_second, speed.value_mb_per_second, speed.findings
        );
    }
    Ok(())
}
