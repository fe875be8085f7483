//! A way to run a tool. Built-in tools, processes, WASM components and the tools of MCP servers each implement this one trait.
//!
//! Executors decide nothing: no rights, no retries, no records (AUTH-020, X-05). They get a call that has been validated
//! and authorized, run it, and say what came of it in terms of the error table.
//!
//! A call is cancelled by dropping the future of [`Executor::execute`]: at the deadline, when the caller goes away, at
//! shutdown. There is no second way, so that no executor can overlook one. Whatever runs outside the process must be gone
//! shortly after. An executor may tell the tool first (`cancel` of `gantry/1`), but only if telling delays nothing: the
//! tool is hostile and will not hurry.
//!
//! Every failure says how far its call came ([`ExecutionReach`]), and the executor says it where the failure is made: nobody
//! guesses it from a code later. What the kernel ends from outside it asks of the call itself ([`CallDispatch`]).

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::{InvocationId, Subject, TenantId, TraceId};
use contract::manifest::{Execution, Isolation, Manifest, ManifestError};
use contract::money::Money;
use contract::trace_context::{SpanId, TraceContext};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::call_deadline::CallDeadline;
use crate::program_log::ProgramLog;
use crate::redactor::GivenCredentials;
use crate::resolved_limits::ResolvedLimits;
use crate::saved_state::SavedState;
use crate::tool_companion::ToolCompanion;
use crate::tool_origin::ToolOrigin;
use crate::tool_version::ToolVersion;
use crate::upstream_spans::{OpenSpan, OutwardCall, UpstreamSpans};
use fair_places::PlaceUsage;

/// One authorized call, as an executor sees it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub invocation_id: InvocationId,
    pub trace_id: TraceId,
    /// What is told of the trace to whatever this calls.
    pub trace: CallTrace,
    pub tool: Arc<ToolVersion>,
    /// Exactly the value that passed validation (VALID-005).
    pub parameters: Arc<Value>,
    pub tenant: TenantId,
    pub subject: Subject,
    /// The person on whose behalf it is made, if the token names one (`user_did`). Handed to the tool. (LIFE-023)
    pub user: Option<Subject>,
    /// The agent whose places this call takes: the root of the caller's delegation chain, because names below it are of its
    /// own making.
    pub agent: Subject,
    /// Which of the addresses of the service behind the tool this is for ([`Executor::endpoints`]).
    pub endpoint: usize,
    /// Time left until the call's deadline. The kernel drops the future at the deadline; an executor with something to
    /// stop outside the process (a child, a request) stops it when dropped.
    pub time_left: Duration,
    /// The same as it stands at any moment: progress moves it. `None`: nothing does.
    pub deadline: Option<Arc<CallDeadline>>,
    /// What this call may use: never more than the manifest, the caller or the server allows.
    pub limits: ResolvedLimits,
    /// The isolation this call must have: at least what the manifest asks for. Never give less.
    pub isolation: Isolation,
    /// Hears what the tool says, and answers what it asks.
    pub companion: Arc<dyn ToolCompanion>,
    /// What the tool goes on from; `None`: from the beginning. An executor whose tools cannot be told leaves it.
    pub resume: Option<Arc<ResumePoint>>,
    /// Where the executor says whether anything of the call has left for the tool.
    pub dispatch: Arc<CallDispatch>,
    /// Where the executor leaves how to find out what the call used, should the kernel end it.
    pub usage_at_end: Arc<UsageAtEnd>,
    /// Where the executor leaves how to read what the tool's program wrote to its log, if it has one.
    pub program_log: Arc<ProgramLog>,
    /// What tells a repetition of this act from a new one: the same for every attempt, another for every other act, tenant and
    /// tool. Handed to the tool, so that it, or a service behind it, can honour it.
    pub idempotency_key: Arc<str>,
}

/// Whether a call has left for its tool, for a kernel that ends it from outside: at the deadline, when it is cancelled.
///
/// An executor that says nothing counts as having sent it. One that lets calls wait (for a place, for a server to start)
/// holds them, and releases each before its first byte leaves.
#[derive(Debug, Default)]
pub struct CallDispatch(AtomicBool);

impl CallDispatch {
    /// Nothing of the call leaves until it is released.
    pub fn hold(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// From here on the tool may run.
    pub fn release(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// How far a call came that ended without a word of its executor.
    pub fn reach(&self) -> ExecutionReach {
        if self.0.load(Ordering::Acquire) { ExecutionReach::NotSent } else { ExecutionReach::MayHaveRun }
    }
}

/// A reading of what a call has used, which may take a moment: something has to end first.
type UsageReading = Pin<Box<dyn Future<Output = ResourceUsage> + Send>>;

/// What a call has used that the kernel ends from outside: at the deadline, when it is cancelled. (EXEC-017)
///
/// Dropping the future of a call takes every word from its executor. One that can count leaves a reading here while the call
/// runs; the kernel takes it after it has dropped the call, and waits for it for a bounded time. A reading that is not
/// waited for is dropped, and must leave nothing behind.
#[derive(Default)]
pub struct UsageAtEnd(Mutex<Option<UsageReading>>);

impl UsageAtEnd {
    /// Leaves a reading, in place of an earlier one.
    pub fn leave(&self, reading: impl Future<Output = ResourceUsage> + Send + 'static) {
        let former = self.lock().replace(Box::pin(reading));
        drop(former);
    }

    /// The call comes to its end by itself, and its executor says what it used.
    pub fn clear(&self) {
        let former = self.take();
        drop(former);
    }

    /// The reading, if there is one.
    pub fn take(&self) -> Option<UsageReading> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<UsageReading>> {
        self.0.lock_unpoisoned()
    }
}

impl fmt::Debug for UsageAtEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UsageAtEnd").field(&self.lock().is_some()).finish()
    }
}

/// How far a call came that did not succeed. (DESIGN §5, §8.10)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExecutionReach {
    /// Nothing of it left for the tool: no place, no process, no credential, no connection.
    NotSent,
    /// It arrived and was turned away before anything was done with it: too many requests, unknown credentials.
    Refused,
    /// The tool ran to its end and said how it went, or gave an answer that must not be passed on.
    Answered,
    /// It was on its way, and nobody heard what came of it.
    MayHaveRun,
}

impl ExecutionReach {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::NotSent, Self::Refused, Self::Answered, Self::MayHaveRun];

    /// What an HTTP status says that is no success: those that by their definition are given in place of an execution are
    /// refusals, and every other one may have come after it (408, 424, everything from 500 on, numbers nobody knows). Of the
    /// redirects, 307 and 308 ask for the same request elsewhere; the others are also what servers answer after the work,
    /// 302 most of all.
    pub fn of_status(status: u16) -> Self {
        match status {
            307 | 308 => Self::Refused,
            400..=407 | 409..=417 | 421..=423 | 425 | 426 | 428 | 429 | 431 | 451 => Self::Refused,
            _ => Self::MayHaveRun,
        }
    }

    /// Is it certain that the tool has done nothing, so that the call can be made again?
    pub fn is_clean(self) -> bool {
        match self {
            Self::NotSent | Self::Refused => true,
            Self::Answered | Self::MayHaveRun => false,
        }
    }
}

/// Why an executor has no output: what the caller is told, and how far the call came.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{refusal}")]
pub struct ExecutorError {
    pub refusal: Refusal,
    pub reach: ExecutionReach,
    /// What the call used all the same, where the executor knows it. Boxed, because every `Result` has room for it.
    pub used: Option<Box<ResourceUsage>>,
    /// How the program of the tool ended, where there was one.
    pub program: Option<Box<FailedProgram>>,
}

/// How the program of a tool that failed ended, and what it wrote last. (EXEC-010)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedProgram {
    /// [`FailedProgram::EXIT_CODE_UNKNOWN`] if it was ended, or did not end by itself.
    pub exit_code: i32,
    /// The end of its log: bounded, without credentials, redacted. Only for those who may see it.
    pub output: String,
}

impl FailedProgram {
    /// Stands for an exit code that nobody knows.
    pub const EXIT_CODE_UNKNOWN: i32 = -1;
}

impl ExecutorError {
    /// A failure of a call that came so far.
    pub fn new(refusal: Refusal, reach: ExecutionReach) -> Self {
        Self { refusal, reach, used: None, program: None }
    }

    /// The same, of a call that used this.
    #[must_use]
    pub fn having_used(self, usage: ResourceUsage) -> Self {
        Self { used: Some(Box::new(usage)), ..self }
    }

    /// The same, of a call whose program ended so.
    #[must_use]
    pub fn ending(self, exit_code: i32, output: String) -> Self {
        Self { program: Some(Box::new(FailedProgram { exit_code, output })), ..self }
    }

    /// Nothing left for the tool.
    pub fn not_sent(refusal: Refusal) -> Self {
        Self::new(refusal, ExecutionReach::NotSent)
    }

    /// It was turned away before it was executed.
    pub fn refused(refusal: Refusal) -> Self {
        Self::new(refusal, ExecutionReach::Refused)
    }

    /// The tool ran to its end and said so.
    pub fn answered(refusal: Refusal) -> Self {
        Self::new(refusal, ExecutionReach::Answered)
    }

    /// Nobody knows what the tool has done.
    pub fn may_have_run(refusal: Refusal) -> Self {
        Self::new(refusal, ExecutionReach::MayHaveRun)
    }

    /// The same with other words.
    #[must_use]
    pub fn map(self, words: impl FnOnce(Refusal) -> Refusal) -> Self {
        Self { refusal: words(self.refusal), ..self }
    }
}

/// The trace of a call, as its executor sees it: what to send along, and where to write down what is called elsewhere.
#[derive(Debug, Clone)]
pub struct CallTrace {
    outward: Arc<UpstreamSpans>,
    /// The executor's own span.
    own: SpanId,
    context: TraceContext,
}

impl CallTrace {
    /// Of the executor's own span.
    pub fn new(outward: Arc<UpstreamSpans>, own: &OpenSpan) -> Self {
        Self { outward, own: own.id(), context: own.context() }
    }

    /// Recorded by nobody: for tests of executors.
    pub fn unrecorded(trace_id: TraceId) -> Self {
        let outward = UpstreamSpans::unrecorded(trace_id);
        let own = outward.begin(None, || OutwardCall::Executor("none"));
        Self::new(outward, &own)
    }

    /// What is sent to a tool that is run here.
    pub fn context(&self) -> &TraceContext {
        &self.context
    }

    /// Begins a call elsewhere; it ends when what is given back is dropped.
    pub fn begin(&self, what: impl FnOnce() -> OutwardCall) -> OpenSpan {
        self.outward.begin(Some(self.own), what)
    }
}

/// A state that an earlier call of the same tool has saved (CKPT-014).
#[derive(Debug, Clone, PartialEq)]
pub struct ResumePoint {
    pub checkpoint_id: String,
    /// The call that saved it.
    pub invocation_id: InvocationId,
    /// Exactly what was saved, with the versions of documents that it was made from.
    pub saved: SavedState,
}

/// What a call used. Zero where an executor cannot know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResourceUsage {
    pub cpu_millicore_seconds: u64,
    pub memory_peak_mb: u64,
    pub network_bytes_sent: u64,
    pub network_bytes_received: u64,
    /// Tokens of the model behind the tool.
    pub tokens: Option<u64>,
    /// What the tool says that the call has cost (`costIncurred`). It stands in place of the manifest's prices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_incurred: Option<Money>,
}

/// What a tool gave back, before anybody has verified it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    pub value: Value,
    pub usage: ResourceUsage,
}

impl ToolOutput {
    /// A result that used nothing worth counting.
    pub fn of(value: Value) -> Self {
        Self { value, usage: ResourceUsage::default() }
    }
}

/// Runs tools of one kind.
///
/// ```
/// # use gantry_ports::executor::{Executor, ExecutorError, ToolCall, ToolOutput};
/// #[derive(Debug)]
/// struct Echo;
/// #[async_trait::async_trait]
/// impl Executor for Echo {
///     fn kind(&self) -> &'static str { "builtin" }
///     async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
///         Ok(ToolOutput::of((*call.parameters).clone()))
///     }
/// }
/// ```
#[async_trait]
pub trait Executor: Send + Sync + fmt::Debug {
    /// The `execution.type` this executor runs.
    fn kind(&self) -> &'static str;

    /// Can this binding run here, now, with the isolation that is demanded? Asked when a call arrives, before anything is
    /// done; the answer must be cheap. `demand` is never more than this kind of tool can have anywhere, but may be more than
    /// this machine has. The default is yes.
    fn ready(&self, tool: &ToolVersion, binding: &Execution, demand: Isolation) -> Result<(), Refusal> {
        // Named for whoever implements it; the default does not look at them.
        let _ = (tool, binding, demand);
        Ok(())
    }

    /// Is there a way to run this manifest here, as a tool of `tenant`? Asked when it is published, so that nothing is accepted
    /// that every call would find unavailable; the answer must be cheap. What a machine may lack today and have tomorrow is
    /// not asked here but of [`ready`](Self::ready). The default is yes.
    ///
    /// # Errors
    /// What is in the way, at its place in the manifest, and what to do about it.
    fn admits(&self, tenant: &TenantId, manifest: &Manifest) -> Result<(), ManifestError> {
        let _ = (tenant, manifest);
        Ok(())
    }

    /// The credentials a call of this tool is given for a caller of `tenant`, so that their values can be kept out of what
    /// is written about it; the answer must be cheap. The default is those the manifest declares.
    fn credentials(&self, tool: &ToolVersion, tenant: &TenantId) -> Option<GivenCredentials> {
        let names = &tool.permissions().ok()?.credentials;
        let given = || GivenCredentials { tenant: tenant.clone(), names: names.clone() };
        (!names.is_empty()).then(given)
    }

    /// The addresses at which the service behind a tool can be reached, in the order in which they are to be asked, by names
    /// that may be shown: host and port. Empty: there is nothing to choose. Each has a breaker of its own, and the call says
    /// for which it is ([`ToolCall::endpoint`]). Asked for each call; the answer must be cheap. (RES-019)
    fn endpoints(&self, tool: &ToolVersion) -> Vec<String> {
        let _ = tool;
        Vec::new()
    }

    /// What stands behind a tool outside, as policies are told of it; `None`: nothing does. Asked for each call; the answer must be
    /// cheap. An error refuses the call: nobody decides about less than a tool may touch. (AUTH-006)
    fn origin(&self, tool: &ToolVersion) -> Result<Option<Arc<ToolOrigin>>, Refusal> {
        let _ = tool;
        Ok(None)
    }

    /// Has a tool of this manifest a way to save checkpoints while it runs? Asked when one that declares it is published, and for
    /// calls that want it; the answer must be cheap. The default is yes.
    fn saves(&self, manifest: &Manifest) -> bool {
        let _ = manifest;
        true
    }

    /// Can it run tools at all, as far as it knows without trying? The answer must be cheap. (EXEC-001, OPS-010)
    fn is_well(&self) -> bool {
        true
    }

    /// What of its own it shares out among calls, each under its name, and how much of that is used.
    fn places(&self) -> Vec<(&'static str, PlaceUsage)> {
        Vec::new()
    }

    /// Runs the call once: the tool does its work at most once for each `execute`, and `execute` never tries a failure of the tool
    /// again. That is the kernel's to decide (`phases::attempts`), which knows the manifest, the breaker and the retry budget.
    /// Two exceptions, each at most once: a message that surely did not reach the tool may be sent again on a new connection, and
    /// so may one to a tool whose `side_effect_policy` allows that it runs twice, if the connection broke. Dropping the future
    /// must stop the work.
    ///
    /// A failure says whose fault it was by its code: parameters the tool cannot work with E3301, the tool itself E3401,
    /// out of memory E3403, a crash E3404, no sandbox E3405, a forbidden destination E3406 ([`forbidden_destinations`]), too
    /// much of something E3407, a service behind it E3502…E3504, no credential E3601 or E3602. What is known of the tool's
    /// effects it says by its reach, whatever the code: only "may have run" leaves the outcome unknown.
    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError>;
}

/// The refusal for a binding that nothing on this server can run.
pub fn no_executor(kind: &str) -> Refusal {
    Refusal::new(ErrorCode::E3108, format!("this server has no executor for tools of type `{kind}`"))
        .hint("register a version with an execution type this server has, or use a server that has it")
        .retryable(false)
}

/// Most destinations that one refusal names, and the longest text of one.
const DESTINATIONS_MAX: usize = 5;
const DESTINATION_CHARS_MAX: usize = 100;

/// The refusal of a tool that tried to connect to where it may not (E3406). The audit record names the same destinations.
///
/// They come from the tool, so they are cleaned and bounded here: what a host and port are written with, and nothing else.
pub fn forbidden_destinations<'d>(tool: &ToolVersion, tried: impl IntoIterator<Item = &'d str>) -> Refusal {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']');
    let shown = |text: &'d str| text.chars().filter(plain).take(DESTINATION_CHARS_MAX).collect::<String>();
    let tried: Vec<String> = tried.into_iter().take(DESTINATIONS_MAX).map(shown).collect();
    let named = tried.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ");
    Refusal::new(
        ErrorCode::E3406,
        format!("`{}` {} tried to connect to {named}, which its manifest does not allow", tool.id, tool.version),
    )
    .hint("tell the tool's author: a destination has to be declared, for example `network:https://host:port` in `required_permissions`")
    .because(RefusalReason::ForbiddenDestinations(tried))
    .retryable(false)
}
