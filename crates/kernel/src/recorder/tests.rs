//! Slots, groups, what waits for what, and a sink that fails.

use std::pin::Pin;

use async_trait::async_trait;
use contract::ids::TraceId;
use ports::audit_sink::AuditAction;
use ports::observer::NoObserver;

use super::*;

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
    async fn write(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
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
        Recorder::start(Arc::clone(&disk) as Arc<dyn AuditSink>, Arc::new(Hasty), Arc::new(NoObserver));
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
    recorder.reserve().await.unwrap().record(record()).await.unwrap();
    handle.close().await;
    assert_eq!(*disk.written.lock().unwrap(), 3);
}

/// A log in memory: what was written, what is durable, and what it is told to do.
#[derive(Debug, Default)]
struct Tape {
    written: Mutex<Vec<usize>>,
    synced: Mutex<usize>,
    /// Nothing can be written at once.
    busy: AtomicBool,
    broken: AtomicBool,
}

impl Tape {
    fn take(&self, records: &[AuditRecord]) -> Result<(), AuditError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(AuditError("the disk is full".into()));
        }
        self.written.lock().unwrap().push(records.len());
        Ok(())
    }
}

#[async_trait]
impl AuditSink for Tape {
    async fn write(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        tokio::task::yield_now().await;
        self.take(&records)
    }

    fn write_now(&self, records: &[AuditRecord]) -> Option<Result<(), AuditError>> {
        (!self.busy.load(Ordering::SeqCst)).then(|| self.take(records))
    }

    async fn sync(&self) -> Result<(), AuditError> {
        let written = self.written.lock().unwrap().iter().sum();
        tokio::task::yield_now().await;
        *self.synced.lock().unwrap() = written;
        Ok(())
    }
}

fn taped() -> (Arc<Tape>, Recorder, RecorderHandle) {
    let tape = Arc::new(Tape::default());
    let (recorder, handle) =
        Recorder::start(Arc::clone(&tape) as Arc<dyn AuditSink>, Arc::new(Hasty), Arc::new(NoObserver));
    (tape, recorder, handle)
}

#[tokio::test]
async fn a_record_is_written_when_its_call_goes_on_and_durable_if_that_was_wanted() {
    let (tape, recorder, handle) = taped();
    for busy in [false, true] {
        tape.busy.store(busy, Ordering::SeqCst);
        let before: usize = tape.written.lock().unwrap().iter().sum();
        recorder.reserve().await.unwrap().record(record()).await.unwrap();
        assert_eq!(tape.written.lock().unwrap().iter().sum::<usize>(), before + 1);
        recorder.reserve().await.unwrap().record_durably(record()).await.unwrap();
        assert_eq!(*tape.synced.lock().unwrap(), before + 2);
    }
    handle.close().await;
    assert_eq!(*tape.synced.lock().unwrap(), 4);
}

#[tokio::test]
async fn whoever_finds_no_room_in_time_is_turned_away_and_let_in_when_there_is_some() {
    let (_tape, recorder, _handle) = taped();
    let mut held = Vec::new();
    for _ in 0..RECORDS_MIN {
        held.push(recorder.reserve().await.unwrap());
    }
    let refusal = recorder.reserve().await.map(|_| ()).unwrap_err();
    assert_eq!((refusal.code, refusal.code.row().retry.retryable()), (ErrorCode::E3803, true));
    held.pop().unwrap().record(record()).await.unwrap();
    assert!(recorder.reserve().await.is_ok());
}

#[tokio::test]
async fn there_is_room_for_every_call_that_is_let_in() {
    let tape = Arc::new(Tape::default());
    let sink = Arc::clone(&tape) as Arc<dyn AuditSink>;
    let (recorder, handle) = Recorder::start_for(sink, Arc::new(Hasty), Arc::new(NoObserver), 10_000);
    let mut held = Vec::new();
    for _ in 0..20_000 {
        held.push(recorder.reserve().await.unwrap());
    }
    assert_eq!(recorder.reserve().await.map(|_| ()).unwrap_err().code, ErrorCode::E3803);
    drop(held);
    handle.close().await;
}

#[tokio::test]
async fn those_who_are_ready_are_written_together_and_one_alone_at_once() {
    let (tape, recorder, handle) = taped();
    recorder.reserve().await.unwrap().record(record()).await.unwrap();
    let mut slots = Vec::new();
    for _ in 0..20 {
        slots.push(recorder.reserve().await.unwrap());
    }
    let tasks: Vec<_> =
        slots.into_iter().map(|slot| tokio::spawn(async move { slot.record(record()).await })).collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    assert_eq!(*tape.written.lock().unwrap(), [1, 20]);
    handle.close().await;
}

#[tokio::test]
async fn a_record_that_cannot_be_written_is_told_and_kept() {
    let (tape, recorder, handle) = taped();
    let (first, second) = (recorder.reserve().await.unwrap(), recorder.reserve().await.unwrap());
    tape.broken.store(true, Ordering::SeqCst);
    assert_eq!(first.record(record()).await.unwrap_err().code, ErrorCode::E3801);
    assert_eq!(second.record_durably(record()).await.unwrap_err().code, ErrorCode::E3801);
    assert_eq!(recorder.reserve().await.unwrap_err().code, ErrorCode::E3801);
    tape.broken.store(false, Ordering::SeqCst);
    while !recorder.is_writable() {
        tokio::task::yield_now().await;
    }
    handle.close().await;
    assert_eq!((tape.written.lock().unwrap().iter().sum::<usize>(), *tape.synced.lock().unwrap()), (2, 2));
}

#[tokio::test]
async fn a_record_nobody_waits_for_any_more_is_written() {
    let (tape, recorder, handle) = taped();
    let other = recorder.reserve().await.unwrap();
    let slot = recorder.reserve().await.unwrap();
    {
        let mut recording = Box::pin(slot.record(record()));
        // It has handed the record in and lets others go first; then whoever waits for it goes away.
        assert!(polled_once(&mut recording).await.is_none());
    }
    assert_eq!(*tape.written.lock().unwrap(), [1]);
    drop(other);
    handle.close().await;
}

/// Polls once; the answer if there is one already.
async fn polled_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut future = Pin::new(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(done) => Some(done),
            std::task::Poll::Pending => None,
        })
    })
    .await
}
