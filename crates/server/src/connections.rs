//! Who is connected, and who makes room for whom: the bound on connections, shared among those who come.
//!
//! A connection costs its client nothing, so a limit alone is a door that anybody can fill. Every newcomer is a stranger
//! until it has shown a good token; from then on it counts for the tenant of that token. Whoever is connected and asks
//! nothing makes room for newcomers, and so does whoever asks and does not finish: a client that sends its body by the byte
//! has not asked yet.
//!
//! ```text
//! strangers of one peer hold a quarter of all  ─▶ its own stranger that is idle longest makes room
//! strangers hold half of all                   ─▶ one of the peer that has most of them
//! one tenant holds three quarters of what busy
//! connections of other tenants leave           ─▶ one of its own; if none is idle, the newest of them is refused
//! all are taken                                ─▶ idle strangers first, then idle others, of the tenant that has most of them
//! nobody is idle                               ─▶ the newcomer waits in the listener's backlog until somebody is
//! ```
//!
//! Idle is whoever has no request under way that was read to its end: also a client that is slow to finish its headers or its
//! body. A connection that was told to make room still gets the answer that is being written.
//!
//! Invariants
//! - CONN-1: there are never more than the limit; what has been told to make room counts until it has.
//! - CONN-2: no connection is closed for another while a request is under way on it that was read to its end.
//! - CONN-3: half of all is out of reach of strangers, whatever they send.
//! - CONN-4: a quarter of all is out of reach of each tenant, whatever it sends and however long its calls take; and of what
//!   some tenants leave, a quarter is out of reach of the next. The last place is for a tenant that has none.
//!
//! Not here: how long a client may be idle (`pace`), calls (`kernel`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base::MutexExt as _;
use contract::ids::TenantId;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pace::{AwaitedBody, ConnectionPause, ConnectionProgress};

/// The part of all connections that strangers may hold, and strangers of one peer.
const STRANGERS_PART: usize = 2;
const STRANGERS_OF_PEER_PART: usize = 4;
/// The part of all connections that is left to others by each tenant.
const LEFT_BY_TENANT_PART: usize = 4;

/// All connections.
#[derive(Debug)]
pub(crate) struct ConnectionLimits {
    most: usize,
    open: Mutex<HashMap<u64, Open>>,
    opened: AtomicU64,
    evicted: AtomicU64,
    refused: AtomicU64,
    /// Somebody has gone, or has become idle.
    moved: Notify,
}

#[derive(Debug)]
struct Open {
    peer: IpAddr,
    progress: Arc<ConnectionProgress>,
    make_room: CancellationToken,
}

/// One connection's place. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    connections: Arc<ConnectionLimits>,
    number: u64,
    /// Cancelled when the connection is to make room.
    pub(crate) make_room: CancellationToken,
}

/// The connection that a request came on, left in the request by the accept loop.
#[derive(Debug, Clone)]
pub(crate) struct OwnConnection {
    connections: Arc<ConnectionLimits>,
    number: u64,
    progress: Arc<ConnectionProgress>,
}

/// A tenant has its share of all connections, and none of them is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this tenant has too many connections")]
pub(crate) struct ShareTaken;

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionUsage {
    pub(crate) most: usize,
    pub(crate) open: usize,
    pub(crate) strangers: usize,
    /// Connections that had to make room since the start.
    pub(crate) evicted: u64,
    /// Connections beyond the share of their tenant since the start.
    pub(crate) refused: u64,
}

/// What is looked at to choose who makes room.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    number: u64,
    peer: IpAddr,
    /// `None`: a stranger.
    tenant: Option<TenantId>,
    /// `None`: a request is under way that was read.
    pause: Option<ConnectionPause>,
    /// Told already.
    leaving: bool,
}

impl ConnectionLimits {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::default(),
            opened: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            moved: Notify::new(),
        })
    }

    /// Completes when there is room for one more, having told somebody idle to make some. Safe to drop at any time.
    pub(crate) async fn room(&self) {
        loop {
            let moved = self.moved.notified();
            {
                let open = self.lock();
                if open.len() < self.most {
                    return;
                }
                let candidates = candidates(&open);
                // One at a time: whoever was told is on its way out.
                if !candidates.iter().any(|candidate| candidate.leaving && candidate.pause.is_some()) {
                    self.tell(&open, idle_longest(&candidates, |_| true));
                }
            }
            moved.await;
        }
    }

    /// Counts a connection that has been accepted, and keeps strangers within their part.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, progress: Arc<ConnectionProgress>) -> ConnectionSlot {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let make_room = CancellationToken::new();
        let mut open = self.lock();
        let candidates = candidates(&open);
        let strangers = |of: Option<IpAddr>| {
            let counts = |candidate: &&Candidate| {
                candidate.is_stranger() && !candidate.leaving && of.is_none_or(|peer| candidate.peer == peer)
            };
            candidates.iter().filter(counts).count()
        };
        if strangers(Some(peer)) >= (self.most / STRANGERS_OF_PEER_PART).max(1) && self.most > 1 {
            self.tell(&open, idle_longest(&candidates, |candidate| candidate.is_stranger() && candidate.peer == peer));
        } else if strangers(None) >= (self.most / STRANGERS_PART).max(1) && self.most > 1 {
            self.tell(&open, idle_longest(&candidates, Candidate::is_stranger));
        }
        open.insert(number, Open { peer, progress, make_room: make_room.clone() });
        drop(open);
        ConnectionSlot { connections: Arc::clone(self), number, make_room }
    }

    /// A connection has become idle: who waits for room may have found it.
    pub(crate) fn became_idle(&self) {
        self.moved.notify_waiters();
    }

    pub(crate) fn usage(&self) -> ConnectionUsage {
        let open = self.lock();
        let strangers = open.values().filter(|one| one.progress.tenant().is_none()).count();
        ConnectionUsage {
            most: self.most,
            open: open.len(),
            strangers,
            evicted: self.evicted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Counts a connection for a tenant, and keeps the tenant within its share (CONN-4).
    fn claim(&self, number: u64, progress: &ConnectionProgress, tenant: &TenantId) -> Result<(), ShareTaken> {
        let open = self.lock();
        let candidates = candidates(&open);
        let is_another = |one: &Candidate| one.number != number && one.tenant.as_ref() == Some(tenant);
        let held = candidates.iter().filter(|one| is_another(one) && !one.leaving).count();
        // Whoever of the others is idle makes room, and so takes nothing away.
        let is_taken =
            |one: &&Candidate| one.number != number && !is_another(one) && !one.is_stranger() && one.pause.is_none();
        if held >= self.share(candidates.iter().filter(is_taken).count()) {
            let Some(idle) = idle_longest(&candidates, is_another) else {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Err(ShareTaken);
            };
            self.tell(&open, Some(idle));
        }
        // Under the lock: of two that come at once, the second sees the first.
        progress.belongs_to(tenant);
        Ok(())
    }

    /// Connections of one tenant at most, if others have taken so many.
    fn share(&self, taken: usize) -> usize {
        let left = self.most.saturating_sub(taken);
        (left - left.div_ceil(LEFT_BY_TENANT_PART)).max(1)
    }

    fn tell(&self, open: &HashMap<u64, Open>, number: Option<u64>) {
        if let Some(one) = number.and_then(|number| open.get(&number)) {
            one.make_room.cancel();
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock_unpoisoned()
    }
}

impl ConnectionSlot {
    /// The connection, for its requests.
    pub(crate) fn own(&self, progress: &Arc<ConnectionProgress>) -> OwnConnection {
        let connections = Arc::clone(&self.connections);
        OwnConnection { connections, number: self.number, progress: Arc::clone(progress) }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
        self.connections.moved.notify_waiters();
    }
}

impl OwnConnection {
    /// A good token of this tenant was shown on it.
    pub(crate) fn shows(&self, tenant: &TenantId) -> Result<(), ShareTaken> {
        // Nearly every request: nothing has changed, and nobody else is asked.
        if self.progress.is_of(tenant) {
            return Ok(());
        }
        self.connections.claim(self.number, &self.progress, tenant)
    }

    /// Its client has not sent the whole body yet: until what is given back is dropped, it can make room.
    pub(crate) fn awaits_body(&self) -> AwaitedBody<'_> {
        let awaited = self.progress.awaits_body();
        self.connections.became_idle();
        awaited
    }
}

impl Candidate {
    fn is_stranger(&self) -> bool {
        self.tenant.is_none()
    }

    /// With whom it makes a crowd: strangers by their address, others by their tenant.
    fn crowd(&self) -> (Option<&TenantId>, Option<IpAddr>) {
        (self.tenant.as_ref(), self.is_stranger().then_some(self.peer))
    }
}

fn candidates(open: &HashMap<u64, Open>) -> Vec<Candidate> {
    let candidate = |(number, one): (&u64, &Open)| Candidate {
        number: *number,
        peer: one.peer,
        tenant: one.progress.tenant(),
        pause: one.progress.pause(),
        leaving: one.make_room.is_cancelled(),
    };
    open.iter().map(candidate).collect()
}

/// Who makes room: a stranger before others, one of the largest crowd, an idle one before one that is slow, the longest first.
fn idle_longest(candidates: &[Candidate], of: impl Fn(&Candidate) -> bool) -> Option<u64> {
    let idle = || candidates.iter().filter(|one| one.pause.is_some() && !one.leaving && of(one));
    let kind = idle().any(Candidate::is_stranger);
    let mut crowds: HashMap<_, usize> = HashMap::new();
    for one in candidates {
        *crowds.entry(one.crowd()).or_default() += 1;
    }
    let first = |one: &&Candidate| {
        let crowd = crowds.get(&one.crowd()).copied().unwrap_or(0);
        (std::cmp::Reverse(crowd), one.pause, one.number)
    };
    idle().filter(|one| one.is_stranger() == kind).min_by_key(first).map(|one| one.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    fn one(number: u64, last: u8, of: &str, idle_since: Option<u64>) -> Candidate {
        let tenant = (!of.is_empty()).then(|| tenant(of));
        Candidate { number, peer: peer(last), tenant, pause: idle_since.map(ConnectionPause::Idle), leaving: false }
    }

    #[test]
    fn idle_strangers_of_the_largest_crowd_go_first_and_nobody_who_asks_goes() {
        let all = [
            one(1, 1, "acme", Some(1)),
            one(2, 2, "", Some(9)),
            one(3, 2, "", Some(4)),
            one(4, 2, "", None),
            one(5, 3, "", Some(2)),
        ];
        assert_eq!(
            idle_longest(&all, |_| true),
            Some(3),
            "of three strangers of one peer, the one that is idle longest"
        );
        assert_eq!(idle_longest(&all, |one| one.peer == peer(3)), Some(5));
        assert_eq!(idle_longest(&all[..1], |_| true), Some(1), "others only if no stranger is idle");
        assert_eq!(idle_longest(&all[3..4], |_| true), None, "CONN-2");
        let told = [Candidate { leaving: true, ..all[2].clone() }];
        assert_eq!(idle_longest(&told, |_| true), None);
    }

    #[test]
    fn of_tenants_the_one_with_most_connections_goes_first_and_a_slow_body_is_as_good_as_none() {
        let slow =
            |number, of: &str| Candidate { pause: Some(ConnectionPause::Reading(number)), ..one(number, 1, of, None) };
        let all = [one(1, 1, "acme", Some(1)), slow(2, "mallory"), slow(3, "mallory"), one(4, 1, "mallory", Some(4))];
        assert_eq!(idle_longest(&all, |_| true), Some(4), "an idle one before one that is slow");
        assert_eq!(idle_longest(&all[..3], |_| true), Some(2), "one of the larger crowd");
        let stranger = [slow(2, "mallory"), slow(5, "")];
        assert_eq!(idle_longest(&stranger, |_| true), Some(5), "a stranger that is slow before others");
    }

    #[tokio::test]
    async fn newcomers_find_room_among_strangers_and_known_clients_stay() {
        let connections = ConnectionLimits::new(8);
        let known = Arc::new(ConnectionProgress::default());
        known.belongs_to(&tenant("acme"));
        let friend = connections.enter(peer(1), known);
        let strangers: Vec<ConnectionSlot> = (0..7).map(|_| connections.enter(peer(2), Arc::default())).collect();
        let told = strangers.iter().filter(|slot| slot.make_room.is_cancelled()).count();
        assert_eq!(told, 5, "strangers of one peer hold a quarter of eight, two");
        assert!(!friend.make_room.is_cancelled());
        drop(strangers);
        connections.room().await;
        let usage = connections.usage();
        assert_eq!((usage.open, usage.strangers, usage.evicted), (1, 0, 5));
    }

    #[test]
    fn a_tenant_keeps_to_three_quarters_by_its_own_idle_ones_and_then_by_refusal() {
        let connections = ConnectionLimits::new(8);
        let connect = || {
            let progress = Arc::new(ConnectionProgress::default());
            progress.asked();
            let slot = connections.enter(peer(1), Arc::clone(&progress));
            let own = slot.own(&progress);
            (slot, own)
        };
        let (mallory, acme) = (tenant("mallory"), tenant("acme"));
        let held: Vec<_> = (0..6).map(|_| connect()).collect();
        assert!(held.iter().all(|(_, own)| own.shows(&mallory).is_ok()));
        let (seventh, own) = connect();
        assert_eq!(own.shows(&mallory), Err(ShareTaken), "all of its six are busy");
        assert_eq!(own.shows(&acme), Ok(()));
        let slow = held[3].1.awaits_body();
        let (_eighth, own) = connect();
        assert_eq!(own.shows(&mallory), Ok(()));
        let told: Vec<bool> = held.iter().map(|(slot, _)| slot.make_room.is_cancelled()).collect();
        assert_eq!(told, [false, false, false, true, false, false], "the one whose body never came");
        assert!(!seventh.make_room.is_cancelled());
        drop(slow);
        assert_eq!(connections.usage().refused, 1);
    }

    #[test]
    fn tenants_that_come_one_after_the_other_leave_a_place_for_the_next() {
        let connections = ConnectionLimits::new(20);
        let mut held = Vec::new();
        let mut all_that_fit = |of: &str| {
            let mut count = 0;
            loop {
                let progress = Arc::new(ConnectionProgress::default());
                progress.asked();
                let slot = connections.enter(peer(1), Arc::clone(&progress));
                if slot.own(&progress).shows(&tenant(of)).is_err() {
                    return count;
                }
                held.push(slot);
                count += 1;
            }
        };
        assert_eq!(all_that_fit("mallory"), 15);
        assert_eq!(all_that_fit("trudy"), 3);
        assert_eq!(all_that_fit("acme"), 1);
        assert_eq!(all_that_fit("zeta"), 1, "the last place is for one that has none");
        assert_eq!(all_that_fit("mallory"), 0);
        assert_eq!(held.len(), 20);
    }

    #[tokio::test]
    async fn whoever_comes_when_all_ask_waits_until_one_is_idle() {
        let connections = ConnectionLimits::new(1);
        let progress = Arc::new(ConnectionProgress::default());
        progress.asked();
        let busy = connections.enter(peer(1), Arc::clone(&progress));
        let waiting = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move { connections.room().await }
        });
        tokio::task::yield_now().await;
        assert!(!busy.make_room.is_cancelled());
        progress.answered();
        connections.became_idle();
        busy.make_room.cancelled().await;
        drop(busy);
        waiting.await.unwrap();
    }
}
