//! Who watches. The kernel tells; metrics, traces and alerts are made elsewhere.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use contract::cost::Costs;
use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, Subject, TenantId, ToolId};
use contract::trace_context::{SpanId, TraceContext};

use crate::clock::UnixMillis;
use crate::resilience::BreakerMode;
use crate::shared_state::BreakerKey;
use crate::tool_companion::{LogLevel, ToolProgress};
use crate::tool_version::ToolVersion;
use crate::upstream_spans::OutwardSpan;

/// One finished call, for counting.
#[derive(Debug)]
pub struct FinishedCall<'a> {
    /// Known once the tool was resolved; unknown names are never reported, so that callers cannot make up labels.
    pub tool: Option<&'a ToolId>,
    pub status: InvocationStatus,
    pub code: Option<ErrorCode>,
    pub duration: Duration,
    /// The version that was meant, on the same terms as `tool`.
    pub version: Option<&'a ToolVersion>,
    /// Whose call it was, once that is known.
    pub tenant: Option<&'a TenantId>,
    /// It was answered with the outcome of an earlier call.
    pub replayed: bool,
    /// Times that it was sent again to whoever runs it.
    pub retries: u32,
    /// The trace, if somebody records it.
    pub trace: Option<&'a TraceContext>,
    /// What it cost.
    pub costs: &'a Costs,
}

/// One of the six phases of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    Receive,
    Validate,
    Authorize,
    Execute,
    Verify,
    Return,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Receive, Self::Validate, Self::Authorize, Self::Execute, Self::Verify, Self::Return];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Receive => "receive",
            Self::Validate => "validate",
            Self::Authorize => "authorize",
            Self::Execute => "execute",
            Self::Verify => "verify",
            Self::Return => "return",
        }
    }
}

/// A phase of one call, by the kernel's own clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseSpan {
    pub phase: Phase,
    pub id: SpanId,
    pub started: Duration,
    pub ended: Duration,
}

/// The whole way of one call whose trace is recorded. Never holds parameters or results; owns what it holds, so that it can
/// be looked at after the call has been answered.
#[derive(Debug)]
pub struct TracedCall {
    /// Where it came from: trace, parent, state.
    pub context: TraceContext,
    pub span: SpanId,
    pub invocation_id: InvocationId,
    /// The beginning, by the calendar and by the kernel's own clock.
    pub started_at: UnixMillis,
    pub started: Duration,
    pub ended: Duration,
    pub phases: Vec<PhaseSpan>,
    /// The phase in which it failed, if it did.
    pub stopped_in: Option<Phase>,
    pub outward: Vec<OutwardSpan>,
    pub tool: Option<Arc<ToolVersion>>,
    pub tenant: Option<TenantId>,
    pub agent: Option<Subject>,
    pub status: InvocationStatus,
    pub code: Option<ErrorCode>,
    pub replayed: bool,
    pub costs: Costs,
}

/// Something a running tool has said, cleaned and bounded.
#[derive(Debug)]
pub struct ToolSpeech<'a> {
    pub invocation_id: InvocationId,
    /// Absent for tools of other tenants than the home one.
    pub tool: Option<&'a ToolId>,
    pub words: SpokenWords<'a>,
}

/// What it said.
#[derive(Debug)]
pub enum SpokenWords<'a> {
    Progress(&'a ToolProgress),
    Log(LogLevel, &'a str),
    /// It says too much; this was not listened to.
    Dropped,
}

/// What came of asking the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LedgerEvent {
    /// A call with effects was let begin.
    Begun,
    /// A call was answered with the outcome of an earlier one.
    Replayed,
    /// A call waits for one with the same key.
    Waited,
    /// A key was used for other parameters.
    Conflict,
    /// A call ended, and nobody knows whether it had its effect.
    Unknown,
    /// A call ended after it had been given up.
    Fenced,
    /// A call whose process is gone was settled.
    Recovered,
    /// The end of a call was written later than it came, because the store had been away.
    SettledLate,
    /// The end of a call could not be written and is not tried again: there was no room for it, or it cannot be.
    GivenUp,
    /// What came of a call without effects was forgotten before its window was over, for want of room.
    Forgotten,
}

/// A moment in the way of a call with effects. Tests of crashes end the process at one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EffectStep {
    /// Before its intent is written.
    Intending,
    /// Its intent is durable.
    Intended,
    /// Its tool is about to start.
    Starting,
    /// Its tool has answered.
    Ended,
    /// Before its end is written.
    Settling,
    /// Its end is durable; nobody has heard of it.
    Settled,
}

impl EffectStep {
    /// All of them, in order.
    pub const ALL: [Self; 6] =
        [Self::Intending, Self::Intended, Self::Starting, Self::Ended, Self::Settling, Self::Settled];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Intending => "intending",
            Self::Intended => "intended",
            Self::Starting => "starting",
            Self::Ended => "ended",
            Self::Settling => "settling",
            Self::Settled => "settled",
        }
    }
}

/// Hears of everything worth measuring. Must not block and must not fail.
pub trait Observer: Send + Sync + fmt::Debug {
    /// A call came to its end.
    fn invocation_finished(&self, event: &FinishedCall<'_>);
    /// The registry snapshot was swapped; it now has this many tools and versions.
    fn registry_swapped(&self, tools: usize, versions: usize);
    /// Records wait in the audit queue.
    fn audit_queue(&self, waiting: usize);
    /// Writing audit records failed and will be repeated.
    fn audit_append_failed(&self);
    /// Audit records are durable; the oldest of them had waited this long.
    fn audit_delivered(&self, waited: Duration) {
        let _ = waited;
    }
    /// A record of the audit log was found to be missing or changed.
    fn audit_log_fault(&self) {}
    /// A policy decision was made, from memory (`true`) or anew.
    fn decision(&self, remembered: bool);
    /// A credential was shown: it was remembered (`true`), or has to be verified.
    fn recognised(&self, remembered: bool) {
        let _ = remembered;
    }
    /// Somebody could not prove who it is.
    fn authentication_failed(&self, code: ErrorCode);
    /// What a server offers was listed: from memory, or the server was asked.
    fn offerings_listed(&self, remembered: bool) {
        let _ = remembered;
    }
    /// The keys of another issuer were fetched, or could not be.
    fn keys_fetched(&self, done: bool);
    /// A call with effects has come this far.
    fn step(&self, step: EffectStep) {
        // Nothing to measure.
        let _ = step;
    }
    /// The ledger was asked, and this came of it.
    fn ledger(&self, event: LedgerEvent) {
        // Most who watch something else do not count these.
        let _ = event;
    }
    /// So many calls have ended whose end could not be written yet.
    fn ledger_unwritten(&self, ends: usize) {
        let _ = ends;
    }
    /// A breaker has changed its state, here or at another replica.
    fn breaker_changed(&self, key: &BreakerKey, from: BreakerMode, to: BreakerMode) {
        let _ = (key, from, to);
    }
    /// A breaker has refused a call.
    fn breaker_refused(&self, key: &BreakerKey) {
        let _ = key;
    }
    /// A limit has refused a call; `scope` says whom it is for.
    fn rate_limited(&self, scope: &'static str) {
        let _ = scope;
    }
    /// A call was to be tried again; `granted`: the shared budget had one left.
    fn retried(&self, granted: bool) {
        let _ = granted;
    }
    /// A breaker was open, and the last good result was asked for.
    fn stale_asked(&self, answer: StaleAnswer) {
        let _ = answer;
    }
    /// Last good results that are kept now, in bytes.
    fn last_results_kept(&self, bytes: u64) {
        let _ = bytes;
    }
    /// So many idle entries of the shared state were forgotten for want of room; `what` names their kind.
    fn shared_state_evicted(&self, what: &'static str, count: usize) {
        let _ = (what, count);
    }
    /// The shared state was away and this replica went on by itself; `what` names the use: `breaker`, `limit`. (RES-020)
    fn shared_state_fell_back(&self, what: &'static str) {
        let _ = what;
    }
    /// A running tool reports progress or writes to its log.
    fn tool_spoke(&self, event: &ToolSpeech<'_>);
    /// Is the trace of a call that comes from there recorded? Asked once, at its beginning. `None`: nobody records any.
    fn records(&self, context: &TraceContext) -> Option<bool> {
        let _ = context;
        None
    }
    /// A call whose trace is recorded has come to its end.
    fn invocation_traced(&self, trace: Box<TracedCall>) {
        // Only those who said that they record it are told.
        drop(trace);
    }
}

/// What came of asking for the last good result of a tool (RES-019).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StaleAnswer {
    Given,
    /// There was one, older than the manifest allows.
    TooOld,
    Unknown,
}

impl StaleAnswer {
    /// The word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::TooOld => "too_old",
            Self::Unknown => "unknown",
        }
    }
}

/// Hears everything and keeps nothing: for offline work and for tests that watch something else.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoObserver;

impl Observer for NoObserver {
    fn invocation_finished(&self, _: &FinishedCall<'_>) {}
    fn registry_swapped(&self, _: usize, _: usize) {}
    fn audit_queue(&self, _: usize) {}
    fn audit_append_failed(&self) {}
    fn decision(&self, _: bool) {}
    fn authentication_failed(&self, _: ErrorCode) {}
    fn keys_fetched(&self, _: bool) {}
    fn tool_spoke(&self, _: &ToolSpeech<'_>) {}
}
