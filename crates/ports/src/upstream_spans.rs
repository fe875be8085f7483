//! What a call calls elsewhere, as its trace has it: executors begin and end these spans. Values and no port. (OBS-001)
//!
//! Nothing is written down unless somebody records the trace; every call elsewhere still has an id to hand on.
//!
//! Not here: the spans of the call itself and of its phases (`kernel::call_trace`), and what a span looks like (`telemetry`).

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;
use contract::error::ErrorCode;
use contract::ids::TraceId;
use contract::trace_context::{SpanId, SpanIds, TraceContext};

use crate::clock::Clock;

/// Calls elsewhere that one trace names. What is called oftener still runs, and still has an id to hand on.
pub const OUTWARD_MAX: u8 = 48;
/// The number of the span of the first call elsewhere; the call itself and its phases have those before it.
pub const OUTWARD: u8 = 8;

/// What a call calls elsewhere.
#[derive(Debug)]
pub struct UpstreamSpans {
    /// As seen from the phase that runs the tool.
    context: TraceContext,
    ids: SpanIds,
    taken: AtomicU8,
    /// There if somebody records it.
    book: Option<SpanBook>,
}

/// Where calls elsewhere are written down.
#[derive(Debug)]
struct SpanBook {
    spans: Mutex<Vec<OutwardSpan>>,
    clock: Arc<dyn Clock>,
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

impl UpstreamSpans {
    /// Nothing called yet, as seen from the phase that runs the tool; written down by this clock, or by nobody.
    pub fn new(context: TraceContext, ids: SpanIds, recorded_by: Option<Arc<dyn Clock>>) -> Arc<Self> {
        let book = recorded_by.map(|clock| SpanBook { spans: Mutex::default(), clock });
        Arc::new(Self { context, ids, taken: AtomicU8::new(0), book })
    }

    /// Nobody records it, and it belongs to no phase: for tests of executors.
    pub fn unrecorded(trace_id: TraceId) -> Arc<Self> {
        let ids = SpanIds::from_bytes([0; 8]);
        Self::new(TraceContext::begun(trace_id).from_span(ids.get(0), false), ids, None)
    }

    /// Begins a call elsewhere, under the phase or under another one of them. It ends when it is dropped.
    pub fn begin(self: &Arc<Self>, under: Option<SpanId>, what: impl FnOnce() -> OutwardCall) -> OpenSpan {
        let number = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < OUTWARD_MAX).then_some(taken + 1));
        let id = self.ids.get(OUTWARD + number.unwrap_or(OUTWARD_MAX));
        let book = self.book.as_ref().filter(|_| number.is_ok());
        let open = book.map(|book| (what(), book.clock.monotonic()));
        OpenSpan { outward: Arc::clone(self), id, under, open, ended: false, failed: None }
    }

    /// How many were begun, as far as they are named.
    pub fn begun(&self) -> u8 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Everything that was called so far.
    pub fn take(&self) -> Vec<OutwardSpan> {
        let spans = self.book.as_ref().map(|book| book.spans.lock_unpoisoned());
        spans.map(|mut spans| std::mem::take(&mut *spans)).unwrap_or_default()
    }
}

/// A call elsewhere that has not ended.
#[derive(Debug)]
pub struct OpenSpan {
    outward: Arc<UpstreamSpans>,
    id: SpanId,
    under: Option<SpanId>,
    open: Option<(OutwardCall, Duration)>,
    /// It was not given up.
    ended: bool,
    failed: Option<ErrorCode>,
}

impl OpenSpan {
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
        self.ended = true;
        self.failed = failed;
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        let (Some((what, started)), Some(book)) = (self.open.take(), &self.outward.book) else { return };
        let Some(parent) = self.under.or(self.outward.context.parent) else { return };
        let ended = book.clock.monotonic();
        let (failed, cut_off) = (self.failed, !self.ended);
        let span = OutwardSpan { id: self.id, parent, what, started, ended, failed, cut_off };
        book.spans.lock_unpoisoned().push(span);
    }
}
