//! Places that many tenants share: so many at once, fairly given, and a bounded line for whoever comes when there is none.
//!
//! One mechanism for everything of which there is only so much: calls of this server (`kernel::concurrency`), long
//! computations ([`ComputationPermits`]), calls in processes and guests, sessions of MCP clients (`server`). Who gets which place is decided by [`scheduler`]; here are the waiting and the
//! giving back.
//!
//! Invariants
//! - PLACE-1: a place is given back when it is dropped, whichever way its holder ended, and not before.
//! - PLACE-2: a waiter that goes away before or after its turn leaves nothing behind: its place goes to the next.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base::MutexExt as _;
use contract::ids::TenantId;
use tokio::sync::oneshot;

mod computation;
mod scheduler;

pub use computation::{ComputationPermits, NotComputed};
use scheduler::{Asked, Grant, Scheduler, Ticket};
pub use scheduler::{PlaceBounds, shares};

/// Places of one kind.
#[derive(Debug)]
pub struct FairPlaces {
    state: Mutex<State>,
    refused: AtomicU64,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    waiters: HashMap<Ticket, oneshot::Sender<FairPermit>>,
}

/// One place. Dropping it gives it back.
#[derive(Debug)]
pub struct FairPermit {
    places: Arc<FairPlaces>,
    tenant: TenantId,
    flow: String,
}

/// Too many wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many wait for a place already")]
pub struct QueueFull;

/// How much of it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceUsage {
    pub bounds: PlaceBounds,
    pub held: usize,
    pub waiting: usize,
    /// Wishes that came when too many waited, or whose time was over before their turn, since the start.
    pub refused: u64,
}

/// Somebody in a line. Dropping it leaves the line.
#[derive(Debug)]
struct Waiter {
    places: Arc<FairPlaces>,
    tenant: TenantId,
    flow: String,
    ticket: Ticket,
    turn: oneshot::Receiver<FairPermit>,
}

impl FairPlaces {
    /// With these bounds.
    pub fn new(bounds: PlaceBounds) -> Arc<Self> {
        let state = State { scheduler: Scheduler::new(bounds), waiters: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state), refused: AtomicU64::new(0) })
    }

    /// A place for this flow of this tenant, if it may take one now.
    pub fn take(self: &Arc<Self>, tenant: &TenantId, flow: &str) -> Option<FairPermit> {
        let taken = self.take_quietly(tenant, flow);
        if taken.is_none() {
            self.note_refusal();
        }
        taken
    }

    /// The same for somebody who goes on without it, or waits then.
    pub fn take_quietly(self: &Arc<Self>, tenant: &TenantId, flow: &str) -> Option<FairPermit> {
        let taken = self.lock().scheduler.take(tenant, flow);
        taken.then(|| self.place(tenant.clone(), flow.to_owned()))
    }

    /// The same, now or in its turn. It may never come: whoever calls bounds the wait, and drops this to leave the line.
    pub async fn wait(self: &Arc<Self>, tenant: &TenantId, flow: &str) -> Result<FairPermit, QueueFull> {
        let mut waiter = {
            let mut state = self.lock();
            match state.scheduler.ask(tenant, flow) {
                Asked::Granted => return Ok(self.place(tenant.clone(), flow.to_owned())),
                Asked::Full => {
                    self.note_refusal();
                    return Err(QueueFull);
                }
                Asked::Waits(ticket) => {
                    let (sender, turn) = oneshot::channel();
                    state.waiters.insert(ticket, sender);
                    Waiter { places: Arc::clone(self), tenant: tenant.clone(), flow: flow.to_owned(), ticket, turn }
                }
            }
        };
        // The sender goes away with its waiter only.
        (&mut waiter.turn).await.map_err(|_| QueueFull)
    }

    /// Places that this flow of this tenant holds.
    pub fn held_by(&self, tenant: &TenantId, flow: &str) -> usize {
        self.lock().scheduler.held_by(tenant, flow)
    }

    /// How much of it is used.
    pub fn usage(&self) -> PlaceUsage {
        let state = self.lock();
        PlaceUsage {
            bounds: state.scheduler.bounds(),
            held: state.scheduler.held(),
            waiting: state.scheduler.waiting(),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// A wish was not granted.
    fn note_refusal(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn place(self: &Arc<Self>, tenant: TenantId, flow: String) -> FairPermit {
        FairPermit { places: Arc::clone(self), tenant, flow }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock_unpoisoned()
    }

    /// Tells those who have a place now. Not under the lock: a waiter that has gone gives its place back at once.
    fn hand_out(self: &Arc<Self>, mut state: MutexGuard<'_, State>, grants: Vec<Grant>) {
        let told: Vec<_> =
            grants.into_iter().map(|grant| (state.waiters.remove(&grant.ticket), grant.tenant, grant.flow)).collect();
        drop(state);
        for (waiter, tenant, flow) in told {
            let place = self.place(tenant, flow);
            if let Some(waiter) = waiter {
                // What cannot be sent is dropped, and so given back.
                let _gone = waiter.send(place);
            }
        }
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        let grants = state.scheduler.release(&self.tenant, &self.flow);
        if grants.is_empty() {
            return;
        }
        self.places.hand_out(state, grants);
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        // Not in its line any more: its place was sent, and is dropped with the channel.
        if state.scheduler.leave(&self.tenant, &self.flow, self.ticket) {
            state.waiters.remove(&self.ticket);
            drop(state);
            self.places.note_refusal();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    fn places(capacity: usize, waiting: usize) -> Arc<FairPlaces> {
        FairPlaces::new(PlaceBounds { capacity, per_flow: capacity, waiting })
    }

    #[tokio::test]
    async fn a_waiter_gets_the_place_that_is_given_back() {
        let places = places(1, 4);
        let first = places.take(&tenant("acme"), "a").unwrap();
        assert!(places.take(&tenant("zeta"), "a").is_none());
        let mine = tenant("zeta");
        let mut waiting = std::pin::pin!(places.wait(&mine, "a"));
        assert!(is_pending(waiting.as_mut()));
        assert_eq!((places.usage().held, places.usage().waiting, places.usage().refused), (1, 1, 1));
        drop(first);
        let second = waiting.await.unwrap();
        assert_eq!((places.usage().held, places.usage().waiting), (1, 0));
        drop(second);
        assert_eq!(places.usage().held, 0);
    }

    #[tokio::test]
    async fn a_waiter_that_goes_away_leaves_nothing_behind_before_and_after_its_turn() {
        let places = places(1, 4);
        let first = places.take(&tenant("acme"), "a").unwrap();
        let (mine, yours) = (tenant("zeta"), tenant("beta"));
        let mut before = Box::pin(places.wait(&mine, "a"));
        let mut after = Box::pin(places.wait(&yours, "a"));
        assert!(is_pending(before.as_mut()));
        assert!(is_pending(after.as_mut()));
        drop(before);
        assert_eq!(places.usage().waiting, 1);
        drop(first);
        assert_eq!((places.usage().held, places.usage().waiting), (1, 0), "its place was sent");
        drop(after);
        assert_eq!(places.usage().held, 0);
    }

    #[tokio::test]
    async fn a_full_line_refuses_and_a_free_place_lets_in() {
        let places = places(1, 1);
        let first = places.take(&tenant("acme"), "a").unwrap();
        let (mine, yours) = (tenant("zeta"), tenant("beta"));
        let mut waiting = std::pin::pin!(places.wait(&mine, "a"));
        assert!(is_pending(waiting.as_mut()));
        assert_eq!(places.wait(&yours, "a").await.unwrap_err(), QueueFull);
        drop(first);
        waiting.await.unwrap();
    }
}
