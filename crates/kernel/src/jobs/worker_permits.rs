//! Jobs that wait for a place among the calls of their agent. (EXEC-005, ASYNC-001)
//!
//! ```text
//! taken, with a hand ─▶ a place is free ─▶ begun
//!        └─▶ no place: the hand is laid down, so that others' jobs go on; on the bench
//!               ├─▶ a place, and a hand again ─▶ begun
//!               └─▶ the wait is over ─▶ put back into the queue, and no try was used up
//! ```
//!
//! An agent may hand in more than it may run at once; what was accepted waits and is not refused. The bench is twice as long
//! as this process has hands, so that one tenant alone does not fill it (`running_per_tenant` is half of the hands, unless
//! somebody says otherwise). While it is full nothing more is taken, so that a queue of one agent's jobs is not leafed through
//! at the speed of the disk.
//!
//! Not here: how long a job that was put back waits (`workers`), how many places an agent has (`concurrency`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{MutexExt as _, SaturatingFrom as _};
use contract::error::Refusal;
use fair_places::{FairPermit, PlaceBounds, PlaceUsage};
use ports::tool_version::ToolVersion;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Jobs;
use crate::identity::Principal;

/// How long a job waits on the bench before others of its tenant have their turn.
const ON_BENCH_MAX: Duration = Duration::from_secs(5);

/// What the jobs of this process are done with.
#[derive(Debug)]
pub(super) struct WorkerPermits {
    free: Arc<Semaphore>,
    bench: Semaphore,
    /// Jobs that found the bench full, since the start.
    refused: AtomicU64,
    /// Nothing is begun any more.
    closing: CancellationToken,
}

/// One of them, in the service of one job that may lay it down for a while.
#[derive(Debug)]
pub(super) struct WorkerPermit(Mutex<Option<OwnedSemaphorePermit>>);

impl WorkerPermits {
    /// So many, and a bench that is twice as long.
    pub(super) fn new(number: usize) -> Self {
        let number = number.min(Semaphore::MAX_PERMITS / 2);
        Self {
            free: Arc::new(Semaphore::new(number)),
            bench: Semaphore::new(number * 2),
            refused: AtomicU64::new(0),
            closing: CancellationToken::new(),
        }
    }

    /// Who still waits goes back into the queue: what would begin now would only be interrupted.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    /// Hands that are free.
    pub(super) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// How many of so many hands are in use, and how many jobs wait on the bench.
    pub(super) fn usage(&self, number: usize, per_flow: u32) -> PlaceUsage {
        let bench = number.saturating_mul(2);
        PlaceUsage {
            bounds: PlaceBounds { capacity: number, per_flow: usize::saturating_from(per_flow), waiting: bench },
            held: number.saturating_sub(self.free()),
            waiting: bench.saturating_sub(self.bench.available_permits()),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Hands for new jobs: those that are free, at most `most`, and none while the bench is full.
    pub(super) fn for_new(&self, most: usize) -> Vec<WorkerPermit> {
        if self.bench.available_permits() == 0 {
            return Vec::new();
        }
        let free = std::iter::from_fn(|| Arc::clone(&self.free).try_acquire_owned().ok());
        free.take(most).map(|hand| WorkerPermit(Mutex::new(Some(hand)))).collect()
    }
}

impl WorkerPermit {
    fn swap(&self, hand: Option<OwnedSemaphorePermit>) -> Option<OwnedSemaphorePermit> {
        std::mem::replace(&mut *self.0.lock_unpoisoned(), hand)
    }
}

impl Jobs {
    /// The place that a job's call will need, if it will need one: at once, or when somebody has given one back. `Err` if
    /// there was none for too long, or the job is to end.
    pub(super) async fn place_for(
        &self,
        principal: &Principal,
        tool: &ToolVersion,
        hand: Option<&WorkerPermit>,
        cancellation: &CancellationToken,
    ) -> Result<Option<FairPermit>, Refusal> {
        let calls = &self.kernel.concurrency;
        if !crate::phases::takes_place(&self.kernel, principal.tenant(), tool) {
            return Ok(None);
        }
        let refusal = match calls.sandboxed_now(principal) {
            Ok(place) => return Ok(Some(place)),
            Err(refusal) => refusal,
        };
        let Ok(seat) = self.hands.bench.try_acquire() else {
            self.hands.refused.fetch_add(1, Ordering::Relaxed);
            return Err(refusal);
        };
        if let Some(hand) = hand {
            drop(hand.swap(None));
            self.queue.wake.notify_one();
        }
        let waiting = async {
            let waited = calls.sandboxed(principal, self.kernel.clock(), cancellation, ON_BENCH_MAX).await;
            let place = waited.map_err(|_| refusal.clone())?;
            if let Some(hand) = hand {
                // Never closed, so there is one in time.
                let again = Arc::clone(&self.hands.free).acquire_owned().await;
                drop(hand.swap(again.ok()));
            }
            Ok(Some(place))
        };
        let place = tokio::select! {
            place = waiting => place,
            () = cancellation.cancelled() => Err(refusal.clone()),
            () = self.hands.closing.cancelled() => Err(refusal.clone()),
            () = self.kernel.clock().sleep(ON_BENCH_MAX) => Err(refusal.clone()),
        };
        drop(seat);
        self.queue.wake.notify_one();
        place
    }
}
