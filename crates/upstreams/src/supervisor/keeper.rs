//! The task that owns a server's state and steps it.

mod start;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::error::Refusal;
use tokio::sync::{mpsc, oneshot};

use super::live::LiveConnection;
use super::{Phase, ServerUnit, liveness};
use crate::connection::outbound::SESSION_GONE;
use crate::connection::{ProtocolEra, StopGrace};
use crate::fault::UpstreamFault;
use crate::observer::UpstreamEvent;
use crate::restarts::{RestartCount, RestartDecision};
use crate::spec::ServerSpec;

/// What a keeper is told.
#[derive(Debug)]
pub(super) enum Order {
    Restart(Reply),
    Change(Arc<ServerSpec>, Reply),
}

/// Who wants to hear how a start went.
type Reply = oneshot::Sender<Result<(), Refusal>>;

/// Where the server stands, with everything that belongs to it.
enum State {
    Stopped,
    Starting,
    Ready(Arc<LiveConnection>),
    /// Until then on the monotonic clock.
    Waiting {
        until: Duration,
    },
    Gone,
}

/// What there is to do about a server that is there.
enum Stir {
    /// It is not there any more.
    Died,
    /// It is to be ended for good.
    Closing,
    /// Nobody has used it for so long that it need not be there.
    Idle,
    /// A change that did not come to life is tried once more.
    TryAgain,
    Told(Order),
}

pub(super) struct UnitKeeper {
    unit: Arc<ServerUnit>,
    spec: Arc<ServerSpec>,
    orders: mpsc::Receiver<Order>,
    restarts: RestartCount,
    /// What the server spoke the last time.
    era: Option<ProtocolEra>,
    /// Its tools were said to be unavailable.
    given_up: bool,
    starts: u64,
    /// The server is there and has forgotten its session.
    forgotten: bool,
    /// Who waits for the start that goes on.
    asked: Option<Reply>,
}

impl UnitKeeper {
    pub(super) fn new(unit: Arc<ServerUnit>, spec: Arc<ServerSpec>, orders: mpsc::Receiver<Order>) -> Self {
        Self {
            unit,
            spec,
            orders,
            restarts: RestartCount::default(),
            era: None,
            given_up: false,
            starts: 0,
            forgotten: false,
            asked: None,
        }
    }

    pub(super) async fn run(mut self) {
        let mut state = State::Stopped;
        loop {
            state = match state {
                State::Stopped => self.stopped().await,
                State::Starting => self.starting().await,
                State::Ready(live) => self.ready(live).await,
                State::Waiting { until } => self.waiting(until).await,
                State::Gone => {
                    self.unit.publish(Phase::Gone);
                    return;
                }
            };
        }
    }

    async fn stopped(&mut self) -> State {
        self.unit.publish(Phase::Stopped);
        tokio::select! {
            // Of several who wanted it at once only one was heard, and the others may be served by now.
            () = self.unit.wanted.notified() => {
                if self.unit.waiting.load(Ordering::Acquire) > 0 { State::Starting } else { State::Stopped }
            }
            order = self.orders.recv() => match order {
                Some(Order::Restart(reply)) => {
                    self.asked = Some(reply);
                    State::Starting
                }
                Some(Order::Change(spec, reply)) => {
                    self.adopt(spec);
                    told(reply, Ok(()));
                    State::Stopped
                }
                None => State::Gone,
            },
            () = self.unit.closing.cancelled() => State::Gone,
        }
    }

    async fn starting(&mut self) -> State {
        self.unit.publish(Phase::Starting);
        let outcome = self.start().await;
        if let Some(asked) = self.asked.take() {
            told(asked, outcome.as_ref().map(|_| ()));
        }
        match outcome {
            Ok(live) => State::Ready(live),
            Err(_) if self.unit.closing.is_cancelled() => State::Gone,
            Err(why) => self.failed(None, why),
        }
    }

    async fn ready(&mut self, live: Arc<LiveConnection>) -> State {
        self.unit.publish(Phase::Ready(Arc::clone(&live)));
        if std::mem::take(&mut self.given_up) {
            tracing::info!(server = %self.unit.name, "a server is back");
            self.unit.context.watchers.availability(&self.unit, true);
        }
        // A server that was started anew may have other tools than before.
        self.unit.tools_changed.notify_one();
        if self.starts > 1 {
            self.unit.changes.note_all();
        }
        let _pulse = liveness::of(&self.unit, &live, &self.spec);
        // What it was started by; a change that does not come to life leaves it behind what is wanted.
        let serving = Arc::clone(&self.spec);
        let mut again_at: Option<Duration> = None;
        loop {
            let order = match self.stirred(&live, again_at).await {
                Stir::Died => return self.died(&live).await,
                Stir::Closing => {
                    self.unit.publish(Phase::Draining);
                    self.drained(&live).await;
                    return State::Gone;
                }
                Stir::Idle if self.is_idle(&live) && live.close_if_unused() => {
                    self.unit.publish(Phase::Draining);
                    self.drained(&live).await;
                    return State::Stopped;
                }
                Stir::Idle => continue,
                Stir::TryAgain => None,
                Stir::Told(order) => Some(order),
            };
            let was_asked = matches!(order, Some(Order::Restart(_)));
            let (reply, withdraws) = match order {
                None => (None, false),
                Some(Order::Restart(reply)) => (Some(reply), false),
                Some(Order::Change(spec, reply)) => {
                    self.adopt(spec);
                    if !self.spec.needs_another(&serving) {
                        // Nothing that concerns it, or back to what it is.
                        self.era = Some(live.connection.met().era);
                        if again_at.take().is_some() {
                            self.unit.facts().forget_error();
                        }
                        told(reply, Ok(()));
                        continue;
                    }
                    (Some(reply), self.spec.withdraws_from(&serving))
                }
            };
            let outcome = self.start().await;
            let heard = outcome.as_ref().map(|_| ()).map_err(Arc::clone);
            let next = match outcome {
                Ok(new) => {
                    if was_asked {
                        self.restarts.forgive();
                    }
                    Some(self.switched(Arc::clone(&live), new))
                }
                // SUP-4: what was taken from it must not be used any longer.
                Err(why) if withdraws => {
                    self.drain_aside(Arc::clone(&live));
                    Some(self.failed(None, why))
                }
                // SUP-4: the old one serves on; a change is tried again after a pause.
                Err(_) if self.spec.needs_another(&serving) => {
                    self.unit.log.line("[gantry] the one that was there before serves on");
                    again_at = Some(self.next_try());
                    None
                }
                Err(_) => None,
            };
            // Now, and not before: whoever hears of it finds the one that serves from here on.
            if let Some(reply) = reply {
                told(reply, heard.as_ref().copied());
            }
            if let Some(next) = next {
                return next;
            }
        }
    }

    /// Has nobody used it for too long? A call may have come and gone since that was last asked.
    fn is_idle(&self, live: &LiveConnection) -> bool {
        self.spec.upkeep.idle_stop().is_some_and(|most| live.idle_for() >= most)
    }

    /// Waits for something to do about a server that is there.
    async fn stirred(&mut self, live: &LiveConnection, again_at: Option<Duration>) -> Stir {
        let clock = Arc::clone(&self.unit.context.clock);
        let idle_in = self.spec.upkeep.idle_stop().map(|most| most.saturating_sub(live.idle_for()));
        let again_in = again_at.map(|at| at.saturating_sub(clock.monotonic()));
        let after = async |span: Option<Duration>| match span {
            Some(span) => clock.sleep(span).await,
            None => std::future::pending().await,
        };
        tokio::select! {
            () = live.connection.ended() => Stir::Died,
            () = self.unit.closing.cancelled() => Stir::Closing,
            () = after(idle_in) => Stir::Idle,
            () = after(again_in) => Stir::TryAgain,
            // Orders come through this very unit, which lives.
            order = self.orders.recv() => order.map_or(Stir::Closing, Stir::Told),
        }
    }

    async fn waiting(&mut self, until: Duration) -> State {
        let clock = Arc::clone(&self.unit.context.clock);
        tokio::select! {
            () = clock.sleep(until.saturating_sub(clock.monotonic())) => State::Starting,
            order = self.orders.recv() => match order {
                Some(Order::Restart(reply)) => {
                    self.asked = Some(reply);
                    self.restarts.forgive();
                    State::Starting
                }
                Some(Order::Change(spec, reply)) => {
                    if self.adopt(spec) {
                        self.asked = Some(reply);
                        State::Starting
                    } else {
                        told(reply, Ok(()));
                        State::Waiting { until }
                    }
                }
                None => State::Gone,
            },
            () = self.unit.closing.cancelled() => State::Gone,
        }
    }

    /// The server went away by itself, or was given up.
    async fn died(&mut self, live: &Arc<LiveConnection>) -> State {
        let why = live.connection.why_ended().unwrap_or("the connection ended");
        let uptime = live.uptime();
        self.unit.facts().remember_error(why.to_owned(), None);
        self.unit.log.line(&format!("[gantry] {why}"));
        // Whatever is left of it goes at once: nobody can talk to it any more.
        live.connection.close(StopGrace::AT_ONCE).await;
        if why == SESSION_GONE {
            // It is there, and has only forgotten us.
            self.forgotten = true;
            return State::Starting;
        }
        tracing::warn!(server = %self.unit.name, tenant = %self.unit.tenant, why, "a server went away");
        let refusal = UpstreamFault::NotSent(why).refusal(&self.unit.name, true);
        self.failed(Some(uptime), Arc::new(refusal))
    }

    /// What to do about a server that failed to start, or ended after `uptime`.
    fn next(&mut self, uptime: Option<Duration>) -> RestartDecision {
        let context = &self.unit.context;
        let mut random = [0; 4];
        context.entropy.fill(&mut random);
        self.restarts.ended(uptime, &context.bounds.restarts(&self.spec.upkeep), u32::from_ne_bytes(random))
    }

    /// When a change that did not come to life is tried again, on the monotonic clock.
    fn next_try(&mut self) -> Duration {
        let (RestartDecision::Again { pause } | RestartDecision::GiveUp { probe: pause }) = self.next(None);
        self.unit.context.clock.monotonic().saturating_add(pause)
    }

    fn failed(&mut self, uptime: Option<Duration>, why: Arc<Refusal>) -> State {
        let next = self.next(uptime);
        let now = self.unit.context.clock.monotonic();
        match next {
            RestartDecision::Again { pause } => {
                let until = now.saturating_add(pause);
                self.unit.publish(Phase::Backoff { until, why });
                State::Waiting { until }
            }
            RestartDecision::GiveUp { probe } => {
                if !std::mem::replace(&mut self.given_up, true) {
                    // The alert of MCP-008.
                    self.unit.teller.tell(UpstreamEvent::GivenUp);
                    tracing::error!(
                        server = %self.unit.name,
                        tenant = %self.unit.tenant,
                        restarts = self.spec.upkeep.max_restarts,
                        reason = %why.message,
                        "a server was started too often without success and is unavailable"
                    );
                    // Its tools can still be called where another address is there to be asked.
                    if !self.unit.has_stand_in.load(Ordering::Acquire) {
                        self.unit.context.watchers.availability(&self.unit, false);
                    }
                }
                self.unit.publish(Phase::Unavailable { why });
                State::Waiting { until: now.saturating_add(probe) }
            }
        }
    }

    /// Takes over a specification; `true` if it needs another server than the one there is.
    fn adopt(&mut self, spec: Arc<ServerSpec>) -> bool {
        let another = spec.needs_another(&self.spec);
        if another {
            self.era = None;
            self.unit.forget_what_it_speaks();
            self.restarts.forgive();
        }
        self.spec = spec;
        another
    }

    /// MCP-015: new calls go to the new one from now on.
    fn switched(&mut self, old: Arc<LiveConnection>, new: Arc<LiveConnection>) -> State {
        self.unit.publish(Phase::Ready(Arc::clone(&new)));
        self.drain_aside(old);
        State::Ready(new)
    }

    fn drain_aside(&self, old: Arc<LiveConnection>) {
        let bounds = self.unit.context.bounds;
        self.unit.context.tasks.spawn(async move { old.drain(bounds.drain_max, bounds.ending()).await });
    }

    async fn drained(&self, live: &LiveConnection) {
        let bounds = &self.unit.context.bounds;
        live.drain(bounds.drain_max, bounds.ending()).await;
    }
}

fn told(reply: Reply, outcome: Result<(), &Arc<Refusal>>) {
    // Whoever does not wait any more does not want to know.
    let _ = reply.send(outcome.map_err(|why| Refusal::clone(why)));
}
