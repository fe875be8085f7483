//! The one writer: a thread that owns the write connection and commits in groups. (DESIGN §7, last paragraph)
//!
//! A commit costs one sync of the disk, however much is in it. So the thread takes everything that waits, runs each piece
//! of work in a savepoint of its own, commits once, and only then answers. While one commit syncs, the next group gathers:
//! alone a write waits for one sync, and under load hundreds share one.
//!
//! Invariants
//! - WRITE-1: nobody is told of success before the commit that made it durable.
//! - WRITE-2: work that fails leaves nothing behind and does not disturb the others of its group.
//! - WRITE-3: every wait is bounded, and whatever ends the thread is seen by the waiting as an error.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base::MutexExt as _;
use ports::registry_store::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::faults::{Busy, Fault};

/// Most pieces of work that wait. At the limit a caller waits up to [`QUEUE_WAIT`] and is then told to come back.
pub(super) const QUEUE_MAX: usize = 1024;
/// Most pieces of work in one commit.
const GROUP_MAX: usize = 256;
/// How long a caller waits for a place in the queue.
const QUEUE_WAIT: Duration = Duration::from_secs(5);

/// A handle to the writer thread.
pub(super) struct Writer {
    queue: Mutex<Option<mpsc::Sender<Box<dyn Work>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    commits: Arc<AtomicU64>,
}

impl Writer {
    /// Starts the thread. `keep` lives exactly as long as the connection.
    pub(super) fn start(connection: Connection, keep: impl Send + 'static) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel(QUEUE_MAX);
        let commits = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&commits);
        let thread = std::thread::Builder::new().name("store-writer".to_owned()).spawn(move || {
            write_until_closed(&connection, waiting, &counter);
            close(connection);
            drop(keep);
        })?;
        Ok(Self { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)), commits })
    }

    /// Runs `work` in the next group and answers once it is durable, or with the reason why nothing was written.
    ///
    /// Dropping the future does not call the work back: it may still be done.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let queue = self.queue.lock_unpoisoned().clone().ok_or(Busy::Closed)?;
        let pending = Box::new(Pending { work: Some(work), outcome: None, reply });
        queue.send_timeout(pending, QUEUE_WAIT).await.map_err(|error| match error {
            mpsc::error::SendTimeoutError::Timeout(_) => Busy::QueueFull,
            mpsc::error::SendTimeoutError::Closed(_) => Busy::Closed,
        })?;
        answer.await.unwrap_or_else(|_| Err(Busy::Closed.into()))
    }

    /// How many transactions were committed so far.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// Takes no more work. The thread finishes what waits and ends; give it to [`wait_for`].
    pub(super) fn stop(&self) -> Option<JoinHandle<()>> {
        self.queue.lock_unpoisoned().take();
        self.thread.lock_unpoisoned().take()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(thread) = self.stop() {
            wait_for(thread);
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("commits", &self.commits()).finish_non_exhaustive()
    }
}

/// Returns when the thread has closed the file. Blocks.
pub(super) fn wait_for(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("the store's writer ended by a panic");
    }
}

// --------------------------------------------------------------------------------------------------------- the work

/// A piece of work whose result type the thread need not know.
trait Work: Send {
    /// Does it, and keeps the outcome. Says whether its changes are to be kept.
    fn perform(&mut self, connection: &Connection) -> bool;
    /// Tells the outcome, or why there is none.
    fn answer(self: Box<Self>, group: Result<(), StoreError>);
}

struct Pending<T, F> {
    work: Option<F>,
    outcome: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send, F: FnOnce(&Connection) -> Result<T, Fault> + Send> Work for Pending<T, F> {
    fn perform(&mut self, connection: &Connection) -> bool {
        let outcome = self.work.take().map(|work| work(connection).map_err(StoreError::from));
        let keep = matches!(outcome, Some(Ok(_)));
        self.outcome = outcome;
        keep
    }

    fn answer(self: Box<Self>, group: Result<(), StoreError>) {
        let answer = match (self.outcome, group) {
            // Its own reason says more than that of the group.
            (Some(Err(own)), _) => Err(own),
            (Some(Ok(value)), Ok(())) => Ok(value),
            (_, Err(reason)) => Err(reason),
            (None, Ok(())) => Err(Busy::RolledBack.into()),
        };
        // Whoever asked may have gone; then nobody needs the answer.
        let _ = self.reply.send(answer);
    }
}

// ------------------------------------------------------------------------------------------------------- the thread

fn write_until_closed(connection: &Connection, mut waiting: mpsc::Receiver<Box<dyn Work>>, commits: &AtomicU64) {
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP_MAX
            && let Ok(next) = waiting.try_recv()
        {
            group.push(next);
        }
        let outcome = write_group(connection, &mut group, commits);
        if let Err(error) = &outcome {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                writes = group.len(),
                "store group was not written"
            );
        }
        for work in group {
            work.answer(match &outcome {
                Ok(()) => Ok(()),
                Err(_) => Err(Busy::RolledBack.into()),
            });
        }
    }
}

/// One transaction for the whole group. On an error nothing of it was written.
fn write_group(connection: &Connection, group: &mut [Box<dyn Work>], commits: &AtomicU64) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let written = perform_all(connection, group).and_then(|()| connection.execute_batch("COMMIT"));
    match written {
        Ok(()) => {
            commits.fetch_add(1, Ordering::Relaxed);
        }
        // A full disk makes SQLite roll back by itself; otherwise we do, so that the next group starts clean.
        Err(_) if connection.is_autocommit() => {}
        Err(_) => {
            if let Err(error) = connection.execute_batch("ROLLBACK") {
                tracing::warn!(error = &error as &dyn std::error::Error, "store rollback failed");
            }
        }
    }
    written
}

fn perform_all(connection: &Connection, group: &mut [Box<dyn Work>]) -> rusqlite::Result<()> {
    for work in group {
        // Kept prepared: read anew each time, the two would cost as much as a row.
        connection.prepare_cached("SAVEPOINT work")?.execute([])?;
        // WRITE-2. If SQLite has rolled back the whole transaction, the next statement fails and ends the group.
        if !work.perform(connection) {
            connection.execute_batch("ROLLBACK TO work")?;
        }
        connection.prepare_cached("RELEASE work")?.execute([])?;
    }
    Ok(())
}

/// Moves the log into the file, so that the next start finds a clean end.
fn close(connection: Connection) {
    if let Err(error) = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)") {
        tracing::warn!(error = &error as &dyn std::error::Error, "store checkpoint at the end failed");
    }
    if let Err((_, error)) = connection.close() {
        tracing::warn!(error = &error as &dyn std::error::Error, "store close failed");
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::named_params;

    use super::*;

    fn writer() -> Writer {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE numbers (value INTEGER PRIMARY KEY)").unwrap();
        Writer::start(connection, ()).unwrap()
    }

    async fn insert(writer: &Writer, value: i64) -> Result<(), StoreError> {
        let work = move |connection: &Connection| {
            connection.execute("INSERT INTO numbers VALUES (:value)", named_params! { ":value": value + 1000 })?;
            connection.execute("INSERT INTO numbers VALUES (:value)", named_params! { ":value": value })?;
            Ok(())
        };
        writer.run(work).await
    }

    async fn sum(writer: &Writer) -> i64 {
        let work = |connection: &Connection| {
            Ok(connection.query_row("SELECT coalesce(sum(value), 0) FROM numbers", [], |row| row.get(0))?)
        };
        writer.run(work).await.unwrap()
    }

    #[tokio::test]
    async fn work_that_fails_leaves_nothing_and_spares_its_group() {
        let writer = writer();
        insert(&writer, 1).await.unwrap();
        // The second fails half way, at its second statement: 2001 is new, 1001 is not.
        let (good, bad, other) = tokio::join!(insert(&writer, 5), insert(&writer, 1001), insert(&writer, 7));
        assert!(good.is_ok() && other.is_ok());
        assert!(matches!(bad, Err(StoreError::Unavailable(_))));
        assert_eq!(sum(&writer).await, 1 + 1001 + 5 + 1005 + 7 + 1007);
    }

    #[tokio::test]
    async fn a_panic_of_the_writer_is_seen_as_unavailable() {
        let writer = writer();
        let panicking = writer.run(|_| -> Result<(), Fault> { panic!("as a fault of ours would") }).await;
        assert!(matches!(panicking, Err(StoreError::Unavailable(_))));
        assert!(matches!(insert(&writer, 1).await, Err(StoreError::Unavailable(_))));
    }

    #[tokio::test]
    async fn what_waits_is_finished_when_the_writer_stops() {
        let writer = writer();
        let (first, second, thread) = tokio::join!(insert(&writer, 1), insert(&writer, 2), async { writer.stop() });
        assert!(first.is_ok() && second.is_ok());
        wait_for(thread.unwrap());
        assert!(insert(&writer, 3).await.is_err());
    }
}
