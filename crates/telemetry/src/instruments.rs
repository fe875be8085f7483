//! Instruments: every series that Prometheus reads of this crate, with its name, kind, unit, labels and help, in one table.
//!
//! Whoever counts something takes its instrument from [`InstrumentRegistry`] by a row of the table, so that nothing is counted
//! under a name that is not here. A unit is part of a name, as Prometheus wants it, and a counter's samples end in `_total`.
//!
//! Names that others expect (OBS-004, OBS-005) stand as they are; our own begin with `gantry_`.
//!
//! Invariants (each has a test)
//! - INSTR-1: what is on the page is in the table, with this kind and these labels, and what is in the table can be on the page.
//! - INSTR-2: each instrument is on the page of documentation, and dashboards, rules and alerts ask for no name that is not there.
//!
//! Not here: what the process uses (`metrics::process`), and what other crates write on the same page.

use prometheus_client::encoding::EncodeMetric;
use prometheus_client::registry::{Registry, Unit};

/// What an instrument does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstrumentKind {
    Counter,
    Gauge,
    Histogram,
}

/// Row of the table.
#[derive(Debug)]
pub(crate) struct Instrument {
    #[cfg_attr(not(test), expect(dead_code, reason = "what series are held against in tests"))]
    kind: InstrumentKind,
    /// Without prefix, unit and `_total`.
    name: &'static str,
    /// Does the name begin with that of this product?
    is_ours: bool,
    unit: Option<Unit>,
    #[cfg_attr(not(test), expect(dead_code, reason = "what series are held against in tests"))]
    labels: &'static [&'static str],
    help: &'static str,
}

/// The prefix of our own names.
const OURS: &str = "gantry";

/// The table: a constant for each row, and all of them in order.
macro_rules! instruments {
    ($($row:ident: $kind:ident $scope:ident $name:literal $([$unit:ident])? ($($label:literal),*) $help:literal;)*) => {
        $(pub(crate) const $row: Instrument = Instrument {
            kind: InstrumentKind::$kind,
            name: $name,
            is_ours: instruments!(@$scope),
            unit: instruments!(@unit $($unit)?),
            labels: &[$($label),*],
            help: $help,
        };)*

        #[cfg(test)]
        const ALL: &[&Instrument] = &[$(&$row),*];
    };
    (@ours) => { true };
    (@plain) => { false };
    (@unit) => { None };
    (@unit $unit:ident) => { Some(Unit::$unit) };
}

#[rustfmt::skip]
instruments! {
    // Calls.
    CALL_CODES: Counter ours "tool_invocations" ("tool_id", "status", "code") "Calls that came to an end, by the code they ended with";
    CALL_COUNT: Counter plain "tool_invocation_count" ("tool_id", "version", "status", "mutation_class") "Calls that came to an end";
    CALL_LATENCY: Histogram plain "tool_invocation_latency" [Seconds] ("tool_id", "version", "timeout_class") "Time from arrival to answer";
    CALL_COST: Counter plain "tool_invocation_cost" ("tool_id", "version", "cost_category", "currency") "What calls cost, by the part of the bill";
    CALL_RETRIES: Counter plain "tool_invocation_retries" ("tool_id", "version") "Times that calls were sent again";
    EXECUTIONS: Counter plain "tool_execution" ("tenant_id", "tool_name", "status") "Calls that came to an end, by tenant";
    EXECUTION_DURATION: Histogram plain "tool_execution_duration" [Seconds] ("tenant_id", "tool_name", "gateway") "Time from arrival to answer, by tenant";
    REPLAYS: Counter plain "tool_idempotency_cache_hits" ("tenant_id", "tool_name") "Calls that were answered with the outcome of an earlier one";
    SIDE_EFFECTS: Counter plain "tool_side_effect" ("tenant_id", "policy") "Calls of tools with effects that succeeded";

    // What the kernel tells besides.
    REGISTRY_TOOLS: Gauge ours "registry_tools" () "Registered tools";
    REGISTRY_VERSIONS: Gauge ours "registry_versions" () "Registered versions";
    AUDIT_QUEUE: Gauge ours "audit_queue_records" () "Audit records waiting to be written";
    AUDIT_APPEND_FAILURES: Counter ours "audit_append_failures" () "Failed writes of audit records";
    AUDIT_LOG_FAULTS: Counter ours "audit_log_faults" () "Times that records of the audit log were found to be missing or changed";
    AUDIT_DELIVERY: Histogram ours "audit_delivery" [Seconds] () "How long the oldest record of each write had waited to be durable";
    TRACE_CALLS: Counter ours "trace_calls" ("outcome") "Calls whose trace was sent, or was not";
    POLICY_DECISIONS: Counter ours "policy_decisions" ("cache") "Policy decisions, by whether they were remembered";
    OFFERING_LISTS: Counter ours "offering_lists" ("cache") "Lists of what servers offer besides tools, by whether they were remembered";
    IDENTITY_LOOKUPS: Counter ours "identity_lookups" ("cache") "Credentials shown, by whether they were remembered";
    AUTHENTICATION_FAILURES: Counter ours "authentication_failures" ("code") "Callers that could not prove who they are";
    ISSUER_KEY_FETCHES: Counter ours "issuer_key_fetches" ("outcome") "Fetches of another issuer's key set";
    TOOL_MESSAGES: Counter ours "tool_messages" ("kind") "Progress and log lines of running tools, by kind";
    LEDGER_EVENTS: Counter ours "ledger_events" ("event") "What came of asking the ledger of calls with effects";
    LEDGER_ENDS_UNWRITTEN: Gauge ours "ledger_ends_unwritten" () "Calls that have ended and whose end could not be written yet";

    // MCP servers behind Gantry.
    UPSTREAM_SERVERS: Gauge ours "upstream_servers" ("state") "Servers behind Gantry that somebody has wanted, by state";
    UPSTREAM_STARTS: Counter ours "upstream_starts" ("server", "outcome") "Starts of servers, by how they went";
    UPSTREAM_RESTARTS: Counter ours "upstream_restarts" ("server") "Starts of servers that had been started before";
    UPSTREAM_UNAVAILABLE: Counter ours "upstream_unavailable_alerts" ("server") "Times a server was given up";
    UPSTREAM_CALLS: Gauge ours "upstream_calls_in_flight" ("server") "Calls on servers that have not ended";
    UPSTREAM_INDETERMINATE: Counter ours "upstream_indeterminate_outcomes" ("server") "Calls of which nobody knows what came of them";
    UPSTREAM_RECONNECTS: Counter ours "upstream_reconnects" ("server", "kind") "Connections that had broken and were made anew, by kind";
    UPSTREAM_MESSAGES_DROPPED: Counter ours "upstream_messages_dropped" ("server", "kind") "What servers said and nobody heard, by kind";
    UPSTREAM_LOG_DROPPED: Counter ours "upstream_log_dropped_bytes" ("server") "Bytes of servers' logs that were not kept";

    // Sinks of the audit log, and the archive of its records.
    SINK_DELIVERED: Counter ours "audit_sink_delivered_records" ("sink") "Audit records that a sink has acknowledged";
    SINK_FAILURES: Counter ours "audit_sink_failures" ("sink") "Deliveries to a sink that failed";
    SINK_LAG_RECORDS: Gauge ours "audit_sink_lag_records" ("sink") "Audit records that a sink has not acknowledged yet";
    SINK_LAG: Gauge ours "audit_sink_lag" [Seconds] ("sink") "Age of the oldest audit record that a sink has not acknowledged";
    SINK_STATE: Gauge ours "audit_sink_state" ("sink", "state") "1 for the state a sink is in, 0 for those it was in before";
    SINK_DELIVERY: Histogram ours "audit_sink_delivery" [Seconds] ("sink") "How long the oldest record of each delivery had waited for a sink to acknowledge it";
    ARCHIVE_MONTHS_DROPPED: Counter ours "archive_months_dropped" ("table") "Months of the archive that this instance has dropped";
    ARCHIVE_RECORDS: Gauge ours "archive_records" () "Audit records that all instances have brought to the archive, as last counted";
    ARCHIVE_MONTHS: Gauge ours "archive_months" () "Months that the tables of the archive have together";

    // Breakers, limits, retries, and the state they are kept in.
    BREAKER_STATE: Gauge ours "breaker_state" ("service", "endpoint", "state") "In which state a breaker is: 1 for that one, 0 for the others";
    BREAKER_TRANSITIONS: Counter ours "breaker_transitions" ("service", "endpoint", "from", "to") "Changes of state of breakers";
    BREAKER_REFUSALS: Counter ours "breaker_refusals" ("service", "endpoint") "Calls that a breaker refused";
    RATE_LIMIT_REFUSALS: Counter ours "rate_limit_refusals" ("scope") "Calls that a limit refused, by whom it is for";
    RETRIES: Counter ours "retries" ("budget") "Calls that were to be tried again, by what the shared budget said";
    SHARED_STATE_EVICTIONS: Counter ours "shared_state_evictions" ("kind") "Idle entries of the shared state in memory that were forgotten for want of room";
    SHARED_STATE_FALLBACK: Counter ours "shared_state_fallback" ("use") "Steps of breakers and limits that were made by this replica alone, because the shared state was away";
    STALE_RESULTS: Counter ours "stale_results" ("answer") "Times a former result was asked for because a breaker was open, by what came of it";
    LAST_RESULTS: Gauge ours "last_results_bytes" () "Memory taken by the last good results that may be answered while a breaker is open, in bytes";
    SHARED_STATE_UP: Gauge ours "shared_state_up" () "Whether the state that replicas share is reached; what a server has in its own memory always is";

    // The store, and TLS.
    STORE_CONNECTIONS: Gauge ours "store_connections" ("state") "Connections to the store's database, by state";
    STORE_CONNECTIONS_MAX: Gauge ours "store_connections_max" () "Most connections to the store's database; 0 if the store is a file";
    CERTIFICATE_EXPIRY: Gauge ours "tls_certificate_expiry_timestamp" [Seconds] ("certificate") "When the certificate in force ends, in seconds since 1970";
    CERTIFICATE_RELOADS: Counter ours "tls_certificate_reloads" ("outcome") "Changes of the certificate's files, by whether the new ones are in force";
    TLS_HANDSHAKES: Counter ours "tls_handshakes" ("outcome") "TLS handshakes, by their outcome";
}

/// Where instruments are registered, which makes them readable.
#[derive(Debug)]
pub(crate) struct InstrumentRegistry {
    ours: Registry,
    plain: Registry,
}

impl Default for InstrumentRegistry {
    fn default() -> Self {
        Self { ours: Registry::with_prefix(OURS), plain: Registry::default() }
    }
}

impl InstrumentRegistry {
    /// The instrument of a row, at zero.
    pub(crate) fn made<M: RegisteredMetric + Default>(&mut self, row: &Instrument) -> M {
        self.with(row, M::default())
    }

    /// The instrument of a row, if it is not made in the usual way.
    pub(crate) fn with<M: RegisteredMetric>(&mut self, row: &Instrument, metric: M) -> M {
        let registry = if row.is_ours { &mut self.ours } else { &mut self.plain };
        match &row.unit {
            Some(unit) => registry.register_with_unit(row.name, row.help, unit.clone(), metric.clone()),
            None => registry.register(row.name, row.help, metric.clone()),
        }
        metric
    }

    /// What is written on the page, ours first.
    pub(crate) fn registries(&self) -> [&Registry; 2] {
        [&self.ours, &self.plain]
    }
}

/// Something that can be registered, and counted with after that.
pub(crate) trait RegisteredMetric: EncodeMetric + Clone + Send + Sync + std::fmt::Debug + 'static {}

impl<M: EncodeMetric + Clone + Send + Sync + std::fmt::Debug + 'static> RegisteredMetric for M {}

#[cfg(test)]
mod tests;
