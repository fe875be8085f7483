//! Background calls: the interface of the kernel for whoever keeps calls and makes them later (`jobs`).
//!
//! ```text
//! Kernel::admit ─▶ AdmittedCall ─▶ kept, and recorded as accepted │ turned away
//!                                   └─ later ─▶ Kernel::caller_of(record) ─▶ Kernel::invoke_as: the six phases, from first to last
//! ```
//!
//! Invariants
//! - BACK-1: an admitted call cannot be run. What is kept is the request, and that passes all six phases when its time has come.
//! - BACK-2: whatever is asked here of the ledger, of masks and of limits has the answer that a call which is waited for has.
//!
//! An admitted call gives away nothing that the phases take:
//!
//! ```compile_fail,E0616
//! use gantry_kernel::background_calls::AdmittedCall;
//! fn runs_it_now(admitted: AdmittedCall) {
//!     let _authorized = admitted.authorized;
//! }
//! ```
//!
//! Not here: the queue, and when a call is made again (`jobs`).

use std::sync::Arc;
use std::time::Duration;

use contract::envelope::InvokeRequest;
use contract::error::Refusal;
use contract::ids::{InvocationId, TenantId, TraceId};
use contract::trace_context::TraceContext;
use fair_places::FairPermit;
use policy::{Caller, CallerRecord};
use ports::job_store::{JobDetail, JobKey};
use ports::observer::Phase;
use ports::tool_version::ToolVersion;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::discovery::CallExplanation;
use crate::identity::Principal;
use crate::invocation_ids::is_same_job;
use crate::invoke::{FailedCall, IncomingCall, Kernel};
use crate::phases::{self, Authorized, CallFacts};
use crate::resilience::guard::guard_of;

pub use crate::administration::elsewhere;
pub use crate::checkpoints::CHECKPOINT_REF;
pub use crate::invocation_ids::{IdHold, job_digest, taken};
pub use crate::ledger::{
    CallKey, INTERRUPTED, KeptFailure, KeptOutcome, KeptResult, cause, did_not_happen, handle, other_parameters,
    queue_key, resolve_command,
};
pub use crate::phases::{ReaderMask, status_of};
pub use crate::running_jobs::{RunningJobs, WhyStop};

/// An admitted call: it has passed receive, validate and authorize, and was counted against its rate limits. Nothing of it has
/// run. Whoever has it keeps its request and records that, or turns it away; a call that is dropped instead is in no record.
#[derive(Debug)]
pub struct AdmittedCall {
    // Boxed: whoever has it hands it on between futures, which would carry the room.
    facts: Box<CallFacts>,
    authorized: Box<Authorized>,
}

impl AdmittedCall {
    /// The caller, the version that was meant, and the parameters as they were checked.
    pub fn parts(&self) -> (&Arc<Principal>, &Arc<ToolVersion>, &Value) {
        self.authorized.admitted()
    }

    /// What its caller said about which call it is.
    pub fn key(&self) -> &CallKey {
        self.authorized.key()
    }

    /// Its id: the caller's own, or one that was made for it.
    pub fn invocation_id(&self) -> InvocationId {
        self.facts.invocation_id()
    }

    /// The trace it came in.
    pub fn trace_id(&self) -> TraceId {
        self.facts.trace_id()
    }

    /// The trace as a job of this call goes on with it: under the span that ends here.
    pub fn handed_on(&self) -> TraceContext {
        self.facts.handed_on()
    }

    /// Holds the id that its caller brought along, until the answer is dropped. Refused if a running call or the ledger has the id
    /// for another call; whether a job has it is said when the job is kept. `None` if the id was made here, or if the very same
    /// call runs.
    pub async fn hold_id(&self, kernel: &Kernel) -> Result<Option<IdHold>, Refusal> {
        if !self.facts.is_id_given() {
            return Ok(None);
        }
        let (principal, ..) = self.parts();
        let key = JobKey { tenant: principal.tenant().clone(), id: self.invocation_id() };
        let call = self.authorized.identity();
        let hold = kernel.ids.hold(&key, call.clone())?;
        let line = kernel.books().ledger().find(&key.tenant, key.id).await.map_err(|error| error.refusal())?;
        if line.is_some_and(|line| !call.is_of(&line.intent)) {
            return Err(taken());
        }
        Ok(hold)
    }

    /// Is this job the same call, of the same owner with the same tool, parameters and key?
    pub fn is_call_of(&self, job: &JobDetail, kernel: &Kernel) -> bool {
        let (principal, tool, parameters) = self.parts();
        let digest = job_digest(&tool.id, parameters);
        is_same_job(job, &principal.owner(), digest, (self.key(), &*kernel.parts.redactor))
    }

    /// Records that it was let in to be done later. Its end is recorded when it comes.
    pub async fn record_accepted(self, kernel: &Kernel) -> Result<(), Box<FailedCall>> {
        Box::pin(self.facts.record_accepted(kernel)).await
    }

    /// Ends it, because it cannot be kept, and records that.
    pub async fn turn_away(self, kernel: &Kernel, refusal: Refusal) -> Box<FailedCall> {
        Box::pin(kernel.turn_away(*self.facts, refusal)).await
    }
}

impl Kernel {
    /// Admits a call that is to be done later: the phases before execution, of which nothing runs. A call that is refused here is
    /// recorded like every other.
    pub async fn admit(&self, arrival: IncomingCall<'_>) -> Result<AdmittedCall, Box<FailedCall>> {
        let mut facts = CallFacts::begin(self, &arrival);
        facts.enter(self, Phase::Receive);
        let admitted = match phases::receive(self, &mut facts, arrival).await {
            Ok(received) => self.admit_received(&mut facts, received).await,
            Err(refusal) => Err(refusal),
        };
        match admitted {
            Ok(authorized) => Ok(AdmittedCall { facts: Box::new(facts), authorized: Box::new(authorized) }),
            Err(refusal) => {
                facts.journey.stopped();
                Err(self.turn_away(facts, refusal).await)
            }
        }
    }

    /// What would become of this call if it were submitted now? As [`Kernel::explain`], for a call in the background.
    pub async fn explain_submission(&self, arrival: IncomingCall<'_>) -> Result<CallExplanation, Refusal> {
        self.explain_as(arrival, |_| Ok(())).await
    }

    /// The caller of a record that this installation has written and kept itself, for a call that was let in before. A record from
    /// anywhere else must not come here: it proves nothing. Whether the caller is still welcome is asked by every call of it, and
    /// by [`Kernel::welcome`].
    pub fn caller_of(&self, record: CallerRecord) -> Arc<Principal> {
        Arc::new(self.identity().honour(record))
    }

    /// Is somebody still welcome who has proven itself before: its token not revoked, its tenant open, its DID known?
    pub async fn welcome(&self, principal: &Principal) -> Result<(), Refusal> {
        self.identity().welcome(self.access(), principal, self.clock().now()).await
    }

    /// What the caller of a request said about which call it is. What must not be seen in it is hidden.
    pub fn call_key(&self, request: &InvokeRequest) -> CallKey {
        let mut key = CallKey::of_request(request);
        key.hide(self.redactor());
        key
    }

    /// The parameters as *validate* leaves them, of a call that it let through before. `None` if they no longer fit the tool.
    pub async fn prepared(
        &self,
        caller: &Caller,
        tool: &Arc<ToolVersion>,
        parameters: Map<String, Value>,
    ) -> Option<Value> {
        phases::prepared(self, caller, tool, parameters).await
    }

    /// May a manager have this call of another made, now? Asked of the manager's token, activations and policies. Budgets are
    /// spent; nothing else is counted. (decision 0081)
    pub async fn may_manage(
        &self,
        manager: &Principal,
        tool: &ToolVersion,
        arguments: &Value,
        needs_approval: bool,
    ) -> Result<(), Refusal> {
        phases::may_manage(self, manager, tool, arguments, needs_approval).await
    }

    /// Counts a call of this caller against everything that limits how many there are, all together or not at all.
    pub async fn count_call(&self, caller: &Caller, tool: &ToolVersion) -> Result<(), Refusal> {
        match &self.resilience {
            Some(resilience) => resilience.count(caller, tool, guard_of(tool, &resilience.settings)).await,
            None => Ok(()),
        }
    }

    /// Notes that a call which goes on as a job was counted against the budgets of its token. On an error that is in the log.
    pub async fn note_spent_by_job(&self, caller: &Caller, id: InvocationId) {
        phases::note_spent_by_job(self, caller, id).await;
    }

    /// Does a call of this tool take a place among the sandboxed calls of its agent?
    pub fn takes_place(&self, tenant: &TenantId, tool: &ToolVersion) -> bool {
        phases::takes_place(self, tenant, tool)
    }

    /// Such a place, if there is one now. To be handed to [`Kernel::invoke_as`].
    pub fn place_now(&self, caller: &Caller) -> Result<FairPermit, Refusal> {
        self.concurrency.sandboxed_now(caller)
    }

    /// Such a place, now or in its turn; `None` if there was none within that time, or the call was cancelled.
    pub async fn place_within(
        &self,
        caller: &Caller,
        cancellation: &CancellationToken,
        within: Duration,
    ) -> Option<FairPermit> {
        self.concurrency.sandboxed(caller, self.clock(), cancellation, within).await.ok()
    }

    /// The jobs that this process does at the moment.
    pub fn running_jobs(&self) -> &RunningJobs {
        &self.running_jobs
    }
}
