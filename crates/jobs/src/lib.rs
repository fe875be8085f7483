//! Jobs, webhooks, and membership of instances. A job is work that outlives its request: calls that are let in now and done
//! later, and other work. (ASYNC-001…009, FLOW-005, LIFE-018)
//!
//! ```text
//! submit ─▶ receive ▶ validate ▶ authorize (nothing runs) ─▶ queue, with a caller record ─▶ 202
//!                                                              │
//! workers ◀─ take ─────────────────────────────────────────────┘
//!    └─▶ the recorded caller is asked about again ─▶ the six phases, from the first to the last ─▶ kept end
//! ```
//!
//! There is no second way to run a tool: a worker goes through [`Kernel`] like a door does, with a principal instead of a
//! credential. A caller record holds the claims of the caller, never the token.
//!
//! Invariants
//! - JOBS-1: a call that was answered with 202 is durable, and its end is kept until its retention is over.
//! - JOBS-2: a call that was interrupted is made again and asks the ledger: it runs if nothing had begun or the tool is safe to
//!   repeat, is answered with what was done if it was done, and ends as `indeterminate` where nobody knows.
//! - JOBS-3: a job of another tenant, or of another agent without the right to look, is answered exactly like none.
//! - JOBS-4: revocation, standing, activation and policies are asked again when a job begins; the token's end is not, the
//!   job's own age is.
//! - JOBS-5: a job of which nobody knew how it ended, ends as the ledger says once a person has found out (`resolution`).
//! - JOBS-6: what was refused before anything ran, and only for now (no place, a limit, a breaker), costs no try: the job is
//!   put back with a pause, within its age.
//! - JOBS-7: the key of a job that came to nothing is free wherever the ledger would set the key of its call free: a call that
//!   was not sent or was refused before execution can be submitted again under its key.
//! - JOBS-8: a call that is not safe to repeat and has a line in the ledger is neither called cancelled nor dead after an
//!   interruption, and is not begun again by hand, before somebody knows what became of it.
//!
//! Not here: how jobs are stored (`ports::job_store`), the phases (`kernel`), the services of vendors (`vendor_services`).

mod backoff;
mod cancel_and_retry;
mod completion;
mod handler;
pub mod inbound_jobs;
pub mod membership;
mod progress_report;
mod promotion;
mod queries;
mod queue;
mod queued_call;
mod resolution;
mod settings;
mod start;
mod submission;
mod tool_call;
mod view;
pub mod webhooks;
mod worker_permits;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use contract::error::Refusal;
use contract::ids::TenantId;
use fair_places::{FairPlaces, PlaceBounds, PlaceUsage};
use ports::entropy::new_invocation_id;
use ports::job_store::{JobCounts, JobDedupe, JobKey, JobPriority, OwnerId};
use serde_json::Value;
use tokio::sync::broadcast;
use tokio_util::task::TaskTracker;

use crate::webhooks::Webhooks;
use kernel::Kernel;

pub use handler::{JobFailure, JobHandler, ProgressReporter, RunningJob, WaitingOutside};
pub use ports::actor::SYSTEM_SUBJECT;
pub use promotion::CallOutcome;
pub use queue::{JobQueue, JobQueueParts};
pub use settings::JobsSettings;
pub use view::{AcceptedCall, FailedRun, InvocationView, JobListing, PollingInfo, status_told_by};
pub use workers::Workers;

use handler::Handling;
use worker_permits::WorkerPermits;

/// The service.
pub struct Jobs {
    kernel: Arc<Kernel>,
    queue: Arc<JobQueue>,
    /// This process, as an owner of jobs.
    owner: OwnerId,
    handlers: Vec<Arc<dyn JobHandler>>,
    /// A worker needs one for each job it does at once.
    worker_permits: WorkerPermits,
    /// Room for calls that have outlived their caller's patience, shared by tenants and agents.
    promotions: Arc<FairPlaces>,
    /// Jobs of other kinds than calls that are being done, by kind.
    handling: Handling,
    /// What goes on in the background.
    tasks: TaskTracker,
    /// Tells of ends.
    webhooks: Option<Arc<Webhooks>>,
}

/// What the service is made of.
#[derive(Debug)]
pub struct JobsParts {
    pub kernel: Arc<Kernel>,
    pub queue: Arc<JobQueue>,
    /// Those that do what is no call of a tool, each kind once.
    pub handlers: Vec<Arc<dyn JobHandler>>,
    /// Tells of ends. Without it nobody is told, and a call that wants to be answered by a callback is refused.
    pub webhooks: Option<Arc<Webhooks>>,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("owner", &self.owner).field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// A job that is no call of a tool, on its way into the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct SystemJob {
    /// Which handler does it.
    pub kind: &'static str,
    pub tenant: TenantId,
    /// What lists show.
    pub label: String,
    /// Whose turns it takes within its tenant.
    pub flow: String,
    pub payload: Value,
    pub priority: JobPriority,
    pub delay: Duration,
    pub attempts_max: u32,
    pub dedupe: Option<JobDedupe>,
    /// Does it follow from work that was let in? See [`ports::job_entrance::EnteringJob::is_follow_up`].
    pub is_follow_up: bool,
}

impl Jobs {
    /// Begins to work as an owner of jobs.
    pub async fn open(parts: JobsParts) -> Result<Arc<Self>, Refusal> {
        let JobsParts { kernel, queue, handlers, webhooks } = parts;
        let owner = OwnerId(new_invocation_id(kernel.entropy(), kernel.clock().now()).0);
        let settings = &queue.settings;
        queue.store.enlist(owner, settings.lease, settings.alone).await.map_err(|error| error.refusal())?;
        let jobs = Self {
            promotions: FairPlaces::new(PlaceBounds {
                capacity: settings.promoted_max,
                per_flow: settings.promoted_max,
                waiting: 0,
            }),
            handling: Handling::default(),
            worker_permits: WorkerPermits::new(settings.concurrency),
            kernel,
            queue,
            owner,
            handlers,
            tasks: TaskTracker::new(),
            webhooks,
        };
        Ok(Arc::new(jobs))
    }

    /// How jobs are done here.
    pub fn settings(&self) -> &JobsSettings {
        &self.queue.settings
    }

    /// How much waits and runs.
    pub async fn counts(&self) -> Result<JobCounts, ports::registry_store::StoreError> {
        self.queue.store.counts().await
    }

    /// How much is used of the workers of this process, and of the room for calls that go on in the background.
    pub fn places(&self) -> [(&'static str, PlaceUsage); 2] {
        let workers =
            self.worker_permits.usage(self.queue.settings.concurrency, self.queue.settings.running_per_flow());
        [("workers", workers), ("background_calls", self.promotions.usage())]
    }

    /// How many jobs of this kind, which is not that of calls, the workers of this process do at the moment.
    pub fn handled_now(&self, kind: &'static str) -> usize {
        self.handling.count(kind)
    }

    /// Which jobs change in this process from now on. What is missed can be read with [`Jobs::events`].
    pub fn changes(&self) -> broadcast::Receiver<JobKey> {
        self.queue.changes()
    }
}
