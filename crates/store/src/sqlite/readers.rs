//! Reading: a few connections that see the last commit and never wait for the writer.
//!
//! Connections are opened when first needed and kept. Work runs on the runtime's blocking threads, because SQLite blocks.
//! A connection that met an error is not kept: the next reader gets a fresh one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;
use ports::registry_store::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::faults::{Busy, Fault};
use super::open::Location;

/// Most reads at one time. More would only compete for the same disk and cores.
const READERS_MAX: usize = 4;
/// How long a read waits for its turn.
const READER_WAIT: Duration = Duration::from_secs(5);

/// The pool.
#[derive(Debug)]
pub(super) struct Readers {
    location: Location,
    idle: Arc<Mutex<Vec<Connection>>>,
    turns: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(location: Location) -> Self {
        Self { location, idle: Arc::default(), turns: Arc::new(Semaphore::new(READERS_MAX)) }
    }

    /// The file they read.
    pub(super) fn location(&self) -> &Location {
        &self.location
    }

    /// Runs `work` on a connection that sees everything committed before.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let turn = tokio::time::timeout(READER_WAIT, Arc::clone(&self.turns).acquire_owned())
            .await
            .map_err(|_| Busy::ReadersTaken)?
            .map_err(|_| Busy::Closed)?;
        let (idle, location) = (Arc::clone(&self.idle), self.location.clone());
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let kept = idle.lock_unpoisoned().pop();
            let connection = match kept {
                Some(connection) => connection,
                None => location.open_reader().map_err(Fault::from)?,
            };
            // One transaction, so that everything the work reads is of one moment.
            let outcome = connection
                .unchecked_transaction()
                .map_err(Fault::from)
                .and_then(|transaction| work(&transaction))
                .map_err(StoreError::from);
            if outcome.is_ok() {
                idle.lock_unpoisoned().push(connection);
            }
            outcome
        });
        done.await.unwrap_or_else(|error| Err(StoreError::Unavailable(Box::new(error))))
    }

    /// Takes no more work, waits for what runs, and closes the connections.
    pub(super) async fn close(&self) {
        let count = u32::try_from(READERS_MAX).unwrap_or(1);
        // Whoever runs gives its turn back; the bound holds here too.
        let _all = tokio::time::timeout(READER_WAIT, self.turns.acquire_many(count)).await;
        self.turns.close();
        self.idle.lock_unpoisoned().clear();
    }
}
