//! What callers are told about a job. Doors render it; what went in is not part of it.

use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, TraceId};
use serde::Deserialize as _;
use serde_json::Value;

use crate::phases::status_of;
use crate::ports::job_store::{JobDetail, JobPage, JobRecord, JobState};

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
    match record.state {
        JobState::Delayed | JobState::Queued => InvocationStatus::Pending,
        JobState::Running => InvocationStatus::Running,
        JobState::Done => InvocationStatus::Success,
        JobState::Cancelled => InvocationStatus::Cancelled,
        JobState::Failed | JobState::Dead => record
            .error
            .as_ref()
            .and_then(|error| ErrorCode::deserialize(error.get("code")?).ok())
            .map_or(InvocationStatus::Error, status_of),
    }
}
