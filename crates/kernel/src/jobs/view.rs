//! What callers are told about a job. Doors render it; what went in is not part of it.

use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, TraceId};
use serde::Deserialize as _;
use serde_json::Value;

use crate::phases::status_of;
use crate::ports::job_store::{JobDetail, JobEvent, JobPage, JobRecord, JobState};

/// Where to ask, and how long it may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollingInfo {
    /// Seconds until it is worth asking whether it has ended, as far as anybody can tell.
    pub estimated_completion_seconds: u64,
}

/// A call that goes on in the background (ASYNC-002).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub invocation_id: InvocationId,
    pub status: InvocationStatus,
    pub polling_info: PollingInfo,
    pub trace_id: TraceId,
}

impl Accepted {
    pub(super) fn pending(invocation_id: InvocationId, seconds: u64, trace_id: TraceId) -> Self {
        let polling_info = PollingInfo { estimated_completion_seconds: seconds };
        Self { invocation_id, status: InvocationStatus::Pending, polling_info, trace_id }
    }
}

/// A job as a caller sees it (ASYNC-004).
#[derive(Debug, Clone, PartialEq)]
pub struct InvocationView {
    pub status: InvocationStatus,
    pub record: JobRecord,
    /// What was kept of a job that is done: the whole answer of a call.
    pub result: Option<Value>,
}

impl InvocationView {
    pub(super) fn of(detail: JobDetail) -> Self {
        Self { status: status(&detail.record), record: detail.record, result: detail.result }
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
        let jobs = page.jobs.into_iter().map(|record| (status(&record), record)).collect();
        Self { jobs, next: page.next }
    }
}

/// The one status word for where a job stands (LIFE-020).
pub(super) fn status(record: &JobRecord) -> InvocationStatus {
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
        JobState::Failed | JobState::Dead => error
            .and_then(|error| ErrorCode::deserialize(error.get("code")?).ok())
            .map_or(InvocationStatus::Error, status_of),
    }
}
