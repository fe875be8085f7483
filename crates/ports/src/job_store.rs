//! The durable queue: work that outlives the request it came with, and the process that took it. (ASYNC-001…009, ASYNC-015)
//!
//! ```text
//!            enqueue                    take                     finish
//!  (delay) ─────────▶ delayed ─due▶ queued ────▶ running ─────────────▶ done · failed · dead · cancelled
//!                        ▲                         │  ▲
//!                        └──── retry · put back ─────┘  └── take_over (the owner's lease has lapsed)
//! ```
//!
//! Invariants every adapter keeps
//! - JOB-1: an ended job never changes again, but for being forgotten when its time is over, and for what a person finds out
//!   about one that failed ([`JobStore::resolve`]).
//! - JOB-2: what a worker writes is refused unless it holds the job's newest fence. Each hand-over raises the fence.
//! - JOB-3: of any number of concurrent takes, one gets a job. Of any number of concurrent enqueues with one dedupe key,
//!   one makes a job and the others are told which.
//! - JOB-4: time is the store's. Callers give spans, so clocks that differ between machines cannot shorten a lease.
//! - JOB-5: nothing starves. Waiting is worth priority: [`AGEING_PER_LEVEL`] of it are worth one level.
//! - JOB-6: tenants take turns. The tenant with the fewest running jobs is next, and among equals the one that was served
//!   longest ago.
//! - JOB-7: within a tenant, flows take turns in the same way: the jobs of one agent are a flow, and so are the deliveries to
//!   one address. Priority orders the jobs *of one flow*. So calling everything urgent takes nothing from others.
//! - JOB-8: a dedupe key outlives a job that was never begun in no case: one that is cancelled before its first attempt, or
//!   as its first attempt is put back or handed back, leaves its key free ([`DedupeKey`]).
//! - JOB-9: what waits is bounded for each flow, for each tenant and in all. So no agent fills the queue of its tenant.
//! - JOB-10: a key that a call holds in the ledger is that call's: a job of it ([`LedgerAct`]) is entered only under the id of
//!   that call.
//!
//! Not here: what a job does and whether it may be repeated (`jobs`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::canonical::Digest;
use contract::error::{ErrorCode, KeptError};
use contract::ids::{InvocationId, TenantId, ToolId};
use policy::CallOwner;
use serde_json::Value;

use crate::clock::UnixMillis;
use crate::ledger::IdempotencyKey;
pub use crate::ledger::{FencingToken, OwnerId};
use crate::registry_store::StoreError;

/// The kind of a job that is a call of a tool. The ledger knows its act.
pub const TOOL_CALL: &str = "tool_call";
/// So much waiting is worth one level of priority: the least urgent job overtakes the most urgent newcomers after nine.
pub const AGEING_PER_LEVEL: Duration = Duration::from_secs(30);
/// Progress that is kept of one job; older reports make room. What moves a job from state to state is always kept.
pub const PROGRESS_KEPT_MAX: u64 = 200;
/// Most jobs of one page and most events of one answer.
pub const PAGE_MAX: usize = 200;

/// What names a job. An id is unique within its tenant; a call's job has the id of the call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey {
    pub tenant: TenantId,
    pub id: InvocationId,
}

/// How urgent a job is among those of its flow: 1 is least, 10 most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobPriority(u8);

impl JobPriority {
    /// The nearest there is.
    ///
    /// ```
    /// # use gantry_ports::job_store::JobPriority;
    /// assert_eq!([0, 5, 99].map(|level| JobPriority::near(level).level()), [1, 5, 10]);
    /// ```
    pub fn near(level: u8) -> Self {
        Self(level.clamp(1, 10))
    }

    /// 1 to 10.
    pub fn level(self) -> u8 {
        self.0
    }
}

/// What makes two enqueues the same job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobDedupe {
    /// Unique per tenant and kind of job.
    pub key: String,
    /// For how long, from the first.
    pub window: Duration,
}

/// What the ledger knows the act of a job by, should a call have begun with it. (JOB-10)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerAct {
    pub tool: ToolId,
    pub key: IdempotencyKey,
    pub parameters: Digest,
}

/// How much may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueBounds {
    /// Of one flow of a tenant: one agent, or one address.
    pub per_flow: u64,
    pub per_tenant: u64,
    pub total: u64,
}

impl QueueBounds {
    /// For what follows from work that was let in within these bounds.
    pub fn doubled(self) -> Self {
        let Self { per_flow, per_tenant, total } = self;
        Self {
            per_flow: per_flow.saturating_mul(2),
            per_tenant: per_tenant.saturating_mul(2),
            total: total.saturating_mul(2),
        }
    }
}

/// A job on its way into the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub key: JobKey,
    /// Which handler does it.
    pub kind: String,
    /// What lists show: the tool of a call, for example.
    pub label: String,
    /// Whose it is.
    pub owner: CallOwner,
    /// Whose turns it takes within its tenant (JOB-7).
    pub flow: String,
    pub payload: Value,
    /// Says whether a second enqueue means the same.
    pub digest: Digest,
    pub priority: JobPriority,
    /// Not before so much time has passed.
    pub delay: Duration,
    /// How often it may be started, at least once.
    pub attempts_max: u32,
    pub dedupe: Option<JobDedupe>,
    /// Looked for in the ledger as it is entered, and not kept.
    pub act: Option<LedgerAct>,
    pub bounds: QueueBounds,
}

/// What became of an enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnqueueOutcome {
    /// It waits, durably.
    New,
    /// It was there before, under its own id or under its dedupe key. `same` if the digests are equal.
    Existing { id: InvocationId, same: bool },
    /// A call that is no job has its key in the ledger: in flight, done or unknown (JOB-10). `same` if its parameters are equal.
    /// Nothing was written.
    Claimed { id: InvocationId, same: bool },
    /// Too much waits already; nothing was written.
    Full,
}

/// What became of an adoption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdoptOutcome {
    /// It is kept as a running job of its owner.
    Running(FencingToken),
    /// See [`EnqueueOutcome::Existing`].
    Existing { id: InvocationId, same: bool },
    /// See [`EnqueueOutcome::Claimed`].
    Claimed { id: InvocationId, same: bool },
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobState {
    /// Its time has not come.
    Delayed,
    /// It waits for a worker.
    Queued,
    Running,
    /// It came to a result.
    Done,
    /// It came to an error that another try would not change.
    Failed,
    /// All tries failed; somebody should look.
    Dead,
    Cancelled,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 7] =
        [Self::Delayed, Self::Queued, Self::Running, Self::Done, Self::Failed, Self::Dead, Self::Cancelled];

    /// The word on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delayed => "delayed",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// The state of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Has it come to an end?
    pub fn is_end(self) -> bool {
        match self {
            Self::Delayed | Self::Queued | Self::Running => false,
            Self::Done | Self::Failed | Self::Dead | Self::Cancelled => true,
        }
    }
}

/// What is known of a job, without what went in and came out.
#[derive(Debug, Clone, PartialEq)]
pub struct JobRecord {
    pub key: JobKey,
    pub kind: String,
    pub label: String,
    pub owner: CallOwner,
    pub priority: JobPriority,
    pub state: JobState,
    /// How often it was started.
    pub attempts: u32,
    /// How many of these were interrupted by the end of the process that ran them. They cost no try.
    pub interruptions: u32,
    /// How many attempts may fail.
    pub attempts_max: u32,
    pub progress_percent: Option<f64>,
    pub phase: Option<String>,
    /// Somebody wants it to end, and why.
    pub cancel_asked: Option<String>,
    /// The newest error: of the last attempt while it waits for the next, of the job once it has ended.
    pub error: Option<Value>,
    pub created_at: UnixMillis,
    /// When its next attempt is due.
    pub due_at: UnixMillis,
    /// When the newest attempt began.
    pub started_at: Option<UnixMillis>,
    pub ended_at: Option<UnixMillis>,
}

impl JobRecord {
    /// Attempts that failed or run: those that count against `attempts_max`.
    pub fn tries(&self) -> u32 {
        self.attempts.saturating_sub(self.interruptions)
    }

    /// The code of the newest error, if it has one.
    pub fn error_code(&self) -> Option<ErrorCode> {
        KeptError::code_of(self.error.as_ref()?)
    }

    /// The invocation that the newest error is about: the job's own, unless it names another (the one that has its key).
    pub fn error_invocation(&self) -> InvocationId {
        self.error.as_ref().and_then(KeptError::invocation_of).unwrap_or(self.key.id)
    }
}

/// A job with what went in, and what came out if it is done.
#[derive(Debug, Clone, PartialEq)]
pub struct JobDetail {
    pub record: JobRecord,
    /// Whose turns it takes; empty in jobs of releases that had no flows.
    pub flow: String,
    pub payload: Value,
    pub digest: Digest,
    pub result: Option<Value>,
}

/// A job that a worker holds.
#[derive(Debug, Clone, PartialEq)]
pub struct TakenJob {
    pub record: JobRecord,
    pub payload: Value,
    pub fence: FencingToken,
}

/// What a worker may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TakeRules {
    /// Most jobs at once.
    pub most: usize,
    /// Most running jobs of one tenant, wherever they run.
    pub running_per_tenant: u32,
    /// Most running jobs of one flow of a tenant, wherever they run.
    pub running_per_flow: u32,
}

/// What a worker got.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TakeOutcome {
    pub jobs: Vec<TakenJob>,
    /// How long until the next delayed job is due, if one is delayed.
    pub next_due_in: Option<Duration>,
}

/// What a person found out about a job that was taken for failed: its result.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundResult {
    pub result: Value,
    /// All that is kept of what went in: nobody needs the rest any more.
    pub payload: Value,
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptEnd {
    Done(Value),
    /// The same, and of what went in only this is kept: nobody needs the rest any more.
    DoneKeeping {
        result: Value,
        payload: Value,
    },
    Failed {
        error: Value,
        key: DedupeKey,
    },
    /// Not yet: again after this pause. A job that was asked to end meanwhile is cancelled instead.
    Retry {
        error: Value,
        after: Duration,
    },
    /// The process that ran it is gone: again at once, and the attempt costs no try. It was begun all the same, and counts
    /// wherever it matters whether anything has run. A job that was asked to end meanwhile is cancelled instead.
    Interrupted {
        error: Value,
    },
    /// Given back unbegun or undone, as at shutdown: again at once, and the attempt does not count.
    HandBack,
    /// Not begun, because it was not the time: again after this pause, and the attempt does not count. A job that was asked
    /// to end meanwhile is cancelled instead.
    PutBack {
        error: Value,
        after: Duration,
    },
    Dead {
        error: Value,
        key: DedupeKey,
    },
    Cancelled {
        error: Value,
        key: DedupeKey,
    },
}

/// What becomes of the dedupe key of a job that came to no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DedupeKey {
    /// It stands for this job until its window is over: something may have come of it.
    Kept,
    /// It is free at once, and the next enqueue with it makes a new job: the act can be done without being done twice.
    Freed,
}

/// What became of a write of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The state it left.
    Kept(JobState),
    /// Somebody else holds the job now, or it has ended; nothing was written.
    Fenced,
}

/// What became of a wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelAsked {
    /// No such job.
    Unknown,
    /// The state after it: `Cancelled` if it waited, `Running` if its worker has yet to end it, else its end as it was.
    Now(JobState),
}

/// What an owner hears when it says that it is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewOutcome {
    /// These of its jobs are to be ended.
    Alive { cancel: Vec<JobKey> },
    /// Its lease had lapsed: its jobs may be in other hands.
    Lapsed,
}

/// One thing that happened to a job. Numbers grow by one within a job; reports of progress may be missing.
#[derive(Debug, Clone, PartialEq)]
pub struct JobEvent {
    pub seq: u64,
    pub at: UnixMillis,
    /// `queued`, `started`, `progress`, `retry`, `interrupted`, `taken_over`, `handed_back`, `put_back`, `cancel_asked`, `resolved`, or the
    /// word of an end.
    pub kind: String,
    pub data: Value,
}

/// Which jobs a list has.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobFilter {
    pub tenant: Option<TenantId>,
    pub owner: Option<CallOwner>,
    pub state: Option<JobState>,
    pub kind: Option<String>,
}

/// Part of a list, newest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobPage {
    pub jobs: Vec<JobRecord>,
    /// What to give as `before` for the next part.
    pub next: Option<u64>,
}

/// Numbers for metrics and health.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JobCounts {
    /// Delayed and queued.
    pub waiting: u64,
    pub running: u64,
}

/// Keeps the queue. Every method is one atomic act, durable before it is answered.
#[async_trait]
pub trait JobStore: Send + Sync + fmt::Debug {
    /// Begins (or begins again) to work as `owner`, for `lease` from now. `alone` says that no other process can be alive,
    /// as on a file that only one may write: then all other leases lapse at once.
    async fn enlist(&self, owner: OwnerId, lease: Duration, alone: bool) -> Result<(), StoreError>;

    /// Says that `owner` is alive, for `lease` from now.
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<RenewOutcome, StoreError>;

    /// Ends the lease of `owner` now: what it still holds is taken over at once instead of when the lease would have lapsed.
    /// For an end in order; an owner that is unknown or has lapsed stays so.
    async fn resign(&self, owner: OwnerId) -> Result<(), StoreError>;

    /// Puts a job into the queue.
    async fn enqueue(&self, job: NewJob) -> Result<EnqueueOutcome, StoreError>;

    /// Keeps work that is already being done as a running job of `owner`: a call that has outlived its caller's patience.
    /// The bounds of the queue do not hold it up, because it does not wait.
    async fn adopt(&self, job: NewJob, owner: OwnerId) -> Result<AdoptOutcome, StoreError>;

    /// Takes due jobs in the order of JOB-5 and JOB-6. Nothing if the owner's lease has lapsed.
    async fn take(&self, owner: OwnerId, rules: TakeRules) -> Result<TakeOutcome, StoreError>;

    /// Takes jobs whose owner's lease has lapsed. The attempt was counted when it began; whoever takes over decides what
    /// becomes of it. The limits on running jobs do not hold it up, because they run already.
    async fn take_over(&self, owner: OwnerId, most: usize) -> Result<Vec<TakenJob>, StoreError>;

    /// Notes how far a job has come.
    async fn report(
        &self,
        key: &JobKey,
        fence: FencingToken,
        percent: Option<f64>,
        phase: Option<String>,
    ) -> Result<WriteOutcome, StoreError>;

    /// Notes how an attempt ended, and frees the dedupe key if the end says so (JOB-8).
    async fn finish(&self, key: &JobKey, fence: FencingToken, end: AttemptEnd) -> Result<WriteOutcome, StoreError>;

    /// Replaces the end of a failed job by what a person found out, a result or another error, if `was` still is its error.
    /// With an error its dedupe key is free again: nothing came of it. With a result the job is done, and of what went in only
    /// what is named is kept.
    async fn resolve(
        &self,
        key: &JobKey,
        was: &Value,
        found: Result<FoundResult, Value>,
    ) -> Result<WriteOutcome, StoreError>;

    /// Cancels a job that waits, and asks a running one to end. Asking again changes nothing. The dedupe key of a job that
    /// waited for its first attempt is free afterwards (JOB-8).
    async fn ask_cancel(&self, key: &JobKey, reason: &str, error: Value) -> Result<CancelAsked, StoreError>;

    /// Frees the dedupe key of a job that has ended: its act is made anew as another job. Nothing happens to one that has not.
    async fn release_key(&self, key: &JobKey) -> Result<(), StoreError>;

    /// Makes a delayed job due now: what it waits for has happened. Nothing happens to any other.
    async fn hasten(&self, key: &JobKey) -> Result<(), StoreError>;

    /// One job.
    async fn find(&self, key: &JobKey) -> Result<Option<JobDetail>, StoreError>;

    /// At most [`PAGE_MAX`] jobs, newest first, before the given mark.
    async fn list(&self, filter: &JobFilter, before: Option<u64>, most: usize) -> Result<JobPage, StoreError>;

    /// At most [`PAGE_MAX`] events of a job after a number, in order. None for an unknown job.
    async fn events(&self, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, StoreError>;

    /// Puts another writing of what went into a job in place of the one that is kept, whatever the job's state. False if there
    /// is no such job, or nothing is kept of what went in.
    async fn rewrite_payload(&self, key: &JobKey, payload: &Value) -> Result<bool, StoreError>;

    /// How much waits and runs.
    async fn counts(&self) -> Result<JobCounts, StoreError>;

    /// Forgets up to `most` jobs that ended longer than `retention` ago, with their events; dead ones are kept for
    /// `dead_retention`. Says how many.
    async fn prune(&self, retention: Duration, dead_retention: Duration, most: usize) -> Result<u64, StoreError>;
}

/// The key by which jobs of a flow are ordered, smallest first (JOB-5): waiting since `due`, each level of priority as if
/// it had waited [`AGEING_PER_LEVEL`] longer. It does not change while a job waits, so an index can hold it.
pub fn rank(due: UnixMillis, priority: JobPriority) -> i64 {
    let step = i64::saturating_from(AGEING_PER_LEVEL.as_millis());
    due.0.saturating_sub(step.saturating_mul(i64::from(priority.level())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_worth_priority() {
        let at = |seconds: i64| UnixMillis(seconds * 1000);
        let (low, high) = (JobPriority::near(1), JobPriority::near(10));
        assert!(rank(at(0), high) < rank(at(0), low));
        assert!(rank(at(0), low) > rank(at(269), high), "not yet");
        assert!(rank(at(0), low) < rank(at(271), high), "nine levels of waiting are worth nine levels");
    }

    #[test]
    fn every_state_has_its_word() {
        for state in JobState::ALL {
            assert_eq!(JobState::of_word(state.as_str()), Some(state));
        }
        assert_eq!(JobState::of_word("asleep"), None);
    }
}
