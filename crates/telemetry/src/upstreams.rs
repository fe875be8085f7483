//! What is counted of the MCP servers behind Gantry.
//!
//! Labels come from bounded sets: states and kinds are words of this release, and a server has a label of its own only if it is
//! named by whoever tells (the home tenant's are) and as long as there are some; all others share one.
//!
//! Not here: who tells. The crate that keeps servers says what happened in words of its own; whoever wires the two together
//! translates.

use std::collections::HashMap;
use std::sync::RwLock;

use base::RwLockExt as _;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::{self, InstrumentRegistry};

/// Servers with a label of their own.
const SERVER_LABELS_MAX: usize = 200;
/// The label of all others.
const OTHER: &str = "other";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabel {
    server: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    server: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    server: String,
    kind: &'static str,
}

/// Counters and gauges of servers.
#[derive(Debug)]
pub struct UpstreamMetrics {
    servers: Family<StateLabel, Gauge>,
    starts: Family<OutcomeLabels, Counter>,
    restarts: Family<ServerLabel, Counter>,
    unavailable: Family<ServerLabel, Counter>,
    calls: Family<ServerLabel, Gauge>,
    indeterminate: Family<ServerLabel, Counter>,
    reconnects: Family<KindLabels, Counter>,
    messages_dropped: Family<KindLabels, Counter>,
    log_bytes_dropped: Family<ServerLabel, Counter>,
    /// The gauge of each server that has a label of its own. Looked up on every call, so nothing is built there.
    labelled: RwLock<HashMap<String, Gauge>>,
    /// That of all others.
    others: Gauge,
}

impl UpstreamMetrics {
    pub(crate) fn new(registry: &mut InstrumentRegistry) -> Self {
        let calls: Family<ServerLabel, Gauge> = registry.made(&instruments::UPSTREAM_CALLS);
        let others = calls.get_or_create(&ServerLabel { server: OTHER.into() }).clone();
        Self {
            servers: registry.made(&instruments::UPSTREAM_SERVERS),
            starts: registry.made(&instruments::UPSTREAM_STARTS),
            restarts: registry.made(&instruments::UPSTREAM_RESTARTS),
            unavailable: registry.made(&instruments::UPSTREAM_UNAVAILABLE),
            calls,
            indeterminate: registry.made(&instruments::UPSTREAM_INDETERMINATE),
            reconnects: registry.made(&instruments::UPSTREAM_RECONNECTS),
            messages_dropped: registry.made(&instruments::UPSTREAM_MESSAGES_DROPPED),
            log_bytes_dropped: registry.made(&instruments::UPSTREAM_LOG_DROPPED),
            labelled: RwLock::default(),
            others,
        }
    }

    /// A server went from one state to another; `None`: it was not kept before, or is not any more.
    pub fn moved(&self, from: Option<&'static str>, to: Option<&'static str>) {
        if let Some(state) = from {
            self.servers.get_or_create(&StateLabel { state }).dec();
        }
        if let Some(state) = to {
            self.servers.get_or_create(&StateLabel { state }).inc();
        }
    }

    /// A server was started, or could not be. `again`: it had been started before.
    pub fn started(&self, server: Option<&str>, done: bool, again: bool) {
        let (server, outcome) = (self.label(server), if done { "done" } else { "failed" });
        if again {
            self.restarts.get_or_create(&ServerLabel { server: server.clone() }).inc();
        }
        self.starts.get_or_create(&OutcomeLabels { server, outcome }).inc();
    }

    /// A server was given up.
    pub fn given_up(&self, server: Option<&str>) {
        self.unavailable.get_or_create(&self.server(server)).inc();
    }

    /// A call on a server has begun.
    pub fn call_begun(&self, server: Option<&str>) {
        self.in_flight(server).inc();
    }

    /// A call on a server has ended.
    pub fn call_ended(&self, server: Option<&str>) {
        self.in_flight(server).dec();
    }

    /// Nobody knows what came of a call.
    pub fn indeterminate(&self, server: Option<&str>) {
        self.indeterminate.get_or_create(&self.server(server)).inc();
    }

    /// A connection was made anew. `kind` is a word of this release.
    pub fn reconnected(&self, server: Option<&str>, kind: &'static str) {
        self.reconnects.get_or_create(&KindLabels { server: self.label(server), kind }).inc();
    }

    /// Something a server said reached nobody. `kind` is a word of this release.
    pub fn message_dropped(&self, server: Option<&str>, kind: &'static str) {
        self.messages_dropped.get_or_create(&KindLabels { server: self.label(server), kind }).inc();
    }

    /// Bytes of a server's log were not kept.
    pub fn log_dropped(&self, server: Option<&str>, bytes: u64) {
        self.log_bytes_dropped.get_or_create(&self.server(server)).inc_by(bytes);
    }

    fn server(&self, server: Option<&str>) -> ServerLabel {
        ServerLabel { server: self.label(server) }
    }

    /// The label of a server: its name, if it has one.
    fn label(&self, server: Option<&str>) -> String {
        let named = server.filter(|name| self.of_its_own(name).is_some());
        named.unwrap_or(OTHER).to_owned()
    }

    fn in_flight(&self, server: Option<&str>) -> Gauge {
        server.and_then(|name| self.of_its_own(name)).unwrap_or_else(|| self.others.clone())
    }

    /// Gives the server a label of its own, as long as there are some.
    fn of_its_own(&self, name: &str) -> Option<Gauge> {
        if let Some(gauge) = self.labelled.read_unpoisoned().get(name) {
            return Some(gauge.clone());
        }
        let mut labelled = self.labelled.write_unpoisoned();
        if labelled.len() >= SERVER_LABELS_MAX && !labelled.contains_key(name) {
            return None;
        }
        let made = || self.calls.get_or_create(&ServerLabel { server: name.to_owned() }).clone();
        Some(labelled.entry(name.to_owned()).or_insert_with(made).clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::Metrics;

    #[test]
    fn what_happens_to_servers_is_counted_by_server_and_kind() {
        let metrics = Metrics::new();
        let upstreams = metrics.upstreams();
        upstreams.moved(None, Some("stopped"));
        upstreams.moved(Some("stopped"), Some("starting"));
        upstreams.moved(None, Some("stopped"));
        upstreams.started(Some("files"), true, false);
        upstreams.started(Some("files"), false, true);
        upstreams.given_up(Some("files"));
        upstreams.call_begun(Some("files"));
        upstreams.call_begun(Some("files"));
        upstreams.call_ended(Some("files"));
        upstreams.call_begun(None);
        upstreams.indeterminate(None);
        upstreams.reconnected(Some("files"), "session");
        upstreams.message_dropped(Some("files"), "answer");
        upstreams.log_dropped(Some("files"), 4_096);
        let page = metrics.render();
        for line in [
            r#"gantry_upstream_servers{state="stopped"} 1"#,
            r#"gantry_upstream_servers{state="starting"} 1"#,
            r#"gantry_upstream_starts_total{server="files",outcome="done"} 1"#,
            r#"gantry_upstream_starts_total{server="files",outcome="failed"} 1"#,
            r#"gantry_upstream_restarts_total{server="files"} 1"#,
            r#"gantry_upstream_unavailable_alerts_total{server="files"} 1"#,
            r#"gantry_upstream_calls_in_flight{server="files"} 1"#,
            r#"gantry_upstream_calls_in_flight{server="other"} 1"#,
            r#"gantry_upstream_indeterminate_outcomes_total{server="other"} 1"#,
            r#"gantry_upstream_reconnects_total{server="files",kind="session"} 1"#,
            r#"gantry_upstream_messages_dropped_total{server="files",kind="answer"} 1"#,
            r#"gantry_upstream_log_dropped_bytes_total{server="files"} 4096"#,
        ] {
            assert!(page.contains(line), "{line} in {page}");
        }
    }

    #[test]
    fn servers_past_the_bound_share_a_label_whatever_is_counted() {
        let metrics = Metrics::new();
        for n in 0..super::SERVER_LABELS_MAX + 30 {
            let name = format!("server_{n}");
            metrics.upstreams().started(Some(&name), true, false);
            metrics.upstreams().call_begun(Some(&name));
        }
        let page = metrics.render();
        assert!(page.contains(r#"gantry_upstream_starts_total{server="other",outcome="done"} 30"#));
        assert!(page.contains(r#"gantry_upstream_calls_in_flight{server="other"} 30"#));
        let labels = page.lines().filter(|line| line.starts_with("gantry_upstream_starts_total{")).count();
        assert_eq!(labels, super::SERVER_LABELS_MAX + 1);
    }
}
