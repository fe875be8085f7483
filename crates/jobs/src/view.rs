//! What callers are told about a job. Doors render it; what went in is not part of it.

use contract::envelope::InvocationStatus;
use contract::error::KeptError;
use contract::ids::{InvocationId, TraceId};
use kernel::background_calls::{CHECKPOINT_REF, status_of};
use ports::job_store::{JobDetail, JobEvent, JobPage, JobRecord, JobState};
use serde_json::Value;

use super::handler::WaitingOutside;

/// Where to ask, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollingInfo {
    /// Seconds until it is worth asking whether it has ended, as far as anybody can tell.
    pub estimated_completion_seconds: u64,
}

/// A call that goes on in the background (ASYNC-002).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedCall {
    pub invocation_id: InvocationId,
    pub status: InvocationStatus,
    pub polling_info: PollingInfo,
    pub trace_id: TraceId,
    /// It was accepted before: the job of an earlier call of the same act.
    pub is_repeat: bool,
}

impl AcceptedCall {
    pub(super) fn pending(invocation_id: InvocationId, seconds: u64, trace_id: TraceId) -> Self {
        let polling_info = PollingInfo { estimated_completion_seconds: seconds };
        Self { invocation_id, status: InvocationStatus::Pending, polling_info, trace_id, is_repeat: false }
    }
}

/// A job as a caller sees it (ASYNC-004).
#[derive(Debug, Clone, PartialEq)]
pub struct InvocationView {
    pub status: InvocationStatus,
    pub record: JobRecord,
    /// What was kept of a job that is done: the whole answer of a call.
    pub result: Option<Value>,
    /// Of the attempt that failed, or of the last one while the job waits for the next.
    pub failed_run: FailedRun,
}

impl InvocationView {
    pub(super) fn of(detail: JobDetail) -> Self {
        let JobDetail { record, result, .. } = detail;
        let (status, mut record) = told(record);
        let failed_run = record.error.as_mut().map(FailedRun::take_out_of).unwrap_or_default();
        Self { status, record, result, failed_run }
    }
}

/// What is known of an attempt that failed, besides its error. (LIFE-014)
///
/// It is kept beside the members of the error envelope, so that one write keeps both.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FailedRun {
    /// Times and usage.
    pub execution_metadata: Option<Value>,
    /// The newest state that was still kept.
    pub checkpoint_ref: Option<String>,
}

impl FailedRun {
    const METADATA: &str = "execution_metadata";

    pub(super) fn put_into(self, error: &mut Value) {
        let Some(members) = error.as_object_mut() else { return };
        let metadata = self.execution_metadata.map(|metadata| (Self::METADATA, metadata));
        let checkpoint = self.checkpoint_ref.map(|checkpoint| (CHECKPOINT_REF, Value::String(checkpoint)));
        members.extend(metadata.into_iter().chain(checkpoint).map(|(name, value)| (name.to_owned(), value)));
    }

    /// Leaves the envelope as it was told.
    pub(super) fn take_out_of(error: &mut Value) -> Self {
        let mut part = |name: &str| error.as_object_mut().and_then(|members| members.remove(name));
        let checkpoint_ref = part(CHECKPOINT_REF).and_then(|id| id.as_str().map(str::to_owned));
        Self { execution_metadata: part(Self::METADATA), checkpoint_ref }
    }
}

/// Part of a list of jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct JobListing {
    pub jobs: Vec<(InvocationStatus, JobRecord)>,
    /// What to give as `before` for the next part.
    pub next: Option<u64>,
}

impl JobListing {
    pub(super) fn of(page: JobPage) -> Self {
        let jobs = page.jobs.into_iter().map(told).collect();
        Self { jobs, next: page.next }
    }
}

/// A job and its status. One that goes on outside has no error.
fn told(record: JobRecord) -> (InvocationStatus, JobRecord) {
    let (status, goes_on) = (status(&record), WaitingOutside::of(&record).is_some());
    let error = record.error.filter(|_| !goes_on);
    (status, JobRecord { error, ..record })
}

/// The one status word for where a job stands (LIFE-020).
pub(super) fn status(record: &JobRecord) -> InvocationStatus {
    if WaitingOutside::of(record).is_some() {
        return InvocationStatus::Running;
    }
    status_in(record.state, record.error.as_ref())
}

/// The status that an event tells of: its end, or what a person has found out about its end. None for every other event.
/// It is the word that the job's status had from then on.
pub fn status_told_by(event: &JobEvent) -> Option<InvocationStatus> {
    let word = match event.kind.as_str() {
        "resolved" => event.data.get("state")?.as_str()?,
        kind => kind,
    };
    let state = JobState::of_word(word).filter(|state| state.is_end())?;
    Some(status_in(state, event.data.get("error")))
}

fn status_in(state: JobState, error: Option<&Value>) -> InvocationStatus {
    match state {
        JobState::Delayed | JobState::Queued => InvocationStatus::Pending,
        JobState::Running => InvocationStatus::Running,
        JobState::Done => InvocationStatus::Success,
        JobState::Cancelled => InvocationStatus::Cancelled,
        JobState::Failed | JobState::Dead => {
            error.and_then(KeptError::code_of).map_or(InvocationStatus::Error, status_of)
        }
    }
}
