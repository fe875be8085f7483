//! The way into the audit log: a bounded queue with room reserved before a call runs (DESIGN §6.5, X-25).
//!
//! A call first takes a [`Slot`]. Holding one means its record *will* fit, so a call that cannot be recorded never
//! starts. One task writes batches to the [`AuditSink`]; when the sink fails it keeps the batch and tries again, and new
//! calls are refused meanwhile, and so they are while the sink has no room for what would come, though it still takes what
//! was let in. Records are never dropped and never sampled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::ports::audit_sink::{AuditRecord, AuditSink};
use crate::ports::clock::Clock;
use crate::ports::observer::Observer;

/// Records that may wait. At the limit callers wait [`SLOT_WAIT`], then get E3803.
const QUEUE_MAX: usize = 8_192;
/// Records written at once.
const BATCH_MAX: usize = 2_048;
/// How long a call waits for room.
const SLOT_WAIT: Duration = Duration::from_secs(1);
/// How long records gather before the next batch is written, also if some came while the last one was: a write to disk costs
/// more than hundreds of records, and to wake the writer for every call more than its record. A record somebody waits for
/// cuts it short.
const LINGER: Duration = Duration::from_millis(20);
/// So often a sink without room is asked again.
const ROOM_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failed write: doubles from the first to the last.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

struct Entry {
    record: AuditRecord,
    /// Told once the record is durable.
    durable: Option<oneshot::Sender<()>>,
}

/// Hands out slots.
#[derive(Debug)]
pub struct Recorder {
    queue: mpsc::Sender<Entry>,
    writable: Arc<AtomicBool>,
    urgent: Arc<Notify>,
    clock: Arc<dyn Clock>,
}

/// Room for one record.
#[derive(Debug)]
pub(crate) struct Slot {
    permit: mpsc::OwnedPermit<Entry>,
    urgent: Arc<Notify>,
}

/// Owns the writing task.
#[derive(Debug)]
pub struct RecorderHandle {
    closing: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Starts the writing task.
    pub fn start(
        sink: Arc<dyn AuditSink>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> (Self, RecorderHandle) {
        let (queue, entries) = mpsc::channel(QUEUE_MAX);
        let writable = Arc::new(AtomicBool::new(sink.has_room()));
        let (closing, urgent) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let writer = Writer {
            sink,
            clock: Arc::clone(&clock),
            observer,
            writable: Arc::clone(&writable),
            urgent: Arc::clone(&urgent),
            closing: Arc::clone(&closing),
        };
        let task = tokio::spawn(writer.run(entries));
        (Self { queue, writable, urgent, clock }, RecorderHandle { closing, task })
    }

    /// Takes room for one record, or says why the call must not run.
    pub(crate) async fn reserve(&self) -> Result<Slot, Refusal> {
        if !self.writable.load(Ordering::Relaxed) {
            return Err(Refusal::new(ErrorCode::E3801, "the audit log cannot be written, so no call is run")
                .hint(
                    "an operator must look at the disk of the audit directory, which may be full; calls resume by themselves once \
                     it can be written",
                ));
        }
        let queue = self.queue.clone();
        let permit = match queue.try_reserve_owned() {
            Ok(permit) => permit,
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(shutting_down()),
            Err(mpsc::error::TrySendError::Full(queue)) => tokio::select! {
                permit = queue.reserve_owned() => permit.map_err(|_| shutting_down())?,
                () = self.clock.sleep(SLOT_WAIT) => {
                    return Err(Refusal::new(ErrorCode::E3803, "too many calls wait to be recorded"));
                }
            },
        };
        Ok(Slot { permit, urgent: Arc::clone(&self.urgent) })
    }

    /// Can records be written at the moment?
    pub fn is_writable(&self) -> bool {
        self.writable.load(Ordering::Relaxed) && !self.queue.is_closed()
    }
}

impl Slot {
    /// Hands the record in. It will be written; nobody waits for it.
    pub(crate) fn record(self, record: AuditRecord) {
        self.permit.send(Entry { record, durable: None });
    }

    /// Hands the record in and waits until it is durable.
    pub(crate) async fn record_durably(self, record: AuditRecord) -> Result<(), Refusal> {
        let (durable, written) = oneshot::channel();
        self.permit.send(Entry { record, durable: Some(durable) });
        self.urgent.notify_one();
        written.await.map_err(|_| shutting_down())
    }
}

impl RecorderHandle {
    /// Writes what waits, then ends. Slots handed out before are still honoured.
    pub async fn close(self) {
        self.closing.notify_one();
        if self.task.await.is_err() {
            tracing::error!("the audit writer ended abnormally");
        }
    }
}

fn shutting_down() -> Refusal {
    Refusal::new(ErrorCode::E3001, "the server is shutting down")
        .hint("send the call to another replica, or again in a moment")
}

struct Writer {
    sink: Arc<dyn AuditSink>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    writable: Arc<AtomicBool>,
    /// Somebody waits for a record to be durable.
    urgent: Arc<Notify>,
    closing: Arc<Notify>,
}

impl Writer {
    async fn run(self, mut entries: mpsc::Receiver<Entry>) {
        let mut open = true;
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let taken = tokio::select! {
                biased;
                taken = entries.recv_many(&mut batch, BATCH_MAX) => taken,
                () = self.closing.notified(), if open => {
                    open = false;
                    entries.close();
                    continue;
                }
                () = self.clock.sleep(ROOM_LOOK_EVERY), if open && !self.sink.has_room() => {
                    self.sink.make_room().await;
                    self.let_in();
                    continue;
                }
            };
            if taken == 0 {
                return;
            }
            self.observer.audit_queue(entries.len());
            self.write(batch.drain(..)).await;
            if open && entries.len() < BATCH_MAX && self.gather().await {
                open = false;
                entries.close();
            }
        }
    }

    /// Lets records gather for a moment. True if the end was asked for meanwhile.
    async fn gather(&self) -> bool {
        tokio::select! {
            biased;
            () = self.closing.notified() => true,
            () = self.urgent.notified() => false,
            () = self.clock.sleep(LINGER) => false,
        }
    }

    /// Calls are let in from now on, or not.
    fn let_in(&self) {
        let room = self.sink.has_room();
        let before = self.writable.swap(room, Ordering::Relaxed);
        match (before, room) {
            (true, false) => tracing::error!("the disk of the audit log is full, so no call is run"),
            (false, true) => tracing::warn!("the audit log can be written, and calls are run"),
            _ => {}
        }
    }

    async fn write(&self, batch: impl Iterator<Item = Entry>) {
        let mut waiting = Vec::new();
        let records: Arc<[AuditRecord]> = batch
            .map(|entry| {
                waiting.extend(entry.durable);
                entry.record
            })
            .collect();
        let oldest = records.first().map(|record| record.at);
        let mut pause = RETRY_PAUSE.0;
        while let Err(error) = self.sink.append(Arc::clone(&records)).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                records = records.len(),
                "audit records wait to be written"
            );
            self.observer.audit_append_failed();
            self.writable.store(false, Ordering::Relaxed);
            self.clock.sleep(pause).await;
            pause = (pause * 2).min(RETRY_PAUSE.1);
        }
        self.let_in();
        if let Some(oldest) = oldest {
            self.observer.audit_delivered(self.clock.now().since(oldest));
        }
        for durable in waiting {
            // A caller that has gone away does not want to know.
            let _ = durable.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use contract::ids::TraceId;

    use super::*;
    use crate::ports::audit_sink::{AuditAction, AuditError};
    use crate::ports::clock::UnixMillis;
    use crate::ports::observer::Unwatched;

    /// No wait lasts longer than others need for their turn.
    #[derive(Debug)]
    struct Hasty;

    impl Clock for Hasty {
        fn now(&self) -> UnixMillis {
            UnixMillis(1_800_000_000_000)
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
            Box::pin(tokio::task::yield_now())
        }
    }

    /// A disk with room for so many records more; what is written takes none of the room that others were promised.
    #[derive(Debug, Default)]
    struct SmallDisk {
        written: Mutex<usize>,
        full: AtomicBool,
        freed: AtomicBool,
    }

    #[async_trait]
    impl AuditSink for SmallDisk {
        async fn append(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
            *self.written.lock().unwrap() += records.len();
            Ok(())
        }

        fn has_room(&self) -> bool {
            !self.full.load(Ordering::SeqCst)
        }

        async fn make_room(&self) {
            if self.freed.load(Ordering::SeqCst) {
                self.full.store(false, Ordering::SeqCst);
            }
        }
    }

    fn record() -> AuditRecord {
        AuditRecord {
            at: UnixMillis(0),
            action: AuditAction::InvocationFinished,
            trace_id: TraceId::from_bytes([7; 16]),
            invocation_id: None,
            who: None,
            tool: None,
            version: None,
            status: None,
            code: None,
            parameters_digest: None,
            parameters: None,
            judged: None,
            duration_ms: None,
            usage: None,
            cost: None,
            note: None,
        }
    }

    #[tokio::test]
    async fn while_there_is_no_room_nothing_is_let_in_and_what_was_let_in_is_written() {
        let disk = Arc::new(SmallDisk::default());
        let (recorder, handle) =
            Recorder::start(Arc::clone(&disk) as Arc<dyn AuditSink>, Arc::new(Hasty), Arc::new(Unwatched));
        let (first, second) = (recorder.reserve().await.unwrap(), recorder.reserve().await.unwrap());
        disk.full.store(true, Ordering::SeqCst);
        first.record_durably(record()).await.unwrap();
        assert_eq!(recorder.reserve().await.unwrap_err().code, ErrorCode::E3801);
        assert!(!recorder.is_writable());
        second.record_durably(record()).await.unwrap();
        assert_eq!(*disk.written.lock().unwrap(), 2, "it was promised");
        // Somebody deletes something, and calls are let in without being asked for.
        disk.freed.store(true, Ordering::SeqCst);
        while !recorder.is_writable() {
            tokio::task::yield_now().await;
        }
        recorder.reserve().await.unwrap().record(record());
        handle.close().await;
        assert_eq!(*disk.written.lock().unwrap(), 3);
    }
}
