//! A long computation whose turn has to come within a time: checks against schemas, comparisons of schemas, decisions of
//! policies. Whoever waits in vain is refused; each of them has words of its own for that.
//!
//! Not here: the places and who is next (`fair_places`).

use std::time::Duration;

use contract::ids::TenantId;
use fair_places::{ComputationPermits, NotComputed};
use ports::clock::Clock;

/// Why there is no outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Uncomputed {
    /// Too many wait already.
    Full,
    /// The work panicked.
    Stopped,
    /// The time was over first.
    Late,
}

impl Uncomputed {
    /// The reason, in words that follow "there is no outcome: ".
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Full => "too many wait for theirs",
            Self::Stopped => "it ended unexpectedly",
            Self::Late => "its turn did not come in time",
        }
    }
}

/// Computes for this agent of this tenant, beside the threads that answer everybody. What has begun goes on to its end, and keeps
/// its place until then.
pub(crate) async fn computed_within<T, F>(
    within: Duration,
    clock: &dyn Clock,
    permits: &ComputationPermits,
    (tenant, agent): (&TenantId, &str),
    work: F,
) -> Result<T, Uncomputed>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    tokio::select! {
        biased;
        done = permits.run(tenant, agent, work) => done.map_err(|why| match why {
            NotComputed::Full => Uncomputed::Full,
            NotComputed::Stopped => Uncomputed::Stopped,
        }),
        () = clock.sleep(within) => Err(Uncomputed::Late),
    }
}
