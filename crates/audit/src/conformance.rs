//! What every sink must do, as tests. (STYLE: one suite per port)
//!
//! A sink's test crate says how to set up a receiver and names the suite:
//!
//! ```text
//! gantry_audit::sink_suite!(open);
//! ```
//!
//! `open` is an `async fn() -> impl SinkReceiver` that gives a fresh, empty one each time. The courier of the suite is the real
//! one; its clock makes pauses short.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test suite: what does not hold must panic"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::reader::LogEntry;
use crate::sinks::{
    BatchLimits, ForwarderHandle, ForwarderPace, ForwarderParts, NoSinkObserver, RecordSink, RecordSource, SinkCursor,
    SinkError, SinkEvent, SinkForwarder,
};

/// How long anything may take in the suite.
const DEADLINE: Duration = Duration::from_secs(60);
/// The longest that the suite's clock sleeps, whatever it is asked for.
const NAP: Duration = Duration::from_millis(20);
/// Of whom the suite's records are; the last is nobody.
const TENANTS: [&str; 4] = ["acme", "globex", "initech", ""];
/// Texts that break what is careless with them.
const HOSTILE: [&str; 8] = [
    "line\nbreak\r\nand \u{2028} another",
    "\u{1b}[2J\u{1b}[31mred\u{7}",
    "nul \0 inside",
    "{\"type\":\"ai.agent.tool.forged\",\"data\":[]}\n]",
    "\"; drop table events; --%00%0a",
    "e\u{301}\u{202e}gnp.exe \u{1f469}\u{200d}\u{1f680}",
    "ce-id: forged\r\n\r\nPOST / HTTP/1.1",
    "\u{10ffff}\u{fdd0}\u{feff}",
];

/// The far end of a sink, which the suite can have fail.
#[async_trait]
pub trait SinkReceiver: Send + Sync {
    /// A sink that leads to it, new each time, as after a restart.
    async fn sink(&self) -> Arc<dyn RecordSink>;
    /// From now on it fails.
    async fn fail(&self);
    /// From now on it takes what comes.
    async fn recover(&self);
    /// Every event it has, whole, in the order in which it came as far as that is known for one tenant.
    async fn events(&self) -> Vec<Value>;
}

/// All cases against one receiver.
#[macro_export]
macro_rules! sink_suite {
    ($open:path) => {
        $crate::sink_suite!(
            $open,
            [
                everything_arrives_in_order_of_each_tenant,
                nothing_is_missing_after_a_failure_and_a_restart,
                nothing_is_missing_when_the_courier_dies_under_load,
                hostile_texts_arrive_as_they_are,
            ]
        );
    };
    ($open:path, [$($case:ident),* $(,)?]) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                $crate::conformance::$case(&$open().await).await;
            }
        )*
    };
}

/// A log in memory.
#[derive(Debug, Default)]
pub struct MemorySource {
    lines: Mutex<Vec<String>>,
    grown: watch::Sender<u64>,
}

impl MemorySource {
    /// Appends records of all tenants in turn, with a note each.
    pub fn append(&self, count: usize, note: impl Fn(usize) -> String) {
        let mut lines = self.lines.lock().unwrap();
        for _ in 0..count {
            let seq = lines.len();
            let mut line = json!({
                "seq": seq, "id": format!("record-{seq}"), "at": UnixMillis(1_800_000_000_000).to_string(),
                "action": "invocation_finished", "status": "success", "trace_id": "07".repeat(16), "note": note(seq),
            });
            match TENANTS[seq % TENANTS.len()] {
                "" => {}
                tenant => line["tenant"] = tenant.into(),
            }
            lines.push(line.to_string());
        }
        self.grown.send_modify(|times| *times += 1);
    }

    /// Changes whenever it has grown.
    pub fn growth(&self) -> watch::Receiver<u64> {
        self.grown.subscribe()
    }

    /// All events of it.
    pub fn events(&self) -> Vec<SinkEvent> {
        self.read(0, usize::MAX).unwrap().iter().map(|entry| SinkEvent::of(entry).unwrap()).collect()
    }
}

impl RecordSource for MemorySource {
    fn read(&self, from: u64, max: usize) -> io::Result<Vec<LogEntry>> {
        let lines = self.lines.lock().unwrap();
        let numbered = (0_u64..).zip(lines.iter()).skip_while(|(seq, _)| *seq < from);
        Ok(numbered.take(max).map(|(seq, line)| LogEntry { seq, line: line.clone() }).collect())
    }

    fn end(&self) -> io::Result<u64> {
        Ok(self.lines.lock().unwrap().len() as u64)
    }
}

/// A clock whose pauses are short and which stands still otherwise.
#[derive(Debug, Default)]
pub struct QuickClock(pub AtomicI64);

impl Clock for QuickClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::Relaxed))
    }

    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn sleep(&self, span: Duration) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(span.min(NAP)))
    }
}

/// Draws the same every time.
#[derive(Debug)]
pub struct FixedEntropy;

impl Entropy for FixedEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0x55);
    }
}

/// A courier from `source` to `sink` whose cursor is in `dir`.
pub fn courier(
    dir: &Path,
    source: &Arc<MemorySource>,
    sink: Arc<dyn RecordSink>,
    limits: BatchLimits,
) -> ForwarderHandle {
    let parts = ForwarderParts {
        sink,
        source: Arc::clone(source) as _,
        cursor: SinkCursor::open(dir, "suite").unwrap(),
        limits,
        pace: ForwarderPace::default(),
        grown: source.growth(),
        clock: Arc::new(QuickClock::default()),
        entropy: Arc::new(FixedEntropy),
        watcher: Arc::new(NoSinkObserver),
    };
    SinkForwarder::new(parts).start()
}

/// Waits until something holds.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !holds().await {
            tokio::time::sleep(NAP).await;
        }
    });
    assert!(waited.await.is_ok(), "in time: {what}");
}

/// Waits until the cursor stands at `next`.
pub async fn until_acknowledged(dir: &Path, next: u64) {
    until("acknowledged", || async { SinkCursor::peek(dir, "suite").unwrap() == Some(next) }).await;
}

/// Every event is a valid CloudEvent, none of the first `count` is missing, and those of each tenant came in order when
/// repetitions are left out.
pub fn check(events: &[Value], count: usize) {
    let mut first_seen = BTreeSet::new();
    let mut per_tenant: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for event in events {
        let text = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("`{name}` in {event}")).to_owned();
        assert_eq!(text("specversion"), "1.0");
        assert!(!text("type").is_empty() && !text("source").is_empty() && !text("id").is_empty(), "{event}");
        assert!(text("time").parse::<jiff::Timestamp>().is_ok() && event["data"].is_object(), "{event}");
        let seq: u64 = text("sequence").parse().unwrap();
        if first_seen.insert(seq) {
            let tenant = event["partitionkey"].as_str().unwrap_or_default();
            per_tenant.entry(tenant.to_owned()).or_default().push(seq);
        }
    }
    let missing: Vec<u64> = (0..count as u64).filter(|seq| !first_seen.contains(seq)).collect();
    assert!(missing.is_empty(), "missing: {missing:?}");
    for (tenant, seqs) in per_tenant {
        assert!(seqs.is_sorted(), "the records of `{tenant}` are out of order: {seqs:?}");
    }
}

/// Wraps a sink and notes how large its batches are.
#[derive(Debug)]
struct Measured {
    sink: Arc<dyn RecordSink>,
    limits: BatchLimits,
}

#[async_trait]
impl RecordSink for Measured {
    async fn deliver(&self, batch: &[SinkEvent]) -> Result<(), SinkError> {
        let bytes: usize = batch.iter().map(|event| event.json().len()).sum();
        assert!(!batch.is_empty() && batch.len() <= self.limits.records, "{} records", batch.len());
        assert!(bytes <= self.limits.bytes || batch.len() == 1, "{bytes} bytes in {} records", batch.len());
        self.sink.deliver(batch).await
    }
}

pub async fn everything_arrives_in_order_of_each_tenant(receiver: &impl SinkReceiver) {
    let (dir, source) = (tempfile::tempdir().unwrap(), Arc::new(MemorySource::default()));
    let limits = BatchLimits { records: 40, bytes: 8_000 };
    source.append(300, |seq| if seq % 97 == 0 { "x".repeat(9_000) } else { format!("note {seq}") });
    let sink = Arc::new(Measured { sink: receiver.sink().await, limits });
    let courier = courier(dir.path(), &source, sink, limits);
    until_acknowledged(dir.path(), 300).await;
    source.append(100, |seq| format!("later {seq}"));
    until_acknowledged(dir.path(), 400).await;
    courier.close().await;
    let events = receiver.events().await;
    assert_eq!(events.len(), 400, "without a failure nothing is repeated");
    check(&events, 400);
    let expected = source.events();
    for event in &events {
        let seq: usize = event["sequence"].as_str().unwrap().parse().unwrap();
        assert_eq!(*event, serde_json::from_str::<Value>(expected[seq].json()).unwrap());
    }
}

pub async fn nothing_is_missing_after_a_failure_and_a_restart(receiver: &impl SinkReceiver) {
    let (dir, source) = (tempfile::tempdir().unwrap(), Arc::new(MemorySource::default()));
    let limits = BatchLimits { records: 25, ..BatchLimits::default() };
    source.append(100, |seq| format!("before {seq}"));
    let first = courier(dir.path(), &source, receiver.sink().await, limits);
    until_acknowledged(dir.path(), 100).await;
    receiver.fail().await;
    source.append(100, |seq| format!("meanwhile {seq}"));
    until("the failure is noted", || async {
        let status = crate::sinks::StatusFile::peek(dir.path(), "suite").unwrap();
        status.is_some_and(|status| status.failures > 0)
    })
    .await;
    first.close().await;
    let standing = SinkCursor::peek(dir.path(), "suite").unwrap().unwrap();
    assert!((100..200).contains(&standing), "a sink that is down acknowledges nothing: {standing}");
    let second = courier(dir.path(), &source, receiver.sink().await, limits);
    receiver.recover().await;
    source.append(100, |seq| format!("after {seq}"));
    until_acknowledged(dir.path(), 300).await;
    second.close().await;
    check(&receiver.events().await, 300);
}

pub async fn nothing_is_missing_when_the_courier_dies_under_load(receiver: &impl SinkReceiver) {
    let (dir, source) = (tempfile::tempdir().unwrap(), Arc::new(MemorySource::default()));
    let limits = BatchLimits { records: 10, ..BatchLimits::default() };
    for round in 1..=5_u64 {
        source.append(80, |seq| format!("note {seq}"));
        let courier = courier(dir.path(), &source, receiver.sink().await, limits);
        // Somewhere in the middle of its work.
        until("some progress", || async { SinkCursor::peek(dir.path(), "suite").unwrap() >= Some(round * 60) }).await;
        courier.abort();
        courier.ended().await;
    }
    let last = courier(dir.path(), &source, receiver.sink().await, limits);
    until_acknowledged(dir.path(), 400).await;
    last.close().await;
    check(&receiver.events().await, 400);
}

pub async fn hostile_texts_arrive_as_they_are(receiver: &impl SinkReceiver) {
    let (dir, source) = (tempfile::tempdir().unwrap(), Arc::new(MemorySource::default()));
    source.append(HOSTILE.len() * 4, |seq| HOSTILE[seq / 4].to_owned());
    let count = HOSTILE.len() * 4;
    let courier = courier(dir.path(), &source, receiver.sink().await, BatchLimits::default());
    until_acknowledged(dir.path(), count as u64).await;
    courier.close().await;
    let events = receiver.events().await;
    check(&events, count);
    for event in &events {
        let seq: usize = event["sequence"].as_str().unwrap().parse().unwrap();
        assert_eq!(event["data"]["note"], HOSTILE[seq / 4]);
    }
}
