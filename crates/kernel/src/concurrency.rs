//! How many calls run at once: all calls that come through the doors of this server (`server.calls_max`), and of these and of
//! jobs those that run code of a tool's author (EXEC-005, decisions 0034 and 0055).
//!
//! Limits of a call say how much *one* call may use; without a number of calls they bound nothing. Both numbers are shared
//! fairly (`fair_places`): by tenants, and within a tenant by agents. An agent is the root of its delegation chain, because
//! names below it are of its own making. A call that finds no place waits for it within its own time, in a bounded line. A
//! tool that calls tools in its agent's name, all of whose places are held by calls like itself, hears so when the inner
//! call's time is over. Counted per instance, because what is protected are the cores and the memory of this machine.
//!
//! Invariants
//! - CONC-1: of one agent never more than its limit hold a place for code of a tool's author.
//! - CONC-2: a place is given back whichever way the call ends; an agent without calls takes up no memory.
//!
//! Beside them are the checks of large values against large schemas and the comparisons of schemas, which hold a core each
//! (`computation`).
//!
//! Not here: who is next (`fair_places`), which calls need a place (`phases/execute`), how many sandboxes live at once,
//! warm ones included (`sandbox`), and jobs, which wait in their queue (`jobs::worker_permits`).

mod bounded_computation;

use std::sync::Arc;
use std::time::Duration;

use base::SaturatingFrom as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use fair_places::{ComputationPermits, FairPermit, FairPlaces, PlaceBounds, PlaceUsage};
use policy::Caller;
use ports::clock::Clock;
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub(crate) use bounded_computation::{Uncomputed, computed_within};

/// Calls that wait for a place in a process or guest, as a multiple of the places.
const SANDBOXED_WAITING: usize = 4;
/// After which a caller who found no place may try again.
const RETRY_AFTER_MS: u64 = 1_000;
/// How long a comparison waits for its turn, and takes, at the most.
const COMPARISON_WAIT: Duration = Duration::from_secs(30);

/// How many calls run at once, and wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallBounds {
    /// Calls that come through doors and run.
    pub calls_max: usize,
    /// Those that wait for their turn.
    pub waiting_max: usize,
    /// Calls that run code of a tool's author, in processes and guests.
    pub sandboxed_max: usize,
}

impl Default for CallBounds {
    fn default() -> Self {
        Self { calls_max: 1024, waiting_max: 1024, sandboxed_max: 256 }
    }
}

/// The calls that run.
#[derive(Debug)]
pub(crate) struct CallConcurrency {
    calls: Arc<FairPlaces>,
    sandboxed: Arc<FairPlaces>,
    /// Values that are held against schemas for long.
    checks: ComputationPermits,
    per_agent: u32,
}

/// Why a call that waited has no place.
#[derive(Debug)]
pub(crate) enum NoPlace {
    Refused(Refusal),
    /// Nobody wants its result any more.
    Cancelled,
}

impl CallConcurrency {
    /// Within these bounds; at most `per_agent` calls of one agent run code of a tool's author.
    pub(crate) fn new(bounds: CallBounds, per_agent: u32) -> Self {
        let CallBounds { calls_max, waiting_max, sandboxed_max } = bounds;
        Self {
            calls: FairPlaces::new(PlaceBounds { capacity: calls_max, per_flow: calls_max, waiting: waiting_max }),
            sandboxed: FairPlaces::new(sandboxed(sandboxed_max, per_agent)),
            checks: ComputationPermits::default(),
            per_agent,
        }
    }

    /// How much of each is used, under its name.
    pub(crate) fn usage(&self) -> [(&'static str, PlaceUsage); 3] {
        let (calls, sandboxed, checks) = (self.calls.usage(), self.sandboxed.usage(), self.checks.usage());
        [("calls", calls), ("sandboxed_calls", sandboxed), ("schema_checks", checks)]
    }

    /// Holds something against a schema, for long, before anything has run.
    pub(crate) async fn check<T, F>(
        &self,
        caller: &Caller,
        clock: &dyn Clock,
        cancellation: &CancellationToken,
        within: Duration,
        check: F,
    ) -> Result<T, NoPlace>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let agent = (caller.tenant(), caller.root_subject().as_str());
        tokio::select! {
            biased;
            done = computed_within(within, clock, &self.checks, agent, check) => {
                done.map_err(|why| NoPlace::Refused(unchecked(why)))
            }
            () = cancellation.cancelled() => Err(NoPlace::Cancelled),
        }
    }

    /// The same for what a tool has answered: it has run, so its answer is looked at in any case.
    pub(crate) async fn check_answer<T, F>(&self, caller: &Caller, check: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let done = self.checks.run_in_any_case(caller.tenant(), caller.root_subject().as_str(), check).await;
        done.map_err(|_| {
            Refusal::new(
                ErrorCode::E3303,
                "the result could not be held against its schema: the check ended unexpectedly",
            )
            .hint("report this with the trace id")
        })
    }

    /// Compares schemas, which takes up to a second, for `subject` of `tenant`.
    pub(crate) async fn compare<T, F>(
        &self,
        tenant: &TenantId,
        subject: &str,
        clock: &dyn Clock,
        comparing: F,
    ) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let done = computed_within(COMPARISON_WAIT, clock, &self.checks, (tenant, subject), comparing).await;
        done.map_err(uncompared)
    }

    /// A place among the calls of this server.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        clock: &dyn Clock,
        cancellation: &CancellationToken,
        within: Duration,
    ) -> Result<FairPermit, NoPlace> {
        // Most calls find one, and need none of what waiting needs.
        if let Some(place) = self.calls.take_quietly(caller.tenant(), caller.root_subject().as_str()) {
            return Ok(place);
        }
        Box::pin(waited(&self.calls, caller, clock, cancellation, within))
            .await?
            .ok_or_else(|| NoPlace::Refused(busy()))
    }

    /// A place for code of a tool's author, if there is one now.
    pub(crate) fn sandboxed_now(&self, caller: &Caller) -> Result<FairPermit, Refusal> {
        let place = self.sandboxed.take_quietly(caller.tenant(), caller.root_subject().as_str());
        place.ok_or_else(|| self.no_sandbox())
    }

    /// The same, now or in its turn.
    pub(crate) async fn sandboxed(
        &self,
        caller: &Caller,
        clock: &dyn Clock,
        cancellation: &CancellationToken,
        within: Duration,
    ) -> Result<FairPermit, NoPlace> {
        waited(&self.sandboxed, caller, clock, cancellation, within)
            .await?
            .ok_or_else(|| NoPlace::Refused(Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..self.no_sandbox() }))
    }

    /// The words for a caller who waited in vain, or would have.
    fn no_sandbox(&self) -> Refusal {
        let limit = self.per_agent;
        Refusal::new(
            ErrorCode::E3003,
            format!(
                "{limit} calls of this agent run in processes or guests of this server, or others hold all places; none \
                 became free in time"
            ),
        )
        .hint("call again when one of them has ended, with more time if it can wait; nothing was run")
        .details(json!({ "concurrent_calls_per_agent": limit }))
    }
}

fn sandboxed(most: usize, per_agent: u32) -> PlaceBounds {
    let per_flow = usize::saturating_from(per_agent);
    PlaceBounds { capacity: most, per_flow, waiting: most.saturating_mul(SANDBOXED_WAITING) }
}

/// `None` if too many wait, or the time was over first.
async fn waited(
    places: &Arc<FairPlaces>,
    caller: &Caller,
    clock: &dyn Clock,
    cancellation: &CancellationToken,
    within: Duration,
) -> Result<Option<FairPermit>, NoPlace> {
    tokio::select! {
        biased;
        place = places.wait(caller.tenant(), caller.root_subject().as_str()) => Ok(place.ok()),
        () = cancellation.cancelled() => Err(NoPlace::Cancelled),
        () = clock.sleep(within) => Ok(None),
    }
}

/// Parameters that are large, for a schema that is large, whose turn did not come.
fn unchecked(why: Uncomputed) -> Refusal {
    let why = match why {
        Uncomputed::Full => "too many wait for it",
        Uncomputed::Stopped => "the check ended unexpectedly",
        Uncomputed::Late => "the time was over first",
    };
    let refusal =
        Refusal::new(ErrorCode::E3001, format!("the parameters take long to be held against their schema, and {why}"))
            .hint("nothing was run; send less at once, or try again in a second");
    Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
}

fn uncompared(why: Uncomputed) -> Refusal {
    let refusal = Refusal::new(ErrorCode::E3001, format!("there is no comparison: {}", why.reason()))
        .hint("try again in a second");
    Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
}

fn busy() -> Refusal {
    let refusal = Refusal::new(ErrorCode::E3001, "too many calls run at the moment, and none ended in time")
        .hint("nothing was run; try again in a second");
    Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_without_a_place_is_told_the_limit_and_when_to_come_again() {
        let refusal = CallConcurrency::new(CallBounds::default(), 2).no_sandbox();
        assert_eq!((refusal.code, refusal.retryable), (ErrorCode::E3003, None), "as the table has it: retryable");
        assert_eq!(refusal.details.as_deref(), Some(&json!({ "concurrent_calls_per_agent": 2 })));
        assert_eq!(
            (refusal.retry_after_ms, busy().retry_after_ms),
            (None, Some(1_000)),
            "a job has a pause of its own"
        );
    }

    #[test]
    fn the_places_are_those_of_the_configuration() {
        let calls = CallConcurrency::new(CallBounds { calls_max: 3, waiting_max: 4, sandboxed_max: 5 }, 2);
        let bounds =
            calls.usage().map(|(_, usage)| (usage.bounds.capacity, usage.bounds.per_flow, usage.bounds.waiting));
        assert_eq!(bounds[..2], [(3, 3, 4), (5, 2, 20)]);
    }
}
