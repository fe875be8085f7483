//! Jobs that wait for a place among the calls of their agent. (EXEC-005, ASYNC-001)
//!
//! ```text
//! taken, with a permit ─▶ a place is free ─▶ begun
//!        └─▶ no place: the permit is given back, so that others' jobs go on; the job waits
//!               ├─▶ a place, and a permit again ─▶ begun
//!               └─▶ the wait is over ─▶ put back into the queue, and no try was used up
//! ```
//!
//! An agent may submit more than it may run at once; what was accepted waits and is not refused. Twice as many may wait
//! as this process has permits, so that one tenant alone does not take all that room (`running_per_tenant` is half of the permits,
//! unless somebody says otherwise). While it is full nothing more is taken, so that a queue of one agent's jobs is not leafed through
//! at the speed of the disk.
//!
//! Not here: how long a job that was put back waits (`workers`), how many places an agent has (`concurrency`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{MutexExt as _, SaturatingFrom as _};
use contract::error::Refusal;
use fair_places::{FairPermit, PlaceBounds, PlaceUsage};
use kernel::Principal;
use ports::tool_version::ToolVersion;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Jobs;

/// How long a job waits for a place before others of its tenant have their turn.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The permits of this process: a worker needs one for each job it does at once.
#[derive(Debug)]
pub(super) struct WorkerPermits {
    free: Arc<Semaphore>,
    /// Room for jobs that wait for a place.
    waiting: Semaphore,
    /// Jobs that found no room to wait, since the start.
    refused: AtomicU64,
    /// Nothing is begun any more.
    closing: CancellationToken,
}

/// The permit of one job, which may be given back for a while.
#[derive(Debug)]
pub(super) struct WorkerPermit(Mutex<Option<OwnedSemaphorePermit>>);

impl WorkerPermits {
    /// So many, and room for twice as many jobs that wait.
    pub(super) fn new(number: usize) -> Self {
        let number = number.min(Semaphore::MAX_PERMITS / 2);
        Self {
            free: Arc::new(Semaphore::new(number)),
            waiting: Semaphore::new(number * 2),
            refused: AtomicU64::new(0),
            closing: CancellationToken::new(),
        }
    }

    /// Who still waits goes back into the queue: what would begin now would only be interrupted.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    /// Permits that are free.
    pub(super) fn free(&self) -> usize {
        self.free.available_permits()
    }

    /// How many of so many permits are in use, and how many jobs wait for a place.
    pub(super) fn usage(&self, number: usize, per_flow: u32) -> PlaceUsage {
        let waiting = number.saturating_mul(2);
        PlaceUsage {
            bounds: PlaceBounds { capacity: number, per_flow: usize::saturating_from(per_flow), waiting },
            held: number.saturating_sub(self.free()),
            waiting: waiting.saturating_sub(self.waiting.available_permits()),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Permits for new jobs: those that are free, at most `most`, and none while no more jobs may wait.
    pub(super) fn for_new(&self, most: usize) -> Vec<WorkerPermit> {
        if self.waiting.available_permits() == 0 {
            return Vec::new();
        }
        let free = std::iter::from_fn(|| Arc::clone(&self.free).try_acquire_owned().ok());
        free.take(most).map(|permit| WorkerPermit(Mutex::new(Some(permit)))).collect()
    }
}

impl WorkerPermit {
    fn swap(&self, permit: Option<OwnedSemaphorePermit>) -> Option<OwnedSemaphorePermit> {
        std::mem::replace(&mut *self.0.lock_unpoisoned(), permit)
    }
}

impl Jobs {
    /// The place that a job's call will need, if it will need one: at once, or when somebody has given one back. `Err` if
    /// there was none for too long, or the job is to end.
    pub(super) async fn place_for(
        &self,
        principal: &Principal,
        tool: &ToolVersion,
        permit: Option<&WorkerPermit>,
        cancellation: &CancellationToken,
    ) -> Result<Option<FairPermit>, Refusal> {
        if !self.kernel.takes_place(principal.tenant(), tool) {
            return Ok(None);
        }
        let refusal = match self.kernel.place_now(principal) {
            Ok(place) => return Ok(Some(place)),
            Err(refusal) => refusal,
        };
        let Ok(room) = self.worker_permits.waiting.try_acquire() else {
            self.worker_permits.refused.fetch_add(1, Ordering::Relaxed);
            return Err(refusal);
        };
        if let Some(permit) = permit {
            drop(permit.swap(None));
            self.queue.wake.notify_one();
        }
        let waiting = async {
            let waited = self.kernel.place_within(principal, cancellation, PLACE_WAIT_MAX).await;
            let place = waited.ok_or_else(|| refusal.clone())?;
            if let Some(permit) = permit {
                // Never closed, so there is one in time.
                let again = Arc::clone(&self.worker_permits.free).acquire_owned().await;
                drop(permit.swap(again.ok()));
            }
            Ok(Some(place))
        };
        let place = tokio::select! {
            place = waiting => place,
            () = cancellation.cancelled() => Err(refusal.clone()),
            () = self.worker_permits.closing.cancelled() => Err(refusal.clone()),
            () = self.kernel.clock().sleep(PLACE_WAIT_MAX) => Err(refusal.clone()),
        };
        drop(room);
        self.queue.wake.notify_one();
        place
    }
}
