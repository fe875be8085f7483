//! Work that outlives its request: calls that are let in now and done later, and other jobs. (ASYNC-001…009, FLOW-005, LIFE-018)
//!
//! ```text
//! submit ─▶ receive ▶ validate ▶ authorize (nothing runs) ─▶ queue, with a warrant ─▶ 202
//!                                                              │
//! workers ◀─ take ─────────────────────────────────────────────┘
//!    └─▶ the caller of the warrant is asked about again ─▶ the six phases, from the first to the last ─▶ kept end
//! ```
//!
//! There is no second way to run a tool: a worker goes through [`Kernel`] like a door does, with a principal instead of a
//! credential. A warrant holds the claims of the caller, never the token.
//!
//! Invariants
//! - JOBS-1: a call that was answered with 202 is durable, and its end is kept until its retention is over.
//! - JOBS-2: a call that was interrupted is made again and asks the ledger: it runs if nothing had begun or the tool is safe to
//!   repeat, is answered with what was done if it was done, and ends as `indeterminate` where nobody knows.
//! - JOBS-3: a job of another tenant, or of another agent without the right to look, is answered exactly like none.
//! - JOBS-4: revocation, standing, activation and policies are asked again when a job begins; the token's end is not, the
//!   job's own age is.
//!
//! Not here: the queue itself (`ports::job_store`), checkpoints and webhooks (others build on [`JobHandler`]).

mod backoff;
mod completion;
mod entrance;
mod handler;
mod promotion;
mod reporting;
mod running;
mod settings;
mod tool_call;
mod view;
mod warrant;
mod workers;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use contract::canonical;
use contract::envelope::{ExecutionMode, InvokeRequest, Priority};
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, Subject, TenantId};
use policy::Action;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore, broadcast};
use tokio_util::task::TaskTracker;

use crate::administration::Actor;
use crate::identity::Principal;
use crate::invoke::{Arrival, Failed, Kernel};
use crate::ports::audit_sink::AuditAction;
use crate::ports::entropy::new_invocation_id;
use crate::ports::job_store::{
    CancelAsked, Dedupe, Enqueued, JobCounts, JobEvent, JobFilter, JobKey, JobPriority, JobRecord, JobState, JobStore,
    NewJob, OwnerId,
};
use crate::registry::ToolVersion;
use crate::webhooks::Webhooks;

pub use entrance::LateEntrance;
pub use handler::{JobFailure, JobHandler, Progressing, RunningJob};
pub use promotion::Called;
pub use settings::JobsSettings;
pub use view::{Accepted, InvocationView, JobListing, PollingInfo};
pub(crate) use warrant::WarrantKey;
pub use workers::Workers;

use running::RunningJobs;
use warrant::Errand;

/// The kind of job that is a call of a tool.
pub const TOOL_CALL: &str = "tool_call";
/// Who does jobs that nobody's token stands behind (ASYNC-009). It calls no tools: only handlers run under it.
pub const SYSTEM_SUBJECT: &str = "system:jobs";
/// Changes that listeners may lag behind before they read the store instead.
const NEWS_MAX: usize = 1_024;
/// Longest reason for a cancellation that is kept.
const REASON_CHARS_MAX: usize = 500;

/// The service.
pub struct Jobs {
    kernel: Arc<Kernel>,
    store: Arc<dyn JobStore>,
    settings: JobsSettings,
    /// This process, as an owner of jobs.
    owner: OwnerId,
    handlers: Vec<Arc<dyn JobHandler>>,
    running: RunningJobs,
    /// Something waits for a worker.
    wake: Notify,
    /// Which jobs have changed in this process.
    news: broadcast::Sender<JobKey>,
    /// Room for calls that have outlived their caller's patience.
    promotions: Arc<Semaphore>,
    /// What goes on in the background.
    tasks: TaskTracker,
    /// Tells of ends.
    webhooks: OnceLock<Arc<Webhooks>>,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("owner", &self.owner).field("settings", &self.settings).finish_non_exhaustive()
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
    pub payload: Value,
    pub priority: JobPriority,
    pub delay: Duration,
    pub attempts_max: u32,
    pub dedupe: Option<Dedupe>,
}

impl Jobs {
    /// Begins to work as an owner of jobs. `handlers` do what is no call of a tool; each kind once.
    pub async fn open(
        kernel: Arc<Kernel>,
        store: Arc<dyn JobStore>,
        settings: JobsSettings,
        handlers: Vec<Arc<dyn JobHandler>>,
    ) -> Result<Arc<Self>, Refusal> {
        let owner = OwnerId(new_invocation_id(kernel.entropy(), kernel.clock().now()).0);
        store.enlist(owner, settings.lease, settings.alone).await.map_err(|error| error.refusal())?;
        let jobs = Self {
            promotions: Arc::new(Semaphore::new(settings.promoted_max)),
            kernel,
            store,
            settings,
            owner,
            handlers,
            running: RunningJobs::default(),
            wake: Notify::new(),
            news: broadcast::Sender::new(NEWS_MAX),
            tasks: TaskTracker::new(),
            webhooks: OnceLock::new(),
        };
        Ok(Arc::new(jobs))
    }

    /// How jobs are done here.
    pub fn settings(&self) -> &JobsSettings {
        &self.settings
    }

    /// How much waits and runs.
    pub async fn counts(&self) -> Result<JobCounts, crate::ports::registry_store::StoreError> {
        self.store.counts().await
    }

    /// Which jobs change in this process from now on. What is missed can be read with [`Jobs::events`].
    pub fn news(&self) -> broadcast::Receiver<JobKey> {
        self.news.subscribe()
    }

    // ------------------------------------------------------------------------------------------------------ submitting

    /// Does the request want to be done in the background?
    pub fn wants_background(request: &InvokeRequest) -> bool {
        let options = &request.execution_options;
        // Who wants to be called back does not want to wait.
        options.async_mode || options.callback.is_some() || request.execution_mode == Some(ExecutionMode::Async)
    }

    /// Lets a call in, keeps it, and answers before it runs. The same idempotency key gives the same job.
    pub async fn submit(&self, mut arrival: Arrival<'_>) -> Result<Accepted, Box<Failed>> {
        foreground(&mut arrival.request);
        let mut request = arrival.request.clone();
        let (facts, authorized) = self.kernel.admit(arrival).await?;
        let (principal, tool, parameters) = authorized.admitted();
        let key = JobKey { tenant: principal.tenant().clone(), id: facts.invocation_id() };
        request.invocation_id = Some(key.id);
        // Boxed: few calls have one, and every call would carry its room.
        if let Err(refusal) = Box::pin(self.check_callback(&key.tenant, &request)).await {
            return Err(self.kernel.turn_away(facts, refusal));
        }
        let errand = Errand::new(principal, tool, request, facts.trace_id(), self.kernel.clock().now());
        let job = match self.call_job(key.clone(), &errand, principal, tool, parameters) {
            Ok(job) => job,
            Err(refusal) => return Err(self.kernel.turn_away(facts, refusal)),
        };
        let waits = tool_seconds(tool);
        let enqueued = match self.store.enqueue(job).await {
            Ok(enqueued) => enqueued,
            Err(error) => return Err(self.kernel.turn_away(facts, error.refusal())),
        };
        match enqueued {
            Enqueued::New => {
                let trace_id = facts.trace_id();
                facts.record_accepted(self.kernel.clock().now());
                self.wake.notify_one();
                self.tell(&key);
                Ok(Accepted::pending(key.id, waits, trace_id))
            }
            Enqueued::Existing { id, same: true } => {
                let state = match self.store.find(&JobKey { id, ..key }).await {
                    Ok(found) => found.map(|found| view::status(&found.record)),
                    Err(error) => return Err(self.kernel.turn_away(facts, error.refusal())),
                };
                let trace_id = facts.trace_id();
                facts.record_accepted(self.kernel.clock().now());
                let accepted = Accepted::pending(id, waits, trace_id);
                Ok(Accepted { status: state.unwrap_or(accepted.status), ..accepted })
            }
            Enqueued::Existing { same: false, .. } => Err(self.kernel.turn_away(facts, other_call())),
            Enqueued::Full => Err(self.kernel.turn_away(facts, queue_full())),
        }
    }

    /// Puts a job that is no call of a tool into the queue. `Existing` if its dedupe key is known.
    pub async fn enqueue(&self, job: SystemJob) -> Result<Enqueued, Refusal> {
        if !self.handlers.iter().any(|handler| handler.kind() == job.kind) {
            return Err(Refusal::new(ErrorCode::E3010, format!("this server has no handler for `{}` jobs", job.kind)));
        }
        let id = new_invocation_id(self.kernel.entropy(), self.kernel.clock().now());
        let key = JobKey { tenant: job.tenant, id };
        let new = NewJob {
            key: key.clone(),
            kind: job.kind.to_owned(),
            label: job.label,
            subject: system_subject()?,
            digest: canonical::digest(&job.payload),
            payload: job.payload,
            priority: job.priority,
            delay: job.delay,
            attempts_max: job.attempts_max.max(1),
            dedupe: job.dedupe,
            bounds: self.settings.bounds,
        };
        self.bounded(&new)?;
        let enqueued = self.store.enqueue(new).await.map_err(|error| error.refusal())?;
        if enqueued == Enqueued::New {
            self.wake.notify_one();
            self.tell(&key);
        }
        Ok(enqueued)
    }

    /// The job of a call that was let in.
    fn call_job(
        &self,
        key: JobKey,
        errand: &Errand,
        principal: &Principal,
        tool: &ToolVersion,
        parameters: &Value,
    ) -> Result<NewJob, Refusal> {
        let options = &errand.request.execution_options;
        let retries = tool.manifest.retry_policy.as_ref().map_or(self.settings.attempts_max, |p| p.max_attempts.into());
        let session = errand.request.agent_context.as_ref().and_then(|context| context.session_id.as_deref());
        // What a key means ends with the session it was made in, or with the agent that made it.
        let scope = principal
            .session()
            .or(session)
            .map_or_else(|| json!({ "agent": principal.subject() }), |session| json!({ "session": session }));
        let dedupe = options.idempotency_key.as_ref().map(|given| Dedupe {
            key: json!([tool.tenant, tool.id, scope, given]).to_string(),
            window: settings::dedupe_window(&tool.manifest),
        });
        let new = NewJob {
            key,
            kind: TOOL_CALL.to_owned(),
            label: tool.id.to_string(),
            subject: principal.subject().clone(),
            digest: canonical::digest(&json!([tool.id, parameters])),
            payload: errand.to_value()?,
            priority: JobPriority::near(match options.priority {
                Priority::Low => 3,
                Priority::Normal => 5,
                Priority::High => 8,
            }),
            delay: Duration::ZERO,
            attempts_max: if errand.repeatable { retries } else { 1 },
            dedupe,
            bounds: self.settings.bounds,
        };
        self.bounded(&new).map(|()| new)
    }

    fn bounded(&self, job: &NewJob) -> Result<(), Refusal> {
        if job.payload.to_string().len() <= self.settings.payload_bytes_max {
            return Ok(());
        }
        Err(Refusal::new(ErrorCode::E3005, "the job is too large to be kept")
            .hint("send less, or call it without `async_mode`"))
    }

    // --------------------------------------------------------------------------------------------------------- looking

    /// What is known of a job, if the caller may look at it (API-007).
    pub async fn status(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<InvocationView, Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let key = key_for(&caller, tenant, id);
        let found = self.store.find(&key).await.map_err(|error| error.refusal())?;
        let found = found.filter(|found| may_see(&caller, &found.record)).ok_or_else(|| unknown(id))?;
        Ok(InvocationView::of(found))
    }

    /// What has happened to a job after an event, in order; and whether more can happen.
    pub async fn events(&self, key: &JobKey, after: u64, most: usize) -> Result<Vec<JobEvent>, Refusal> {
        self.store.events(key, after, most).await.map_err(|error| error.refusal())
    }

    /// The key of a job that the caller may look at, and where it stands.
    pub async fn find(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<(JobKey, JobState), Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let found = self.store.find(&key_for(&caller, tenant, id)).await.map_err(|error| error.refusal())?;
        let found = found.filter(|found| may_see(&caller, &found.record)).ok_or_else(|| unknown(id))?;
        Ok((found.record.key, found.record.state))
    }

    /// Jobs, newest first: one's own, or all of the tenant for those who may look.
    pub async fn list(
        &self,
        actor: Actor<'_>,
        mut filter: JobFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<JobListing, Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let own = caller.tenant().clone();
        let tenant = filter.tenant.take().filter(|_| administers_all(&caller)).unwrap_or(own);
        filter.tenant = Some(tenant);
        if !caller.may(Action::SeeJobs) {
            filter.subject = Some(caller.subject().clone());
        }
        let page = self.store.list(&filter, before, most).await.map_err(|error| error.refusal())?;
        Ok(JobListing::of(page))
    }

    // ------------------------------------------------------------------------------------------------------- deciding

    /// Asks a job to end (ASYNC-005). Asking again, or after the end, changes nothing and says so.
    pub async fn cancel(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
        reason: Option<&str>,
    ) -> Result<JobState, Refusal> {
        let (caller, record) = self.managed(actor, tenant, id).await?;
        let (key, before) = (record.key, record.state);
        let reason: String =
            reason.unwrap_or_default().chars().filter(|c| !c.is_control()).take(REASON_CHARS_MAX).collect();
        let slot = self.kernel.parts.recorder.reserve().await?;
        let error = cancelled().envelope(actor.trace_id, Some(id));
        let asked = self
            .store
            .ask_cancel(&key, &reason, serde_json::to_value(error).unwrap_or_default())
            .await
            .map_err(|error| error.refusal())?;
        let CancelAsked::Now(state) = asked else { return Err(unknown(id)) };
        let mut record = self.kernel.act(actor, &caller, AuditAction::InvocationCancelAsked, None, None);
        record.invocation_id = Some(id);
        slot.record(record);
        self.tell(&key);
        match state {
            JobState::Running => self.running.cancel(&key),
            // It waited, and this was its end, unless somebody was faster: then it is told twice, and sent once.
            JobState::Cancelled if !before.is_end() => self.tell_end(&key).await,
            _ => {}
        }
        Ok(state)
    }

    /// Begins an ended job that came to nothing again, as a new job with the same warrant.
    pub async fn retry(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<Accepted, Refusal> {
        let (caller, former) = self.managed(actor, tenant, id).await?;
        if !former.state.is_end() || former.state == JobState::Done {
            return Err(Refusal::new(ErrorCode::E3408, format!("job `{id}` is {}", former.state.as_str()))
                .hint("only a job that failed, died or was cancelled can be begun again"));
        }
        let unknown_end = former.error.as_ref().and_then(|error| error.get("code")).and_then(Value::as_str);
        if unknown_end == Some(ErrorCode::E3413.as_str()) {
            return Err(Refusal::new(ErrorCode::E3413, format!("nobody knows whether job `{id}` had its effect"))
                .hint("find out and say so first: `gantry jobs resolve`"));
        }
        let detail = self.store.find(&former.key).await.map_err(|error| error.refusal())?.ok_or_else(|| unknown(id))?;
        let new_id = new_invocation_id(self.kernel.entropy(), self.kernel.clock().now());
        let key = JobKey { tenant: former.key.tenant.clone(), id: new_id };
        let payload = warrant::under_new_id(detail.payload, new_id);
        let new = NewJob {
            key: key.clone(),
            kind: former.kind,
            label: former.label,
            subject: former.subject,
            payload,
            digest: detail.digest,
            priority: former.priority,
            delay: Duration::ZERO,
            attempts_max: former.attempts_max,
            dedupe: None,
            bounds: self.settings.bounds,
        };
        let slot = self.kernel.parts.recorder.reserve().await?;
        match self.store.enqueue(new).await.map_err(|error| error.refusal())? {
            Enqueued::New => {
                let note = Some(format!("repeats {id}"));
                let mut record = self.kernel.act(actor, &caller, AuditAction::InvocationAccepted, None, note);
                record.invocation_id = Some(new_id);
                slot.record(record);
            }
            Enqueued::Full => return Err(queue_full()),
            Enqueued::Existing { .. } => return Err(other_call()),
        }
        self.wake.notify_one();
        self.tell(&key);
        Ok(Accepted::pending(new_id, 0, actor.trace_id))
    }

    /// A job that the caller may decide about: its own, or with the right to manage those of others.
    async fn managed(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        id: InvocationId,
    ) -> Result<(Arc<Principal>, JobRecord), Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let found = self.store.find(&key_for(&caller, tenant, id)).await.map_err(|error| error.refusal())?;
        let record =
            found.map(|found| found.record).filter(|record| may_see(&caller, record)).ok_or_else(|| unknown(id))?;
        if record.subject != *caller.subject() && !caller.may(Action::ManageJobs) {
            return Err(Refusal::new(
                ErrorCode::E3206,
                "this token may look at the jobs of others, not decide about them",
            )
            .hint("use a token with the role `operator` or `admin`"));
        }
        Ok((caller, record))
    }

    fn tell(&self, key: &JobKey) {
        // Nobody listening is no failure.
        let _ = self.news.send(key.clone());
    }
}

/// The same request, to be done now by whoever does it.
fn foreground(request: &mut InvokeRequest) {
    request.execution_options.async_mode = false;
    request.execution_mode = None;
}

/// How long a call of this tool takes at most, unless it asks for more.
fn tool_seconds(tool: &ToolVersion) -> u64 {
    tool.manifest.timeout_default_ms().div_ceil(1000)
}

/// Whoever works for the home tenant with a right to look may name other tenants.
fn administers_all(caller: &Principal) -> bool {
    caller.tenant().is_home() && caller.may(Action::SeeJobs)
}

/// What an id means to this caller.
fn key_for(caller: &Principal, tenant: Option<&TenantId>, id: InvocationId) -> JobKey {
    let tenant = tenant.filter(|_| administers_all(caller)).unwrap_or_else(|| caller.tenant());
    JobKey { tenant: tenant.clone(), id }
}

/// One's own jobs, and those of the tenant with a right to look (JOBS-3).
fn may_see(caller: &Principal, record: &JobRecord) -> bool {
    record.subject == *caller.subject() || caller.may(Action::SeeJobs)
}

fn system_subject() -> Result<Subject, Refusal> {
    SYSTEM_SUBJECT.parse().map_err(|_| Refusal::new(ErrorCode::E3000, "the server's own name is no name"))
}

fn unknown(id: InvocationId) -> Refusal {
    Refusal::new(ErrorCode::E3702, format!("there is no job `{id}`"))
        .hint("check the id; only calls that were submitted with `async_mode`, or went on in the background, are kept")
}

fn queue_full() -> Refusal {
    const RETRY_AFTER_MS: u64 = 5_000;
    let refusal = Refusal::new(ErrorCode::E3701, "too many jobs wait").hint("nothing was kept; try again later");
    Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
}

fn other_call() -> Refusal {
    Refusal::new(ErrorCode::E3410, "this idempotency key or invocation id was used for another call")
        .hint("use a new one for a new call, or send the same parameters again")
}

fn cancelled() -> Refusal {
    Refusal::new(ErrorCode::E3703, "the job was cancelled").hint("submit it again if the result is still wanted")
}
