//! What is counted of the sinks of the audit log.
//!
//! Labels come from bounded sets: the names of sinks are words of the configuration, and states are words of this release.
//!
//! Not here: who tells. The couriers say what happened in words of their own; whoever wires the two together translates.

use std::time::Duration;

use base::SaturatingFrom as _;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Upper bounds of the buckets for how long records wait for a sink, in seconds: from at once to a day of downtime.
const WAITED_BUCKETS: [f64; 10] = [0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3_600.0, 86_400.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SinkLabel {
    sink: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    sink: String,
    state: &'static str,
}

/// Counters and gauges of sinks.
#[derive(Debug)]
pub struct SinkMetrics {
    delivered: Family<SinkLabel, Counter>,
    failures: Family<SinkLabel, Counter>,
    lag_records: Family<SinkLabel, Gauge>,
    lag_seconds: Family<SinkLabel, Gauge>,
    states: Family<StateLabels, Gauge>,
    waited: Family<SinkLabel, Histogram, fn() -> Histogram>,
}

impl SinkMetrics {
    pub(crate) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            delivered: Family::default(),
            failures: Family::default(),
            lag_records: Family::default(),
            lag_seconds: Family::default(),
            states: Family::default(),
            waited: Family::new_with_constructor(|| Histogram::new(WAITED_BUCKETS)),
        };
        let sub = registry.sub_registry_with_prefix("audit_sink");
        sub.register("delivered_records", "Audit records that a sink has acknowledged", metrics.delivered.clone());
        sub.register("failures", "Deliveries to a sink that failed", metrics.failures.clone());
        sub.register("lag_records", "Audit records that a sink has not acknowledged yet", metrics.lag_records.clone());
        let help = "Age of the oldest audit record that a sink has not acknowledged";
        sub.register_with_unit("lag", help, Unit::Seconds, metrics.lag_seconds.clone());
        sub.register("state", "1 for the state a sink is in, 0 for those it was in before", metrics.states.clone());
        let help = "How long the oldest record of each delivery had waited for a sink to acknowledge it";
        sub.register_with_unit("delivery", help, Unit::Seconds, metrics.waited.clone());
        metrics
    }

    /// So many records were acknowledged.
    pub fn delivered(&self, sink: &str, records: u64) {
        self.delivered.get_or_create(&label(sink)).inc_by(records);
    }

    /// The oldest record of a delivery had waited so long.
    pub fn waited(&self, sink: &str, longest: Duration) {
        self.waited.get_or_create(&label(sink)).observe(longest.as_secs_f64());
    }

    /// A delivery failed.
    pub fn failed(&self, sink: &str) {
        self.failures.get_or_create(&label(sink)).inc();
    }

    /// How far it is behind.
    pub fn lag(&self, sink: &str, records: u64, seconds: u64) {
        let clamped = |number: u64| i64::saturating_from(number);
        self.lag_records.get_or_create(&label(sink)).set(clamped(records));
        self.lag_seconds.get_or_create(&label(sink)).set(clamped(seconds));
    }

    /// It went from one state to another.
    pub fn moved(&self, sink: &str, states: &[&'static str], now: &'static str) {
        for state in states {
            let labels = StateLabels { sink: sink.to_owned(), state };
            self.states.get_or_create(&labels).set(i64::from(*state == now));
        }
    }
}

fn label(sink: &str) -> SinkLabel {
    SinkLabel { sink: sink.to_owned() }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn a_sink_is_in_one_state_and_its_lag_is_shown() {
        let mut registry = Registry::with_prefix("gantry");
        let metrics = SinkMetrics::new(&mut registry);
        metrics.delivered("siem", 7);
        metrics.failed("siem");
        metrics.waited("siem", Duration::from_secs(2));
        metrics.lag("siem", 3, 60);
        metrics.moved("siem", &["delivering", "halted"], "delivering");
        metrics.moved("siem", &["delivering", "halted"], "halted");
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        for line in [
            "gantry_audit_sink_delivered_records_total{sink=\"siem\"} 7",
            "gantry_audit_sink_failures_total{sink=\"siem\"} 1",
            "gantry_audit_sink_delivery_seconds_bucket{le=\"2.5\",sink=\"siem\"} 1",
            "gantry_audit_sink_lag_records{sink=\"siem\"} 3",
            "gantry_audit_sink_lag_seconds{sink=\"siem\"} 60",
            "gantry_audit_sink_state{sink=\"siem\",state=\"delivering\"} 0",
            "gantry_audit_sink_state{sink=\"siem\",state=\"halted\"} 1",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }
}
