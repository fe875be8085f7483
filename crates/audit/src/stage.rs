//! What the tests of this crate need: a clock that stands still, entropy that is none, records, and a log in a folder.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

use contract::ids::TraceId;
use ports::audit_sink::{
    AuditAction, AuditRecord, AuditSink as _, DecisionReason, DelegationLink, RecordedActor, RecordedDecision,
};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::executor::ResourceUsage;

use crate::{FileLog, LogOptions};

/// A clock that goes when it is told to, in both directions.
#[derive(Debug)]
pub(crate) struct DrivenClock(pub(crate) AtomicI64);

impl Clock for DrivenClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

/// Never the same byte twice in a row, and every time the same bytes.
#[derive(Debug, Default)]
pub(crate) struct SequenceEntropy(AtomicU8);

impl Entropy for SequenceEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.iter_mut().for_each(|byte| *byte = self.0.fetch_add(1, Ordering::SeqCst));
    }
}

/// A folder with a log and, beside it, the key.
pub(crate) struct LogPlace {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Arc<DrivenClock>,
    pub(crate) options: LogOptions,
}

impl LogPlace {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(DrivenClock(AtomicI64::new(1_800_000_000_000)));
        let options =
            LogOptions::new(folder.path().join("audit.key"), clock.clone(), Arc::new(SequenceEntropy::default()));
        Self { folder, clock, options }
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("audit")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub(crate) fn open(&self) -> FileLog {
        FileLog::open(&self.dir(), &self.options).unwrap()
    }

    /// A log with this many records after its first, in batches with a checkpoint after each, closed in order.
    pub(crate) async fn with_records(self, batches: &[usize]) -> Self {
        let log = self.open();
        let mut number = 0;
        for batch in batches {
            let records: Vec<_> =
                (0..*batch).map(|at| record_of(&format!("n{}", number + at), (number + at) % 3)).collect();
            number += batch;
            log.append(records.into()).await.unwrap();
            log.checkpoint().await.unwrap();
        }
        log.close().await.unwrap();
        self
    }
}

pub(crate) fn record(note: &str) -> AuditRecord {
    record_of(note, 0)
}

/// A record of one of several principals.
pub(crate) fn record_of(note: &str, principal: usize) -> AuditRecord {
    let subject = ["did:example:bot", "did:example:other", "did:example:third"][principal];
    AuditRecord {
        at: UnixMillis(1_800_000_000_000),
        action: AuditAction::InvocationFinished,
        trace_id: TraceId::from_bytes([7; 16]),
        invocation_id: None,
        who: Some(Arc::new(RecordedActor {
            tenant: "acme".parse().unwrap(),
            subject: subject.parse().unwrap(),
            user: Some("did:example:ann".parse().unwrap()),
            token_id: Some("t-2".into()),
            chain: vec![DelegationLink { subject: "did:example:ann".parse().unwrap(), token_id: Some("t-1".into()) }],
        })),
        tool: Some("calculator".parse().unwrap()),
        version: None,
        status: None,
        code: None,
        parameters_digest: None,
        judged: Some(Box::new(RecordedDecision {
            decision: Some(DecisionReason { allowed: true, reason: "token".into() }),
            ..RecordedDecision::default()
        })),
        duration_ms: Some(1),
        usage: Some(ResourceUsage { memory_peak_mb: 9, ..ResourceUsage::default() }),
        parameters: None,
        cost: None,
        note: Some(note.into()),
    }
}

pub(crate) fn lines(path: &Path) -> Vec<serde_json::Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
