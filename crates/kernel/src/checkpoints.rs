//! Checkpoints: what a running tool saves of its state, so that a later call can go on from there. (CKPT-*, LIFE-017)
//!
//! ```text
//!   tool ── checkpoint {name?, state} ──▶ keeper ──▶ codec ──▶ CheckpointStore
//!                                          (one per call)  seal
//!   call with resume_from ──▶ resuming ──▶ codec ──▶ ToolCall.resume ──▶ tool
//!                              newest intact one  open
//! ```
//!
//! Three kinds (CKPT-001): *micro* without a name, at most one per interval; *macro* if the name is one of the manifest's
//! `macro_events`; *named* otherwise. A micro-checkpoint that cannot be kept never troubles the tool; with the two others
//! the tool is told (E3902).
//!
//! Who has an invocation's checkpoints is who made the call, and whoever manages invocations of the tenant. To everybody
//! else they are not there.
//!
//! Not here: which attempts of a job there are and when one is made (`jobs` asks [`Kernel::newest_checkpoint`]).
//!
//! [`Kernel::newest_checkpoint`]: crate::Kernel::newest_checkpoint

mod acts;
mod call_checkpoints;
pub mod codec;
pub mod delta;
mod keeper;
mod plan;
pub mod record;
mod resume;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;
use contract::envelope::CheckpointKind;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use ports::checkpoint_store::{ATTEMPT_LEASE, CheckpointStore};

pub use acts::CheckpointPage;
pub use call_checkpoints::CHECKPOINT_REF;
pub(crate) use call_checkpoints::CallCheckpoints;
pub(crate) use keeper::{CheckpointKeeper, tend};
use resume::ResumedState;

use crate::invocation_ids::taken;

/// How long each kind is kept (CKPT-015).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointRetention {
    /// From when it was saved. Default one hour.
    pub micro: Duration,
    /// From when it was saved. Default 90 days.
    pub macros: Duration,
    /// Macro-checkpoints and the newest micro-checkpoint of a call that failed, from its end. Default 30 days.
    pub failed: Duration,
    /// What a rollback went to and away from, at least, from then on. Default 90 days.
    pub rolled_back: Duration,
}

impl Default for CheckpointRetention {
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self { micro: Duration::from_hours(1), macros: DAY * 90, failed: DAY * 30, rolled_back: DAY * 90 }
    }
}

impl CheckpointRetention {
    /// How long one of this kind is kept; `None`: until it is deleted.
    fn of(&self, kind: CheckpointKind) -> Option<Duration> {
        match kind {
            CheckpointKind::Micro => Some(self.micro),
            CheckpointKind::Macro => Some(self.macros),
            CheckpointKind::Named => None,
        }
    }
}

/// What the kernel needs to keep checkpoints. A kernel without it keeps none, and says so when asked.
#[derive(Debug)]
pub struct Checkpoints {
    store: Arc<dyn CheckpointStore>,
    retention: CheckpointRetention,
    /// Calls that save at the moment, in this process.
    running: Arc<Running>,
    /// Do other processes save into the same store?
    is_shared: bool,
}

impl Checkpoints {
    /// On a store.
    pub fn new(store: Arc<dyn CheckpointStore>, retention: CheckpointRetention) -> Self {
        Self { store, retention, running: Arc::default(), is_shared: false }
    }

    /// On a store that other processes save into, too.
    #[must_use]
    pub fn shared(self, is_shared: bool) -> Self {
        Self { is_shared, ..self }
    }

    /// Does the invocation run, here or in another process?
    async fn is_running(&self, tenant: &TenantId, invocation: InvocationId) -> Result<bool, Refusal> {
        if self.running.has(tenant, invocation) {
            return Ok(true);
        }
        if !self.is_shared {
            return Ok(false);
        }
        self.store.is_claimed(tenant, invocation).await.map_err(|error| error.refusal())
    }
}

/// An attempt at an invocation that has begun.
#[derive(Debug)]
struct Attempt {
    /// Under which it saves; `None` on a store that nobody else has.
    fence: Option<u64>,
    underway: RunningResume,
}

impl Checkpoints {
    /// Begins an attempt, that of a job under its fence. What is no job has brought the id of what runs: it is taken.
    async fn begin(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        of_job: Option<u64>,
    ) -> Result<Attempt, Refusal> {
        let another_runs = || match of_job {
            None => taken(),
            Some(_) => Refusal::new(ErrorCode::E3908, "another attempt at this invocation is running")
                .hint("wait for its end, or cancel it first; nothing was run"),
        };
        let underway = self.running.begin(tenant, invocation);
        if of_job.is_none() && !underway.is_first() {
            return Err(another_runs());
        }
        // Nobody else saves into the store, and this process knows what it runs.
        if of_job.is_none() && !self.is_shared {
            return Ok(Attempt { fence: None, underway });
        }
        let held = self.store.claim(tenant, invocation, of_job, ATTEMPT_LEASE).await;
        let fence = held.map_err(|error| error.refusal())?.ok_or_else(another_runs)?;
        Ok(Attempt { fence: Some(fence), underway })
    }
}

/// The refusal of a checkpoint that is not there, or not for this caller.
fn not_there(shown: &str) -> Refusal {
    let shown: String = shown.chars().filter(|c| !c.is_control()).take(40).collect();
    Refusal::new(ErrorCode::E3903, format!("there is no checkpoint `{shown}` here"))
        .hint("GET /v1/invocations/{id}/checkpoints lists those there are; those whose time is over are gone")
        .retryable(false)
}

/// The refusal of a kernel without checkpoints.
fn none_kept() -> Refusal {
    Refusal::new(ErrorCode::E3010, "checkpoints are not kept by this server").retryable(false)
}

// ---------------------------------------------------------------------------------------------------------- Running

/// Which invocations save at the moment. Bounded by the calls that run.
#[derive(Debug, Default)]
struct Running(Mutex<HashSet<(TenantId, InvocationId)>>);

impl Running {
    fn begin(self: &Arc<Self>, tenant: &TenantId, invocation: InvocationId) -> RunningResume {
        let key = (tenant.clone(), invocation);
        let is_first = self.0.lock_unpoisoned().insert(key.clone());
        RunningResume { running: Arc::clone(self), key: is_first.then_some(key) }
    }

    fn has(&self, tenant: &TenantId, invocation: InvocationId) -> bool {
        self.0.lock_unpoisoned().contains(&(tenant.clone(), invocation))
    }
}

/// A call that is under way, until dropped.
#[derive(Debug)]
pub(crate) struct RunningResume {
    running: Arc<Running>,
    key: Option<(TenantId, InvocationId)>,
}

impl RunningResume {
    /// Was nothing else of its invocation under way?
    fn is_first(&self) -> bool {
        self.key.is_some()
    }
}

impl Drop for RunningResume {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.running.0.lock_unpoisoned().remove(key);
        }
    }
}
