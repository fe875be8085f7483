//! How many calls a second could SQLite journal if there were nothing but SQLite? And how many can the ledger on it?
//!
//! `cargo run --release -p gantry-store --example ledger_limit`
#![expect(clippy::print_stdout, reason = "a measurement for people at a terminal")]

use std::time::Duration;

use gantry_store::measure::{RawLedger, StoreMeasureError, ledger_rate};

/// How long each is measured.
const ROUND: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<(), StoreMeasureError> {
    let directory = tempfile::tempdir_in(".")?;
    let mut raw = RawLedger::open(&directory.path().join("raw.db"))?;
    for callers in [1, 16, 64] {
        let limit = tokio::task::block_in_place(|| raw.round(callers, ROUND))?;
        let ours = ledger_rate(&directory.path().join(format!("ledger-{callers}.db")), callers, ROUND).await?;
        println!("{callers:>3} callers: SQLite {limit:>6.0} a second, ledger {ours:>6.0}, {:.2} of it", ours / limit);
    }
    Ok(())
}
