//! Probes and metrics: `/health/live`, `/health/ready`, `/health`, `/metrics` (API-004, OPS-010, X-43).
//!
//! Live says the process answers. Ready says it should get calls: store and audit log work and the door is not closing.
//! The detail names every dependency by itself, so that one failure does not hide another. Some are required: without them
//! no call can be run, and the server is not ready. Of the others it says how they are, and goes on. None of the probes needs
//! a token, so without one they only say whether all is well: dependencies and numbers are of all tenants, and for those who
//! may read the metrics. Whoever shows a token that may see servers is told each MCP server of the token's tenant by name.
//! Each dependency has [`PROBE_WAIT`] to answer, all of them at once, and
//! is asked at most once per [`PROBE_KEEP`] however often somebody probes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kernel::{Kernel, WhyUnavailable, sees_metrics};
use policy::{Action, Caller};
use ports::registry_store::StoreError;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use telemetry::MetricsFormat;
use tokio::sync::Mutex;

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::{Door, FreeSpace};
use crate::incoming_request::{CallerCredential, IncomingRequest};

/// How long a dependency may take to answer a probe.
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// How long its answer is good for.
const PROBE_KEEP: Duration = Duration::from_secs(1);

/// Where those ask who only want a word.
const LIVE: &str = "/health/live";
const READY: &str = "/health/ready";

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        mount: |filter| to(filter, live),
        ..probe(LIVE, "isLive", "Does the process answer?", &[(200, "it does")])
    },
    RouteOperation {
        mount: |filter| to(filter, ready),
        ..probe(READY, "isReady", "Should it get calls?", &[(200, "it should"), (503, "it should not")])
    },
    RouteOperation {
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Health>),
        mount: |filter| to(filter, detail),
        ..probe("/health", "getHealth", "How is each dependency?", &[(200, "all are well"), (503, "one is not")])
    },
    RouteOperation {
        access: RouteAccess::Configured,
        gives: ResponseBody::Plain(METRICS_TYPE),
        mount: |filter| to(filter, metrics),
        ..probe("/metrics", "getMetrics", "Metrics for Prometheus", &[(200, "the metrics")])
    },
];

/// What everybody understands; who asks for OpenMetrics gets that.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const fn probe(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    good: &'static [(u16, &'static str)],
) -> RouteOperation {
    RouteOperation {
        verb: RouteMethod::Get,
        path,
        id,
        tag: "operations",
        summary,
        access: RouteAccess::Public,
        parameters: &[],
        asks: RequestBody::Nothing,
        good,
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Word>),
        codes: &[],
        mount: |filter| to(filter, live),
    }
}

/// One word.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "HealthWord")]
struct Word {
    /// `live`, `ready`, `draining` or `not_ready`.
    status: &'static str,
}

/// Everything the server depends on.
#[derive(Debug, Serialize, JsonSchema)]
struct Health {
    /// Is everything well that is required?
    healthy: bool,
    /// Is something of `checks` ill, required or not? Not said where there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<bool>,
    /// The version of this server.
    version: &'static str,
    /// By the name of the dependency, for whoever may read the metrics; MCP servers, as `mcp:NAME`, for whoever may see them.
    checks: BTreeMap<String, Check>,
    /// Published tools and versions, for whoever may read the metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    versions: Option<usize>,
    /// RFC 3339, UTC.
    timestamp: String,
}

/// One dependency.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
struct Check {
    healthy: bool,
    /// Can no call be run without it?
    required: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
    /// Of an MCP server that is not well: `warning` if it does not answer, `critical` if it does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    severity: Option<&'static str>,
}

/// Is this the path of a question that says no more than a word?
pub(super) fn is_probe(path: &str) -> bool {
    [LIVE, READY].contains(&path)
}

async fn live(_: Arc<Door>, _: IncomingRequest) -> Handled {
    HttpAnswer::json(&Word { status: "live" })
}

async fn ready(door: Arc<Door>, _: IncomingRequest) -> Handled {
    let (status, word) = match (door.is_draining(), all_well(&checks(&door).await)) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, true) => (StatusCode::OK, "ready"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
    };
    HttpAnswer::json_with(status, &Word { status: word })
}

async fn detail(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    // A probe needs none, so one that cannot be read is none.
    let shown = incoming.parts.headers.contains_key(http::header::AUTHORIZATION);
    let credential = incoming.credential().ok().filter(|_| shown);
    let is_public = door.metrics_are_public(&incoming.parts.headers);
    drop(incoming);
    let caller = match &credential {
        Some(credential) => door.kernel().recognise(credential.actor()).await.ok(),
        None => None,
    };
    let sees_all = is_public || caller.as_ref().is_some_and(|caller| sees_metrics(caller));
    let all = checks(&door).await;
    let healthy = all_well(&all);
    let mut checks: BTreeMap<String, Check> =
        all.into_iter().filter(|_| sees_all).map(|(name, check)| (name.to_owned(), check)).collect();
    if let (Some(caller), Some(credential)) = (caller, credential) {
        checks.extend(servers(&door, &caller, &credential).await);
    }
    let degraded = (!checks.is_empty()).then(|| checks.values().any(|check| !check.healthy));
    let snapshot = Arc::clone(&door.kernel().registry().snapshot());
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let tools = sees_all.then(|| snapshot.tool_count());
    let versions = sees_all.then(|| snapshot.version_count());
    let timestamp = door.kernel().clock().now().to_string();
    HttpAnswer::json_with(
        status,
        &Health { healthy, degraded, version: env!("CARGO_PKG_VERSION"), checks, tools, versions, timestamp },
    )
}

/// Each MCP server of the caller's tenant, if the caller may see them. (OPS-009, OPS-010)
async fn servers(door: &Door, caller: &Caller, credential: &CallerCredential) -> Vec<(String, Check)> {
    // Asked first, because a look that is refused would be recorded, each time somebody probes.
    let Some(desk) = door.servers().filter(|_| caller.may(Action::SeeServers)) else { return Vec::new() };
    let Ok(reports) = desk.servers(credential.actor(), None).await else { return Vec::new() };
    reports.into_iter().map(|report| (format!("mcp:{}", report.record.name), server(&report.status))).collect()
}

/// How a server fares. One that nobody has wanted is well: it is started when it is.
fn server(status: &serde_json::Value) -> Check {
    let ill =
        |severity, detail| Check { healthy: false, required: false, detail: Some(detail), severity: Some(severity) };
    match status.get("state").and_then(serde_json::Value::as_str) {
        Some("stopped" | "starting" | "ready" | "draining") => check(true, false, ""),
        Some("backoff") => ill("warning", "does not answer and is started again"),
        Some("unreadable") => ill("critical", "its description cannot be read by this release"),
        _ => ill("critical", "was given up and is tried again now and then"),
    }
}

async fn metrics(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    if !door.metrics_are_public(&incoming.parts.headers) {
        door.kernel().may_see_metrics(incoming.credential()?.actor()).await?;
    }
    let held = door.mcp_state().await.text() + &queue_depth(&door).await + &crate::places_text::of(&door);
    let accept = incoming.parts.headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::asked(accept);
    Ok(HttpAnswer::plain(format.media_type(), format.page(door.metrics().render() + &held)))
}

async fn checks(door: &Door) -> BTreeMap<&'static str, Check> {
    let mut checks = door.probe().asked(door).await;
    // These are known without asking anybody, so they are never a second old.
    checks.insert("audit", check(door.kernel().is_recording(), true, "records cannot be written, so no call is run"));
    let altered = "a record is missing or not what was signed: `gantry audit verify` says which";
    checks.insert("audit_log", check(door.kernel().has_whole_log(), false, altered));
    checks.insert("door", check(!door.is_draining(), true, "shutting down"));
    let unreachable = door.kernel().availability().how_many(WhyUnavailable::ServerUnavailable);
    let trouble = "an MCP server behind this one does not answer, so some tools cannot be called";
    checks.insert("servers", check(unreachable == 0, false, trouble));
    let trouble = "no sandbox could be started when one was last wanted, so tools that are programs cannot be called";
    checks.insert("local", check(door.kernel().runs_local_tools(), false, trouble));
    if let Some(answers) = door.inbound_jobs().and_then(|jobs| jobs.workflow_answers()) {
        checks.insert(
            "workflow",
            check(answers, false, "the workflow engine did not answer when this server asked it last"),
        );
    }
    if let Some(membership) = door.membership() {
        let trouble = "another instance knows another shape of the store: bring all to one release";
        checks.insert("instances", check(membership.is_of_one_shape(), false, trouble));
    }
    checks
}

fn check(healthy: bool, required: bool, trouble: &'static str) -> Check {
    Check { healthy, required, detail: (!healthy).then_some(trouble), severity: None }
}

fn all_well(checks: &BTreeMap<&'static str, Check>) -> bool {
    checks.values().all(|check| check.healthy || !check.required)
}

/// Remembers for a moment what the dependencies have said. The lock makes simultaneous probes wait for one answer.
#[derive(Debug, Default)]
pub(crate) struct HealthProbe(Mutex<Option<(Duration, BTreeMap<&'static str, Check>)>>);

impl HealthProbe {
    async fn asked(&self, door: &Door) -> BTreeMap<&'static str, Check> {
        let mut last = self.0.lock().await;
        let now = door.kernel().clock().monotonic();
        if let Some((at, checks)) = &*last
            && now.saturating_sub(*at) < PROBE_KEEP
        {
            return checks.clone();
        }
        let (store, queue, disk, shared) = tokio::join!(
            store_is_well(door.kernel()),
            queue_is_well(door),
            disk_is_well(door.free_space()),
            shared_state_is_well(door)
        );
        let mut checks = BTreeMap::from([("store", check(store, true, "cannot be read or written at the moment"))]);
        checks.extend(queue.map(|well| ("queue", check(well, false, "full, or cannot be read at the moment"))));
        checks.extend(disk.map(|well| ("disk", check(well, false, "little space is left where the data is"))));
        let alone = "away: limits and breakers are this server's own, and what needs all servers is refused";
        checks.extend(shared.map(|well| ("shared_state", check(well, false, alone))));
        *last = Some((now, checks.clone()));
        checks
    }
}

async fn store_is_well(kernel: &Kernel) -> bool {
    answers("store", async { kernel.registry().ping().await.map(|()| true) }).await
}

/// There if jobs are kept. Its bound is asked, because a full queue takes nothing.
async fn queue_is_well(door: &Door) -> Option<bool> {
    let jobs = door.jobs()?;
    let total = jobs.settings().bounds.total;
    Some(answers("queue", async { jobs.counts().await.map(|counts| counts.waiting < total) }).await)
}

/// How long the queue of jobs is, as metrics say it (OBS-006). Nothing if there is no queue, or it does not say in time.
async fn queue_depth(door: &Door) -> String {
    let Some(jobs) = door.jobs() else { return String::new() };
    let Ok(Ok(counts)) = tokio::time::timeout(PROBE_WAIT, jobs.counts()).await else { return String::new() };
    let (waiting, running, most) = (counts.waiting, counts.running, jobs.settings().bounds.total);
    format!(
        "# HELP gantry_jobs Jobs that wait or run\n# TYPE gantry_jobs gauge\n\
         gantry_jobs{{state=\"waiting\"}} {waiting}\ngantry_jobs{{state=\"running\"}} {running}\n\
         # HELP gantry_jobs_waiting_max Jobs that may wait at once\n# TYPE gantry_jobs_waiting_max gauge\n\
         gantry_jobs_waiting_max {most}\n"
    )
}

/// There if somebody said where to look. A disk that does not answer is not well.
async fn disk_is_well(space: Option<&FreeSpace>) -> Option<bool> {
    let space = space?.clone();
    // A disk that hangs must not hold up this thread.
    let looked = tokio::task::spawn_blocking(move || space.is_enough());
    Some(matches!(tokio::time::timeout(PROBE_WAIT, looked).await, Ok(Ok(true))))
}

/// There if replicas share something. It says itself how it is, without being asked long.
async fn shared_state_is_well(door: &Door) -> Option<bool> {
    let health = tokio::time::timeout(PROBE_WAIT, door.shared_state()?.health());
    health.await.map_or(Some(false), |health| (health.kind != "memory").then_some(health.trouble.is_none()))
}

async fn answers(dependency: &'static str, asked: impl Future<Output = Result<bool, StoreError>>) -> bool {
    match tokio::time::timeout(PROBE_WAIT, asked).await {
        Ok(Ok(well)) => well,
        Ok(Err(error)) => {
            tracing::warn!(dependency, error = &error as &dyn std::error::Error, "a dependency does not answer probes");
            false
        }
        Err(_) => {
            tracing::warn!(dependency, "a dependency does not answer probes in time");
            false
        }
    }
}
