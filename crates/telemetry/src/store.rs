//! What is measured of the store: its connections, where it has any.
//!
//! Not here: who looks. The numbers are taken from the pool when the page of metrics is made.

use base::SaturatingFrom as _;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self { connections: Family::default(), connections_max: Gauge::default() };
        let sub = registry.sub_registry_with_prefix("store");
        sub.register("connections", "Connections to the store's database, by state", metrics.connections.clone());
        let help = "Most connections to the store's database; 0 if the store is a file";
        sub.register("connections_max", help, metrics.connections_max.clone());
        metrics
    }

    /// So many connections are in use and idle, of so many.
    pub fn connections(&self, used: usize, idle: usize, max: usize) {
        let clamped = |number: usize| i64::saturating_from(number);
        self.connections.get_or_create(&StateLabel { state: "used" }).set(clamped(used));
        self.connections.get_or_create(&StateLabel { state: "idle" }).set(clamped(idle));
        self.connections_max.set(clamped(max));
    }
}
