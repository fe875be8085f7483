//! Keeps one server alive for one tenant, or for all (MCP-007…009, MCP-013…015, REG-022, DESIGN §8.14).
//!
//! ```text
//!              wanted              met
//!   Stopped ──────────▶ Starting ──────▶ Ready ──changed──▶ Ready (the new one; the old one drains)
//!      ▲                  │  ▲            │ │
//!      └── idle (drains) ─┼──┼────────────┘ │ died
//!                  failed ▼  │ pause over   ▼
//!                        Backoff ◀──────────┘
//!                           │ too often
//!                           ▼
//!                      Unavailable ──probe──▶ Starting
//! ```
//!
//! One task (`keeper`) owns the state and steps it; everybody else reads it and waits for it. So concurrent first calls make
//! one start, and nothing is locked while a process starts.
//!
//! Invariants
//! - SUP-1: at most one server is started at a time, and a caller never starts one itself.
//! - SUP-2: whoever waited for a start that failed hears why, and does not wait for the next.
//! - SUP-3: calls on a server are bounded, and so are those who wait for their turn. Both are shared fairly by the tenants that
//!   call it and by the agents of each, so none of them holds up the others.
//! - SUP-4: a server that works is not given up for one that does not: a restart or a change takes it away only after its
//!   successor has answered. Only what an operator takes from the same server is taken at once.
//!
//! Not here: when to give up (`restarts`), what a call means (`executor`).

mod keeper;
pub(crate) mod live;
mod liveness;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use fair_places::{FairPermit, FairPlaces, PlaceBounds, PlaceUsage};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::offerings::OfferingChange;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bounds::UpstreamBounds;
use crate::connection::ProtocolEra;
use crate::connection::router::ServerListener;
use crate::fault::UpstreamFault;
use crate::observer::{ServerTeller, UpstreamEvent, UpstreamObserver};
use crate::server_log::ServerLog;
use crate::spec::ServerSpec;
use crate::starter::ServerStarter;
use crate::watched::{UnitChanges, WatchNotifier, WatchedResources};
use crate::watcher::WatcherSet;
use keeper::{Order, UnitKeeper};
use live::{InUse, LiveConnection};

/// Orders that may wait for the keeper.
const ORDERS_MAX: usize = 16;
/// Longest back-off that a call waits for; behind a longer one it is refused at once.
const BACKOFF_WAIT_MAX: Duration = Duration::from_secs(2);

/// Before a server that could not be met in the older protocol as well is tried again.
const LEGACY_AGAIN: Duration = Duration::from_secs(600);

/// Where a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// Nobody has wanted it, or nobody does any more.
    Stopped,
    Starting,
    Ready,
    /// It lets the calls on it finish before it stops.
    Draining,
    /// It went away and is started again after a pause.
    Backoff,
    /// It was given up; a probe is made now and then.
    Unavailable,
}

impl ServerState {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Backoff => "backoff",
            Self::Unavailable => "unavailable",
        }
    }
}

/// What the keeper publishes.
#[derive(Debug, Clone)]
enum Phase {
    Stopped,
    Starting,
    Ready(Arc<LiveConnection>),
    Draining,
    Backoff {
        until: Duration,
        why: Arc<Refusal>,
    },
    Unavailable {
        why: Arc<Refusal>,
    },
    /// It was taken away.
    Gone,
}

impl Phase {
    /// In the words of those who look from outside; `None`: nobody keeps it any more.
    fn kept(&self) -> Option<ServerState> {
        match self {
            Self::Stopped => Some(ServerState::Stopped),
            Self::Starting => Some(ServerState::Starting),
            Self::Ready(_) => Some(ServerState::Ready),
            Self::Draining => Some(ServerState::Draining),
            Self::Backoff { .. } => Some(ServerState::Backoff),
            Self::Unavailable { .. } => Some(ServerState::Unavailable),
            Self::Gone => None,
        }
    }
}

/// What everything that keeps servers shares.
#[derive(Debug)]
pub(crate) struct SupervisorContext {
    pub(crate) starter: ServerStarter,
    pub(crate) bounds: UpstreamBounds,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) watchers: WatcherSet,
    pub(crate) notices: WatchNotifier,
    pub(crate) tasks: TaskTracker,
    pub(crate) observer: Arc<dyn UpstreamObserver>,
}

/// One server for one tenant, or for all.
#[derive(Debug)]
pub(crate) struct ServerUnit {
    pub(crate) name: String,
    /// Who has defined it.
    pub(crate) owner: TenantId,
    /// Whose calls it serves and whose credentials it has; the owner, if it is shared.
    pub(crate) tenant: TenantId,
    /// Which of the server's addresses; the first one is 0 and speaks for its tools.
    pub(crate) endpoint: usize,
    /// As it is found, or in the older protocol for callers who speak that.
    pub(crate) meeting: EraMeeting,
    /// Why it is not met in the older protocol as well, and until when that holds, on the monotonic clock.
    not_in_legacy: Mutex<Option<Duration>>,
    /// Are there others that can be asked in its place?
    has_stand_in: AtomicBool,
    pub(crate) teller: ServerTeller,
    context: Arc<SupervisorContext>,
    log: Arc<ServerLog>,
    phase: watch::Sender<Phase>,
    wanted: Notify,
    /// Those who wait for it to be there.
    waiting: AtomicUsize,
    /// It is not to be started any more.
    closing: CancellationToken,
    tools_changed: Notify,
    /// What else has changed and is not told yet.
    pub(crate) changes: UnitChanges,
    /// Does it serve everybody?
    shared: AtomicBool,
    orders: mpsc::Sender<Order>,
    room: Arc<FairPlaces>,
    calls: AtomicU64,
    facts: Mutex<UnitFacts>,
}

/// Which server, whose, for whom, and at which of its addresses.
#[derive(Debug)]
pub(crate) struct UnitName {
    pub(crate) owner: TenantId,
    pub(crate) tenant: TenantId,
    pub(crate) server: String,
    pub(crate) endpoint: usize,
    pub(crate) meeting: EraMeeting,
    pub(crate) has_stand_in: bool,
}

/// How a server is met. One that speaks both protocols may be met twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EraMeeting {
    /// As it is found, or as its operator has said. Speaks for its tools.
    First,
    /// Once more in the older protocol, for callers who speak that.
    Legacy,
}

impl EraMeeting {
    /// The only protocol it is met in, if there is one.
    pub(crate) fn only(self) -> Option<ProtocolEra> {
        match self {
            Self::First => None,
            Self::Legacy => Some(ProtocolEra::Legacy),
        }
    }
}

/// What is told about it.
#[derive(Debug, Clone)]
pub(crate) struct UnitFacts {
    pub(crate) since: UnixMillis,
    pub(crate) restarts: u64,
    pub(crate) era: Option<ProtocolEra>,
    /// Can its resources be watched, as it was met?
    pub(crate) lets_watch: Option<bool>,
    pub(crate) last_error: Option<String>,
    /// What helps, if Gantry itself refused the last start.
    pub(crate) last_hint: Option<String>,
}

impl UnitFacts {
    /// It did not start, or has ended, and what helps.
    pub(crate) fn remember_error(&mut self, error: String, hint: Option<String>) {
        (self.last_error, self.last_hint) = (Some(error), hint);
    }

    /// It runs.
    pub(crate) fn forget_error(&mut self) {
        (self.last_error, self.last_hint) = (None, None);
    }
}

impl ServerUnit {
    /// A server that nobody has wanted yet. Its keeper lives until it is told to stop.
    pub(crate) fn new(
        context: &Arc<SupervisorContext>,
        UnitName { owner, tenant, server: name, endpoint, meeting, has_stand_in }: UnitName,
        spec: Arc<ServerSpec>,
        log: Arc<ServerLog>,
        watched: Arc<WatchedResources>,
    ) -> Arc<Self> {
        let (orders, inbox) = mpsc::channel(ORDERS_MAX);
        let facts = UnitFacts {
            since: context.clock.now(),
            restarts: 0,
            era: None,
            lets_watch: None,
            last_error: None,
            last_hint: None,
        };
        let teller = ServerTeller::new(Arc::clone(&context.observer), &owner, &name);
        teller.tell(UpstreamEvent::Moved { from: None, to: Some(ServerState::Stopped) });
        let unit = Arc::new(Self {
            teller,
            name,
            owner,
            tenant,
            endpoint,
            meeting,
            not_in_legacy: Mutex::default(),
            has_stand_in: AtomicBool::new(has_stand_in),
            context: Arc::clone(context),
            log,
            phase: watch::Sender::new(Phase::Stopped),
            wanted: Notify::new(),
            waiting: AtomicUsize::new(0),
            closing: CancellationToken::new(),
            tools_changed: Notify::new(),
            changes: UnitChanges::new(watched),
            shared: AtomicBool::new(spec.shareable),
            orders,
            room: FairPlaces::new(places(&context.bounds)),
            calls: AtomicU64::new(0),
            facts: Mutex::new(facts),
        });
        context.tasks.spawn(UnitKeeper::new(Arc::clone(&unit), spec, inbox).run());
        unit
    }

    /// Says whether others can be asked in its place from now on; answers whether none could before.
    pub(crate) fn has_stand_in(&self, now: bool) -> bool {
        !self.has_stand_in.swap(now, Ordering::AcqRel)
    }

    /// May it be met in the older protocol as well, as far as is known?
    pub(crate) fn may_speak_legacy(&self) -> bool {
        let until = *self.not_in_legacy.lock_unpoisoned();
        until.is_none_or(|until| until <= self.context.clock.monotonic())
    }

    /// It could not be, and is not tried again for a while.
    pub(crate) fn does_not_speak_legacy(&self) {
        let until = self.context.clock.monotonic().saturating_add(LEGACY_AGAIN);
        *self.not_in_legacy.lock_unpoisoned() = Some(until);
    }

    /// It is to be met anew.
    fn forget_what_it_speaks(&self) {
        let mut facts = self.facts();
        (facts.era, facts.lets_watch) = (None, None);
        drop(facts);
        *self.not_in_legacy.lock_unpoisoned() = None;
    }

    /// SUP-3. A place for a call of this agent of this tenant; the wait is bounded by whoever drops the future.
    pub(crate) async fn admitted(&self, tenant: &TenantId, agent: &str) -> Result<FairPermit, Refusal> {
        self.room.wait(tenant, agent).await.map_err(|_| {
            Refusal::new(ErrorCode::E3701, format!("too many calls wait for the server `{}`", self.name))
                .hint("try again later, or call it less often at once")
        })
    }

    /// How many calls are on it, and wait for their turn.
    pub(crate) fn places(&self) -> PlaceUsage {
        self.room.usage()
    }

    /// The server for a call or another question, started if need be. The wait is bounded by whoever drops the future.
    pub(crate) async fn live(&self) -> Result<InUse, Refusal> {
        let live = self.met().await?;
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(live)
    }

    /// The same for somebody who only wants to know how it was met.
    pub(crate) async fn met(&self) -> Result<InUse, Refusal> {
        let mut phases = self.phase.subscribe();
        let mut waited = false;
        let _waiting = Queued::enter(&self.waiting);
        loop {
            let phase = phases.borrow_and_update().clone();
            match phase {
                Phase::Ready(live) => {
                    if let Some(in_use) = live.begin() {
                        return Ok(in_use);
                    }
                }
                Phase::Stopped => {
                    waited = true;
                    self.wanted.notify_one();
                }
                Phase::Starting => waited = true,
                Phase::Draining => {}
                // SUP-2.
                Phase::Backoff { until, why } => {
                    let left = until.saturating_sub(self.context.clock.monotonic());
                    if waited || left > BACKOFF_WAIT_MAX {
                        let mut refusal = Refusal::clone(&why);
                        refusal.retry_after_ms = u64::try_from(left.as_millis()).ok();
                        return Err(refusal);
                    }
                }
                Phase::Unavailable { why } if waited => return Err(Refusal::clone(&why)),
                Phase::Unavailable { .. } => return Err(self.unavailable()),
                Phase::Gone => return Err(self.gone()),
            }
            if phases.changed().await.is_err() {
                return Err(self.gone());
            }
        }
    }

    /// Starts a new one, and lets the calls on the old one finish there.
    pub(crate) async fn restart(&self) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        self.orders.send(Order::Restart(reply)).await.map_err(|_| self.gone())?;
        answer.await.unwrap_or_else(|_| Err(self.gone()))
    }

    /// Another specification holds from now on. What is given back tells when it has come to life, or why it has not.
    pub(crate) fn change(self: &Arc<Self>, spec: Arc<ServerSpec>) -> oneshot::Receiver<Result<(), Refusal>> {
        self.shared.store(spec.shareable, Ordering::Release);
        let (reply, answer) = oneshot::channel();
        let unit = Arc::clone(self);
        self.context.tasks.spawn(async move {
            // A keeper that has ended has nothing to change.
            let _ = unit.orders.send(Order::Change(spec, reply)).await;
        });
        answer
    }

    /// Ends it, after the calls on it or the patience for them.
    pub(crate) async fn stop(&self) {
        self.closing.cancel();
        // The sender lives as long as this value does, so this ends only by the keeper's end.
        let _ = self.phase.subscribe().wait_for(|phase| matches!(phase, Phase::Gone)).await;
    }

    /// Ends it without waiting, because nobody is left to wait.
    pub(crate) fn abandon(&self) {
        self.closing.cancel();
    }

    pub(crate) fn state(&self) -> ServerState {
        self.phase.borrow().kept().unwrap_or(ServerState::Stopped)
    }

    pub(crate) fn process(&self) -> Option<u32> {
        match &*self.phase.borrow() {
            Phase::Ready(live) => live.connection.process(),
            _ => None,
        }
    }

    /// Whom its notices concern; `None` is everybody.
    pub(crate) fn concerns(&self) -> Option<&TenantId> {
        (!self.shared.load(Ordering::Acquire)).then_some(&self.tenant)
    }

    /// Comes back when `live` is not what calls are sent to any more.
    pub(crate) async fn replaced(&self, live: &Arc<LiveConnection>) {
        let is_other = |phase: &Phase| !matches!(phase, Phase::Ready(current) if Arc::ptr_eq(current, live));
        // The sender lives as long as this value does.
        let _ = self.phase.subscribe().wait_for(is_other).await;
    }

    pub(crate) fn context(&self) -> &SupervisorContext {
        &self.context
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn facts(&self) -> MutexGuard<'_, UnitFacts> {
        self.facts.lock_unpoisoned()
    }

    fn publish(&self, phase: Phase) {
        self.facts().since = self.context.clock.now();
        let to = phase.kept();
        let from = self.phase.send_replace(phase).kept();
        if from != to {
            self.teller.tell(UpstreamEvent::Moved { from, to });
        }
    }

    fn gone(&self) -> Refusal {
        Refusal::new(ErrorCode::E3108, format!("the server `{}` is not there any more", self.name)).retryable(false)
    }

    /// It was given up. If others can be asked in its place it counts as a service that does not answer, which opens its
    /// breaker; otherwise its tools are not there.
    fn unavailable(&self) -> Refusal {
        if self.has_stand_in.load(Ordering::Acquire) {
            return UpstreamFault::NotSent("it was given up").refusal(&self.name, true);
        }
        Refusal::new(
            ErrorCode::E3108,
            format!("the server `{}` is unavailable: it was started too often without success", self.name),
        )
        .hint(format!(
            "it is tried again by itself; the operator can look at `gantry server logs {name}`, and `gantry server restart {name}`",
            name = self.name
        ))
    }
}

impl ServerListener for ServerUnit {
    fn tools_changed(&self) {
        self.tools_changed.notify_one();
    }

    fn offering_changed(&self, change: OfferingChange) {
        self.changes.note(change);
    }

    fn line(&self, line: &str) {
        self.log.written(line);
    }

    fn happened(&self, event: UpstreamEvent) {
        self.teller.tell(event);
    }
}

fn places(bounds: &UpstreamBounds) -> PlaceBounds {
    PlaceBounds { capacity: bounds.calls_max, per_flow: bounds.calls_max, waiting: bounds.queue_max }
}

/// A place among those who wait.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
