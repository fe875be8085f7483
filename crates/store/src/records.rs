//! What the rows of the tables mean: each record is read in one place, whichever database its row is of.
//!
//! A row that makes no sense is a fault that names the column: to leave out what cannot be read would be to lift a
//! restriction, or to forget work.
//!
//! Not here: how a database keeps a value (`stored_row`), the statements (`sqlite`, `postgres`).

pub(crate) mod access;
pub(crate) mod breaker_history;
pub(crate) mod checkpoints;
pub(crate) mod jobs;
pub(crate) mod ledger;
pub(crate) mod registry;
pub(crate) mod sealed_texts;
pub(crate) mod tool_health;
pub(crate) mod upstreams;
pub(crate) mod usage;
pub(crate) mod version_use;
pub(crate) mod webhooks;
pub(crate) mod workflow_runs;
