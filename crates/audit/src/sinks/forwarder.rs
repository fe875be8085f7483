//! Carries records from the log to one sink.
//!
//! ```text
//!            ┌────────── taken ──────────┐
//!            ▼                           │
//! start ─▶ fetch ──something──▶ deliver ─┼── later ──▶ pause (grows, or as asked) ─▶ fetch
//!            │                           └── refused ▶ halted: pause long ────────▶ fetch
//!            └──nothing──▶ wait for the log to grow, or a while
//! ```
//!
//! What was fetched and not acknowledged stays in memory, bounded by one batch of records, and is handed over again.
//! A stop lets the courier carry what is there to the end of the log, as long as that goes well and in time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ports::clock::Clock;
use ports::entropy::Entropy;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::backoff::{ASKED_PAUSE_MAX, pause_after};
use super::cursor::SinkCursor;
use super::event::SinkEvent;
use super::source::RecordSource;
use super::status::{SinkLag, SinkState, SinkWatcher, StatusFile};
use super::{BatchLimits, BatchVerdict, ForwarderPace, RecordSink, SinkError};

/// How long a courier sleeps at the end of the log when nobody wakes it.
const IDLE_PAUSE: Duration = Duration::from_secs(5);
/// The longest rest after a batch, however long that took.
const REST_MAX: Duration = Duration::from_secs(2);
/// Between two tries of what a sink has refused for good: somebody may have mended the cause.
const HALTED_PAUSE: Duration = Duration::from_secs(300);
/// How long a courier may go on after it was told to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What a courier is made of.
#[derive(Debug)]
pub struct ForwarderParts {
    pub sink: Arc<dyn RecordSink>,
    pub source: Arc<dyn RecordSource>,
    /// Names the sink: a word of the configuration, part of file names, a label of metrics.
    pub cursor: SinkCursor,
    pub limits: BatchLimits,
    pub pace: ForwarderPace,
    /// Changes whenever the log has grown.
    pub grown: watch::Receiver<u64>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub watcher: Arc<dyn SinkWatcher>,
}

/// Carries.
#[derive(Debug)]
pub struct SinkForwarder {
    parts: ForwarderParts,
    status: StatusFile,
    /// Fetched and not acknowledged.
    pending: Vec<SinkEvent>,
    failures: u32,
    state: Option<SinkState>,
}

/// Owns a courier's task.
#[derive(Debug)]
pub struct ForwarderHandle {
    name: String,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// What came of one round.
#[derive(Debug, PartialEq, Eq)]
enum Round {
    /// And how long to rest before the next.
    Delivered(Duration),
    Idle,
    Failed(Duration),
}

impl SinkForwarder {
    /// Ready to carry.
    pub fn new(parts: ForwarderParts) -> Self {
        let status = StatusFile::new(parts.cursor.dir(), parts.cursor.sink());
        Self { parts, status, pending: Vec::new(), failures: 0, state: None }
    }

    /// Sets it to work.
    pub fn start(self) -> ForwarderHandle {
        let (name, stop) = (self.parts.cursor.sink().to_owned(), CancellationToken::new());
        let task = tokio::spawn(self.run(stop.clone()));
        ForwarderHandle { name, stop, task }
    }

    async fn run(mut self, stop: CancellationToken) {
        let clock = Arc::clone(&self.parts.clock);
        let carried = async {
            loop {
                let pause = match self.round().await {
                    Round::Delivered(rest) if rest.is_zero() || stop.is_cancelled() => continue,
                    Round::Delivered(rest) => {
                        tokio::select! {
                            () = self.parts.clock.sleep(rest) => {}
                            () = stop.cancelled() => {}
                        }
                        continue;
                    }
                    _ if stop.is_cancelled() => break,
                    Round::Idle => {
                        self.wait_for_growth(&stop).await;
                        continue;
                    }
                    Round::Failed(pause) => pause,
                };
                tokio::select! {
                    () = self.parts.clock.sleep(pause) => {}
                    () = stop.cancelled() => break,
                }
            }
        };
        tokio::select! {
            () = carried => {}
            () = async { stop.cancelled().await; clock.sleep(STOP_GRACE).await } => {
                // What was in flight is handed over again at the next start.
            }
        }
        if matches!(self.state, None | Some(SinkState::Delivering)) {
            self.say(SinkState::Stopped, None);
        }
    }

    async fn wait_for_growth(&mut self, stop: &CancellationToken) {
        self.parts.sink.tend().await;
        let clock = Arc::clone(&self.parts.clock);
        tokio::select! {
            grown = self.parts.grown.changed() => match grown {
                Ok(()) => tokio::select! {
                    () = clock.sleep(self.parts.pace.gather) => {}
                    () = stop.cancelled() => {}
                },
                // The log is closed: only a stop is left to come, and what others still write.
                Err(_) => tokio::select! {
                    () = clock.sleep(IDLE_PAUSE) => {}
                    () = stop.cancelled() => {}
                },
            },
            () = clock.sleep(IDLE_PAUSE) => {}
            () = stop.cancelled() => {}
        }
    }

    async fn round(&mut self) -> Round {
        if self.pending.is_empty() {
            match self.fetch().await {
                Ok(true) => {}
                Ok(false) => {
                    self.went_well();
                    self.parts.watcher.lag(self.parts.cursor.sink(), SinkLag::default());
                    return Round::Idle;
                }
                Err(error) => return self.failed(&error),
            }
        }
        let begun = self.parts.clock.monotonic();
        let age = self.tell_lag().await;
        let batch = first_batch(&self.pending, self.parts.limits, &*self.parts.sink);
        let result = self.parts.sink.deliver(batch).await;
        let taken = match &result {
            Ok(()) => batch.len(),
            Err(error) => error.acknowledged.min(batch.len()),
        };
        if let Err(error) = self.acknowledge(taken).await {
            return self.failed(&error);
        }
        match result {
            Ok(()) => {
                self.went_well();
                let took = self.parts.clock.monotonic().saturating_sub(begun);
                Round::Delivered(rest_after(took, age, self.parts.pace))
            }
            Err(error) => {
                if taken > 0 {
                    // It is not down: it stumbles over one record, or was cut off just now.
                    self.failures = 0;
                }
                self.failed(&error)
            }
        }
    }

    /// Reads the next records. `false`: there are none.
    async fn fetch(&mut self) -> Result<bool, SinkError> {
        let (source, from, max) = (Arc::clone(&self.parts.source), self.parts.cursor.next(), self.parts.limits.records);
        let read = blocking(move || {
            let entries = source.read(from, max.max(1))?;
            let end = if entries.is_empty() { source.end()? } else { u64::MAX };
            Ok((entries, end))
        });
        let (entries, end) =
            read.await.map_err(|error| SinkError::later(format!("the audit log cannot be read: {error}")))?;
        if end < from {
            return Err(SinkError::refused(format!(
                "the audit log has {end} records and {from} were delivered: it was rolled back or replaced"
            )));
        }
        if let Some(first) = entries.first().filter(|first| first.seq != from) {
            return Err(SinkError::refused(format!("the audit log goes on with record {}, not {from}", first.seq)));
        }
        for entry in &entries {
            match SinkEvent::of(entry) {
                Ok(event) => self.pending.push(event),
                // What comes before it can still be delivered; the next round finds it first.
                Err(_) if !self.pending.is_empty() => break,
                Err(error) => return Err(SinkError::refused(error.to_string())),
            }
        }
        Ok(!self.pending.is_empty())
    }

    /// SINK-1.
    async fn acknowledge(&mut self, taken: usize) -> Result<(), SinkError> {
        let Some(last) = taken.checked_sub(1).and_then(|index| self.pending.get(index)) else { return Ok(()) };
        let next = last.seq.saturating_add(1);
        self.parts.cursor.advance(next).await.map_err(|error| SinkError::later(error.to_string()))?;
        let now = self.parts.clock.now();
        let waited = self.pending.first().map_or(Duration::ZERO, |oldest| now.since(oldest.at));
        self.parts.watcher.waited(self.parts.cursor.sink(), waited);
        self.pending.drain(..taken);
        self.parts.watcher.delivered(self.parts.cursor.sink(), taken as u64);
        Ok(())
    }

    /// Tells it, and answers how old the oldest record is that waits.
    async fn tell_lag(&self) -> Duration {
        let source = Arc::clone(&self.parts.source);
        let next = self.parts.cursor.next();
        // An end that cannot be read is told by the next fetch.
        let end = blocking(move || source.end()).await.unwrap_or(next);
        let now = self.parts.clock.now();
        let age = self.pending.first().map_or(Duration::ZERO, |oldest| now.since(oldest.at));
        self.parts.watcher.lag(self.parts.cursor.sink(), SinkLag { records: end.saturating_sub(next), age });
        age
    }

    fn went_well(&mut self) {
        if self.failures > 0 {
            tracing::info!(sink = self.parts.cursor.sink(), "a sink of the audit log takes records again");
        }
        self.failures = 0;
        self.say(SinkState::Delivering, None);
    }

    fn failed(&mut self, error: &SinkError) -> Round {
        self.failures = self.failures.saturating_add(1);
        self.parts.watcher.failed(self.parts.cursor.sink());
        let (sink, next, reason) = (self.parts.cursor.sink(), self.parts.cursor.next(), &error.reason);
        match error.verdict {
            BatchVerdict::Refused => {
                if self.state != Some(SinkState::Halted) {
                    tracing::error!(
                        sink,
                        next,
                        reason,
                        "a sink of the audit log refuses what comes next: nothing more is delivered to it until its cause \
                         is mended; nothing is skipped"
                    );
                }
                self.say(SinkState::Halted, Some(&error.reason));
                Round::Failed(HALTED_PAUSE)
            }
            BatchVerdict::Later { after } => {
                if self.state != Some(SinkState::Failing) {
                    tracing::warn!(sink, next, reason, "a sink of the audit log fails; its records wait in the log");
                }
                let mut draw = [0; 2];
                self.parts.entropy.fill(&mut draw);
                let pause = pause_after(self.failures, u16::from_be_bytes(draw));
                self.say(SinkState::Failing, Some(&error.reason));
                Round::Failed(after.map_or(pause, |after| after.min(ASKED_PAUSE_MAX).max(pause)))
            }
        }
    }

    fn say(&mut self, state: SinkState, reason: Option<&str>) {
        if self.state != Some(state) {
            self.parts.watcher.state(self.parts.cursor.sink(), state);
            self.state = Some(state);
        }
        self.status.note(state, self.failures, reason, self.parts.clock.now());
    }
}

impl ForwarderHandle {
    /// Carries what is there, as long as that goes well and in time, then ends.
    pub async fn close(self) {
        self.stop.cancel();
        if self.task.await.is_err() {
            tracing::error!(sink = self.name, "the courier of a sink of the audit log ended abnormally");
        }
    }

    /// Ends it where it stands, as a crash would.
    pub fn abort(&self) {
        self.task.abort();
    }

    /// Waits until its task is no more, however it ended.
    pub async fn ended(self) {
        // It was aborted, or it panicked; both are ends.
        let _ = self.task.await;
    }
}

/// How long to rest after a batch that took so long, when the oldest record that waited was so old.
fn rest_after(took: Duration, age: Duration, pace: ForwarderPace) -> Duration {
    if pace.rests == 0 || age > pace.lag_max {
        return Duration::ZERO;
    }
    // At least until there is again something to gather.
    took.saturating_mul(pace.rests).max(pace.gather).min(REST_MAX)
}

/// As many events from the start as fit, and one at least.
fn first_batch<'e>(events: &'e [SinkEvent], limits: BatchLimits, sink: &dyn RecordSink) -> &'e [SinkEvent] {
    let mut bytes = 0_usize;
    let fitting = events
        .iter()
        .take(limits.records.max(1))
        .take_while(|event| {
            bytes = bytes.saturating_add(sink.bytes_of(event));
            bytes <= limits.bytes
        })
        .count();
    events.get(..fitting.max(1)).unwrap_or(events)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|gone| Err(io::Error::other(gone)))
}

#[cfg(test)]
mod tests;
