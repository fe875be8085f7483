//! What is outside every process and survives them: the store, the effects of tools, and what callers were told.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::error::ErrorCode;
use contract::ids::InvocationId;
use ports::clock::{Clock, UnixMillis};
use store::memory::MemoryStore;

/// Time that passes when nothing else can happen.
#[derive(Debug)]
pub(crate) struct SimClock(tokio::time::Instant);

impl SimClock {
    pub(crate) fn start() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock for SimClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_800_000_000_000).plus(self.monotonic())
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// Something a caller means to happen once: a tool and a number, with a key of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Act {
    pub(crate) tool: &'static str,
    pub(crate) number: u64,
}

/// The tools that must not happen twice.
pub(crate) const ONCE: [&str; 2] = ["pay", "guess"];

/// The world of one history.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<SimClock>,
    /// The serial numbers of the effects of each act.
    pub(crate) effects: Mutex<BTreeMap<Act, Vec<u64>>>,
    /// What callers were told: the serial number of the effect.
    pub(crate) told: Mutex<BTreeMap<Act, BTreeSet<u64>>>,
    /// What callers were told cannot be known.
    pub(crate) unknown: Mutex<BTreeSet<Act>>,
    pub(crate) accepted: Mutex<BTreeMap<InvocationId, Act>>,
    pub(crate) seen: Mutex<Seen>,
}

impl World {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Arc::new(SimClock::start());
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>));
        Arc::new(Self {
            store,
            clock,
            effects: Mutex::default(),
            told: Mutex::default(),
            unknown: Mutex::default(),
            accepted: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    /// An effect happens.
    pub(crate) fn happens(&self, act: Act) -> u64 {
        let mut effects = self.effects.lock().unwrap();
        let serial = effects.values().map(Vec::len).sum::<usize>() as u64 + 1;
        effects.entry(act).or_default().push(serial);
        serial
    }

    pub(crate) fn effects_of(&self, act: Act) -> Vec<u64> {
        self.effects.lock().unwrap().get(&act).cloned().unwrap_or_default()
    }

    pub(crate) fn see(&self, what: impl FnOnce(&mut Seen)) {
        what(&mut self.seen.lock().unwrap());
    }
}

/// How much happened, over all histories.
#[derive(Debug, Default, Clone)]
pub(crate) struct Seen {
    pub(crate) histories: u64,
    pub(crate) calls: u64,
    pub(crate) crashes: u64,
    pub(crate) stalls: u64,
    pub(crate) replays: u64,
    pub(crate) unknown: u64,
    pub(crate) jobs: u64,
    pub(crate) broken_calls: u64,
    pub(crate) codes: BTreeMap<String, u64>,
}

impl Seen {
    pub(crate) fn code(&mut self, code: ErrorCode) {
        *self.codes.entry(code.to_string()).or_default() += 1;
    }

    pub(crate) fn add(&mut self, history: &Self) {
        self.histories += history.histories;
        self.calls += history.calls;
        self.crashes += history.crashes;
        self.stalls += history.stalls;
        self.replays += history.replays;
        self.unknown += history.unknown;
        self.jobs += history.jobs;
        self.broken_calls += history.broken_calls;
        for (code, count) in &history.codes {
            *self.codes.entry(code.clone()).or_default() += count;
        }
    }

    pub(crate) fn is_eventful(&self) {
        let happened = [self.crashes, self.stalls, self.replays, self.unknown, self.jobs, self.broken_calls];
        assert!(happened.iter().all(|count| *count > self.histories / 20), "too little happened: {self:?}");
    }
}
