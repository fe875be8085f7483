//! The kernel: what it is made of, and the one way a call is carried through.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use contract::envelope::{ExecutionMetadata, InvocationStatus, InvokeRequest};
use contract::error::{ErrorEnvelope, Refusal};
use contract::ids::{InvocationId, TraceId};
use contract::trace_context::TraceContext;
use fair_places::{FairPermit, PlaceUsage};
use policy::BearerSecret;
use ports::audit_log::AuditLog;
use ports::call_insights::CallInsights;
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::executor::{ExecutionReach, Executor};
use ports::job_store::JobStore;
use ports::observer::{Observer, Phase};
use ports::offerings::Offerings;
use ports::record_archive::RecordArchive;
use ports::redactor::Redactor;
use ports::tool_companion::CallListener;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::access::AccessControl;
use crate::availability::ToolAvailability;
use crate::checkpoints::{CallCheckpoints, Checkpoints};
use crate::concurrency::{CallBounds, CallConcurrency};
use crate::identity::{Identity, Principal};
use crate::invocation_ids::InvocationIds;
use crate::isolation::IsolationPolicy;
use crate::ledger::LedgerService;
use crate::limits::ResourceEnvelope;
use crate::mint::TokenIssuer;
use crate::offerings::OfferedLists;
use crate::phases::{self, Authorized, CallFacts, Received, Returned, Verified};
use crate::recorder::Recorder;
use crate::registry::Registry;
use crate::resilience::Resilience;
use crate::running_jobs::RunningJobs;
use crate::tool_logs::ToolLogs;

/// What a kernel needs in any case.
#[derive(Debug)]
pub struct KernelParts {
    pub registry: Registry,
    pub identity: Identity,
    /// Who may use what.
    pub access: AccessControl,
    /// Mints capability tokens.
    pub mint: TokenIssuer,
    pub recorder: Recorder,
    /// Which calls with effects were begun, and what became of them.
    pub books: LedgerService,
    pub executors: Vec<Arc<dyn Executor>>,
    /// What servers behind this one offer besides tools.
    pub offerings: Arc<dyn Offerings>,
    /// How isolated which calls must be.
    pub isolation: IsolationPolicy,
    /// The most that any call may use, and that run at once.
    pub envelope: ResourceEnvelope,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub observer: Arc<dyn Observer>,
    /// Takes out of records, logs and results what must not be seen.
    pub redactor: Arc<dyn Redactor>,
}

/// What a kernel can do without. Each member says what is absent without it.
#[derive(Debug, Default)]
pub struct KernelOptions {
    /// How many calls run at once, and wait. Without it as many as a server does out of the box.
    pub bounds: CallBounds,
    /// Keeps what running tools save. Without it nothing is kept.
    pub checkpoints: Option<Checkpoints>,
    /// Learns from calls. Without it nobody does.
    pub insights: Option<Arc<dyn CallInsights>>,
    /// Where records can be read. Without it they cannot.
    pub audit_log: Option<Arc<dyn AuditLog>>,
    /// Where the records of all instances can be searched. Without it only those of this one can.
    pub archive: Option<Arc<dyn RecordArchive>>,
    /// Breakers, limits and retries. Without it there are none.
    pub resilience: Option<Arc<Resilience>>,
    /// Where jobs are kept, whose ids are in use. Without it there are no jobs.
    pub jobs: Option<Arc<dyn JobStore>>,
}

/// Carries calls through the six phases.
#[derive(Debug)]
pub struct Kernel {
    pub(crate) parts: KernelParts,
    pub(crate) concurrency: CallConcurrency,
    /// What servers offer besides tools, remembered for a moment.
    pub(crate) lists: Arc<OfferedLists>,
    /// Keeps what running tools save, if somebody does.
    pub(crate) checkpoints: Option<Arc<Checkpoints>>,
    /// Learns from calls, if somebody does.
    pub(crate) insights: Option<Arc<dyn CallInsights>>,
    /// Where records can be read, if they can.
    pub(crate) audit_log: Option<Arc<dyn AuditLog>>,
    /// Where the records of all instances can be searched, if they can.
    pub(crate) archive: Option<Arc<dyn RecordArchive>>,
    /// Breakers, limits and retries, if there are any.
    pub(crate) resilience: Option<Arc<Resilience>>,
    /// Cancelled when the doors wait for calls no longer ([`Kernel::ending`]).
    pub(crate) ending: CancellationToken,
    /// Ids of callers that are in use.
    pub(crate) ids: InvocationIds,
    /// The jobs that this process does at the moment.
    pub(crate) running_jobs: RunningJobs,
    /// What the programs of the last calls wrote.
    pub(crate) tool_logs: ToolLogs,
}

/// A call as it comes through a door.
#[derive(Debug)]
pub struct IncomingCall<'a> {
    /// What the caller shows to prove itself.
    pub credential: Option<BearerSecret<'a>>,
    /// Where it comes from, for the limit on failed authentications.
    pub source: Option<IpAddr>,
    pub request: InvokeRequest,
    /// The caller's trace, if it has one.
    pub trace: Option<TraceContext>,
    /// Time left of the call that made this one, if one did.
    pub parent_left: Option<Duration>,
    /// Who listens while it runs, if somebody does.
    pub audience: Option<Arc<dyn CallListener>>,
    /// Cancelled when nobody wants the result any more: the tool is ended, and the call recorded as cancelled.
    pub cancellation: CancellationToken,
}

/// A call that did not come to a result.
#[derive(Debug)]
pub struct FailedCall {
    pub refusal: Refusal,
    pub status: InvocationStatus,
    pub invocation_id: InvocationId,
    pub trace_id: TraceId,
    /// Was the tool begun? If not, nothing can have happened.
    pub begun: bool,
    /// How far it came, if it was begun.
    pub reach: ExecutionReach,
    /// Times and usage, as far as it came. None for strangers. (LIFE-014)
    pub execution_metadata: Option<Box<ExecutionMetadata>>,
    /// The newest state of the call that is still kept.
    pub checkpoint_ref: Option<String>,
    /// The end of what the tool wrote to its log, for a caller who may see it. (EXEC-010)
    pub output: Option<String>,
    /// Knows what the call was told in confidence.
    pub(crate) redactor: Arc<dyn Redactor>,
}

impl FailedCall {
    /// What takes out of its words what the call was told in confidence: for whoever keeps the failure.
    pub fn redactor(&self) -> &dyn Redactor {
        &*self.redactor
    }

    /// The error as it goes over the wire.
    pub fn envelope(&self) -> ErrorEnvelope {
        self.refusal.envelope(self.trace_id, Some(self.invocation_id))
    }
}

impl Kernel {
    /// From its parts, whole: nothing is added to it afterwards.
    pub fn new(parts: KernelParts, options: KernelOptions) -> Self {
        let KernelOptions { bounds, checkpoints, insights, audit_log, archive, resilience, jobs } = options;
        let concurrency = CallConcurrency::new(bounds, parts.envelope.concurrent_calls_per_agent);
        let (offerings, clock, observer) = (&parts.offerings, &parts.clock, &parts.observer);
        let lists = OfferedLists::new(Arc::clone(offerings), Arc::clone(clock), Arc::clone(observer));
        Self {
            parts,
            concurrency,
            lists,
            checkpoints: checkpoints.map(Arc::new),
            insights,
            audit_log,
            archive,
            resilience,
            ending: CancellationToken::new(),
            ids: InvocationIds::new(jobs),
            running_jobs: RunningJobs::default(),
            tool_logs: ToolLogs::default(),
        }
    }

    /// Cancelled by the doors when the drain time is over. The cancellation of a call that must end then is a child of it:
    /// such a call is ended like any other that is cancelled, and settles with what is known of it; a call that is only
    /// dropped could say nothing. Jobs are ended by their workers, in a time of their own.
    pub fn drain_cancellation(&self) -> &CancellationToken {
        &self.ending
    }

    /// How many calls run and wait, of each kind that is bounded.
    pub fn places(&self) -> Vec<(&'static str, PlaceUsage)> {
        let of_executors = self.parts.executors.iter().flat_map(|executor| executor.places());
        self.concurrency.usage().into_iter().chain([self.access().places()]).chain(of_executors).collect()
    }

    /// Can tools run that run on this machine: built in, programs, guests, containers? Not those of MCP servers, which have
    /// checks of their own. (OPS-010)
    pub fn runs_local_tools(&self) -> bool {
        self.parts.executors.iter().filter(|executor| executor.kind() != "mcp").all(|executor| executor.is_well())
    }

    /// Breakers, limits and retries, if there are any.
    pub fn resilience(&self) -> Option<&Arc<Resilience>> {
        self.resilience.as_ref()
    }

    /// Which tools there are.
    pub fn registry(&self) -> &Registry {
        &self.parts.registry
    }

    /// Who is calling.
    pub fn identity(&self) -> &Identity {
        &self.parts.identity
    }

    /// Who may use what.
    pub fn access(&self) -> &AccessControl {
        &self.parts.access
    }

    /// What is published but cannot be called at the moment.
    pub fn availability(&self) -> &ToolAvailability {
        self.parts.registry.availability()
    }

    /// The time by which this kernel lives.
    pub fn clock(&self) -> &dyn Clock {
        &*self.parts.clock
    }

    /// What knows secrets when it sees them.
    pub fn redactor(&self) -> &dyn Redactor {
        &*self.parts.redactor
    }

    /// The randomness its ids are made from.
    pub fn entropy(&self) -> &dyn Entropy {
        &*self.parts.entropy
    }

    /// Which calls with effects were begun, and what became of them.
    pub fn books(&self) -> &LedgerService {
        &self.parts.books
    }

    /// Is every record of the audit log there and what was signed, as far as anybody has looked?
    pub fn has_whole_log(&self) -> bool {
        self.audit_log.as_ref().is_none_or(|log| log.is_whole())
    }

    /// Can calls be recorded at the moment?
    pub fn is_recording(&self) -> bool {
        self.parts.recorder.is_writable()
    }

    /// Runs one call of one tool, through the six phases. [`Self::invoke_under`] and [`Self::invoke_as`] are the same with an id or a
    /// caller that is known before; there is no other way to run one.
    pub async fn invoke(&self, arrival: IncomingCall<'_>) -> Result<Returned, Box<FailedCall>> {
        let facts = CallFacts::begin(self, &arrival);
        let line = facts.line();
        self.through(facts, None, arrival).instrument(line).await
    }

    /// Runs one call under an id that was made for it, not brought by its caller: it is kept under that id if it becomes a job.
    pub async fn invoke_under(
        &self,
        made: Option<InvocationId>,
        arrival: IncomingCall<'_>,
    ) -> Result<Returned, Box<FailedCall>> {
        let mut facts = CallFacts::begin(self, &arrival);
        if let Some(id) = made {
            facts.named(id);
        }
        let line = facts.line();
        self.through(facts, None, arrival).instrument(line).await
    }

    /// Runs one call of a caller who has proven itself before: the same six phases. For work that goes on without its token,
    /// and may have waited for its place among the calls of its agent. The fence is that of the attempt: what an older attempt
    /// saves is refused.
    pub async fn invoke_as(
        &self,
        caller: Arc<Principal>,
        (place, fence): (Option<FairPermit>, u64),
        arrival: IncomingCall<'_>,
    ) -> Result<Returned, Box<FailedCall>> {
        let mut facts = CallFacts::begin(self, &arrival);
        facts.place = place;
        facts.is_job = true;
        facts.checkpointing = CallCheckpoints::of_attempt(fence);
        let line = facts.line();
        self.through(facts, Some(caller), arrival).instrument(line).await
    }

    /// All six phases.
    async fn through(
        &self,
        mut facts: CallFacts,
        known: Option<Arc<Principal>>,
        arrival: IncomingCall<'_>,
    ) -> Result<Returned, Box<FailedCall>> {
        let carried = self.carry(&mut facts, known, arrival).await;
        if carried.is_err() {
            facts.journey.stopped();
        }
        self.end(&mut facts, carried).await
    }

    /// Ends a call, whatever became of it and however far it came. There is no other way to an answer.
    pub(crate) async fn end(
        &self,
        facts: &mut CallFacts,
        mut carried: Result<Verified, Refusal>,
    ) -> Result<Returned, Box<FailedCall>> {
        facts.enter(self, Phase::Return);
        facts.checkpointing.conclude(&mut carried).await;
        let settled = phases::settle(self, facts, carried).await;
        phases::finish(self, facts, settled).await
    }

    /// Ends a call that was let in and cannot be kept.
    pub(crate) async fn turn_away(&self, mut facts: CallFacts, refusal: Refusal) -> Box<FailedCall> {
        let (invocation_id, trace_id) = (facts.invocation_id(), facts.trace_id());
        let redactor = Arc::clone(&facts.redactor);
        // Boxed: few calls are turned away, and every call would carry the room.
        match Box::pin(self.end(&mut facts, Err(refusal.clone()))).await {
            Err(failed) => failed,
            Ok(_) => Box::new(FailedCall {
                refusal,
                status: InvocationStatus::Error,
                invocation_id,
                trace_id,
                begun: false,
                reach: ExecutionReach::NotSent,
                execution_metadata: None,
                checkpoint_ref: None,
                output: None,
                redactor,
            }),
        }
    }

    /// Ends a call of which nothing was read, because nobody was recognised. It is recorded like every call, unless its address
    /// has had too many of them recorded within the last minute.
    pub async fn refuse_unread(
        &self,
        source: Option<IpAddr>,
        trace: TraceContext,
        refusal: Refusal,
    ) -> Box<FailedCall> {
        let arrival = IncomingCall {
            credential: None,
            source: None,
            request: InvokeRequest::default(),
            trace: Some(trace),
            parent_left: None,
            audience: None,
            cancellation: CancellationToken::new(),
        };
        let mut facts = CallFacts::begin(self, &arrival);
        facts.enter(self, Phase::Receive);
        facts.journey.stopped();
        if !self.identity().records_stranger(source, self.clock().now()) {
            return self.turn_away(facts, refusal).await;
        }
        match facts.reserve_record(self).await {
            Ok(()) => self.turn_away(facts, refusal).await,
            Err(unrecordable) => self.turn_away(facts, unrecordable).await,
        }
    }

    pub(crate) async fn admit_received(
        &self,
        facts: &mut CallFacts,
        received: Received,
    ) -> Result<Authorized, Refusal> {
        facts.enter(self, Phase::Validate);
        let mut validated = phases::validate(self, facts, received).await?;
        phases::summarise(self, facts, &mut validated).await?;
        facts.enter(self, Phase::Authorize);
        let authorized = phases::authorize(self, validated).await?;
        facts.note_decision(&authorized);
        Ok(authorized)
    }

    async fn carry(
        &self,
        facts: &mut CallFacts,
        known: Option<Arc<Principal>>,
        arrival: IncomingCall<'_>,
    ) -> Result<Verified, Refusal> {
        facts.enter(self, Phase::Receive);
        let waited_for = known.is_none();
        let received = match known {
            None => phases::receive(self, facts, arrival).await?,
            Some(caller) => phases::receive_again(self, facts, caller, arrival).await?,
        };
        if waited_for {
            received.has_nothing_of_the_background()?;
        }
        let authorized = self.admit_received(facts, received).await?;
        facts.enter(self, Phase::Execute);
        let executed = phases::execute(self, facts, authorized).await?;
        facts.enter(self, Phase::Verify);
        phases::verify(self, facts, executed).await
    }
}
