//! What does a kind of job. `tool_call` is the kernel's own; others are registered by name (ASYNC-009).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TraceId;
use ports::clock::UnixMillis;
use ports::job_store::{FencingToken, JobRecord};
use ports::registry_store::StoreError;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::progress_report::Reporter;

/// One attempt at a job.
#[derive(Debug)]
pub struct RunningJob {
    pub record: JobRecord,
    pub payload: Value,
    /// Cancelled when the job is to end: leave nothing running and return.
    pub cancellation: CancellationToken,
    /// Hears how far it has come.
    pub progress: ProgressReporter,
    /// Of this attempt: higher than that of every one before it.
    pub fence: FencingToken,
}

/// How many jobs of each kind are being done.
#[derive(Debug, Default)]
pub(super) struct Handling(Mutex<BTreeMap<&'static str, usize>>);

/// One of them. Dropped, it is done.
#[derive(Debug)]
pub(super) struct Handled<'a> {
    handling: &'a Handling,
    kind: &'static str,
}

impl Handling {
    pub(super) fn begin(&self, kind: &'static str) -> Handled<'_> {
        *self.lock().entry(kind).or_default() += 1;
        Handled { handling: self, kind }
    }

    pub(super) fn count(&self, kind: &str) -> usize {
        self.lock().get(kind).copied().unwrap_or(0)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, usize>> {
        self.0.lock_unpoisoned()
    }
}

impl Drop for Handled<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.handling.lock().get_mut(self.kind) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Takes reports of progress; too many of them are dropped.
#[derive(Debug, Clone)]
pub struct ProgressReporter(pub(super) std::sync::Arc<Reporter>);

impl ProgressReporter {
    /// It has come this far, and is in this phase. Never waits.
    pub fn report(&self, percent: Option<f64>, phase: Option<&str>) {
        self.0.note(percent, phase.map(str::to_owned));
    }
}

/// Why an attempt came to nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct JobFailure {
    pub code: ErrorCode,
    /// The error envelope that is kept.
    pub error: Value,
    /// Would another attempt be right?
    pub again: bool,
    /// What the other side asked to wait.
    pub after: Option<Duration>,
    /// It was only not the time: nothing was run, so no try was used up.
    pub not_now: bool,
    /// It is certain that nothing was done, whatever kind of job it is.
    pub untouched: bool,
}

impl JobFailure {
    /// From a refusal; `safe` says whether doing it again could do harm.
    pub fn of(refusal: &Refusal, record: &JobRecord, trace_id: TraceId, safe: bool) -> Self {
        let envelope = refusal.envelope(trace_id, Some(record.key.id));
        Self {
            code: envelope.code,
            again: safe && envelope.retryable && envelope.code != ErrorCode::E3413,
            after: envelope.retry_after_ms.map(Duration::from_millis),
            not_now: false,
            untouched: false,
            error: serde_json::to_value(envelope).unwrap_or_default(),
        }
    }
}

/// A job that goes on outside, until somebody says that it has ended. It has no worker meanwhile, and is kept like one that was
/// put back; this stands in place of its error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingOutside {
    /// Since when.
    pub since: UnixMillis,
}

impl WaitingOutside {
    const MEMBER: &str = "waiting_since_ms";

    /// What is kept of it.
    pub fn to_value(self) -> Value {
        json!({ Self::MEMBER: self.since.0 })
    }

    /// Does this job go on outside?
    pub fn of(record: &JobRecord) -> Option<Self> {
        Self::read(record.error.as_ref().filter(|_| !record.state.is_end())?)
    }

    pub(super) fn read(error: &Value) -> Option<Self> {
        let since = error.get(Self::MEMBER).and_then(Value::as_i64)?;
        // The error of a call is an envelope, whose members are ours.
        error.get("code").is_none().then_some(Self { since: UnixMillis(since) })
    }
}

/// Does one kind of job.
///
/// A handler runs under the server's own identity, which calls no tools and holds no rights: what it may touch is what it
/// was built with. The end of each attempt is recorded in the audit log.
#[async_trait]
pub trait JobHandler: Send + Sync + fmt::Debug {
    /// The name it is registered under.
    fn kind(&self) -> &'static str;

    /// May the job be begun again although nobody knows how far an earlier attempt came?
    fn may_repeat(&self, payload: &Value) -> bool;

    /// May this job be begun again after the process that ran it is gone? Asked of a handler that may know more about the job
    /// than what went in says; on an error nobody knows.
    async fn may_begin_again(&self, _: &JobRecord, payload: &Value) -> Result<bool, StoreError> {
        Ok(self.may_repeat(payload))
    }

    /// A person has found out what became of a job that had ended without anybody knowing: its result, or that it did not
    /// happen.
    async fn resolved(&self, _: &JobRecord, _: Option<&Value>) -> Result<(), Refusal> {
        Ok(())
    }

    /// An ended job that came to nothing is about to be begun again, as a new job: what would only tell the old end once more
    /// is to be forgotten.
    async fn begins_anew(&self, _: &JobRecord) -> Result<(), Refusal> {
        Ok(())
    }

    /// Does it once. When `cancellation` fires, the work is to be ended and E3703 returned.
    async fn run(&self, job: &RunningJob) -> Result<Value, JobFailure>;
}
