//! Counters and histograms in the text format of Prometheus.
//!
//! Labels come from bounded sets only: registered tool ids, status words, error codes. A name a caller made up never
//! becomes a label, and past [`TOOL_LABELS_MAX`] tools the rest share one.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::ToolId;
use kernel::ports::observer::{Finished, LedgerEvent, Observer, Spoken, Words};
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::sinks::SinkMetrics;
use crate::upstreams::UpstreamMetrics;

/// Tools with a label of their own.
const TOOL_LABELS_MAX: usize = 1_000;
/// The label of all others, and of calls whose tool was never found.
const OTHER: &str = "other";
/// Upper bounds of the duration buckets, in seconds.
const DURATION_BUCKETS: [f64; 14] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CallLabels {
    tool_id: String,
    status: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ToolLabel {
    tool_id: String,
}

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

/// Everything that is measured.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    calls: Family<CallLabels, Counter>,
    durations: Family<ToolLabel, Histogram, fn() -> Histogram>,
    tools: Gauge,
    versions: Gauge,
    audit_waiting: Gauge,
    audit_failures: Counter,
    decisions: Family<Decided, Counter>,
    authentication_failures: Family<CodeLabel, Counter>,
    key_fetches: Family<Outcome, Counter>,
    tool_messages: Family<MessageKind, Counter>,
    ledger: Family<LedgerLabel, Counter>,
    upstreams: UpstreamMetrics,
    sinks: SinkMetrics,
    /// What is counted for each tool that has a label of its own. Looked up on every call, so nothing is built there.
    labelled: RwLock<HashMap<ToolId, Series>>,
    /// What is counted for all others.
    others: Series,
}

/// The series of one label.
#[derive(Debug, Clone)]
struct Series {
    label: String,
    /// By far the most frequent end of a call.
    successes: Counter,
    durations: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// With everything at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("gantry");
        let calls = Family::default();
        registry.register("tool_invocations", "Calls that came to an end", calls.clone());
        let durations: Family<ToolLabel, Histogram, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        registry.register_with_unit("tool_duration", "Time from arrival to answer", Unit::Seconds, durations.clone());
        let tools = Gauge::default();
        registry.register("registry_tools", "Registered tools", tools.clone());
        let versions = Gauge::default();
        registry.register("registry_versions", "Registered versions", versions.clone());
        let audit_waiting = Gauge::default();
        registry.register("audit_queue_records", "Audit records waiting to be written", audit_waiting.clone());
        let audit_failures = Counter::default();
        registry.register("audit_append_failures", "Failed writes of audit records", audit_failures.clone());
        let decisions = Family::default();
        registry.register("policy_decisions", "Policy decisions, by whether they were remembered", decisions.clone());
        let authentication_failures = Family::default();
        registry.register(
            "authentication_failures",
            "Callers that could not prove who they are",
            authentication_failures.clone(),
        );
        let key_fetches = Family::default();
        registry.register("issuer_key_fetches", "Fetches of another issuer's key set", key_fetches.clone());
        let tool_messages = Family::default();
        registry.register("tool_messages", "Progress and log lines of running tools, by kind", tool_messages.clone());
        let ledger = Family::default();
        registry.register("ledger_events", "What came of asking the ledger of calls with effects", ledger.clone());
        let others = Series::of(OTHER.into(), &calls, &durations);
        let upstreams = UpstreamMetrics::new(&mut registry);
        let sinks = SinkMetrics::new(&mut registry);
        Self {
            registry,
            calls,
            durations,
            tools,
            versions,
            audit_waiting,
            audit_failures,
            decisions,
            authentication_failures,
            key_fetches,
            tool_messages,
            ledger,
            upstreams,
            sinks,
            labelled: RwLock::default(),
            others,
        }
    }

    /// What is counted of the servers behind Gantry.
    pub fn upstreams(&self) -> &UpstreamMetrics {
        &self.upstreams
    }

    /// What is counted of the sinks of the audit log.
    pub fn sinks(&self) -> &SinkMetrics {
        &self.sinks
    }

    /// The page that Prometheus reads.
    pub fn render(&self) -> String {
        let mut page = String::new();
        if text::encode(&mut page, &self.registry).is_err() {
            page.clear();
        }
        page
    }

    /// Gives the tool a label of its own, as long as there are some.
    fn labelled(&self, tool: &ToolId) -> Series {
        let mut labelled = self.labelled.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = labelled.get(tool) {
            return series.clone();
        }
        if labelled.len() >= TOOL_LABELS_MAX {
            return self.others.clone();
        }
        let series = Series::of(tool.to_string(), &self.calls, &self.durations);
        labelled.insert(tool.clone(), series.clone());
        series
    }

    fn count(&self, series: &Series, event: &Finished<'_>) {
        series.durations.observe(event.duration.as_secs_f64());
        if event.status == InvocationStatus::Success {
            series.successes.inc();
            return;
        }
        let code = event.code.map_or("", ErrorCode::as_str);
        let labels = CallLabels { tool_id: series.label.clone(), status: event.status.as_str(), code };
        self.calls.get_or_create(&labels).inc();
    }
}

impl Series {
    fn of(
        label: String,
        calls: &Family<CallLabels, Counter>,
        durations: &Family<ToolLabel, Histogram, fn() -> Histogram>,
    ) -> Self {
        let success = CallLabels { tool_id: label.clone(), status: InvocationStatus::Success.as_str(), code: "" };
        let successes = calls.get_or_create(&success).clone();
        let durations = durations.get_or_create(&ToolLabel { tool_id: label.clone() }).clone();
        Self { label, successes, durations }
    }
}

impl Observer for Metrics {
    fn invocation_finished(&self, event: &Finished<'_>) {
        let Some(tool) = event.tool else { return self.count(&self.others, event) };
        let known = self.labelled.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(series) = known.get(tool) {
            return self.count(series, event);
        }
        drop(known);
        self.count(&self.labelled(tool), event);
    }

    fn registry_swapped(&self, tools: usize, versions: usize) {
        self.tools.set(i64::try_from(tools).unwrap_or(i64::MAX));
        self.versions.set(i64::try_from(versions).unwrap_or(i64::MAX));
    }

    fn audit_queue(&self, waiting: usize) {
        self.audit_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
    }

    fn audit_append_failed(&self) {
        self.audit_failures.inc();
    }

    fn decision(&self, remembered: bool) {
        self.decisions.get_or_create(&Decided { cache: if remembered { "hit" } else { "miss" } }).inc();
    }

    fn authentication_failed(&self, code: ErrorCode) {
        self.authentication_failures.get_or_create(&CodeLabel { code: code.as_str() }).inc();
    }

    fn keys_fetched(&self, done: bool) {
        self.key_fetches.get_or_create(&Outcome { outcome: if done { "done" } else { "failed" } }).inc();
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
            LedgerEvent::Forgotten => "forgotten",
        };
        self.ledger.get_or_create(&LedgerLabel { event }).inc();
    }

    fn tool_spoke(&self, event: &Spoken<'_>) {
        let kind = match event.words {
            Words::Progress(_) => "progress",
            Words::Log(..) => "log",
            Words::Dropped => "dropped",
        };
        self.tool_messages.get_or_create(&MessageKind { kind }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn finished(tool: Option<&ToolId>) -> Finished<'_> {
        Finished { tool, status: InvocationStatus::Success, code: None, duration: Duration::from_millis(2) }
    }

    #[test]
    fn calls_are_counted_by_tool_status_and_code() {
        let metrics = Metrics::new();
        let tool = "calculator".parse().unwrap();
        metrics.invocation_finished(&finished(Some(&tool)));
        metrics.invocation_finished(&finished(Some(&tool)));
        let page = metrics.render();
        assert!(
            page.contains(r#"gantry_tool_invocations_total{tool_id="calculator",status="success",code=""} 2"#),
            "{page}"
        );
        assert!(page.contains(r#"gantry_tool_duration_seconds_count{tool_id="calculator"} 2"#), "{page}");
    }

    #[test]
    fn decisions_failures_and_fetches_are_counted_by_how_they_went() {
        let metrics = Metrics::new();
        metrics.decision(true);
        metrics.decision(true);
        metrics.decision(false);
        metrics.authentication_failed(ErrorCode::E3202);
        metrics.keys_fetched(false);
        let invocation_id = "00000000-0000-7000-8000-000000000001".parse().unwrap();
        metrics.tool_spoke(&Spoken { invocation_id, tool: None, words: Words::Dropped });
        let page = metrics.render();
        for line in [
            r#"gantry_policy_decisions_total{cache="hit"} 2"#,
            r#"gantry_policy_decisions_total{cache="miss"} 1"#,
            r#"gantry_authentication_failures_total{code="E3202"} 1"#,
            r#"gantry_issuer_key_fetches_total{outcome="failed"} 1"#,
            r#"gantry_tool_messages_total{kind="dropped"} 1"#,
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
    }

    #[test]
    fn callers_cannot_make_up_labels_without_end() {
        let metrics = Metrics::new();
        for n in 0..TOOL_LABELS_MAX + 50 {
            let tool: ToolId = format!("tool_{n}").parse().unwrap();
            metrics.invocation_finished(&finished(Some(&tool)));
        }
        metrics.invocation_finished(&finished(None));
        let page = metrics.render();
        assert!(page.contains(r#"tool_invocations_total{tool_id="other",status="success",code=""} 51"#));
    }
}
