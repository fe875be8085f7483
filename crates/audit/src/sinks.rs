//! Copies of the audit log in other places: files, an HTTP receiver, Kafka. (AUD-003, AUD-005, AUD-008, AUD-009)
//!
//! The log itself is the outbox. A record is durable there before anybody hears of it, so a sink that is down, slow or
//! wrongly set up never stops a call and never loses a record: its [`SinkForwarder`] stays where it is and goes on when it can.
//!
//! ```text
//! FileLog ──append──▶ audit-*.jsonl ──Source──▶ Courier ──batch──▶ Sink ──acknowledged──▶ Cursor (file)
//!    └──────────────── wakes ─────────────────────▲
//! ```
//!
//! Invariants
//! - SINK-1: the cursor moves only over records that the sink has acknowledged, and is durable before the next batch.
//!   So everything is delivered at least once; a crash may repeat a batch, and ids of events tell repetitions apart.
//! - SINK-2: a sink gets records in the order of the log, one batch at a time; so each tenant's records are in order.
//! - SINK-3: nothing is skipped. What a sink refuses for good halts that sink, visibly, with its cursor kept.
//! - SINK-4: sinks know nothing of one another: each has its own task, cursor and failures.
//!
//! Not here: Kafka (a crate of its own, because of the library it needs), which sinks there are (`cli`'s configuration).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

pub mod archive;
mod backoff;
mod cursor;
mod event;
pub mod file;
mod forwarder;
pub mod http;
mod source;
mod status;

pub use cursor::{CursorError, SinkCursor};
pub use event::{EventError, NO_TENANT, SinkEvent};
pub use forwarder::{ForwarderHandle, ForwarderParts, SinkForwarder};
pub use source::{LogSource, RecordSource};
pub use status::{NoSinkObserver, SinkLag, SinkState, SinkStatus, SinkWatcher, StatusFile};

/// How much is handed to a sink at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Records.
    pub records: usize,
    /// Bytes of events. A single event that is longer goes alone.
    pub bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self { records: 500, bytes: 512 * 1024 }
    }
}

/// How a courier divides its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForwarderPace {
    /// When the log has grown again, it may grow for so long before it is read, so that a busy log is carried in large batches.
    pub gather: Duration,
    /// After a batch the courier rests so many times as long as the batch took: what calls have to do goes before.
    pub rests: u32,
    /// It does not rest while the oldest record that waits is older than this.
    pub lag_max: Duration,
}

impl Default for ForwarderPace {
    /// Without rest.
    fn default() -> Self {
        Self { gather: Duration::from_millis(50), rests: 0, lag_max: Duration::ZERO }
    }
}

/// What becomes of a batch that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchVerdict {
    /// It may be taken later, not before `after` if the receiver has named a time.
    Later { after: Option<Duration> },
    /// It will be refused again until somebody changes something.
    Refused,
}

/// A sink has not taken a batch, or not all of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct SinkError {
    /// So many events from the start of the batch were taken all the same.
    pub acknowledged: usize,
    pub verdict: BatchVerdict,
    /// For whoever operates this server: no secret, no content of a record.
    pub reason: String,
}

impl SinkError {
    /// Another try may go well.
    pub fn later(reason: impl Into<String>) -> Self {
        Self { acknowledged: 0, verdict: BatchVerdict::Later { after: None }, reason: reason.into() }
    }

    /// Another try will go as this one did.
    pub fn refused(reason: impl Into<String>) -> Self {
        Self { acknowledged: 0, verdict: BatchVerdict::Refused, reason: reason.into() }
    }

    /// The same, after so many events were taken.
    #[must_use]
    pub fn having_taken(self, acknowledged: usize) -> Self {
        Self { acknowledged, ..self }
    }
}

/// Takes events to their place.
#[async_trait]
pub trait RecordSink: Send + Sync + fmt::Debug {
    /// Takes the events, in order, and returns once they are safe where they went. Bounded in time by the sink.
    ///
    /// # Errors
    /// When not all were taken. What is not counted as acknowledged is handed over again.
    async fn deliver(&self, batch: &[SinkEvent]) -> Result<(), SinkError>;

    /// What an event counts for among the bytes of a batch.
    fn bytes_of(&self, event: &SinkEvent) -> usize {
        event.json().len()
    }

    /// Called when there is nothing to deliver, now and then: for files that grow old.
    async fn tend(&self) {}
}
