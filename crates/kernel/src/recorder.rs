//! The way into the audit log: room reserved before a call runs, and a record that is written before the call is answered
//! (DESIGN §6.5, X-25).
//!
//! A call first takes a [`RecordSlot`]. Holding one means its record *will* fit, so a call that cannot be recorded never
//! starts. Its answer leaves once the record is *written*: the end of this process cannot take it any more. Where something
//! was changed, the answer waits until the record is *durable*, so that the end of the machine cannot either.
//!
//! Records are written in groups, without a timer. Whoever hands one in writes all that wait, on its own thread, unless
//! somebody does already: then that one writes it too. A call that is not alone lets the others go first that are ready to
//! run, and those hand in theirs. What cannot be written at once (a full file, a busy or a failing disk) goes to the
//! *writer task*, which also syncs: soon, or at once if somebody waits for it. When the sink fails, whoever waits is told so
//! (E3801), the task keeps the group and tries again, and new calls are refused meanwhile; so they are while the sink has no
//! room for what would come, though it still takes what was let in. Records are never dropped and never sampled.
//!
//! Invariants
//! - RECORD-1: records are written in the order in which they were handed in, by one at a time (`Queue::is_busy`).
//! - RECORD-2: whoever was told that its record is written, or durable, is right.
//! - RECORD-3: a record that was handed in is written, also if nobody waits for it any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::backoff::GrowingPause;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::error::{ErrorCode, Refusal};
use ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use ports::clock::{Clock, UnixMillis};
use ports::observer::Observer;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, oneshot};
use tokio::task::JoinHandle;

/// Records that may wait at least. Where more calls are let in, there is room for all of them: a call holds its place from its
/// beginning to its end. At the limit callers wait [`SLOT_WAIT`], then get E3803.
const RECORDS_MIN: u32 = 8_192;
/// Records of one call that may wait at the same time: its start and its end.
const RECORDS_PER_CALL: usize = 2;
/// How long a call waits for room.
const SLOT_WAIT: Duration = Duration::from_secs(1);
/// How long written records gather before they are synced: a sync costs more than hundreds of records. A record somebody
/// waits for cuts it short.
const LINGER: Duration = Duration::from_millis(20);
/// Groups that one call writes for others. Then the writer task goes on, so that no call works for ever; and groups that the
/// task writes before it syncs.
const GROUPS_MAX: usize = 8;
/// So often a sink without room is asked again.
const ROOM_LOOK_EVERY: Duration = Duration::from_secs(1);
/// Pause after a failed write: doubles from the first to the last.
const RETRY_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordDurability {
    /// The end of this process cannot take the record any more.
    Written,
    /// The end of the machine cannot either.
    Durable,
}

/// Hears `true` once it is as it was wanted, `false` if that cannot be said soon.
type RecordWaiter = oneshot::Sender<bool>;

#[derive(Debug)]
struct Entry {
    record: AuditRecord,
    until: RecordDurability,
    /// Gone once the sink has failed.
    told: Option<RecordWaiter>,
    /// Given back once the record is written.
    room: OwnedSemaphorePermit,
}

/// Records that are written at once.
#[derive(Debug)]
struct Group {
    records: Arc<[AuditRecord]>,
    waiting: Vec<(RecordDurability, RecordWaiter)>,
    room: Vec<OwnedSemaphorePermit>,
}

/// What waits to be written, and what was written and waits to be durable.
#[derive(Debug, Default)]
struct Queue {
    entries: Vec<Entry>,
    /// Somebody writes. Whoever sets it writes until nothing waits, or leaves the rest to the writer task.
    is_busy: bool,
    /// Left to the writer task, which then is the one who writes.
    left: Option<Group>,
    /// Something was written since the last sync began; the time of its first record.
    unsynced: Option<UnixMillis>,
    until_durable: Vec<RecordWaiter>,
}

/// Hands out slots.
#[derive(Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    sink: Arc<dyn AuditSink>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    writable: AtomicBool,
    is_closing: AtomicBool,
    room: Arc<Semaphore>,
    /// All of the room.
    records_max: u32,
    queue: Mutex<Queue>,
    /// There is something to do for the writer task.
    work: Notify,
    /// It must not wait any longer.
    urgent: Notify,
}

/// Room for one record.
#[derive(Debug)]
pub struct RecordSlot {
    room: OwnedSemaphorePermit,
    shared: Arc<Shared>,
}

/// Owns the writer task.
#[derive(Debug)]
pub struct RecorderHandle {
    closing: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Recorder {
    /// Starts the writer task.
    pub fn start(
        sink: Arc<dyn AuditSink>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> (Self, RecorderHandle) {
        Self::start_for(sink, clock, observer, 0)
    }

    /// Starts the writer task, with room for the records of that many calls that are under way at the same time.
    pub fn start_for(
        sink: Arc<dyn AuditSink>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
        calls_at_once: usize,
    ) -> (Self, RecorderHandle) {
        let records_max = u32::saturating_from(calls_at_once.saturating_mul(RECORDS_PER_CALL));
        let records_max = records_max.max(RECORDS_MIN);
        let shared = Arc::new(Shared {
            writable: AtomicBool::new(sink.has_room()),
            is_closing: AtomicBool::new(false),
            sink,
            clock,
            observer,
            room: Arc::new(Semaphore::new(records_max as usize)),
            records_max,
            queue: Mutex::default(),
            work: Notify::new(),
            urgent: Notify::new(),
        });
        let closing = Arc::new(Notify::new());
        let task = tokio::spawn(run(Arc::clone(&shared), Arc::clone(&closing)));
        (Self { shared }, RecorderHandle { closing, task })
    }

    /// Takes room for one record, or says why the call must not run.
    pub(crate) async fn reserve(&self) -> Result<RecordSlot, Refusal> {
        let shared = &self.shared;
        if !shared.writable.load(Ordering::Relaxed) {
            return Err(unwritable("the audit log cannot be written, so no call is run"));
        }
        let room = match Arc::clone(&shared.room).try_acquire_owned() {
            Ok(room) => room,
            Err(TryAcquireError::Closed) => return Err(shutting_down()),
            Err(TryAcquireError::NoPermits) if shared.is_closing.load(Ordering::Acquire) => return Err(shutting_down()),
            Err(TryAcquireError::NoPermits) => tokio::select! {
                room = Arc::clone(&shared.room).acquire_owned() => room.map_err(|_| shutting_down())?,
                () = shared.clock.sleep(SLOT_WAIT) => {
                    return Err(Refusal::new(ErrorCode::E3803, "too many calls wait to be recorded"));
                }
            },
        };
        if shared.is_closing.load(Ordering::Acquire) {
            return Err(shutting_down());
        }
        Ok(RecordSlot { room, shared: Arc::clone(shared) })
    }

    /// Can records be written at the moment?
    pub fn is_writable(&self) -> bool {
        self.shared.writable.load(Ordering::Relaxed) && !self.shared.is_closing.load(Ordering::Acquire)
    }
}

// -------------------------------------------------------------------------------------------------------------- Slot

impl RecordSlot {
    /// Hands the record in and waits until it is written.
    pub async fn record(self, record: AuditRecord) -> Result<(), Refusal> {
        self.record_until(record, RecordDurability::Written).await
    }

    /// Hands the record in and waits until it is durable.
    pub async fn record_durably(self, record: AuditRecord) -> Result<(), Refusal> {
        self.record_until(record, RecordDurability::Durable).await
    }

    /// Hands the record in and waits. If the sink fails meanwhile the record is written later, and the caller hears that.
    pub(crate) async fn record_until(self, record: AuditRecord, until: RecordDurability) -> Result<(), Refusal> {
        let Self { room, shared } = self;
        let (told, heard) = oneshot::channel();
        shared.lock().entries.push(Entry { record, until, told: Some(told), room });
        // Dropped when the others had their turn, or when nobody wants to know any more.
        let turn = Turn(&shared);
        if !shared.is_alone() {
            tokio::task::yield_now().await;
        }
        drop(turn);
        match heard.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(unwritable("this ended, but it cannot be recorded, so there is no answer")),
            Err(_) => Err(shutting_down()),
        }
    }
}

/// The end of it writes what waits.
struct Turn<'a>(&'a Shared);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.write_waiting();
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

fn unwritable(message: &str) -> Refusal {
    Refusal::new(ErrorCode::E3801, message).hint(
        "an operator must look at the disk of the audit directory, which may be full; calls resume by themselves once it can \
         be written",
    )
}

// ------------------------------------------------------------------------------------------------------------- Queue

impl Queue {
    /// The next group for the one who writes. None if nothing waits, and then nobody writes any more.
    fn next(&mut self) -> Option<Group> {
        self.is_busy = !self.entries.is_empty();
        if !self.is_busy {
            return None;
        }
        let entries = std::mem::take(&mut self.entries);
        let (mut waiting, mut room) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
        let records = entries
            .into_iter()
            .map(|entry| {
                waiting.extend(entry.told.map(|told| (entry.until, told)));
                room.push(entry.room);
                entry.record
            })
            .collect();
        Some(Group { records, waiting, room })
    }
}

// ------------------------------------------------------------------------------------------------------------ Shared

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock_unpoisoned()
    }

    /// Is nobody else on the way with a record?
    fn is_alone(&self) -> bool {
        self.room.available_permits() + 1 >= self.records_max as usize
    }

    /// Writes what waits, here and now, unless somebody does already. What would have to be waited for is left to the writer
    /// task.
    fn write_waiting(&self) {
        let mut next = {
            let mut queue = self.lock();
            if queue.is_busy { None } else { queue.next() }
        };
        let mut written = 0;
        while let Some(group) = next {
            if written == GROUPS_MAX || !matches!(self.sink.write_now(&group.records), Some(Ok(()))) {
                self.lock().left = Some(group);
                self.work.notify_one();
                return;
            }
            written += 1;
            next = self.have_written(group);
        }
    }

    /// The group is written: tells who waits for that, and answers the next group.
    fn have_written(&self, group: Group) -> Option<Group> {
        let Group { records, waiting, room } = group;
        let mut queue = self.lock();
        let is_first = queue.unsynced.is_none();
        queue.unsynced = queue.unsynced.or_else(|| records.first().map(|record| record.at));
        let mut is_urgent = false;
        let mut until_written = Vec::with_capacity(waiting.len());
        for (until, told) in waiting {
            match until {
                RecordDurability::Written => until_written.push(told),
                RecordDurability::Durable => {
                    is_urgent = true;
                    queue.until_durable.push(told);
                }
            }
        }
        let next = queue.next();
        drop(queue);
        drop(room);
        self.let_in();
        for told in until_written {
            // A caller that has gone away does not want to know.
            let _ = told.send(true);
        }
        if is_first {
            self.work.notify_one();
        }
        if is_urgent {
            self.urgent.notify_one();
        }
        next
    }

    /// Calls are let in from now on, or not.
    fn let_in(&self) {
        let room = self.sink.has_room();
        if self.writable.load(Ordering::Relaxed) == room {
            return;
        }
        self.writable.store(room, Ordering::Relaxed);
        if room {
            tracing::warn!("the audit log can be written, and calls are run");
        } else {
            tracing::error!("the disk of the audit log is full, so no call is run");
        }
    }

    /// What the writer task has to write: what was left to it, else what waits if nobody writes.
    fn left(&self) -> Option<Group> {
        let mut queue = self.lock();
        match queue.left.take() {
            Some(group) => Some(group),
            None if queue.is_busy => None,
            None => queue.next(),
        }
    }

    /// Writes what was left, however long it takes.
    async fn write_left(&self) {
        let mut next = self.left();
        let mut written = 0;
        while let Some(mut group) = next {
            if written == GROUPS_MAX {
                self.lock().left = Some(group);
                self.work.notify_one();
                return;
            }
            let mut pause = GrowingPause::doubling(RETRY_PAUSE.0, RETRY_PAUSE.1);
            while let Err(error) = match self.sink.write_now(&group.records) {
                Some(Ok(())) => Ok(()),
                _ => self.sink.write(Arc::clone(&group.records)).await,
            } {
                self.failed(&error, group.waiting.drain(..).map(|(_, told)| told), &mut pause).await;
            }
            written += 1;
            next = self.have_written(group);
        }
    }

    /// Makes durable what was written.
    async fn sync(&self) {
        let (oldest, mut until_durable) = {
            let mut queue = self.lock();
            self.observer.audit_queue(queue.entries.len());
            (queue.unsynced.take(), std::mem::take(&mut queue.until_durable))
        };
        let Some(oldest) = oldest else { return };
        let mut pause = GrowingPause::doubling(RETRY_PAUSE.0, RETRY_PAUSE.1);
        while let Err(error) = self.sink.sync().await {
            self.failed(&error, until_durable.drain(..), &mut pause).await;
        }
        self.let_in();
        self.observer.audit_delivered(self.clock.now().since(oldest));
        for told in until_durable {
            let _ = told.send(true);
        }
        self.sink.maintain().await;
        self.let_in();
    }

    /// The sink could not do it. Nobody waits for a disk that somebody has to look at.
    async fn failed(&self, error: &AuditError, waiting: impl Iterator<Item = RecordWaiter>, pause: &mut GrowingPause) {
        tracing::error!(error = error as &dyn std::error::Error, "audit records wait to be written");
        self.observer.audit_append_failed();
        self.writable.store(false, Ordering::Relaxed);
        waiting.for_each(tell_failed);
        {
            let mut queue = self.lock();
            queue.until_durable.drain(..).for_each(tell_failed);
            queue.entries.iter_mut().filter_map(|entry| entry.told.take()).for_each(tell_failed);
        }
        self.clock.sleep(pause.next_pause()).await;
    }

    /// Lets written records gather for a moment, unless somebody waits.
    async fn gather(&self) {
        let is_waited_for = {
            let queue = self.lock();
            !queue.until_durable.is_empty() || queue.left.is_some()
        };
        if is_waited_for {
            return;
        }
        tokio::select! {
            biased;
            () = self.urgent.notified() => {}
            () = self.work.notified() => {}
            () = self.clock.sleep(LINGER) => {}
        }
    }
}

fn tell_failed(told: RecordWaiter) {
    let _ = told.send(false);
}

/// The writer task.
async fn run(shared: Arc<Shared>, closing: Arc<Notify>) {
    let mut is_open = true;
    loop {
        tokio::select! {
            biased;
            () = shared.work.notified() => {}
            () = shared.urgent.notified() => {}
            () = closing.notified(), if is_open => {
                is_open = false;
                shared.is_closing.store(true, Ordering::Release);
            }
            // Every slot that was handed out has come back.
            _ = shared.room.acquire_many(shared.records_max), if !is_open => {
                shared.write_left().await;
                shared.sync().await;
                return;
            }
            () = shared.clock.sleep(ROOM_LOOK_EVERY), if is_open && !shared.sink.has_room() => {
                shared.sink.make_room().await;
                shared.let_in();
            }
        }
        shared.write_left().await;
        if is_open && shared.lock().unsynced.is_some() {
            shared.gather().await;
            shared.write_left().await;
        }
        shared.sync().await;
    }
}

#[cfg(test)]
mod tests;
