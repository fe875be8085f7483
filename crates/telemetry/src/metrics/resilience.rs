//! What is measured of breakers, limits, retries and the state they are kept in.
//!
//! Only breakers of the home tenant have their names in labels: metrics are read by the whole installation, and what other
//! tenants call is theirs. The others are counted together.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::SaturatingFrom as _;
use ports::observer::StaleAnswer;
use ports::resilience::BreakerMode;
use ports::shared_state::BreakerKey;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::{self, InstrumentRegistry};

/// Breakers that have labels of their own.
const LABELLED_MAX: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BreakerLabel {
    service: String,
    endpoint: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModeLabel {
    service: String,
    endpoint: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransitionLabel {
    service: String,
    endpoint: String,
    from: &'static str,
    to: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ScopeLabel {
    scope: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GrantedLabel {
    /// `granted`, or `exhausted` if the shared budget had nothing left.
    budget: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EvictedLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabel {
    r#use: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabel {
    answer: &'static str,
}

/// The instruments.
#[derive(Debug)]
pub(super) struct ResilienceMetrics {
    labelled: AtomicUsize,
    /// One for the state that a breaker is in, zero for the others.
    states: Family<ModeLabel, Gauge>,
    transitions: Family<TransitionLabel, Counter>,
    refusals: Family<BreakerLabel, Counter>,
    limited: Family<ScopeLabel, Counter>,
    retries: Family<GrantedLabel, Counter>,
    evicted: Family<EvictedLabel, Counter>,
    fallbacks: Family<UseLabel, Counter>,
    stale: Family<AnswerLabel, Counter>,
    last_results: Gauge,
    up: Gauge,
}

impl ResilienceMetrics {
    pub(super) fn new(registry: &mut InstrumentRegistry) -> Self {
        let new = Self {
            labelled: AtomicUsize::new(0),
            states: registry.made(&instruments::BREAKER_STATE),
            transitions: registry.made(&instruments::BREAKER_TRANSITIONS),
            refusals: registry.made(&instruments::BREAKER_REFUSALS),
            limited: registry.made(&instruments::RATE_LIMIT_REFUSALS),
            retries: registry.made(&instruments::RETRIES),
            evicted: registry.made(&instruments::SHARED_STATE_EVICTIONS),
            fallbacks: registry.made(&instruments::SHARED_STATE_FALLBACK),
            stale: registry.made(&instruments::STALE_RESULTS),
            last_results: registry.made(&instruments::LAST_RESULTS),
            up: registry.made(&instruments::SHARED_STATE_UP),
        };
        new.up.set(1);
        new
    }

    /// Whether the state that replicas share answered when it was last asked.
    pub(super) fn shared_state_is_up(&self, up: bool) {
        self.up.set(i64::from(up));
    }

    /// Its name in labels.
    fn label(key: &BreakerKey) -> BreakerLabel {
        if key.tenant().is_home() {
            BreakerLabel { service: key.service().to_owned(), endpoint: key.endpoint().to_owned() }
        } else {
            BreakerLabel { service: "(of other tenants)".to_owned(), endpoint: String::new() }
        }
    }

    pub(super) fn changed(&self, key: &BreakerKey, from: BreakerMode, to: BreakerMode) {
        let BreakerLabel { service, endpoint } = Self::label(key);
        // The same twice is how it stands, not a change.
        if from != to {
            let label = TransitionLabel {
                service: service.clone(),
                endpoint: endpoint.clone(),
                from: from.as_str(),
                to: to.as_str(),
            };
            self.transitions.get_or_create(&label).inc();
        }
        if !key.tenant().is_home() {
            return;
        }
        let label = |mode: BreakerMode| ModeLabel {
            service: service.clone(),
            endpoint: endpoint.clone(),
            state: mode.as_str(),
        };
        if self.states.get(&label(to)).is_none() && self.labelled.fetch_add(1, Ordering::Relaxed) >= LABELLED_MAX {
            return;
        }
        for mode in BreakerMode::ALL {
            self.states.get_or_create(&label(mode)).set(i64::from(mode == to));
        }
    }

    pub(super) fn refused(&self, key: &BreakerKey) {
        self.refusals.get_or_create(&Self::label(key)).inc();
    }

    pub(super) fn limited(&self, scope: &'static str) {
        self.limited.get_or_create(&ScopeLabel { scope }).inc();
    }

    pub(super) fn retried(&self, granted: bool) {
        let budget = if granted { "granted" } else { "exhausted" };
        self.retries.get_or_create(&GrantedLabel { budget }).inc();
    }

    pub(super) fn evicted(&self, kind: &'static str, count: usize) {
        self.evicted.get_or_create(&EvictedLabel { kind }).inc_by(u64::saturating_from(count));
    }
}

impl ResilienceMetrics {
    /// RES-019.
    pub(super) fn stale_asked(&self, answer: StaleAnswer) {
        self.stale.get_or_create(&AnswerLabel { answer: answer.as_str() }).inc();
    }

    pub(super) fn last_results_kept(&self, bytes: u64) {
        self.last_results.set(i64::saturating_from(bytes));
    }

    /// RES-020.
    pub(super) fn fell_back(&self, what: &'static str) {
        self.fallbacks.get_or_create(&UseLabel { r#use: what }).inc();
    }
}

#[cfg(test)]
mod tests {
    use ports::observer::Observer as _;

    use super::*;
    use crate::Metrics;

    #[test]
    fn the_state_of_a_breaker_is_one_of_its_gauges_and_other_tenants_have_no_names() {
        let metrics = Metrics::new();
        let key: BreakerKey = "mail@api.example.com".parse().unwrap();
        metrics.breaker_changed(&key, BreakerMode::Closed, BreakerMode::Open);
        metrics.breaker_changed(&key, BreakerMode::Open, BreakerMode::HalfOpen);
        metrics.breaker_refused(&key);
        metrics.breaker_changed(&"acme/secret".parse().unwrap(), BreakerMode::Closed, BreakerMode::Open);
        metrics.rate_limited("user");
        metrics.retried(false);
        metrics.stale_asked(StaleAnswer::Given);
        metrics.last_results_kept(12);
        metrics.shared_state_evicted("limit", 3);
        metrics.shared_state_fell_back("breaker");
        let page = metrics.render();
        for line in [
            r#"gantry_breaker_state{service="mail",endpoint="api.example.com",state="half_open"} 1"#,
            r#"gantry_breaker_state{service="mail",endpoint="api.example.com",state="open"} 0"#,
            r#"gantry_breaker_transitions_total{service="mail",endpoint="api.example.com",from="closed",to="open"} 1"#,
            r#"gantry_breaker_refusals_total{service="mail",endpoint="api.example.com"} 1"#,
            r#"gantry_rate_limit_refusals_total{scope="user"} 1"#,
            r#"gantry_retries_total{budget="exhausted"} 1"#,
            r#"gantry_stale_results_total{answer="given"} 1"#,
            "gantry_last_results_bytes 12",
            r#"gantry_shared_state_evictions_total{kind="limit"} 3"#,
            r#"gantry_shared_state_fallback_total{use="breaker"} 1"#,
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
        assert!(!page.contains("secret"));
    }
}
