//! How far a call has come and when: what its trace is made of. (OBS-001)
//!
//! A journey costs a few readings of the clock; nothing is written down of what a call calls elsewhere unless somebody
//! records its trace. Whether somebody does is decided once, at the beginning ([`Observer::records`]), so that a trace is
//! never recorded in part, and what is handed on says the same.
//!
//! Not here: what a span looks like, and where it goes (`telemetry`).

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::error::ErrorCode;
use contract::ids::TraceId;
use contract::trace_context::{SpanId, SpanIds, TraceContext};

use crate::ports::clock::Clock;
use crate::ports::entropy::Entropy;
use crate::ports::observer::{Observer, Phase, PhaseSpan};

/// Calls elsewhere that one trace names. What is called oftener still runs, and still has an id to hand on.
const OUTWARD_MAX: u8 = 48;
/// The number of the span of the call itself; its phases follow, then what it calls.
const CALL: u8 = 0;
/// The number of the first call elsewhere.
const OUTWARD: u8 = 8;

/// The way of one call.
#[derive(Debug)]
pub(crate) struct Journey {
    /// Where it came from.
    pub(crate) context: TraceContext,
    ids: SpanIds,
    /// Does somebody record it?
    pub(crate) recorded: bool,
    /// Told to whoever is called next.
    sampled: bool,
    phases: [Option<PhaseSpan>; Phase::ALL.len()],
    now_in: Option<Phase>,
    /// The phase in which it failed.
    pub(crate) stopped_in: Option<Phase>,
    pub(crate) outward: Option<Arc<Outward>>,
}

impl Journey {
    /// Begins, within the caller's trace.
    pub(crate) fn begin(context: TraceContext, entropy: &dyn Entropy, observer: &dyn Observer) -> Self {
        let mut random = [0u8; 8];
        entropy.fill(&mut random);
        let decided = observer.records(&context);
        Self {
            ids: SpanIds::from_bytes(random),
            recorded: decided == Some(true),
            sampled: decided.unwrap_or_else(|| context.is_sampled()),
            context,
            phases: [None; Phase::ALL.len()],
            now_in: None,
            stopped_in: None,
            outward: None,
        }
    }

    /// The span of the call itself.
    pub(crate) fn span(&self) -> SpanId {
        self.ids.get(CALL)
    }

    /// Leaves the phase it is in, and enters this one; once.
    pub(crate) fn enter(&mut self, phase: Phase, now: Duration) {
        if self.now_in == Some(phase) {
            return;
        }
        self.leave(now);
        self.now_in = Some(phase);
        let span = PhaseSpan { phase, id: self.ids.get(CALL + 1 + phase as u8), started: now, ended: now };
        if let Some(slot) = self.phases.get_mut(phase as usize) {
            *slot = Some(span);
        }
    }

    /// Leaves the phase it is in.
    pub(crate) fn leave(&mut self, now: Duration) {
        let open = self.now_in.take().and_then(|phase| self.phases.get_mut(phase as usize)?.as_mut());
        if let Some(span) = open {
            span.ended = now;
        }
    }

    /// It failed where it is.
    pub(crate) fn stopped(&mut self) {
        self.stopped_in = self.stopped_in.or(self.now_in);
    }

    /// What the executor hands on and writes down, within the phase that runs.
    pub(crate) fn outward(&mut self, clock: &Arc<dyn Clock>) -> Arc<Outward> {
        let parent = self.ids.get(CALL + 1 + Phase::Execute as u8);
        let outward = Arc::new(Outward {
            context: self.context.from_span(parent, self.sampled),
            ids: self.ids,
            taken: AtomicU8::new(0),
            noted: self.recorded.then(|| (Mutex::default(), Arc::clone(clock))),
        });
        self.outward = Some(Arc::clone(&outward));
        outward
    }

    /// Times that the call was sent again: the executor begins one call elsewhere for each time.
    pub(crate) fn retries(&self) -> u32 {
        let begun = self.outward.as_ref().map_or(0, |outward| outward.taken.load(Ordering::Relaxed));
        u32::from(begun.saturating_sub(2))
    }

    /// The phases it came to, in their order.
    pub(crate) fn phases(&self) -> impl Iterator<Item = PhaseSpan> {
        self.phases.iter().copied().flatten()
    }
}

/// What a call calls elsewhere.
#[derive(Debug)]
pub struct Outward {
    /// As seen from the phase that runs the tool.
    context: TraceContext,
    ids: SpanIds,
    taken: AtomicU8,
    /// There if somebody records it.
    noted: Option<(Mutex<Vec<OutwardSpan>>, Arc<dyn Clock>)>,
}

/// One call elsewhere. Never holds parameters or results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutwardSpan {
    pub id: SpanId,
    pub parent: SpanId,
    pub what: OutwardCall,
    pub started: Duration,
    pub ended: Duration,
    /// The code it failed with.
    pub failed: Option<ErrorCode>,
    /// It was given up before it ended.
    pub cut_off: bool,
}

/// What is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutwardCall {
    /// The executor of this kind.
    Executor(&'static str),
    /// A method of an MCP server, for a tool of it.
    Mcp { method: &'static str, server: String, tool: String },
}

impl Outward {
    /// Nobody records it, and it belongs to no phase: for tests of executors.
    pub fn unrecorded(trace_id: TraceId) -> Arc<Self> {
        let ids = SpanIds::from_bytes([0; 8]);
        let context = TraceContext::begun(trace_id).from_span(ids.get(CALL), false);
        Arc::new(Self { context, ids, taken: AtomicU8::new(0), noted: None })
    }

    /// Begins a call elsewhere, under the phase or under another one of them. It ends when it is dropped.
    pub fn begin(self: &Arc<Self>, under: Option<SpanId>, what: impl FnOnce() -> OutwardCall) -> Underway {
        let number = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < OUTWARD_MAX).then_some(taken + 1));
        let id = self.ids.get(OUTWARD + number.unwrap_or(OUTWARD_MAX));
        let clock = self.noted.as_ref().filter(|_| number.is_ok()).map(|(_, clock)| clock);
        let open = clock.map(|clock| (what(), clock.monotonic()));
        Underway { outward: Arc::clone(self), id, under, open, ended: None }
    }

    /// Everything that was called so far.
    pub(crate) fn take(&self) -> Vec<OutwardSpan> {
        let spans = self.noted.as_ref().map(|(spans, _)| spans.lock().unwrap_or_else(PoisonError::into_inner));
        spans.map(|mut spans| std::mem::take(&mut *spans)).unwrap_or_default()
    }
}

/// A call elsewhere that has not ended.
#[derive(Debug)]
pub struct Underway {
    outward: Arc<Outward>,
    id: SpanId,
    under: Option<SpanId>,
    open: Option<(OutwardCall, Duration)>,
    ended: Option<Option<ErrorCode>>,
}

impl Underway {
    /// Its id, for what is called within it.
    pub fn id(&self) -> SpanId {
        self.id
    }

    /// What is sent with it.
    pub fn context(&self) -> TraceContext {
        self.outward.context.from_span(self.id, self.outward.context.is_sampled())
    }

    /// It ended, well or with this code.
    pub fn end(mut self, failed: Option<ErrorCode>) {
        self.ended = Some(failed);
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        let (Some((what, started)), Some((spans, clock))) = (self.open.take(), &self.outward.noted) else { return };
        let Some(parent) = self.under.or(self.outward.context.parent) else { return };
        let ended = clock.monotonic();
        let (failed, cut_off) = (self.ended.flatten(), self.ended.is_none());
        let span = OutwardSpan { id: self.id, parent, what, started, ended, failed, cut_off };
        spans.lock().unwrap_or_else(PoisonError::into_inner).push(span);
    }
}
