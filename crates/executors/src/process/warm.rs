//! Idle processes that wait for the next call of the same tool by the same tenant.
//!
//! Starting an interpreter costs more than most calls. A process in session mode can serve one call after another, so it
//! is kept here between them. What makes that safe is the [`WarmKey`]: tool, version, tenant, and a digest of everything
//! else its confinement was made from. A process is put under its key once, when it is started, and carries it from then
//! on ([`WarmProcess`]); there is no way to give it back under another.
//!
//! Between two calls a process stands still ([`Child::freeze`](sandbox::SandboxChild::freeze)): what a call has left running
//! must not go on in the tenant's name when nobody has asked for anything. Where it cannot be made to, it is not kept.
//!
//! The pool is generic over what it keeps: it moves values and counts time, and that can be tested without a process.
//! **Dropping the value must end the process.**
//!
//! Invariants
//! - WARM-1: [`WarmPool::take`] gives only what was started under an equal key. Nothing crosses from tenant to tenant.
//! - WARM-2: the pool never holds more than [`WarmBounds::idle_max`], nor more of one key than its bound.
//! - WARM-3: nothing is given out that is older, more used, or has been idle longer than the bounds say.
//! - WARM-4: what was started or lent before its version was forgotten does not come back into the pool.
//! - WARM-5: values are dropped outside the lock.
//!
//! Not here: whether a process is still alive and in order (the session says so), when to be warm at all (the manifest).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::canonical::Digest;
use contract::ids::{TenantId, ToolId};
use contract::version::Version;
use ports::clock::Clock;

/// Whose process it is, and what it was made for. Equal keys may share processes, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct WarmKey {
    tool: ToolId,
    /// As written: versions that differ in build metadata are different programs.
    version: String,
    /// The caller's tenant, not the publisher's.
    tenant: TenantId,
    /// Over everything else that the confinement depends on: limits, permissions, mounts, names of secrets.
    confinement: Digest,
}

impl WarmKey {
    /// The key for a call. `confinement` is the digest of limits, permissions and whatever else the process was given.
    pub fn new(tool: ToolId, version: &Version, tenant: TenantId, confinement: Digest) -> Self {
        Self { tool, version: version.to_string(), tenant, confinement }
    }
}

/// How many processes may wait, and how long one may serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarmBounds {
    /// Idle processes in all. Default 32; the one that has been idle longest gives way. 0 keeps none.
    pub idle_max: usize,
    /// Idle processes of one key. Default 4; the one that has been idle longest gives way.
    pub idle_per_key_max: usize,
    /// How long a process may wait for its next call. Default one minute.
    pub idle_for_max: Duration,
    /// Calls that one process serves. Default 1,000: what leaks in an interpreter leaks only so long.
    pub calls_max: u32,
    /// How old a process may be when it is given out. Default ten minutes.
    pub age_max: Duration,
}

impl Default for WarmBounds {
    fn default() -> Self {
        Self {
            idle_max: 32,
            idle_per_key_max: 4,
            idle_for_max: Duration::from_secs(60),
            calls_max: 1_000,
            age_max: Duration::from_secs(600),
        }
    }
}

/// What the pool has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WarmCounts {
    /// Processes that wait now.
    pub idle: usize,
    /// Calls that found one.
    pub hits: u64,
    /// Calls that found none.
    pub misses: u64,
    /// Processes let go because they were idle too long or too old.
    pub expired: u64,
    /// Processes let go because they had served enough calls.
    pub worn_out: u64,
    /// Processes that gave way to others.
    pub crowded_out: u64,
    /// Processes let go because their version was forgotten.
    pub forgotten: u64,
}

/// A process with its key, in the hands of one call. To end it, drop it.
#[derive(Debug)]
pub struct WarmProcess<P> {
    /// The process.
    pub process: P,
    key: WarmKey,
    /// On the monotonic clock.
    started: Duration,
    calls: u32,
    epoch: u64,
}

/// The idle processes.
#[derive(Debug)]
pub struct WarmPool<P> {
    clock: Arc<dyn Clock>,
    bounds: WarmBounds,
    room: Mutex<WarmCapacity<P>>,
}

struct WarmCapacity<P> {
    /// In the order in which they came to rest, the longest idle first. Few, so that a walk is the fastest index.
    idle: VecDeque<Idle<P>>,
    counts: WarmCounts,
    /// Rises with everything that is forgotten. One number for all versions: a process that was out while another
    /// version was forgotten is let go for nothing, which is rare and costs one start; a list would have to be bounded.
    epoch: u64,
}

struct Idle<P> {
    warm: WarmProcess<P>,
    since: Duration,
}

impl<P> WarmPool<P> {
    /// An empty pool.
    pub fn new(clock: Arc<dyn Clock>, bounds: WarmBounds) -> Self {
        let room = WarmCapacity { idle: VecDeque::new(), counts: WarmCounts::default(), epoch: 0 };
        Self { clock, bounds, room: Mutex::new(room) }
    }

    /// An idle process for this key, the one that was used last: the others may then expire.
    pub fn take(&self, key: &WarmKey) -> Option<WarmProcess<P>> {
        let mut room = self.room();
        let gone = room.expire(self.clock.monotonic(), &self.bounds);
        let found = room.idle.iter().rposition(|idle| idle.warm.key == *key);
        let taken = found.and_then(|at| room.idle.remove(at)).map(|idle| idle.warm);
        match taken {
            Some(_) => room.counts.hits += 1,
            None => room.counts.misses += 1,
        }
        drop(room);
        drop(gone);
        taken
    }

    /// Puts a process that has just been started under its key. It is in the caller's hands, not in the pool.
    pub fn started(&self, key: WarmKey, process: P) -> WarmProcess<P> {
        let started = self.clock.monotonic();
        let epoch = self.room().epoch;
        WarmProcess { process, key, started, calls: 0, epoch }
    }

    /// Takes a process back after a call that went well. It is let go if it has served long enough.
    pub fn give_back(&self, mut warm: WarmProcess<P>) {
        warm.calls = warm.calls.saturating_add(1);
        let now = self.clock.monotonic();
        let mut room = self.room();
        let mut gone = room.expire(now, &self.bounds);
        if warm.epoch != room.epoch {
            room.counts.forgotten += 1;
            gone.push(warm);
        } else if warm.calls >= self.bounds.calls_max {
            room.counts.worn_out += 1;
            gone.push(warm);
        } else if warm.age(now) >= self.bounds.age_max {
            room.counts.expired += 1;
            gone.push(warm);
        } else {
            gone.extend(room.rest(warm, now, &self.bounds));
        }
        drop(room);
        drop(gone);
    }

    /// Lets go of every process of a version, also of those that are out on a call when they come back.
    pub fn forget(&self, tool: &ToolId, version: &Version) {
        let version = version.to_string();
        let mut room = self.room();
        room.epoch += 1;
        let gone = room.let_go(|idle| idle.warm.key.tool == *tool && idle.warm.key.version == version);
        room.counts.forgotten += gone.len() as u64;
        // Those that stay were at rest, so they are known not to be of that version.
        let epoch = room.epoch;
        room.idle.iter_mut().for_each(|idle| idle.warm.epoch = epoch);
        drop(room);
        drop(gone);
    }

    /// Lets go of what has been idle too long, and says when to ask again. For whoever keeps the pool in order:
    /// without it a process nobody asks for would stay until the next call of any tool.
    pub fn expire(&self) -> Option<Duration> {
        let now = self.clock.monotonic();
        let mut room = self.room();
        let gone = room.expire(now, &self.bounds);
        let next = room.idle.iter().map(|idle| idle.lapses_at(&self.bounds).saturating_sub(now)).min();
        drop(room);
        drop(gone);
        next
    }

    /// Keeps the pool in order for ever; run it as a task and abort that at shutdown.
    pub async fn keep_in_order(&self) {
        loop {
            let pause = self.expire().unwrap_or(self.bounds.idle_for_max).max(PAUSE_MIN);
            self.clock.sleep(pause).await;
        }
    }

    /// Lets go of everything, for shutdown.
    pub fn clear(&self) {
        let mut room = self.room();
        room.epoch += 1;
        let gone = room.let_go(|_| true);
        room.counts.forgotten += gone.len() as u64;
        drop(room);
        drop(gone);
    }

    /// What the pool has done so far.
    pub fn counts(&self) -> WarmCounts {
        let room = self.room();
        WarmCounts { idle: room.idle.len(), ..room.counts }
    }

    fn room(&self) -> MutexGuard<'_, WarmCapacity<P>> {
        self.room.lock_unpoisoned()
    }
}

/// The shortest pause between two rounds of [`WarmPool::keep_in_order`].
const PAUSE_MIN: Duration = Duration::from_millis(100);

impl<P> WarmProcess<P> {
    /// Calls served so far.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started)
    }
}

impl<P> Idle<P> {
    fn lapses_at(&self, bounds: &WarmBounds) -> Duration {
        let by_rest = self.since.saturating_add(bounds.idle_for_max);
        by_rest.min(self.warm.started.saturating_add(bounds.age_max))
    }
}

// ------------------------------------------------------------------------------------------------------------- Room

impl<P> WarmCapacity<P> {
    /// WARM-3.
    fn expire(&mut self, now: Duration, bounds: &WarmBounds) -> Vec<WarmProcess<P>> {
        let gone = self.let_go(|idle| idle.lapses_at(bounds) <= now);
        self.counts.expired += gone.len() as u64;
        gone
    }

    /// WARM-2: puts one to rest, and hands back those that had to give way.
    fn rest(&mut self, warm: WarmProcess<P>, now: Duration, bounds: &WarmBounds) -> Vec<WarmProcess<P>> {
        let mut gone = Vec::new();
        let of_key = self.idle.iter().filter(|idle| idle.warm.key == warm.key).count();
        if of_key >= bounds.idle_per_key_max
            && let Some(at) = self.idle.iter().position(|idle| idle.warm.key == warm.key)
        {
            gone.extend(self.idle.remove(at).map(|idle| idle.warm));
        }
        self.idle.push_back(Idle { warm, since: now });
        while self.idle.len() > bounds.idle_max {
            gone.extend(self.idle.pop_front().map(|idle| idle.warm));
        }
        if bounds.idle_per_key_max == 0 {
            gone.extend(self.idle.pop_back().map(|idle| idle.warm));
        }
        self.counts.crowded_out += gone.len() as u64;
        gone
    }

    fn let_go(&mut self, mut goes: impl FnMut(&Idle<P>) -> bool) -> Vec<WarmProcess<P>> {
        let (gone, stay): (Vec<_>, VecDeque<_>) = std::mem::take(&mut self.idle).into_iter().fold(
            (Vec::new(), VecDeque::new()),
            |(mut gone, mut stay), idle| {
                if goes(&idle) {
                    gone.push(idle.warm)
                } else {
                    stay.push_back(idle)
                }
                (gone, stay)
            },
        );
        self.idle = stay;
        gone
    }
}

impl<P> fmt::Debug for WarmCapacity<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("idle", &self.idle.len()).field("counts", &self.counts).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
