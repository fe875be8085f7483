//! The table against the page that is rendered, and against everything that is written about it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contract::cost::{CostComponent, Costs};
use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::TenantId;
use contract::manifest::Manifest;
use contract::money::Currency;
use ports::clock::UnixMillis;
use ports::lifecycle::Lifecycle;
use ports::observer::{FinishedCall, LedgerEvent, Observer as _, SpokenWords, StaleAnswer, ToolSpeech};
use ports::registry_store::StoredVersion;
use ports::resilience::BreakerMode;
use ports::tool_version::ToolVersion;
use serde_json::json;

use super::*;
use crate::Metrics;
use crate::traces::TraceCounts;

const GUIDE: &str = include_str!("../../../../docs/telemetry.md");
/// What asks for series by their names.
const ASKING: [&str; 3] = [
    include_str!("../../../../deploy/grafana/gantry.json"),
    include_str!("../../../../deploy/prometheus/alerts.yml"),
    include_str!("../../../../deploy/prometheus/recording.yml"),
];
/// What other crates write on the page.
const OF_OTHERS: [&str; 4] = ["gantry_jobs", "gantry_mcp_", "gantry_places_", "gantry_server_connections"];

impl Instrument {
    /// The name of the family on the page.
    fn family(&self) -> String {
        let unit = self.unit.as_ref().map(|unit| format!("_{}", unit.as_str())).unwrap_or_default();
        format!("{}{}{unit}", if self.is_ours { "gantry_" } else { "" }, self.name)
    }

    /// The name by which its samples are asked for.
    fn asked(&self) -> String {
        self.family() + if self.kind == InstrumentKind::Counter { "_total" } else { "" }
    }
}

/// A version of a tool with effects.
fn version() -> ToolVersion {
    let manifest = Manifest::from_value(json!({
        "tool_id": "pay", "version": "1.0.0", "name": "Pay", "description": "Pays somebody what they have asked for.",
        "provider": "Demo", "protocol": "native", "side_effect_policy": "idempotent", "timeout_class": "standard",
        "parameters": { "type": "object" }, "result_schema": { "type": "object" },
        "execution": { "type": "builtin", "handler": "x" }, "idempotency": {},
        "side_effects": [{ "resource": "mail", "op": "CREATE", "scope": "outbox" }],
    }))
    .unwrap();
    ToolVersion::new(StoredVersion {
        tenant: TenantId::home(),
        tool: manifest.id().unwrap(),
        version: manifest.version.clone(),
        digest: manifest.digest(),
        lifecycle: Lifecycle::default(),
        published_at: UnixMillis(0),
        published_by: "admin".parse().unwrap(),
        manifest,
    })
}

/// A page on which everything has been counted.
fn full_page() -> String {
    let counts = TraceCounts::default();
    counts.add("sent", 1);
    let metrics = Metrics::built(&counts, None);
    let (version, tenant) = (version(), TenantId::home());
    let mut costs = Costs::none_in(Currency::USD);
    costs.add(CostComponent::Token, "0.25".parse().unwrap());
    let call = |replayed| FinishedCall {
        costs: &costs,
        tool: Some(&version.id),
        status: InvocationStatus::Success,
        code: None,
        duration: Duration::from_millis(2),
        version: Some(&version),
        tenant: Some(&tenant),
        replayed,
        retries: 1,
        trace: None,
    };
    metrics.invocation_finished(&call(false));
    metrics.invocation_finished(&call(true));
    metrics.registry_swapped(1, 1);
    metrics.audit_queue(1);
    metrics.audit_append_failed();
    metrics.audit_log_fault();
    metrics.audit_delivered(Duration::from_millis(1));
    metrics.decision(true);
    metrics.offerings_listed(true);
    metrics.recognised(true);
    metrics.authentication_failed(ErrorCode::E3201);
    metrics.keys_fetched(true);
    let invocation_id = "01890000-0000-7000-8000-000000000001".parse().unwrap();
    metrics.tool_spoke(&ToolSpeech { invocation_id, tool: Some(&version.id), words: SpokenWords::Dropped });
    metrics.ledger(LedgerEvent::Begun);
    metrics.ledger_unwritten(1);
    let key = "mail@api.example.com".parse().unwrap();
    metrics.breaker_changed(&key, BreakerMode::Closed, BreakerMode::Open);
    metrics.breaker_refused(&key);
    metrics.rate_limited("user");
    metrics.retried(true);
    metrics.stale_asked(StaleAnswer::Given);
    metrics.last_results_kept(1);
    metrics.shared_state_evicted("limit", 1);
    metrics.shared_state_fell_back("breaker");
    let upstreams = metrics.upstreams();
    upstreams.moved(None, Some("running"));
    upstreams.started(Some("files"), true, true);
    upstreams.given_up(Some("files"));
    upstreams.call_begun(Some("files"));
    upstreams.indeterminate(Some("files"));
    upstreams.reconnected(Some("files"), "session");
    upstreams.message_dropped(Some("files"), "answer");
    upstreams.log_dropped(Some("files"), 1);
    let sinks = metrics.sinks();
    sinks.delivered("siem", 1);
    sinks.failed("siem");
    sinks.waited("siem", Duration::from_secs(1));
    sinks.lag("siem", 1, 1);
    sinks.moved("siem", &["delivering"], "delivering");
    metrics.archive().dropped("audit_records");
    metrics.archive().stands(1, 1);
    metrics.store().connections(1, 1, 2);
    metrics.tls().certificate_expires_at(1);
    metrics.tls().handshakes("completed", 1);
    metrics.render()
}

/// The names of the labels of a sample, but for those that its kind has.
fn labels_of(sample: &str) -> BTreeSet<&str> {
    let labels = sample.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(labels, _)| labels);
    let names = labels.split(',').filter_map(|label| label.split_once('=')).map(|(name, _)| name);
    names.filter(|name| *name != "le").collect()
}

#[test]
fn what_is_on_the_page_is_in_the_table_with_its_kind_and_its_labels() {
    let page = full_page();
    let mut unseen: BTreeMap<String, &Instrument> = ALL.iter().map(|row| (row.family(), *row)).collect();
    assert_eq!(unseen.len(), ALL.len(), "no name stands twice");
    let mut row: Option<&Instrument> = None;
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let Some(found) = unseen.remove(name) else {
                assert!(name.starts_with("process_"), "`{name}` is not in the table, or stands twice");
                row = None;
                continue;
            };
            assert_eq!(kind, format!("{:?}", found.kind).to_lowercase(), "{name}");
            assert!(page.contains(&format!("# HELP {name} {}", found.help)), "{name}");
            row = Some(found);
        } else if let Some(row) = row.filter(|_| !line.starts_with('#')) {
            assert_eq!(labels_of(line), row.labels.iter().copied().collect(), "{line}");
        }
    }
    assert!(unseen.is_empty(), "nobody counts {:?}", unseen.keys());
}

#[test]
fn every_instrument_is_in_the_guide() {
    let missing: Vec<String> =
        ALL.iter().map(|row| row.asked()).filter(|name| !GUIDE.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/telemetry.md has no {missing:?}");
}

#[test]
fn dashboards_rules_and_alerts_ask_for_what_there_is() {
    let mut known: BTreeSet<String> = ALL.iter().map(|row| row.asked()).collect();
    for row in ALL.iter().filter(|row| row.kind == InstrumentKind::Histogram) {
        known.extend(["", "_bucket", "_sum", "_count"].map(|part| row.family() + part));
    }
    let is_part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let asked: BTreeSet<&str> = ASKING
        .iter()
        .flat_map(|text| text.split(|c: char| !is_part_of_name(c)))
        .filter(|word| word.starts_with("gantry_") || ends_like_a_sample(word))
        .filter(|word| !OF_OTHERS.iter().any(|prefix| word.starts_with(prefix)))
        .collect();
    let unknown: Vec<_> = asked.iter().filter(|word| !known.contains(**word)).collect();
    assert!(asked.len() > 20 && unknown.is_empty(), "nobody counts {unknown:?}");
}

/// Names without our prefix are told from labels and rules by their ends.
fn ends_like_a_sample(word: &str) -> bool {
    word.starts_with("tool_") && ["_total", "_bucket", "_sum", "_count"].iter().any(|end| word.ends_with(end))
}
