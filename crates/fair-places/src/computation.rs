//! Work that keeps a core busy for long: beside the threads that answer everybody, in places that tenants share.
//!
//! Holding a large value against a large schema, or looking for data in a long text, takes up to a second. On the threads of the
//! event loop that is a second in which nobody is answered; and work that was begun cannot be broken off, so a caller whose time
//! is over leaves it running. So it has a thread of its own, and a place that it keeps until it has ended, whoever still waits.
//! (decision 0115)
//!
//! Invariants
//! - COMP-1: never more than [`AT_ONCE_MAX`] are worked on at once, nor more than [`WAITING_MAX`] wait; tenants share both.
//! - COMP-2: a place is given back when the work has ended, and not when its caller goes away.
//!
//! Not here: how long one may be (`contract::schema::CHECK_WORK_MAX`, limits of built-in tools).

use std::sync::Arc;

use crate::{FairPermit, FairPlaces, PlaceBounds, PlaceUsage, QueueFull};
use contract::ids::TenantId;

/// Threads at once. More would only take turns on the cores, and leave the event loop less of them.
const AT_ONCE_MAX: usize = 4;
/// Who comes when so many wait is refused.
const WAITING_MAX: usize = 1024;

/// The places.
#[derive(Debug)]
pub struct ComputationPermits(Arc<FairPlaces>);

/// Why there is no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotComputed {
    #[error("too many wait for their turn already")]
    Full,
    #[error("the work ended unexpectedly")]
    Stopped,
}

impl Default for ComputationPermits {
    fn default() -> Self {
        Self(FairPlaces::new(PlaceBounds { capacity: AT_ONCE_MAX, per_flow: AT_ONCE_MAX, waiting: WAITING_MAX }))
    }
}

impl ComputationPermits {
    /// Does it for this agent of this tenant, now or in its turn. Whoever bounds the wait drops this: what has begun goes on
    /// to its end, and keeps its place until then.
    ///
    /// # Errors
    /// There was no place, or the work panicked.
    pub async fn run<T, F>(&self, tenant: &TenantId, agent: &str, work: F) -> Result<T, NotComputed>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let place = self.0.wait(tenant, agent).await.map_err(|QueueFull| NotComputed::Full)?;
        beside(Some(place), work).await
    }

    /// The same for work whose outcome is owed: if even the line is full, it is done without a place.
    ///
    /// # Errors
    /// The work panicked.
    pub async fn run_in_any_case<T, F>(&self, tenant: &TenantId, agent: &str, work: F) -> Result<T, NotComputed>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let place = self.0.wait(tenant, agent).await.ok();
        beside(place, work).await
    }

    /// How much of it is used.
    pub fn usage(&self) -> PlaceUsage {
        self.0.usage()
    }
}

async fn beside<T, F>(place: Option<FairPermit>, work: F) -> Result<T, NotComputed>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let holding = move || {
        let done = work();
        drop(place);
        done
    };
    tokio::task::spawn_blocking(holding).await.map_err(|_| NotComputed::Stopped)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    #[tokio::test]
    async fn work_that_nobody_waits_for_any_more_keeps_its_place_until_it_has_ended() {
        let computations = ComputationPermits::default();
        let (begun, has_begun) = mpsc::channel();
        let (end, may_end) = mpsc::channel::<()>();
        let acme = tenant("acme");
        {
            let work = computations.run(&acme, "agent", move || {
                begun.send(()).unwrap();
                may_end.recv().unwrap();
            });
            let mut work = Box::pin(work);
            while has_begun.try_recv().is_err() {
                assert!(futures_util::poll!(&mut work).is_pending());
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(computations.usage().held, 1, "its caller is gone, and it is not");
        end.send(()).unwrap();
        while computations.usage().held > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(computations.run(&acme, "agent", || 42).await, Ok(42));
    }

    #[tokio::test]
    async fn one_tenant_leaves_a_place_for_another() {
        let computations = Arc::new(ComputationPermits::default());
        let (end, may_end) = mpsc::channel::<()>();
        let may_end = Arc::new(std::sync::Mutex::new(may_end));
        let hostile: Vec<_> = (0..2 * AT_ONCE_MAX)
            .map(|_| {
                let (computations, may_end) = (Arc::clone(&computations), Arc::clone(&may_end));
                tokio::spawn(async move {
                    let held = move || may_end.lock().unwrap().recv().is_ok();
                    computations.run(&tenant("hostile"), "agent", held).await
                })
            })
            .collect();
        while computations.usage().held + computations.usage().waiting < 2 * AT_ONCE_MAX {
            tokio::task::yield_now().await;
        }
        assert_eq!(computations.run(&tenant("acme"), "agent", || "done").await, Ok("done"));
        drop(end);
        for work in hostile {
            assert_eq!(work.await.unwrap(), Ok(false));
        }
    }
}
