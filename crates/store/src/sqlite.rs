//! The embedded store: one SQLite file, one writer, several readers. (DESIGN §4, §5, §7)
//!
//! ```text
//!  publish, change ──▶ bounded queue ──▶ writer thread ──▶ one commit per group ──▶ answers
//!  load, search ─────▶ blocking threads ──▶ read connections (WAL: never wait for the writer)
//! ```
//!
//! Invariants
//! - SQL-1: an answered write survives `kill -9` and power loss.
//! - SQL-2: one process writes a file; others may read beside it.
//!
//! What faces `postgres/` has its file names and the order of its functions. Only here are the writer and its readers (`writer`,
//! `readers`, `jobs/counters`), whole files (`backup`, `freed_space`), functions of sqlite-vec (`vector_functions`) and what SQLite
//! can do by itself (`raw_ledger`); `tests/same_files.rs` has the reasons and holds us to it.
//!
//! Not here: when a file is refused (`open`), its shape (`migrations`), the statements (`registry`, `search`, `access`,
//! `upstreams`, `ledger`, `jobs`, `checkpoints`, `webhooks`, `workflow_runs`, `vectors`).

mod access;
mod backup;
mod breaker_history;
mod checkpoints;
mod columns;
mod faults;
mod freed_space;
mod index;
mod jobs;
mod ledger;
mod migrations;
mod open;
mod quarantine;
#[cfg(feature = "measure")]
pub(crate) mod raw_ledger;
mod readers;
mod registry;
mod sealed_texts;
mod search;
mod tool_health;
mod transfer;
mod upstreams;
mod usage;
mod vector_functions;
mod vectors;
mod version_use;
mod webhooks;
mod workflow_runs;
mod writer;

use std::path::Path;
use std::sync::Arc;

use ports::clock::{Clock, UnixMillis};
use ports::registry_store::StoreError;

pub use backup::{ReplaceError, back_up, check_backup, forget_clear_texts, hold_jobs, put_in_place};
use faults::{Busy, Fault};
#[cfg(test)]
pub(crate) use migrations::STEPS;
use open::Location;
pub use open::SqliteOpenError;
use readers::Readers;
pub use transfer::SqliteSource;
use writer::Writer;

use crate::SchemaSteps;
use crate::time::StoreTime;

/// What can be chosen when a store is opened.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// Largest size of the database file. Writes beyond it fail as on a full disk. Default: what the disk has.
    pub bytes_max: Option<u64>,
    /// What leases and windows are measured by. Default: the machine's clock.
    pub clock: Option<Arc<dyn Clock>>,
}

/// Some numbers about the work done, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteCounters {
    /// Transactions committed since the store was opened. Far fewer than writes under load.
    pub commits: u64,
}

/// A store in one SQLite file.
///
/// [`close`](Self::close) waits for what was begun; dropping does too, but blocks the thread that drops.
#[derive(Debug)]
pub struct SqliteStore {
    // Before the writer, so that on drop readers go first and the writer's checkpoint finds nobody in its way.
    readers: Readers,
    /// `None` if opened for reading only.
    writer: Option<Writer>,
    time: StoreTime,
}

impl SqliteStore {
    /// The mark of the newest shape of the file that this program knows.
    pub fn shapes_known() -> u32 {
        u32::try_from(migrations::newest()).unwrap_or(0)
    }

    /// Opens the file for reading and writing, makes or migrates it if need be. Blocks; call it at start-up.
    pub fn open(path: &Path, options: &SqliteOptions) -> Result<Self, SqliteOpenError> {
        let location = Location::new(path);
        let (connection, lock) = location.open_writer()?;
        if let Some(bytes) = options.bytes_max {
            limit_pages(&connection, bytes).map_err(|error| location.classify(error))?;
        }
        let writer = Writer::start(connection, lock).map_err(|source| location.unreadable(source))?;
        let time = StoreTime::starting(options.clock.clone());
        Ok(Self { readers: Readers::new(location), writer: Some(writer), time })
    }

    /// Opens the file for reading, beside a running server or alone. Writes answer `Unavailable`.
    pub fn open_read_only(path: &Path) -> Result<Self, SqliteOpenError> {
        let location = Location::new(path);
        location.check_for_reading()?;
        Ok(Self { readers: Readers::new(location), writer: None, time: StoreTime::default() })
    }

    /// How far the file has been migrated; looks only. A file that is not there has taken no step.
    pub fn steps(path: &Path) -> Result<SchemaSteps, SqliteOpenError> {
        Location::new(path).steps()
    }

    /// Changes [`SqliteOptions::bytes_max`] of an open store.
    pub async fn set_bytes_max(&self, bytes: u64) -> Result<(), StoreError> {
        self.writer()?.run(move |connection| limit_pages(connection, bytes).map_err(Fault::from)).await
    }

    /// Moves the log of writes into the file and leaves it empty, so that what was replaced is not to be read there either.
    /// False: somebody was reading from it all the time, and it is emptied when the store is closed.
    pub async fn empty_log(&self) -> Result<bool, StoreError> {
        let location = self.readers.location().clone();
        let done = tokio::task::spawn_blocking(move || location.empty_log().map_err(Fault::from));
        let emptied = done.await.map_err(|error| StoreError::Unavailable(Box::new(error)))?;
        Ok(emptied?)
    }

    /// Numbers for metrics.
    pub fn counters(&self) -> SqliteCounters {
        SqliteCounters { commits: self.writer.as_ref().map_or(0, Writer::commits) }
    }

    /// Takes no more work, finishes what waits, and returns when the file is closed. May be called more than once.
    pub async fn close(&self) {
        self.readers.close().await;
        if let Some(writer) = &self.writer {
            // The last commit and the checkpoint may take a moment, during which this thread has other things to do.
            let handle = writer.stop();
            if let Some(thread) = handle {
                // It cannot be told from here why a wait was broken off: a runtime that ends, or a writer that has said so.
                let _ = tokio::task::spawn_blocking(move || writer::wait_for(thread)).await;
            }
        }
    }

    /// The store's own time, by which it judges leases and windows (IDEM-015).
    fn now(&self) -> UnixMillis {
        self.time.now()
    }

    fn writer(&self) -> Result<&Writer, StoreError> {
        self.writer.as_ref().ok_or_else(|| Busy::ReadOnly.into())
    }
}

/// The largest file in pages of the size this file has.
fn limit_pages(connection: &rusqlite::Connection, bytes: u64) -> rusqlite::Result<()> {
    let page_bytes: u32 = connection.pragma_query_value(None, "page_size", |row| row.get(0))?;
    let pages = u32::try_from(bytes / u64::from(page_bytes.max(1))).unwrap_or(u32::MAX - 1).max(1);
    connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
}
