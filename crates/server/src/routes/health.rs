//! Probes and metrics: `/health/live`, `/health/ready`, `/health`, `/metrics` (API-004, OPS-010, X-43).
//!
//! Live says the process answers. Ready says it should get calls: store and audit log work and the door is not closing.
//! The detail names every dependency by itself, so that one failure does not hide another. None of them needs a token, so
//! none of them tells a secret, and the store is asked at most once per [`PROBE_KEEP`] however often they are called.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kernel::Kernel;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use telemetry::MetricsFormat;
use tokio::sync::Mutex;

use super::{Access, Asks, Gives, Operation, Verb, to};
use crate::answer::{Answer, Handled};
use crate::door::Door;
use crate::incoming::Incoming;

/// How long the store may take to answer a probe.
const PROBE_WAIT: Duration = Duration::from_secs(1);
/// How long the answer of the store is good for.
const PROBE_KEEP: Duration = Duration::from_secs(1);

pub(super) static OPERATIONS: &[Operation] = &[
    Operation {
        mount: |filter| to(filter, live),
        ..probe("/health/live", "isLive", "Does the process answer?", &[(200, "it does")])
    },
    Operation {
        mount: |filter| to(filter, ready),
        ..probe("/health/ready", "isReady", "Should it get calls?", &[(200, "it should"), (503, "it should not")])
    },
    Operation {
        gives: Gives::Json(SchemaGenerator::subschema_for::<Health>),
        mount: |filter| to(filter, detail),
        ..probe("/health", "getHealth", "How is each dependency?", &[(200, "all are well"), (503, "one is not")])
    },
    Operation {
        access: Access::Configured,
        gives: Gives::Plain(METRICS_TYPE),
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
) -> Operation {
    Operation {
        verb: Verb::Get,
        path,
        id,
        tag: "operations",
        summary,
        access: Access::Public,
        parameters: &[],
        asks: Asks::Nothing,
        good,
        gives: Gives::Json(SchemaGenerator::subschema_for::<Word>),
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
    healthy: bool,
    /// The version of this server.
    version: &'static str,
    /// By the name of the dependency.
    checks: BTreeMap<&'static str, Check>,
    /// Published tools and versions.
    tools: usize,
    versions: usize,
    /// RFC 3339, UTC.
    timestamp: String,
}

/// One dependency.
#[derive(Debug, Serialize, JsonSchema)]
struct Check {
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
}

async fn live(_: Arc<Door>, _: Incoming) -> Handled {
    Answer::json(&Word { status: "live" })
}

async fn ready(door: Arc<Door>, _: Incoming) -> Handled {
    let (status, word) = match (door.is_draining(), all_well(&checks(&door).await)) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, true) => (StatusCode::OK, "ready"),
        (false, false) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
    };
    Answer::json_with(status, &Word { status: word })
}

async fn detail(door: Arc<Door>, _: Incoming) -> Handled {
    let checks = checks(&door).await;
    let healthy = all_well(&checks);
    let snapshot = Arc::clone(&door.kernel().registry().snapshot());
    let status = if healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let (tools, versions) = (snapshot.tool_count(), snapshot.version_count());
    let timestamp = door.kernel().clock().now().to_string();
    Answer::json_with(
        status,
        &Health { healthy, version: env!("CARGO_PKG_VERSION"), checks, tools, versions, timestamp },
    )
}

async fn metrics(door: Arc<Door>, incoming: Incoming) -> Handled {
    if !door.metrics_are_public() {
        door.kernel().recognise(incoming.credential()?.actor()).await?;
    }
    let held = door.mcp_state().await.text();
    let accept = incoming.parts.headers.get(http::header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = MetricsFormat::asked(accept);
    Ok(Answer::plain(format.media_type(), format.page(door.metrics().render() + &held)))
}

async fn checks(door: &Door) -> BTreeMap<&'static str, Check> {
    let check = |healthy, trouble| Check { healthy, detail: (!healthy).then_some(trouble) };
    BTreeMap::from([
        ("audit", check(door.kernel().is_recording(), "records cannot be written, so no call is run")),
        ("door", check(!door.is_draining(), "shutting down")),
        ("store", check(door.probe().store_is_well(door.kernel()).await, "cannot be read or written at the moment")),
    ])
}

fn all_well(checks: &BTreeMap<&'static str, Check>) -> bool {
    checks.values().all(|check| check.healthy)
}

/// Remembers for a moment how the store was. The lock makes simultaneous probes wait for one answer.
#[derive(Debug, Default)]
pub(crate) struct Probe(Mutex<Option<(Duration, bool)>>);

impl Probe {
    async fn store_is_well(&self, kernel: &Kernel) -> bool {
        let mut last = self.0.lock().await;
        let now = kernel.clock().monotonic();
        if let Some((at, well)) = *last
            && now.saturating_sub(at) < PROBE_KEEP
        {
            return well;
        }
        let well = match tokio::time::timeout(PROBE_WAIT, kernel.registry().ping()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the store does not answer probes");
                false
            }
            Err(_) => {
                tracing::warn!("the store does not answer probes in time");
                false
            }
        };
        *last = Some((now, well));
        well
    }
}
