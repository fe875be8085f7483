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

use crate::instruments::{self, InstrumentRegistry};

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
    pub(crate) fn new(registry: &mut InstrumentRegistry) -> Self {
        let waited: Family<_, _, fn() -> Histogram> = Family::new_with_constructor(|| Histogram::new(WAITED_BUCKETS));
        Self {
            delivered: registry.made(&instruments::SINK_DELIVERED),
            failures: registry.made(&instruments::SINK_FAILURES),
            lag_records: registry.made(&instruments::SINK_LAG_RECORDS),
            lag_seconds: registry.made(&instruments::SINK_LAG),
            states: registry.made(&instruments::SINK_STATE),
            waited: registry.with(&instruments::SINK_DELIVERY, waited),
        }
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
    use super::*;
    use crate::Metrics;

    #[test]
    fn a_sink_is_in_one_state_and_its_lag_is_shown() {
        let all = Metrics::new();
        let metrics = all.sinks();
        metrics.delivered("siem", 7);
        metrics.failed("siem");
        metrics.waited("siem", Duration::from_secs(2));
        metrics.lag("siem", 3, 60);
        metrics.moved("siem", &["delivering", "halted"], "delivering");
        metrics.moved("siem", &["delivering", "halted"], "halted");
        let page = all.render();
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
