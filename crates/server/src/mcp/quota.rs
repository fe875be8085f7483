//! How many of something there may be, in all, of one tenant and of one agent, so that nobody takes the places of everybody.
//!
//! Shared as everything is of which there is only so much (`fair_places::FairPlaces`), without waiting. An agent is the root of
//! its delegation chain: tokens it exchanges for other names make no more of it.
//!
//! Invariants
//! - QUOTA-1: there are never more than either limit, also when many come at once.
//! - QUOTA-2: a place is given back when what held it is dropped, and not before.
//! - QUOTA-3: one tenant leaves a quarter to others, however many agents it has.

use std::sync::Arc;

use fair_places::{FairPermit, FairPlaces, PlaceBounds, PlaceUsage};
use policy::Caller;

/// Places.
#[derive(Debug)]
pub(crate) struct McpQuota(Arc<FairPlaces>);

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum QuotaExceeded {
    /// Everybody together has too many, or the caller's tenant has its share.
    #[error("there are too many")]
    All,
    /// This agent has too many.
    #[error("this principal has too many")]
    Own,
}

impl McpQuota {
    pub(crate) fn new(all_max: usize, each_max: usize) -> Self {
        Self(FairPlaces::new(PlaceBounds { capacity: all_max, per_flow: each_max, waiting: 0 }))
    }

    /// A place for this caller.
    pub(crate) fn take(&self, caller: &Caller) -> Result<FairPermit, QuotaExceeded> {
        let (tenant, agent) = (caller.tenant(), caller.root_subject().as_str());
        self.0.take(tenant, agent).ok_or_else(|| {
            // Who has too many is told so, whatever the others have.
            let own = self.0.held_by(tenant, agent);
            if own >= self.0.usage().bounds.per_flow { QuotaExceeded::Own } else { QuotaExceeded::All }
        })
    }

    pub(crate) fn usage(&self) -> PlaceUsage {
        self.0.usage()
    }
}
