//! Who is connected, and who makes room for whom: the bound on connections, shared among those who come.
//!
//! A connection costs its client nothing, so a limit alone is a door that strangers can fill. Every newcomer is a stranger
//! until one of its requests was answered under a token. Whoever is connected and asks nothing makes room for newcomers:
//!
//! ```text
//! strangers of one peer hold a quarter of all  ─▶ its own stranger that is idle longest makes room
//! strangers hold half of all                   ─▶ one of the peer that has most of them
//! all are taken                                ─▶ idle strangers first, then idle others, of the peer that has most of them
//! nobody is idle                               ─▶ the newcomer waits in the listener's backlog until somebody is
//! ```
//!
//! Idle is whoever has no request under way: also a client that is slow to finish its headers. A connection that was told to
//! make room still gets the answer that is being written.
//!
//! Invariants
//! - CONN-1: there are never more than the limit; what has been told to make room counts until it has.
//! - CONN-2: no connection with a request under way is closed for another.
//! - CONN-3: half of all is out of reach of strangers that are idle.
//!
//! Not here: how long a client may be idle (`pace`), calls (`kernel`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::pace::Progress;

/// The part of all connections that strangers may hold, and strangers of one peer.
const STRANGERS_PART: usize = 2;
const STRANGERS_OF_PEER_PART: usize = 4;

/// All connections.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    open: Mutex<HashMap<u64, Open>>,
    opened: AtomicU64,
    evicted: AtomicU64,
    /// Somebody has gone, or has become idle.
    moved: Notify,
}

#[derive(Debug)]
struct Open {
    peer: IpAddr,
    progress: Arc<Progress>,
    make_room: CancellationToken,
}

/// One connection's place. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Slot {
    connections: Arc<Connections>,
    number: u64,
    /// Cancelled when the connection is to make room.
    pub(crate) make_room: CancellationToken,
}

/// How many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionUsage {
    pub(crate) most: usize,
    pub(crate) open: usize,
    pub(crate) strangers: usize,
    /// Connections that had to make room since the start.
    pub(crate) evicted: u64,
}

/// What is looked at to choose who makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    number: u64,
    peer: IpAddr,
    is_stranger: bool,
    /// The order in which connections became idle; `None`: a request is under way.
    idle_since: Option<u64>,
    /// Told already.
    leaving: bool,
}

impl Connections {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            open: Mutex::default(),
            opened: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
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
                if !candidates.iter().any(|candidate| candidate.leaving && candidate.idle_since.is_some()) {
                    self.tell(&open, idle_longest(&candidates, |_| true));
                }
            }
            moved.await;
        }
    }

    /// Counts a connection that has been accepted, and keeps strangers within their part.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr, progress: Arc<Progress>) -> Slot {
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let make_room = CancellationToken::new();
        let mut open = self.lock();
        let candidates = candidates(&open);
        let strangers = |of: Option<IpAddr>| {
            let counts = |candidate: &&Candidate| {
                candidate.is_stranger && !candidate.leaving && of.is_none_or(|peer| candidate.peer == peer)
            };
            candidates.iter().filter(counts).count()
        };
        if strangers(Some(peer)) >= (self.most / STRANGERS_OF_PEER_PART).max(1) && self.most > 1 {
            self.tell(&open, idle_longest(&candidates, |candidate| candidate.is_stranger && candidate.peer == peer));
        } else if strangers(None) >= (self.most / STRANGERS_PART).max(1) && self.most > 1 {
            self.tell(&open, idle_longest(&candidates, |candidate| candidate.is_stranger));
        }
        open.insert(number, Open { peer, progress, make_room: make_room.clone() });
        drop(open);
        Slot { connections: Arc::clone(self), number, make_room }
    }

    /// A connection has become idle: who waits for room may have found it.
    pub(crate) fn became_idle(&self) {
        self.moved.notify_waiters();
    }

    pub(crate) fn usage(&self) -> ConnectionUsage {
        let open = self.lock();
        let strangers = open.values().filter(|one| !one.progress.is_known()).count();
        ConnectionUsage { most: self.most, open: open.len(), strangers, evicted: self.evicted.load(Ordering::Relaxed) }
    }

    fn tell(&self, open: &HashMap<u64, Open>, number: Option<u64>) {
        if let Some(one) = number.and_then(|number| open.get(&number)) {
            one.make_room.cancel();
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.lock().remove(&self.number);
        self.connections.moved.notify_waiters();
    }
}

fn candidates(open: &HashMap<u64, Open>) -> Vec<Candidate> {
    let candidate = |(number, one): (&u64, &Open)| Candidate {
        number: *number,
        peer: one.peer,
        is_stranger: !one.progress.is_known(),
        idle_since: one.progress.idle_since(),
        leaving: one.make_room.is_cancelled(),
    };
    open.iter().map(candidate).collect()
}

/// Who makes room: a stranger before others, one of the peer that has most of its kind, the one that is idle longest.
fn idle_longest(candidates: &[Candidate], of: impl Fn(&Candidate) -> bool) -> Option<u64> {
    let idle = || candidates.iter().filter(|one| one.idle_since.is_some() && !one.leaving && of(one));
    let kind = idle().any(|one| one.is_stranger);
    let mut of_peer: HashMap<IpAddr, usize> = HashMap::new();
    for one in candidates.iter().filter(|one| one.is_stranger == kind) {
        *of_peer.entry(one.peer).or_default() += 1;
    }
    let first = |one: &&Candidate| {
        let crowd = of_peer.get(&one.peer).copied().unwrap_or(0);
        (std::cmp::Reverse(crowd), one.idle_since, one.number)
    };
    idle().filter(|one| one.is_stranger == kind).min_by_key(first).map(|one| one.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn one(number: u64, last: u8, is_stranger: bool, idle_since: Option<u64>) -> Candidate {
        Candidate { number, peer: peer(last), is_stranger, idle_since, leaving: false }
    }

    #[test]
    fn idle_strangers_of_the_largest_crowd_go_first_and_nobody_who_asks_goes() {
        let all = [
            one(1, 1, false, Some(1)),
            one(2, 2, true, Some(9)),
            one(3, 2, true, Some(4)),
            one(4, 2, true, None),
            one(5, 3, true, Some(2)),
        ];
        assert_eq!(
            idle_longest(&all, |_| true),
            Some(3),
            "of three strangers of one peer, the one that is idle longest"
        );
        assert_eq!(idle_longest(&all, |one| one.peer == peer(3)), Some(5));
        assert_eq!(idle_longest(&all[..1], |_| true), Some(1), "others only if no stranger is idle");
        assert_eq!(idle_longest(&all[3..4], |_| true), None, "CONN-2");
        let told = [Candidate { leaving: true, ..all[2] }];
        assert_eq!(idle_longest(&told, |_| true), None);
    }

    #[tokio::test]
    async fn newcomers_find_room_among_strangers_and_known_clients_stay() {
        let connections = Connections::new(8);
        let known = Arc::new(Progress::default());
        known.prove();
        let friend = connections.enter(peer(1), known);
        let strangers: Vec<Slot> = (0..7).map(|_| connections.enter(peer(2), Arc::default())).collect();
        let told = strangers.iter().filter(|slot| slot.make_room.is_cancelled()).count();
        assert_eq!(told, 5, "strangers of one peer hold a quarter of eight, two");
        assert!(!friend.make_room.is_cancelled());
        drop(strangers);
        connections.room().await;
        let usage = connections.usage();
        assert_eq!((usage.open, usage.strangers, usage.evicted), (1, 0, 5));
    }

    #[tokio::test]
    async fn whoever_comes_when_all_ask_waits_until_one_is_idle() {
        let connections = Connections::new(1);
        let progress = Arc::new(Progress::default());
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
