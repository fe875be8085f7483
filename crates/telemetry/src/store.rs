//! What is measured of the store: its connections, where it has any.
//!
//! Not here: who looks. The numbers are taken from the pool when the page of metrics is made.

use base::SaturatingFrom as _;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::{self, InstrumentRegistry};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

/// Gauges of the store.
#[derive(Debug)]
pub struct StoreMetrics {
    connections: Family<StateLabel, Gauge>,
    connections_max: Gauge,
}

impl StoreMetrics {
    pub(crate) fn new(registry: &mut InstrumentRegistry) -> Self {
        Self {
            connections: registry.made(&instruments::STORE_CONNECTIONS),
            connections_max: registry.made(&instruments::STORE_CONNECTIONS_MAX),
        }
    }

    /// So many connections are in use and idle, of so many.
    pub fn connections(&self, used: usize, idle: usize, max: usize) {
        let clamped = |number: usize| i64::saturating_from(number);
        self.connections.get_or_create(&StateLabel { state: "used" }).set(clamped(used));
        self.connections.get_or_create(&StateLabel { state: "idle" }).set(clamped(idle));
        self.connections_max.set(clamped(max));
    }
}
