//! Points at which a test ends the process, as `kill -9` would. In debug builds only; a release has none.
//!
//! `GANTRY_FAULT_POINT=settling:3` ends it the third time that a call comes to the step `settling` (`EffectStep`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contract::error::ErrorCode;
use contract::trace_context::TraceContext;
use ports::observer::{EffectStep, FinishedCall, LedgerEvent, Observer, StaleAnswer, ToolSpeech, TracedCall};
use ports::resilience::BreakerMode;
use ports::shared_state::BreakerKey;

/// The variable.
const VARIABLE: &str = "GANTRY_FAULT_POINT";

/// Watches as the one behind it does, and ends the process at one point.
#[derive(Debug)]
struct FaultPoint {
    behind: Arc<dyn Observer>,
    step: EffectStep,
    left: AtomicU64,
}

/// Puts the fault point that the environment asks for before an observer.
#[expect(clippy::disallowed_methods, reason = "a test says so in the environment of the process it starts")]
pub(crate) fn before(observer: Arc<dyn Observer>) -> Arc<dyn Observer> {
    let Ok(asked) = std::env::var(VARIABLE) else { return observer };
    let (word, count) = asked.split_once(':').unwrap_or((&asked, "1"));
    let step = EffectStep::ALL.into_iter().find(|step| step.as_str() == word);
    let (Some(step), Ok(count)) = (step, count.parse::<u64>()) else {
        tracing::error!(%asked, "{VARIABLE} names no step");
        return observer;
    };
    tracing::warn!(step = step.as_str(), count, "this process will end itself: {VARIABLE} is set");
    Arc::new(FaultPoint { behind: observer, step, left: AtomicU64::new(count) })
}

impl Observer for FaultPoint {
    fn step(&self, step: EffectStep) {
        if step == self.step && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Nothing may run after this point: no destructor, no other thread's next write.
            let _ended = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            loop {
                std::thread::park();
            }
        }
        self.behind.step(step);
    }

    fn invocation_finished(&self, event: &FinishedCall<'_>) {
        self.behind.invocation_finished(event);
    }
    fn registry_swapped(&self, tools: usize, versions: usize) {
        self.behind.registry_swapped(tools, versions);
    }
    fn breaker_changed(&self, key: &BreakerKey, from: BreakerMode, to: BreakerMode) {
        self.behind.breaker_changed(key, from, to);
    }
    fn breaker_refused(&self, key: &BreakerKey) {
        self.behind.breaker_refused(key);
    }
    fn rate_limited(&self, scope: &'static str) {
        self.behind.rate_limited(scope);
    }
    fn retried(&self, granted: bool) {
        self.behind.retried(granted);
    }

    fn stale_asked(&self, answer: StaleAnswer) {
        self.behind.stale_asked(answer);
    }

    fn last_results_kept(&self, bytes: u64) {
        self.behind.last_results_kept(bytes);
    }
    fn shared_state_evicted(&self, what: &'static str, count: usize) {
        self.behind.shared_state_evicted(what, count);
    }
    fn shared_state_fell_back(&self, what: &'static str) {
        self.behind.shared_state_fell_back(what);
    }
    fn audit_queue(&self, waiting: usize) {
        self.behind.audit_queue(waiting);
    }
    fn audit_append_failed(&self) {
        self.behind.audit_append_failed();
    }
    fn decision(&self, remembered: bool) {
        self.behind.decision(remembered);
    }
    fn offerings_listed(&self, remembered: bool) {
        self.behind.offerings_listed(remembered);
    }
    fn authentication_failed(&self, code: ErrorCode) {
        self.behind.authentication_failed(code);
    }
    fn keys_fetched(&self, done: bool) {
        self.behind.keys_fetched(done);
    }
    fn ledger(&self, event: LedgerEvent) {
        self.behind.ledger(event);
    }
    fn ledger_unwritten(&self, ends: usize) {
        self.behind.ledger_unwritten(ends);
    }
    fn tool_spoke(&self, event: &ToolSpeech<'_>) {
        self.behind.tool_spoke(event);
    }
    fn records(&self, context: &TraceContext) -> Option<bool> {
        self.behind.records(context)
    }
    fn audit_delivered(&self, waited: std::time::Duration) {
        self.behind.audit_delivered(waited);
    }
    fn invocation_traced(&self, trace: Box<TracedCall>) {
        self.behind.invocation_traced(trace);
    }
}
