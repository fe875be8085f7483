//! The limit that SQLite sets to the ledger: its rows, written by one thread that has nothing else to do.
//!
//! The same file, pragmas, tables, indexes and statements as the ledger's, and a group commit that is always full: of so many
//! callers all intents are inserted in one transaction, and then all their ends are written in the next. No look for another
//! call with the key, no savepoint, no queue, no waking of anybody: what is left is what no ledger on SQLite can save.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use ports::clock::UnixMillis;
use ports::ledger::Intent;
use rusqlite::Connection;

use super::ledger;
use super::open::Location;
use crate::measure::StoreMeasureError;
use crate::measure::sample_call::{intent, settlement};

/// A ledger without anything around it.
#[derive(Debug)]
pub struct RawLedger {
    connection: Connection,
    /// Held, so that nobody else writes.
    _lock: File,
    next: u64,
}

impl RawLedger {
    /// Makes the file as a store would.
    pub fn open(file: &Path) -> Result<Self, StoreMeasureError> {
        let (connection, lock) = Location::new(file).open_writer()?;
        Ok(Self { connection, _lock: lock, next: 0 })
    }

    /// Calls a second of so many callers, for a while. Blocks.
    #[expect(clippy::disallowed_methods, reason = "it measures by the machine's clock")]
    pub fn round(&mut self, callers: usize, span: Duration) -> Result<f64, StoreMeasureError> {
        let (mut calls, mut taken) = (0_u32, Duration::ZERO);
        while taken < span {
            let group: Vec<Intent> = (self.next..).take(callers).map(intent).collect::<Result<_, _>>()?;
            self.next += u64::try_from(callers)?;
            let start = Instant::now();
            self.write(&group)?;
            taken += start.elapsed();
            calls += u32::try_from(callers)?;
        }
        Ok(f64::from(calls) / taken.as_secs_f64())
    }

    /// Runs statements as they are.
    pub(crate) fn batch(&self, statements: &str) -> Result<(), StoreMeasureError> {
        Ok(self.connection.execute_batch(statements)?)
    }

    #[cfg(test)]
    pub(crate) fn rows_of(&self, table: &str) -> u32 {
        self.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    }

    fn write(&self, group: &[Intent]) -> Result<(), StoreMeasureError> {
        let (now, settlement) = (UnixMillis(1_800_000_000_000), settlement());
        let said = |fault| StoreMeasureError::from(ports::registry_store::StoreError::from(fault));
        let transaction = self.connection.unchecked_transaction()?;
        for intent in group {
            if !ledger::insert(&transaction, intent, now).map_err(said)? {
                return Err("the call was written before".into());
            }
        }
        transaction.commit()?;
        let transaction = self.connection.unchecked_transaction()?;
        for intent in group {
            let window = ledger::seconds(intent.window);
            ledger::write_end(&transaction, &intent.invocation.to_string(), &settlement, window, now).map_err(said)?;
        }
        transaction.commit()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_a_round_is_in_the_ledger_and_settled() {
        let directory = tempfile::tempdir().unwrap();
        let mut raw = RawLedger::open(&directory.path().join("gantry.db")).unwrap();
        assert!(raw.round(4, Duration::from_millis(1)).unwrap() > 0.0);
        let count = |text: &str| raw.connection.query_row(text, [], |row| row.get::<_, u32>(0)).unwrap();
        assert_eq!(u64::from(count("SELECT count(*) FROM ledger WHERE state = 'done'")), raw.next);
        assert!(raw.next > 0 && raw.next.is_multiple_of(4));
    }
}
