//! What a courier does when a sink or the log is not as it should be. That it delivers at all is the suite's.

use std::collections::VecDeque;
use std::sync::Mutex;

use async_trait::async_trait;
use ports::clock::UnixMillis;

use super::*;
use crate::conformance::{FixedEntropy, MemorySource, until};
use crate::reader::LogEntry;
use crate::sinks::{NoSinkObserver, SinkStatus};

/// Answers as it is told, then takes everything.
#[derive(Debug, Default)]
struct Script {
    answers: Mutex<VecDeque<Result<(), SinkError>>>,
    taken: Mutex<Vec<u64>>,
}

#[async_trait]
impl RecordSink for Script {
    async fn deliver(&self, batch: &[SinkEvent]) -> Result<(), SinkError> {
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Ok(()));
        let count = answer.as_ref().map_or_else(|error| error.acknowledged, |()| batch.len());
        self.taken.lock().unwrap().extend(batch.iter().take(count).map(|event| event.seq));
        answer
    }
}

/// Notes how long it was asked to sleep, and sleeps a moment.
#[derive(Debug, Default)]
struct NotingClock {
    asked: Mutex<Vec<Duration>>,
}

impl Clock for NotingClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_800_000_060_000)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, span: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        self.asked.lock().unwrap().push(span);
        Box::pin(tokio::time::sleep(Duration::from_millis(5)))
    }
}

/// Keeps the last that was said.
#[derive(Debug, Default)]
struct Heard {
    lag: Mutex<Vec<SinkLag>>,
    delivered: Mutex<u64>,
    failures: Mutex<u64>,
}

impl SinkWatcher for Heard {
    fn delivered(&self, _: &str, records: u64) {
        *self.delivered.lock().unwrap() += records;
    }
    fn failed(&self, _: &str) {
        *self.failures.lock().unwrap() += 1;
    }
    fn lag(&self, _: &str, lag: SinkLag) {
        self.lag.lock().unwrap().push(lag);
    }
    fn state(&self, _: &str, _: SinkState) {}
}

struct Stage {
    dir: tempfile::TempDir,
    source: Arc<MemorySource>,
    sink: Arc<Script>,
    clock: Arc<NotingClock>,
    heard: Arc<Heard>,
}

impl Stage {
    fn with(records: usize, answers: impl IntoIterator<Item = Result<(), SinkError>>) -> Self {
        let source = Arc::new(MemorySource::default());
        source.append(records, |seq| format!("note {seq}"));
        let sink = Script { answers: Mutex::new(answers.into_iter().collect()), ..Script::default() };
        Self {
            dir: tempfile::tempdir().unwrap(),
            source,
            sink: Arc::new(sink),
            clock: Arc::default(),
            heard: Arc::default(),
        }
    }

    fn courier(&self, source: Arc<dyn RecordSource>) -> SinkForwarder {
        SinkForwarder::new(ForwarderParts {
            sink: Arc::clone(&self.sink) as _,
            source,
            cursor: SinkCursor::open(self.dir.path(), "siem").unwrap(),
            limits: BatchLimits { records: 10, bytes: 1 << 20 },
            pace: ForwarderPace::default(),
            grown: self.source.growth(),
            clock: Arc::clone(&self.clock) as _,
            entropy: Arc::new(FixedEntropy),
            watcher: Arc::clone(&self.heard) as _,
        })
    }

    fn start(&self) -> ForwarderHandle {
        self.courier(Arc::clone(&self.source) as _).start()
    }

    fn next(&self) -> Option<u64> {
        SinkCursor::peek(self.dir.path(), "siem").unwrap()
    }

    fn status(&self) -> Option<SinkStatus> {
        StatusFile::peek(self.dir.path(), "siem").unwrap()
    }

    async fn until_next(&self, next: u64) {
        until("the cursor has come so far", || async { self.next() == Some(next) }).await;
    }
}

#[tokio::test]
async fn what_was_taken_before_a_failure_is_not_handed_over_again() {
    let stage = Stage::with(30, [Ok(()), Err(SinkError::later("broke").having_taken(4)), Ok(())]);
    let courier = stage.start();
    stage.until_next(30).await;
    courier.close().await;
    assert_eq!(*stage.sink.taken.lock().unwrap(), (0..30).collect::<Vec<_>>());
    assert_eq!((*stage.heard.delivered.lock().unwrap(), *stage.heard.failures.lock().unwrap()), (30, 1));
    assert_eq!(stage.status().unwrap().state, SinkState::Stopped);
}

#[test]
fn a_courier_rests_in_proportion_to_its_work_unless_it_is_far_behind() {
    let (ms, second) = (Duration::from_millis, Duration::from_secs(1));
    let pace = ForwarderPace { gather: ms(500), rests: 3, lag_max: 30 * second };
    for (took, age, rest) in [
        (ms(0), ms(0), ms(500)),
        (ms(200), ms(600), ms(600)),
        (ms(200), 30 * second, ms(600)),
        (ms(200), 31 * second, ms(0)),
        (20 * second, second, REST_MAX),
    ] {
        assert_eq!(rest_after(took, age, pace), rest, "{took:?} {age:?}");
    }
    assert_eq!(rest_after(second, second, ForwarderPace::default()), Duration::ZERO, "others never rest");
}

#[tokio::test]
async fn a_courier_that_rests_gathers_before_each_batch_and_a_stop_ends_the_rest() {
    let stage = Stage::with(25, []);
    // The records of the stage are a minute old.
    let pace = ForwarderPace { gather: Duration::from_millis(500), rests: 3, lag_max: Duration::from_hours(1) };
    let mut courier = stage.courier(Arc::clone(&stage.source) as _);
    courier.parts.pace = pace;
    let handle = courier.start();
    stage.until_next(25).await;
    let rests = stage.clock.asked.lock().unwrap().iter().filter(|asked| **asked == pace.gather).count();
    assert!(rests >= 2, "three batches, and a rest after each: {rests}");
    handle.close().await;
    assert_eq!(*stage.sink.taken.lock().unwrap(), (0..25).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_pause_grows_and_is_never_shorter_than_the_receiver_asked() {
    let asked = |seconds| SinkError {
        verdict: BatchVerdict::Later { after: Some(Duration::from_secs(seconds)) },
        ..SinkError::later("busy")
    };
    let stage = Stage::with(
        1,
        [Err(SinkError::later("x")), Err(SinkError::later("x")), Err(asked(30)), Err(asked(1_000_000)), Ok(())],
    );
    let courier = stage.start();
    stage.until_next(1).await;
    courier.close().await;
    let pauses = stage.clock.asked.lock().unwrap().iter().copied().take(4).collect::<Vec<_>>();
    assert!(pauses[0] < pauses[1] && pauses[0] >= Duration::from_millis(250), "{pauses:?}");
    assert_eq!(pauses[2..], [Duration::from_secs(30), ASKED_PAUSE_MAX]);
}

#[tokio::test]
async fn a_refusal_halts_the_sink_keeps_its_cursor_and_is_tried_again_now_and_then() {
    // More than it will ever try: it is the test that ends them.
    let refusals = std::iter::repeat_n(Err(SinkError::refused("the receiver answers 401")), 100_000);
    let stage = Stage::with(20, std::iter::once(Ok(())).chain(refusals));
    let courier = stage.start();
    let tries = || stage.clock.asked.lock().unwrap().iter().filter(|pause| **pause == HALTED_PAUSE).count();
    until("halted", || async { stage.status().is_some_and(|status| status.state == SinkState::Halted) }).await;
    let status = stage.status().unwrap();
    assert_eq!(status.reason.as_deref(), Some("the receiver answers 401"));
    until("tried again", || async { tries() >= 3 }).await;
    assert_eq!(stage.next(), Some(10));
    stage.sink.answers.lock().unwrap().clear();
    stage.until_next(20).await;
    // The cursor is written before the word about it.
    until("going on", || async { stage.status().is_some_and(|status| status.state != SinkState::Halted) }).await;
    courier.close().await;
    assert_eq!(*stage.sink.taken.lock().unwrap(), (0..20).collect::<Vec<_>>());
    assert_eq!(stage.status().unwrap().state, SinkState::Stopped);
}

#[tokio::test]
async fn a_halted_sink_stays_halted_in_the_eyes_of_others_when_its_server_ends() {
    let stage = Stage::with(1, std::iter::repeat_n(Err(SinkError::refused("no")), 1000));
    let courier = stage.start();
    until("halted", || async { stage.status().is_some_and(|status| status.state == SinkState::Halted) }).await;
    courier.close().await;
    assert_eq!(stage.status().unwrap().state, SinkState::Halted);
    assert_eq!(stage.next(), None, "nothing was acknowledged");
}

#[tokio::test]
async fn a_log_that_was_rolled_back_halts_instead_of_being_taken_for_done() {
    let stage = Stage::with(5, []);
    SinkCursor::open(stage.dir.path(), "siem").unwrap().advance(9).await.unwrap();
    let courier = stage.start();
    until("halted", || async { stage.status().is_some_and(|status| status.state == SinkState::Halted) }).await;
    courier.close().await;
    assert!(stage.status().unwrap().reason.unwrap().contains("rolled back"));
    assert_eq!(stage.next(), Some(9));
    assert!(stage.sink.taken.lock().unwrap().is_empty());
}

/// Has a line that is no record at 3.
#[derive(Debug)]
struct Damaged(Arc<MemorySource>);

impl RecordSource for Damaged {
    fn read(&self, from: u64, max: usize) -> io::Result<Vec<LogEntry>> {
        let mut entries = self.0.read(from, max)?;
        for entry in entries.iter_mut().filter(|entry| entry.seq == 3) {
            entry.line = "{\"seq\":3,".to_owned();
        }
        Ok(entries)
    }

    fn end(&self) -> io::Result<u64> {
        self.0.end()
    }
}

#[tokio::test]
async fn a_damaged_record_halts_after_everything_before_it_and_is_named() {
    let stage = Stage::with(6, []);
    let courier = stage.courier(Arc::new(Damaged(Arc::clone(&stage.source)))).start();
    until("halted", || async { stage.status().is_some_and(|status| status.state == SinkState::Halted) }).await;
    courier.close().await;
    assert_eq!((stage.next(), stage.sink.taken.lock().unwrap().as_slice()), (Some(3), [0, 1, 2].as_slice()));
    assert!(stage.status().unwrap().reason.unwrap().contains("record 3"));
}

#[tokio::test]
async fn lag_is_told_in_records_and_in_the_age_of_the_oldest() {
    let stage = Stage::with(25, [Ok(()), Err(SinkError::later("x").having_taken(2))]);
    let courier = stage.start();
    stage.until_next(25).await;
    courier.close().await;
    let lag = stage.heard.lag.lock().unwrap().clone();
    // By the stage's clock all records are a minute old.
    let waiting = |records| SinkLag { records, age: Duration::from_secs(60) };
    assert_eq!(lag[..5], [waiting(25), waiting(15), waiting(13), waiting(5), SinkLag::default()]);
}

#[tokio::test]
async fn a_stop_lets_the_courier_carry_what_is_there() {
    let stage = Stage::with(200, []);
    let mut courier = stage.courier(Arc::clone(&stage.source) as _);
    courier.parts.clock = Arc::new(PatientClock);
    courier.start().close().await;
    assert_eq!(stage.next(), Some(200));
}

/// Never answers.
#[derive(Debug)]
struct Hanging;

#[async_trait]
impl RecordSink for Hanging {
    async fn deliver(&self, _: &[SinkEvent]) -> Result<(), SinkError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_sink_that_never_answers() {
    let stage = Stage::with(1, []);
    let mut courier = stage.courier(Arc::clone(&stage.source) as _);
    courier.parts.sink = Arc::new(Hanging);
    courier.parts.watcher = Arc::new(NoSinkObserver);
    let ended = tokio::time::timeout(Duration::from_secs(30), courier.start().close()).await;
    assert!(ended.is_ok() && stage.next().is_none());
}

/// Sleeps as long as it is asked to.
#[derive(Debug)]
struct PatientClock;

impl Clock for PatientClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, span: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        // Only the gathering is short; everything longer is for ever here.
        if span == ForwarderPace::default().gather {
            Box::pin(std::future::ready(()))
        } else {
            Box::pin(std::future::pending())
        }
    }
}

#[tokio::test]
async fn growth_wakes_an_idle_courier() {
    let stage = Stage::with(0, []);
    let mut courier = stage.courier(Arc::clone(&stage.source) as _);
    courier.parts.clock = Arc::new(PatientClock);
    let courier = courier.start();
    until("idle", || async { stage.status().is_some_and(|status| status.state == SinkState::Delivering) }).await;
    stage.source.append(3, |seq| format!("note {seq}"));
    stage.until_next(3).await;
    courier.close().await;
}
