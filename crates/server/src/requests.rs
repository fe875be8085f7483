//! Places for requests that are no calls of tools: searches, listings, audit queries, registrations and every other change.
//!
//! Behind them are the threads that block, the one writer of the store (or the connections to it) and the cores that a search
//! needs. None of these knows a tenant, so the tenants share one step before them: whoever is recognised takes one of
//! `server.requests_max` places, as everything is shared of which there is only so much (`fair_places::FairPlaces`), and waits for it
//! in a bounded line for at most `server.request_wait_ms`. A client that closes its half of the connection may still want its
//! answer, so one that is gone for good keeps its turn until then. (Decision 0076)
//!
//! Invariants
//! - REQ-1: a request has one place at most, and gives it back when its work has ended, also when its client is gone.
//! - REQ-2: a body that has not come whole holds no place.
//! - REQ-3: what has places of its own needs none: calls, and streams of events. Probes and metrics need none either.
//!
//! Not here: who is next (`fair_places::FairPlaces`), which requests those are (`routes`).

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use fair_places::{FairPermit, FairPlaces, PlaceBounds, PlaceUsage};
use policy::Caller;
use ports::clock::Clock;

use crate::config::ServerConfig;

/// After which a caller who found no place may try again.
const RETRY_AFTER_MS: u64 = 1_000;

/// The place of a request, once it has one. It travels with the work, because the work may outlive its request.
pub(crate) type RequestPermit = Arc<OnceLock<FairPermit>>;

/// The places.
#[derive(Debug)]
pub(crate) struct RequestPlaces {
    places: Arc<FairPlaces>,
    wait_max: Duration,
}

impl RequestPlaces {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let capacity = config.requests_max;
        let bounds = PlaceBounds { capacity, per_flow: capacity, waiting: config.requests_waiting_max };
        Self { places: FairPlaces::new(bounds), wait_max: config.request_wait() }
    }

    /// A place for this caller, now or in its turn.
    pub(crate) async fn take(&self, caller: &Caller, clock: &dyn Clock) -> Result<FairPermit, Refusal> {
        let place = tokio::select! {
            biased;
            place = self.places.wait(caller.tenant(), caller.root_subject().as_str()) => place.ok(),
            () = clock.sleep(self.wait_max) => None,
        };
        place.ok_or_else(busy)
    }

    pub(crate) fn usage(&self) -> PlaceUsage {
        self.places.usage()
    }
}

fn busy() -> Refusal {
    let refusal =
        Refusal::new(ErrorCode::E3001, "too many requests are worked on at the moment, and none ended in time")
            .hint("nothing was done; try again in a second");
    Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
}
