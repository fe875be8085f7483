//! Counters and histograms in the text format of Prometheus.
//!
//! Labels come from bounded sets only: registered tool ids, tenants, status words, error codes. What is counted of calls is in
//! `calls`, of servers behind Gantry in `upstreams`; this file has the rest, and hands on what the kernel tells.
//!
//! Names, kinds and labels of all of it are the table in `instruments`.

mod calls;
mod page;
mod process;
mod resilience;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::SaturatingFrom as _;
use contract::error::ErrorCode;
use contract::trace_context::TraceContext;
use ports::clock::Clock;
use ports::observer::{FinishedCall, LedgerEvent, Observer, SpokenWords, StaleAnswer, ToolSpeech, TracedCall};
use ports::resilience::BreakerMode;
use ports::shared_state::BreakerKey;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::archive::ArchiveMetrics;
use crate::instruments::{self, Instrument, InstrumentRegistry};
use crate::sinks::SinkMetrics;
use crate::store::StoreMetrics;
use crate::tls::TlsMetrics;
use crate::traces::{TraceConfig, TraceCounts, TraceError, TraceRedaction, Tracer, TracerHandle};
use crate::upstreams::UpstreamMetrics;
use calls::CallMetrics;
pub use page::MetricsFormat;
use resilience::ResilienceMetrics;

/// Upper bounds of the buckets for how long audit records wait, in seconds.
const DELIVERY_BUCKETS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 60.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    /// `hit`: from memory; `miss`: made anew.
    cache: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MessageKind {
    /// `progress`, `log`, or `dropped` for what was too much.
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LedgerLabel {
    event: &'static str,
}

/// What was asked for each call, by whether the answer was remembered. The counters are kept, because to find them takes longer
/// than to count.
#[derive(Debug, Default)]
struct Remembered {
    family: Family<Decided, Counter>,
    hit: OnceLock<Counter>,
    miss: OnceLock<Counter>,
}

impl Remembered {
    fn new(registry: &mut InstrumentRegistry, row: &Instrument) -> Self {
        Self { family: registry.made(row), ..Self::default() }
    }

    fn count(&self, remembered: bool) {
        let (counter, cache) = if remembered { (&self.hit, "hit") } else { (&self.miss, "miss") };
        counter.get_or_init(|| self.family.get_or_create(&Decided { cache }).clone()).inc();
    }
}

/// Everything that is measured.
#[derive(Debug)]
pub struct Metrics {
    registry: InstrumentRegistry,
    calls: CallMetrics,
    tools: Gauge,
    versions: Gauge,
    audit_waiting: Gauge,
    audit_failures: Counter,
    audit_faults: Counter,
    audit_delivery: Histogram,
    decisions: Remembered,
    offering_lists: Remembered,
    identities: Remembered,
    authentication_failures: Family<CodeLabel, Counter>,
    key_fetches: Family<Outcome, Counter>,
    tool_messages: Family<MessageKind, Counter>,
    ledger: Family<LedgerLabel, Counter>,
    ledger_unwritten: Gauge,
    upstreams: UpstreamMetrics,
    sinks: SinkMetrics,
    archive: ArchiveMetrics,
    resilience: ResilienceMetrics,
    store: StoreMetrics,
    tls: TlsMetrics,
    /// There if a collector is configured.
    tracer: Option<Tracer>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// With everything at zero, and nobody to send traces to.
    pub fn new() -> Self {
        Self::built(&TraceCounts::default(), None)
    }

    /// With everything at zero, and traces that are sent to a collector until the handle is closed.
    pub fn with_traces(
        config: &TraceConfig,
        redaction: TraceRedaction,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, TracerHandle), TraceError> {
        let counts = TraceCounts::default();
        let (tracer, handle) = Tracer::start(config, redaction, clock, counts.clone())?;
        Ok((Self::built(&counts, Some(tracer)), handle))
    }

    pub(crate) fn built(trace_counts: &TraceCounts, tracer: Option<Tracer>) -> Self {
        let registry = &mut InstrumentRegistry::default();
        registry.with(&instruments::TRACE_CALLS, trace_counts.family());
        Self {
            calls: CallMetrics::new(registry),
            tools: registry.made(&instruments::REGISTRY_TOOLS),
            versions: registry.made(&instruments::REGISTRY_VERSIONS),
            audit_waiting: registry.made(&instruments::AUDIT_QUEUE),
            audit_failures: registry.made(&instruments::AUDIT_APPEND_FAILURES),
            audit_faults: registry.made(&instruments::AUDIT_LOG_FAULTS),
            audit_delivery: registry.with(&instruments::AUDIT_DELIVERY, Histogram::new(DELIVERY_BUCKETS)),
            decisions: Remembered::new(registry, &instruments::POLICY_DECISIONS),
            offering_lists: Remembered::new(registry, &instruments::OFFERING_LISTS),
            identities: Remembered::new(registry, &instruments::IDENTITY_LOOKUPS),
            authentication_failures: registry.made(&instruments::AUTHENTICATION_FAILURES),
            key_fetches: registry.made(&instruments::ISSUER_KEY_FETCHES),
            tool_messages: registry.made(&instruments::TOOL_MESSAGES),
            ledger: registry.made(&instruments::LEDGER_EVENTS),
            ledger_unwritten: registry.made(&instruments::LEDGER_ENDS_UNWRITTEN),
            upstreams: UpstreamMetrics::new(registry),
            sinks: SinkMetrics::new(registry),
            archive: ArchiveMetrics::new(registry),
            resilience: ResilienceMetrics::new(registry),
            store: StoreMetrics::new(registry),
            tls: TlsMetrics::new(registry),
            tracer,
            registry: std::mem::take(registry),
        }
    }

    /// Whether the state that replicas share answered when it was last asked.
    pub fn shared_state_is_up(&self, up: bool) {
        self.resilience.shared_state_is_up(up);
    }

    /// What is measured of the store.
    pub fn store(&self) -> &StoreMetrics {
        &self.store
    }

    /// What is measured of TLS.
    pub fn tls(&self) -> &TlsMetrics {
        &self.tls
    }

    /// What is counted of the servers behind Gantry.
    pub fn upstreams(&self) -> &UpstreamMetrics {
        &self.upstreams
    }

    /// What is counted of the archive of audit records.
    pub fn archive(&self) -> &ArchiveMetrics {
        &self.archive
    }

    /// What is counted of the sinks of the audit log.
    pub fn sinks(&self) -> &SinkMetrics {
        &self.sinks
    }

    /// The lines that Prometheus reads, in OpenMetrics, without the end of a page ([`MetricsFormat::page`]).
    pub fn render(&self) -> String {
        let mut lines = String::new();
        for registry in self.registry.registries() {
            if text::encode_registry(&mut lines, registry).is_err() {
                return String::new();
            }
        }
        lines + &process::text()
    }
}

impl Observer for Metrics {
    fn invocation_finished(&self, event: &FinishedCall<'_>) {
        self.calls.finished(event);
    }

    fn records(&self, context: &TraceContext) -> Option<bool> {
        self.tracer.as_ref().map(|tracer| tracer.records(context))
    }

    fn invocation_traced(&self, trace: Box<TracedCall>) {
        if let Some(tracer) = &self.tracer {
            tracer.take(trace);
        }
    }

    fn registry_swapped(&self, tools: usize, versions: usize) {
        self.tools.set(i64::saturating_from(tools));
        self.versions.set(i64::saturating_from(versions));
    }

    fn audit_queue(&self, waiting: usize) {
        self.audit_waiting.set(i64::saturating_from(waiting));
    }

    fn audit_append_failed(&self) {
        self.audit_failures.inc();
    }

    fn audit_log_fault(&self) {
        self.audit_faults.inc();
    }

    fn audit_delivered(&self, waited: Duration) {
        self.audit_delivery.observe(waited.as_secs_f64());
    }

    fn decision(&self, remembered: bool) {
        self.decisions.count(remembered);
    }

    fn offerings_listed(&self, remembered: bool) {
        self.offering_lists.count(remembered);
    }

    fn recognised(&self, remembered: bool) {
        self.identities.count(remembered);
    }

    fn authentication_failed(&self, code: ErrorCode) {
        self.authentication_failures.get_or_create(&CodeLabel { code: code.as_str() }).inc();
    }

    fn keys_fetched(&self, done: bool) {
        self.key_fetches.get_or_create(&Outcome { outcome: if done { "done" } else { "failed" } }).inc();
    }

    fn breaker_changed(&self, key: &BreakerKey, from: BreakerMode, to: BreakerMode) {
        self.resilience.changed(key, from, to);
    }

    fn breaker_refused(&self, key: &BreakerKey) {
        self.resilience.refused(key);
    }

    fn rate_limited(&self, scope: &'static str) {
        self.resilience.limited(scope);
    }

    fn retried(&self, granted: bool) {
        self.resilience.retried(granted);
    }

    fn stale_asked(&self, answer: StaleAnswer) {
        self.resilience.stale_asked(answer);
    }

    fn last_results_kept(&self, bytes: u64) {
        self.resilience.last_results_kept(bytes);
    }

    fn shared_state_evicted(&self, what: &'static str, count: usize) {
        self.resilience.evicted(what, count);
    }

    fn shared_state_fell_back(&self, what: &'static str) {
        self.resilience.fell_back(what);
    }

    fn ledger(&self, event: LedgerEvent) {
        let event = match event {
            LedgerEvent::Begun => "begun",
            LedgerEvent::Replayed => "replayed",
            LedgerEvent::Waited => "waited",
            LedgerEvent::Conflict => "conflict",
            LedgerEvent::Unknown => "unknown",
            LedgerEvent::Fenced => "fenced",
            LedgerEvent::Recovered => "recovered",
            LedgerEvent::SettledLate => "settled_late",
            LedgerEvent::GivenUp => "given_up",
            LedgerEvent::Forgotten => "forgotten",
        };
        self.ledger.get_or_create(&LedgerLabel { event }).inc();
    }

    fn ledger_unwritten(&self, ends: usize) {
        self.ledger_unwritten.set(i64::saturating_from(ends));
    }

    fn tool_spoke(&self, event: &ToolSpeech<'_>) {
        let kind = match event.words {
            SpokenWords::Progress(_) => "progress",
            SpokenWords::Log(..) => "log",
            SpokenWords::Dropped => "dropped",
        };
        self.tool_messages.get_or_create(&MessageKind { kind }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::cost::{CostComponent, Costs};
    use contract::envelope::InvocationStatus;
    use contract::ids::{TenantId, ToolId, TraceId};
    use contract::money::Currency;

    fn finished<'a>(tool: Option<&'a ToolId>, tenant: Option<&'a TenantId>) -> FinishedCall<'a> {
        static FREE: std::sync::LazyLock<Costs> = std::sync::LazyLock::new(Costs::default);
        FinishedCall {
            costs: &FREE,
            tool,
            status: InvocationStatus::Success,
            code: None,
            duration: Duration::from_millis(2),
            version: None,
            tenant,
            replayed: false,
            retries: 0,
            trace: None,
        }
    }

    #[test]
    fn calls_are_counted_by_tool_tenant_status_and_code() {
        let metrics = Metrics::new();
        let (tool, tenant) = ("calculator".parse().unwrap(), "acme".parse().unwrap());
        let trace = TraceContext::begun(TraceId::from_bytes([7; 16]));
        let event = || finished(Some(&tool), Some(&tenant));
        metrics.invocation_finished(&event());
        metrics.invocation_finished(&FinishedCall { trace: Some(&trace), replayed: true, retries: 2, ..event() });
        let (status, code) = (InvocationStatus::Timeout, Some(ErrorCode::E3402));
        metrics.invocation_finished(&FinishedCall { status, code, ..event() });
        let page = metrics.render();
        for line in [
            r#"gantry_tool_invocations_total{tool_id="calculator",status="success",code=""} 2"#,
            r#"gantry_tool_invocations_total{tool_id="calculator",status="timeout",code="E3402"} 1"#,
            r#"tool_invocation_count_total{tool_id="calculator",version="",status="timeout",mutation_class=""} 1"#,
            r#"tool_invocation_latency_seconds_count{tool_id="calculator",version="",timeout_class=""} 3"#,
            r#"tool_invocation_retries_total{tool_id="calculator",version=""} 2"#,
            r#"tool_execution_total{tenant_id="acme",tool_name="calculator",status="success"} 2"#,
            r#"tool_execution_duration_seconds_count{tenant_id="acme",tool_name="calculator",gateway=""} 3"#,
            r#"tool_idempotency_cache_hits_total{tenant_id="acme",tool_name="calculator"} 1"#,
            r#"# {trace_id="07070707070707070707070707070707"} 0.002"#,
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
    }

    #[test]
    fn bills_are_added_up_by_part_and_a_tool_cannot_make_up_currencies() {
        let metrics = Metrics::new();
        let tool = "calculator".parse().unwrap();
        let mut bill = Costs::none_in(Currency::USD);
        bill.add(CostComponent::ExternalApi, "0.5".parse().unwrap());
        bill.add(CostComponent::Token, "0.25".parse().unwrap());
        metrics.invocation_finished(&FinishedCall { costs: &bill, ..finished(Some(&tool), None) });
        let failed = FinishedCall {
            status: InvocationStatus::Error,
            code: Some(ErrorCode::E3401),
            ..finished(Some(&tool), None)
        };
        metrics.invocation_finished(&FinishedCall { costs: &bill, ..failed });
        for first in b'A'..=b'Z' {
            let currency = String::from_utf8(vec![first, b'Q', b'Z']).unwrap().parse().unwrap();
            let mut made_up = Costs::none_in(currency);
            made_up.add(CostComponent::ExternalApi, "1".parse().unwrap());
            metrics.invocation_finished(&FinishedCall { costs: &made_up, ..finished(Some(&tool), None) });
        }
        let page = metrics.render();
        let of = |part: &str, currency: &str| {
            format!(
                r#"tool_invocation_cost_total{{tool_id="calculator",version="",cost_category="{part}",currency="{currency}"}}"#
            )
        };
        for line in
            [of("external_api", "USD") + " 1.0", of("token", "USD") + " 0.5", of("external_api", "other") + " 26.0"]
        {
            assert!(page.contains(&line), "{line} in {page}");
        }
    }

    #[test]
    fn decisions_failures_and_fetches_are_counted_by_how_they_went() {
        let metrics = Metrics::new();
        metrics.decision(true);
        metrics.decision(true);
        metrics.decision(false);
        metrics.authentication_failed(ErrorCode::E3202);
        metrics.keys_fetched(false);
        metrics.offerings_listed(true);
        metrics.recognised(true);
        metrics.recognised(false);
        metrics.audit_delivered(Duration::from_millis(20));
        let invocation_id = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        metrics.tool_spoke(&ToolSpeech { invocation_id, tool: None, words: SpokenWords::Dropped });
        let page = metrics.render();
        for line in [
            r#"gantry_policy_decisions_total{cache="hit"} 2"#,
            r#"gantry_policy_decisions_total{cache="miss"} 1"#,
            r#"gantry_offering_lists_total{cache="hit"} 1"#,
            r#"gantry_authentication_failures_total{code="E3202"} 1"#,
            r#"gantry_issuer_key_fetches_total{outcome="failed"} 1"#,
            r#"gantry_identity_lookups_total{cache="hit"} 1"#,
            r#"gantry_identity_lookups_total{cache="miss"} 1"#,
            r#"gantry_tool_messages_total{kind="dropped"} 1"#,
            r#"gantry_audit_delivery_seconds_bucket{le="0.025"} 1"#,
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
    }

    #[test]
    fn callers_cannot_make_up_labels_without_end() {
        let metrics = Metrics::new();
        for n in 0..calls::TOOL_LABELS_MAX + 50 {
            let tool: ToolId = format!("tool_{n}").parse().unwrap();
            metrics.invocation_finished(&finished(Some(&tool), None));
        }
        metrics.invocation_finished(&finished(None, None));
        let page = metrics.render();
        assert!(page.contains(r#"gantry_tool_invocations_total{tool_id="other",status="success",code=""} 51"#));
    }

    #[test]
    fn tenants_cannot_make_up_labels_without_end_either() {
        let metrics = Metrics::new();
        let tool: ToolId = "calculator".parse().unwrap();
        for n in 0..calls::SERIES_MAX + 10 {
            let tenant: TenantId = format!("tenant-{n}").parse().unwrap();
            metrics.invocation_finished(&finished(Some(&tool), Some(&tenant)));
        }
        let page = metrics.render();
        let labels = page.lines().filter(|line| line.starts_with("tool_execution_total{")).count();
        assert!(labels <= calls::TENANT_LABELS_MAX + 2, "{labels}");
        let all: u64 = page
            .lines()
            .filter(|line| line.starts_with("tool_execution_total{"))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
            .sum();
        assert_eq!(all, u64::try_from(calls::SERIES_MAX).unwrap() + 10, "none is lost");
    }
}
