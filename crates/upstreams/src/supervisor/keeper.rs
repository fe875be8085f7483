//! The task that owns a server's state and steps it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::live::Live;
use super::{Phase, Unit};
use crate::connection::outbound::SESSION_GONE;
use crate::connection::{Era, within};
use crate::fault::Fault;
use crate::restarts::{Next, Restarts};
use crate::spec::ServerSpec;
use crate::starter::Wanted;

/// Heartbeats that may fail in a row while calls run: a server that works on one may not have the time to answer.
const MISSES_MAX_BUSY: u32 = 3;
/// Changes of a server's tools are told no more often than this.
const CHANGES_EVERY: Duration = Duration::from_secs(1);

/// What a keeper is told.
#[derive(Debug)]
pub(super) enum Order {
    Restart(oneshot::Sender<Result<(), Refusal>>),
    Change(Arc<ServerSpec>),
    Stop(oneshot::Sender<()>),
}

/// Where the server stands, with everything that belongs to it.
enum State {
    Stopped,
    Starting,
    Ready(Arc<Live>),
    /// Until then on the monotonic clock.
    Waiting {
        until: Duration,
    },
    Gone,
}

pub(super) struct Keeper {
    unit: Arc<Unit>,
    spec: Arc<ServerSpec>,
    orders: mpsc::Receiver<Order>,
    restarts: Restarts,
    /// What the server spoke the last time.
    era: Option<Era>,
    /// Its tools were said to be unavailable.
    given_up: bool,
    starts: u64,
    /// Who waits for the start that goes on.
    asked: Option<oneshot::Sender<Result<(), Refusal>>>,
}

impl Keeper {
    pub(super) fn new(unit: Arc<Unit>, spec: Arc<ServerSpec>, orders: mpsc::Receiver<Order>) -> Self {
        Self { unit, spec, orders, restarts: Restarts::default(), era: None, given_up: false, starts: 0, asked: None }
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
                Some(Order::Change(spec)) => {
                    self.adopt(spec);
                    State::Stopped
                }
                Some(Order::Stop(reply)) => gone(reply),
                None => State::Gone,
            },
        }
    }

    async fn starting(&mut self) -> State {
        self.unit.publish(Phase::Starting);
        let outcome = self.start().await;
        if let Some(asked) = self.asked.take() {
            let _ = asked.send(outcome.as_ref().map(|_| ()).map_err(|why| Refusal::clone(why)));
        }
        match outcome {
            Ok(live) => State::Ready(live),
            Err(why) => self.failed(None, why),
        }
    }

    async fn ready(&mut self, live: Arc<Live>) -> State {
        self.unit.publish(Phase::Ready(Arc::clone(&live)));
        if std::mem::take(&mut self.given_up) {
            tracing::info!(server = %self.unit.name, "a server is back");
            self.unit.house.watchers.availability(&self.unit, true);
        }
        // A server that was started anew may have other tools than before.
        self.unit.tools_changed.notify_one();
        if self.starts > 1 {
            self.unit.changes.note_all();
        }
        let _pulse = self.pulse(&live);
        let clock = Arc::clone(&self.unit.house.clock);
        loop {
            let idle_in = self.spec.upkeep.idle_stop().map(|most| most.saturating_sub(live.idle_for()));
            let idle = async {
                match idle_in {
                    Some(span) => clock.sleep(span).await,
                    None => std::future::pending().await,
                }
            };
            let order = tokio::select! {
                () = live.connection.ended() => return self.died(&live).await,
                () = idle => {
                    let idle_now = self.spec.upkeep.idle_stop().is_some_and(|most| live.idle_for() >= most);
                    if idle_now && live.close_if_unused() {
                        self.unit.publish(Phase::Draining);
                        self.drained(&live).await;
                        return State::Stopped;
                    }
                    continue;
                }
                order = self.orders.recv() => order,
            };
            match order {
                Some(Order::Restart(reply)) => match self.start().await {
                    Ok(new) => {
                        let _ = reply.send(Ok(()));
                        self.restarts.forgive();
                        return self.switched(live, new);
                    }
                    // The old one serves on: nothing is gained by having none.
                    Err(why) => drop(reply.send(Err(Refusal::clone(&why)))),
                },
                Some(Order::Change(spec)) => {
                    if !self.adopt(spec) {
                        continue;
                    }
                    match self.start().await {
                        Ok(new) => return self.switched(live, new),
                        // What the operator has taken away must not be used any longer.
                        Err(why) => {
                            self.drain_aside(live);
                            return self.failed(None, why);
                        }
                    }
                }
                Some(Order::Stop(reply)) => {
                    self.unit.publish(Phase::Draining);
                    self.drained(&live).await;
                    return gone(reply);
                }
                None => {
                    self.drained(&live).await;
                    return State::Gone;
                }
            }
        }
    }

    async fn waiting(&mut self, until: Duration) -> State {
        let clock = Arc::clone(&self.unit.house.clock);
        tokio::select! {
            () = clock.sleep(until.saturating_sub(clock.monotonic())) => State::Starting,
            order = self.orders.recv() => match order {
                Some(Order::Restart(reply)) => {
                    self.asked = Some(reply);
                    self.restarts.forgive();
                    State::Starting
                }
                Some(Order::Change(spec)) => {
                    if self.adopt(spec) { State::Starting } else { State::Waiting { until } }
                }
                Some(Order::Stop(reply)) => gone(reply),
                None => State::Gone,
            },
        }
    }

    /// One start, within its time.
    async fn start(&mut self) -> Result<Arc<Live>, Arc<Refusal>> {
        let house = Arc::clone(&self.unit.house);
        self.starts += 1;
        let patience = Duration::from_secs(self.spec.upkeep.start_timeout_seconds.max(1));
        let wanted = Wanted {
            tenant: &self.unit.tenant,
            spec: &self.spec,
            era: self.era,
            hearing: Arc::clone(&self.unit) as _,
            log: &self.unit.log,
        };
        let outcome = tokio::select! {
            outcome = within(&*house.clock, patience, house.starter.start(wanted)) => outcome.unwrap_or(Err(Fault::Late)),
            () = self.unit.closing.cancelled() => Err(Fault::NotSent("the server is being stopped")),
        };
        let mut facts = self.unit.facts();
        facts.restarts = self.starts.saturating_sub(1);
        match outcome {
            Ok(started) => {
                let era = started.connection.met().era;
                self.era = Some(era);
                (facts.era, facts.last_error) = (Some(era), None);
                Ok(Live::new(started, Arc::clone(&house.clock)))
            }
            Err(fault) => {
                // A program that dies of a question it does not know is asked in the old way the next time; one that was
                // thought to be of either kind and did not start is asked anew.
                let died = matches!(fault, Fault::Lost(_) | Fault::NotSent(_));
                self.era = if self.era.is_none() && died { Some(Era::Legacy) } else { None };
                tracing::warn!(server = %self.unit.name, tenant = %self.unit.tenant, %fault, "a server did not start");
                self.unit.log.line(&format!("[gantry] it did not start: {fault}"));
                facts.last_error = Some(fault.to_string());
                Err(Arc::new(not_started(fault, &self.unit.name)))
            }
        }
    }

    /// The server went away by itself, or was given up.
    async fn died(&mut self, live: &Arc<Live>) -> State {
        let why = live.connection.why_ended().unwrap_or("the connection ended");
        let uptime = live.uptime();
        self.unit.facts().last_error = Some(why.to_owned());
        self.unit.log.line(&format!("[gantry] {why}"));
        // Whatever is left of it goes at once: nobody can talk to it any more.
        live.connection.close(Duration::ZERO).await;
        if why == SESSION_GONE {
            // It is there, and has only forgotten us.
            return State::Starting;
        }
        tracing::warn!(server = %self.unit.name, tenant = %self.unit.tenant, why, "a server went away");
        let refusal = Fault::NotSent(why).refusal(&self.unit.name, true);
        self.failed(Some(uptime), Arc::new(refusal))
    }

    fn failed(&mut self, uptime: Option<Duration>, why: Arc<Refusal>) -> State {
        let house = &self.unit.house;
        let bounds = house.bounds.restarts(&self.spec.upkeep);
        let mut random = [0; 4];
        house.entropy.fill(&mut random);
        let now = house.clock.monotonic();
        match self.restarts.ended(uptime, &bounds, u32::from_ne_bytes(random)) {
            Next::Again { pause } => {
                let until = now.saturating_add(pause);
                self.unit.publish(Phase::Backoff { until, why });
                State::Waiting { until }
            }
            Next::GiveUp { probe } => {
                if !std::mem::replace(&mut self.given_up, true) {
                    // The alert of MCP-008.
                    tracing::error!(
                        server = %self.unit.name,
                        tenant = %self.unit.tenant,
                        restarts = bounds.restarts_max,
                        reason = %why.message,
                        "a server was started too often without success and is unavailable"
                    );
                    self.unit.house.watchers.availability(&self.unit, false);
                }
                self.unit.publish(Phase::Unavailable { why });
                State::Waiting { until: now.saturating_add(probe) }
            }
        }
    }

    /// Takes over a specification; `true` if it needs another server than the one there is.
    fn adopt(&mut self, spec: Arc<ServerSpec>) -> bool {
        let same = spec.reach == self.spec.reach && spec.relay == self.spec.relay;
        if !same {
            self.era = None;
            self.restarts.forgive();
        }
        self.spec = spec;
        !same
    }

    /// MCP-015: new calls go to the new one from now on.
    fn switched(&mut self, old: Arc<Live>, new: Arc<Live>) -> State {
        self.unit.publish(Phase::Ready(Arc::clone(&new)));
        self.drain_aside(old);
        State::Ready(new)
    }

    fn drain_aside(&self, old: Arc<Live>) {
        let bounds = self.unit.house.bounds;
        self.unit.house.tasks.spawn(async move { old.drain(bounds.drain_max, bounds.stop_patience).await });
    }

    async fn drained(&self, live: &Live) {
        let bounds = &self.unit.house.bounds;
        live.drain(bounds.drain_max, bounds.stop_patience).await;
    }

    /// Asks the server now and then whether it is there, follows its changes and tells of them. Ends with the returned value.
    fn pulse(&self, live: &Arc<Live>) -> [AbortOnDropHandle<()>; 4] {
        let every = Duration::from_secs(self.spec.upkeep.health_check_seconds);
        let beating = beat(Arc::clone(&self.unit), Arc::clone(live), every);
        let following = {
            let live = Arc::clone(live);
            async move { live.connection.follow_changes().await }
        };
        let telling = tell_changes(Arc::clone(&self.unit));
        [
            AbortOnDropHandle::new(tokio::spawn(beating)),
            AbortOnDropHandle::new(tokio::spawn(following)),
            AbortOnDropHandle::new(tokio::spawn(telling)),
            AbortOnDropHandle::new(tokio::spawn(crate::watched::tell_offerings(Arc::clone(&self.unit)))),
        ]
    }
}

async fn beat(unit: Arc<Unit>, live: Arc<Live>, every: Duration) {
    if every.is_zero() {
        return;
    }
    let house = &unit.house;
    let mut misses = 0;
    loop {
        house.clock.sleep(every).await;
        match live.connection.heartbeat(house.bounds.heartbeat_patience).await {
            Ok(()) => misses = 0,
            Err(fault) => {
                misses += 1;
                tracing::warn!(server = %unit.name, %fault, misses, "a server does not answer");
                if misses >= MISSES_MAX_BUSY || live.running() == 0 {
                    return live.connection.give_up("the server does not answer any more");
                }
            }
        }
    }
}

async fn tell_changes(unit: Arc<Unit>) {
    loop {
        unit.tools_changed.notified().await;
        unit.house.watchers.tools_changed(&unit);
        unit.house.clock.sleep(CHANGES_EVERY).await;
    }
}

fn gone(reply: oneshot::Sender<()>) -> State {
    let _ = reply.send(());
    State::Gone
}

/// A start that failed, for those who waited for it: nothing of their calls was done.
fn not_started(fault: Fault, server: &str) -> Refusal {
    match fault {
        Fault::Ours(refusal) => *refusal,
        Fault::Denied(_) | Fault::Busy { .. } => fault.refusal(server, true),
        Fault::Late => {
            Refusal::new(ErrorCode::E3503, format!("the server `{server}` did not start in time")).retryable(true)
        }
        other => Refusal::new(ErrorCode::E3502, format!("the server `{server}` could not be started: {other}"))
            .retryable(true),
    }
}
