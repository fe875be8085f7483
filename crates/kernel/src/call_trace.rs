//! How far a call has come and when: what its trace is made of. (OBS-001)
//!
//! The spans of a call cost a few readings of the clock; nothing is written down of what a call calls elsewhere unless somebody
//! records its trace. Whether somebody does is decided once, at the beginning ([`Observer::records`]), so that a trace is
//! never recorded in part, and what is handed on says the same.
//!
//! Not here: what it calls elsewhere (`ports::upstream_spans`), what a span looks like, and where it goes (`telemetry`).

use std::sync::Arc;
use std::time::Duration;

use contract::trace_context::{SpanId, SpanIds, TraceContext};
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::observer::{Observer, Phase, PhaseSpan};
use ports::upstream_spans::UpstreamSpans;

/// The number of the span of the call itself; its phases follow, then what it calls ([`ports::upstream_spans::OUTWARD`]).
const CALL: u8 = 0;

/// The way of one call.
#[derive(Debug)]
pub(crate) struct CallSpans {
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
    pub(crate) outward: Option<Arc<UpstreamSpans>>,
}

impl CallSpans {
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

    /// What is handed on to whoever goes on with the call later: under the span of the call itself.
    pub(crate) fn handed_on(&self) -> TraceContext {
        self.context.from_span(self.span(), self.sampled)
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
    pub(crate) fn outward(&mut self, clock: &Arc<dyn Clock>) -> Arc<UpstreamSpans> {
        let parent = self.ids.get(CALL + 1 + Phase::Execute as u8);
        let recorded_by = self.recorded.then(|| Arc::clone(clock));
        let outward = UpstreamSpans::new(self.context.from_span(parent, self.sampled), self.ids, recorded_by);
        self.outward = Some(Arc::clone(&outward));
        outward
    }

    /// Times that the call was sent again: the executor begins one call elsewhere for each time.
    pub(crate) fn retries(&self) -> u32 {
        let begun = self.outward.as_ref().map_or(0, |outward| outward.begun());
        u32::from(begun.saturating_sub(2))
    }

    /// The phases it came to, in their order.
    pub(crate) fn phases(&self) -> impl Iterator<Item = PhaseSpan> {
        self.phases.iter().copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicU64, Ordering};

    use contract::error::ErrorCode;
    use ports::clock::UnixMillis;
    use ports::observer::{FinishedCall, ToolSpeech};
    use ports::upstream_spans::OutwardCall;

    /// Goes on by a millisecond whenever it is looked at.
    #[derive(Debug, Default)]
    struct Ticking(AtomicU64);

    impl Clock for Ticking {
        fn now(&self) -> UnixMillis {
            UnixMillis(0)
        }
        fn monotonic(&self) -> Duration {
            Duration::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }
        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
            Box::pin(std::future::ready(()))
        }
    }

    #[derive(Debug)]
    struct Fixed;

    impl Entropy for Fixed {
        fn fill(&self, bytes: &mut [u8]) {
            bytes.fill(3);
        }
    }

    #[derive(Debug)]
    struct Recording(Option<bool>);

    impl Observer for Recording {
        fn invocation_finished(&self, _: &FinishedCall<'_>) {}
        fn registry_swapped(&self, _: usize, _: usize) {}
        fn audit_queue(&self, _: usize) {}
        fn audit_append_failed(&self) {}
        fn decision(&self, _: bool) {}
        fn authentication_failed(&self, _: ErrorCode) {}
        fn keys_fetched(&self, _: bool) {}
        fn tool_spoke(&self, _: &ToolSpeech<'_>) {}
        fn records(&self, _: &TraceContext) -> Option<bool> {
            self.0
        }
    }

    fn journey(records: Option<bool>) -> CallSpans {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        CallSpans::begin(TraceContext::read(parent, []).unwrap(), &Fixed, &Recording(records))
    }

    fn executor() -> OutwardCall {
        OutwardCall::Executor("builtin")
    }

    #[test]
    fn phases_follow_each_other_without_gaps_and_the_one_that_failed_is_known() {
        let mut journey = journey(Some(true));
        let ms = Duration::from_millis;
        for (n, phase) in [Phase::Receive, Phase::Validate, Phase::Return].into_iter().enumerate() {
            if phase == Phase::Return {
                journey.stopped();
            }
            journey.enter(phase, ms(n as u64 * 10));
            journey.enter(phase, ms(999));
        }
        journey.leave(ms(30));
        journey.stopped();
        let times: Vec<_> = journey.phases().map(|span| (span.phase, span.started, span.ended)).collect();
        assert_eq!(
            times,
            [(Phase::Receive, ms(0), ms(10)), (Phase::Validate, ms(10), ms(20)), (Phase::Return, ms(20), ms(30)),]
        );
        assert_eq!(journey.stopped_in, Some(Phase::Validate));
    }

    #[test]
    fn what_is_called_elsewhere_is_written_down_within_a_bound_if_somebody_records() {
        let clock: Arc<dyn Clock> = Arc::new(Ticking::default());
        for (records, sampled, noted) in [(Some(true), true, 48), (Some(false), false, 0), (None, true, 0)] {
            let mut journey = journey(records);
            let outward = journey.outward(&clock);
            let first = outward.begin(None, executor);
            assert_eq!(first.context().is_sampled(), sampled);
            assert_ne!(first.context().parent, journey.context.parent);
            outward.begin(Some(first.id()), executor).end(Some(ErrorCode::E3502));
            drop(outward.begin(Some(first.id()), executor));
            first.end(None);
            assert_eq!(journey.retries(), 1);
            for _ in 0..100 {
                outward.begin(None, executor).end(None);
            }
            let spans = outward.take();
            assert_eq!(spans.len(), noted, "{records:?}");
            let ids: HashSet<_> = spans.iter().map(|span| span.id).chain([journey.span()]).collect();
            assert_eq!(ids.len(), noted + 1);
            if let [failed, cut_off, whole, ..] = &spans[..] {
                assert_eq!((failed.failed, failed.parent), (Some(ErrorCode::E3502), whole.id));
                assert!(cut_off.cut_off && !whole.cut_off && whole.ended > whole.started);
            }
        }
    }
}
