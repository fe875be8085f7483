//! What is counted of calls: the instruments of OBS-004 and OBS-005 under their names, with underscores for the dots.
//!
//! Rates are not here: they are made from counters by whoever reads them (`deploy/prometheus`). Agents are not labels, because
//! there is no end of them; traces name them.
//!
//! Invariants
//! - LAB-1: labels come from bounded sets. A name a caller made up never becomes one, and past the bounds the rest share one.
//! - LAB-2: the ordinary end of an ordinary call finds its series without building anything.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};

use base::RwLockExt as _;
use contract::cost::Costs;
use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::{TenantId, TraceId};
use contract::manifest::{Execution, MutationClass, TimeoutClass};
use contract::money::Currency;
use contract::version::Version;
use ports::observer::FinishedCall;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::HistogramWithExemplars;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::instruments::{self, InstrumentRegistry};

/// Tools, and tenants, with a label of their own.
pub(super) const TOOL_LABELS_MAX: usize = 1_000;
pub(super) const TENANT_LABELS_MAX: usize = 100;
/// Combinations of tool, version and tenant with series of their own.
pub(super) const SERIES_MAX: usize = 3_000;
/// The label of all others, and of calls whose tool was never found.
const OTHER: &str = "other";
/// Upper bounds of the duration buckets, in seconds. The limits of the timeout classes are among them.
const DURATION_BUCKETS: [f64; 16] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    tool_id: String,
    status: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CountLabels {
    tool_id: String,
    version: String,
    status: &'static str,
    mutation_class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LatencyLabels {
    tool_id: String,
    version: String,
    timeout_class: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CostLabels {
    tool_id: String,
    version: String,
    cost_category: &'static str,
    /// That of the tool's manifest, `USD`, or `other`: what a tool reports must not make up labels.
    currency: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VersionLabels {
    tool_id: String,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExecutionLabels {
    tenant_id: String,
    tool_name: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantToolLabels {
    tenant_id: String,
    tool_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    tenant_id: String,
    tool_name: String,
    /// The kind of executor, by the version's manifest.
    gateway: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EffectLabels {
    tenant_id: String,
    policy: &'static str,
}

/// The trace a measurement comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TraceLabel {
    trace_id: Written,
}

/// An id that is written when somebody reads it: most measurements are followed by another before that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Written(TraceId);

impl EncodeLabelValue for Written {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        write!(encoder, "{}", self.0)
    }
}

type Exemplary = HistogramWithExemplars<TraceLabel>;
type Money = Counter<f64, AtomicU64>;

/// Everything that is counted of calls.
#[derive(Debug)]
pub(super) struct CallMetrics {
    families: Families,
    known: RwLock<Known>,
    /// What is counted for all others.
    others: Arc<Series>,
}

#[derive(Debug, Clone)]
struct Families {
    codes: Family<CodeLabels, Counter>,
    counts: Family<CountLabels, Counter>,
    latencies: Family<LatencyLabels, Exemplary, fn() -> Exemplary>,
    costs: Family<CostLabels, Money>,
    retries: Family<VersionLabels, Counter>,
    executions: Family<ExecutionLabels, Counter>,
    durations: Family<DurationLabels, Histogram, fn() -> Histogram>,
    replays: Family<TenantToolLabels, Counter>,
    effects: Family<EffectLabels, Counter>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the name of the tool; the few of each are looked through.
    tools: HashMap<String, Vec<Arc<Series>>>,
    tenants: HashSet<TenantId>,
    series: usize,
}

/// The series of one tool in one version for one tenant.
#[derive(Debug)]
struct Series {
    tool: String,
    version: String,
    /// The same, as calls have it.
    of_version: Option<Version>,
    /// Of whom it is the series, which is not always their label.
    tenant: Option<TenantId>,
    tenant_label: String,
    mutation_class: &'static str,
    /// By far the most frequent end of a call.
    successes: [Counter; 3],
    latency: Exemplary,
    duration: Histogram,
    /// What its prices are in.
    currency: Currency,
    /// Of calls that ran and have effects.
    effects: Option<Counter>,
}

impl CallMetrics {
    pub(super) fn new(registry: &mut InstrumentRegistry) -> Self {
        let latencies: Family<_, _, fn() -> Exemplary> =
            Family::new_with_constructor(|| Exemplary::new(DURATION_BUCKETS.into_iter()));
        let durations: Family<_, _, fn() -> Histogram> =
            Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS));
        let families = Families {
            codes: registry.made(&instruments::CALL_CODES),
            counts: registry.made(&instruments::CALL_COUNT),
            latencies: registry.with(&instruments::CALL_LATENCY, latencies),
            costs: registry.made(&instruments::CALL_COST),
            retries: registry.made(&instruments::CALL_RETRIES),
            executions: registry.made(&instruments::EXECUTIONS),
            durations: registry.with(&instruments::EXECUTION_DURATION, durations),
            replays: registry.made(&instruments::REPLAYS),
            effects: registry.made(&instruments::SIDE_EFFECTS),
        };
        let others = Arc::new(Series::new(&families, None, OTHER, "", None, OTHER));
        Self { families, known: RwLock::default(), others }
    }

    /// A call came to its end.
    pub(super) fn finished(&self, event: &FinishedCall<'_>) {
        let series = self.series(event);
        let took = event.duration.as_secs_f64();
        let exemplar = event.trace.map(|trace| TraceLabel { trace_id: Written(trace.trace_id) });
        series.latency.observe(took, exemplar, None);
        series.duration.observe(took);
        if event.retries > 0 {
            let labels = VersionLabels { tool_id: series.tool.clone(), version: series.version.clone() };
            self.families.retries.get_or_create(&labels).inc_by(event.retries.into());
        }
        if event.replayed {
            let labels = TenantToolLabels { tenant_id: series.tenant_label.clone(), tool_name: series.tool.clone() };
            self.families.replays.get_or_create(&labels).inc();
        } else if let (InvocationStatus::Success, Some(effects)) = (event.status, &series.effects) {
            effects.inc();
        }
        // A call that failed may have cost something too.
        if !event.costs.is_zero() {
            self.paid(&series, event.costs);
        }
        if event.status == InvocationStatus::Success {
            for counter in &series.successes {
                counter.inc();
            }
        } else {
            let code = event.code.map_or("", ErrorCode::as_str);
            for counter in self.families.ends(&series, event.status, code) {
                counter.inc();
            }
        }
    }

    /// Adds a bill. Sums of money are floats here and nowhere else: Prometheus has nothing else.
    fn paid(&self, series: &Series, costs: &Costs) {
        let known = costs.currency == series.currency || costs.currency == Currency::USD;
        let currency = if known { costs.currency.as_str() } else { OTHER };
        for (component, amount) in costs.parts() {
            let labels = CostLabels {
                tool_id: series.tool.clone(),
                version: series.version.clone(),
                cost_category: component.as_str(),
                currency: currency.to_owned(),
            };
            let amount: f64 = amount.to_string().parse().unwrap_or(0.0);
            self.families.costs.get_or_create(&labels).inc_by(amount);
        }
    }

    /// LAB-2.
    fn series(&self, event: &FinishedCall<'_>) -> Arc<Series> {
        let name = event.tool.map_or(OTHER, |tool| tool.as_str());
        let known = self.known.read_unpoisoned();
        let found = known.tools.get(name).and_then(|all| all.iter().find(|series| series.is_of(event)).cloned());
        drop(known);
        found.unwrap_or_else(|| self.made(event, name))
    }

    /// LAB-1.
    fn made(&self, event: &FinishedCall<'_>, name: &str) -> Arc<Series> {
        let mut known = self.known.write_unpoisoned();
        if let Some(series) = known.tools.get(name).and_then(|all| all.iter().find(|series| series.is_of(event))) {
            return Arc::clone(series);
        }
        let room = known.tools.len() < TOOL_LABELS_MAX || known.tools.contains_key(name);
        if !room || known.series >= SERIES_MAX {
            return Arc::clone(&self.others);
        }
        let tenant_label = match event.tenant {
            None => OTHER,
            Some(tenant) if known.tenants.contains(tenant) => tenant.as_str(),
            Some(tenant) if known.tenants.len() < TENANT_LABELS_MAX => {
                known.tenants.insert(tenant.clone());
                tenant.as_str()
            }
            Some(_) => OTHER,
        };
        let version = event.version.map_or_else(String::new, |version| version.version.to_string());
        let series =
            Arc::new(Series::new(&self.families, Some(event), name, &version, event.tenant.cloned(), tenant_label));
        known.series += 1;
        known.tools.entry(name.to_owned()).or_default().push(Arc::clone(&series));
        series
    }
}

impl Families {
    /// What is counted when a call with these labels ends so.
    fn ends(&self, of: &Series, status: InvocationStatus, code: &'static str) -> [Counter; 3] {
        self.ends_of(&of.tool, &of.version, &of.tenant_label, of.mutation_class, status, code)
    }

    fn ends_of(
        &self,
        tool: &str,
        version: &str,
        tenant: &str,
        mutation_class: &'static str,
        status: InvocationStatus,
        code: &'static str,
    ) -> [Counter; 3] {
        let (tool, status) = (tool.to_owned(), status.as_str());
        let codes = CodeLabels { tool_id: tool.clone(), status, code };
        let counts = CountLabels { tool_id: tool.clone(), version: version.to_owned(), status, mutation_class };
        let executions = ExecutionLabels { tenant_id: tenant.to_owned(), tool_name: tool, status };
        [
            self.codes.get_or_create(&codes).clone(),
            self.counts.get_or_create(&counts).clone(),
            self.executions.get_or_create(&executions).clone(),
        ]
    }
}

impl Series {
    fn new(
        families: &Families,
        event: Option<&FinishedCall<'_>>,
        tool: &str,
        version: &str,
        tenant: Option<TenantId>,
        tenant_label: &str,
    ) -> Self {
        let manifest = event.and_then(|event| event.version).map(|version| &version.manifest);
        let policy = manifest.map(|manifest| manifest.side_effect_policy);
        let mutation_class = policy.map_or("", |policy| match policy.mutation_class() {
            MutationClass::ReadOnly => "read-only",
            MutationClass::WriteReversible => "write-reversible",
            MutationClass::WriteIrreversible => "write-irreversible",
        });
        let timeout_class = manifest.map_or("", |manifest| match manifest.timeout_class {
            TimeoutClass::Interactive => "interactive",
            TimeoutClass::Standard => "standard",
            TimeoutClass::LongRunning => "long-running",
            TimeoutClass::Async => "async",
        });
        let (tool_id, version_label) = (tool.to_owned(), version.to_owned());
        let latency = LatencyLabels { tool_id: tool_id.clone(), version: version_label.clone(), timeout_class };
        let gateway = manifest.and_then(|manifest| manifest.execution.as_ref()).map_or("", Execution::kind);
        let duration = DurationLabels { tenant_id: tenant_label.to_owned(), tool_name: tool_id.clone(), gateway };
        let currency = manifest.and_then(|manifest| manifest.cost_config.as_ref()?.currency).unwrap_or_default();
        let effects = policy.filter(|policy| policy.has_effects()).map(|policy| {
            let labels = EffectLabels { tenant_id: tenant_label.to_owned(), policy: policy.as_str() };
            families.effects.get_or_create(&labels).clone()
        });
        let success = InvocationStatus::Success;
        Self {
            successes: families.ends_of(tool, version, tenant_label, mutation_class, success, ""),
            latency: families.latencies.get_or_create(&latency).clone(),
            duration: families.durations.get_or_create(&duration).clone(),
            tool: tool_id,
            version: version_label,
            of_version: event.and_then(|event| event.version).map(|version| version.version.clone()),
            tenant,
            tenant_label: tenant_label.to_owned(),
            mutation_class,
            currency,
            effects,
        }
    }

    fn is_of(&self, event: &FinishedCall<'_>) -> bool {
        let version = match (event.version.map(|version| &version.version), &self.of_version) {
            (None, None) => true,
            // Versions are equal whatever was built of them, labels are not.
            (Some(theirs), Some(ours)) => theirs == ours && theirs.build() == ours.build(),
            _ => false,
        };
        version && self.tenant.as_ref() == event.tenant
    }
}
