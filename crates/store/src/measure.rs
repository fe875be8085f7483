//! What the store costs, for benches: draining a long queue, a long past, and SQLite itself without anything of ours
//! around it. (A feature; never on in a release.)
//!
//! Everything here does its work for real, on a file that the caller names, and answers with numbers. What they are judged by
//! belongs to whoever asks (`cargo xtask bench --only durable`, and the examples of this crate).
#![expect(clippy::disallowed_methods, reason = "it measures by the machine's clock")]

mod history;
mod ledger_rate;
mod queue_drain;
pub(crate) mod sample_call;

pub use history::{postgres_history, sqlite_history};
pub use ledger_rate::ledger_rate;
pub use queue_drain::{DrainCost, drain};

pub use crate::sqlite::raw_ledger::RawLedger;

/// Why something could not be measured.
pub type StoreMeasureError = Box<dyn std::error::Error + Send + Sync>;
