//! How tools fare: `/v1/tools/{id}/health`, `/v1/health/tools`, `/v1/alerts` (OBS-007…009).

use std::sync::Arc;

use contract::error::ErrorCode;
use contract::ids::{TenantId, ToolId};
use contract::manifest::TimeoutClass;
use contract::version::Version;
use insights::HealthView;
use insights::health::HealthReport;
use insights::health::alerts::Reclassify;
use insights::health::window::WINDOW;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        parameters: &[RouteParameter {
            place: ParameterPlace::Path,
            name: "id",
            about: "`namespace.tool_id`, `tool_id`, or an alias",
            schema: SchemaGenerator::subschema_for::<String>,
        }],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<ToolHealth>),
        codes: &[ErrorCode::E3010, ErrorCode::E3101],
        mount: |filter| to(filter, of_tool),
        ..look(
            "/v1/tools/{id}/health",
            "getToolHealth",
            "How one tool fares, by version",
            &[(200, "its versions, newest first")],
        )
    },
    RouteOperation {
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<HealthList>),
        codes: &[ErrorCode::E3010],
        mount: |filter| to(filter, of_all),
        ..look(
            "/v1/health/tools",
            "listToolHealth",
            "How every tool fares that this token may know and somebody has called",
            &[(200, "the worst first, those that nobody calls last")],
        )
    },
    RouteOperation {
        parameters: &[TENANT],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Alerts>),
        codes: &[ErrorCode::E3004, ErrorCode::E3010],
        mount: |filter| to(filter, alerts),
        ..look("/v1/alerts", "listAlerts", "What is raised about the tools of a tenant", &[(200, "the oldest first")])
    },
];

const fn look(
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
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Nothing,
        good,
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<HealthList>),
        codes: &[],
        mount: |filter| to(filter, of_all),
    }
}

#[derive(Debug, Serialize, JsonSchema)]
struct ToolHealth {
    tool_id: ToolId,
    /// Those that somebody has called since the server knows of them, newest first.
    versions: Vec<VersionHealth>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct HealthList {
    tools: Vec<VersionHealth>,
}

/// How one version fares.
#[derive(Debug, Serialize, JsonSchema)]
struct VersionHealth {
    tool_id: ToolId,
    version: Version,
    /// `healthy`, `degraded`, `unhealthy`, or `unknown` if nobody has called it in the window.
    status: &'static str,
    /// From 0 to 1; null if unknown.
    score: Option<f64>,
    /// What the score is about.
    window_seconds: u64,
    /// Null for tools of another tenant: how often those are called is not yours to know.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<WindowView>,
    /// What is raised about it.
    alerts: Vec<Raised>,
    /// What should be declared otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<Suggestion>,
}

/// The calls of the window.
#[derive(Debug, Serialize, JsonSchema)]
struct WindowView {
    calls: u64,
    errors: u64,
    timeouts: u64,
    error_rate: Option<f64>,
    timeout_rate: Option<f64>,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// What is usual; null until enough was seen.
    baseline_p99_ms: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RaisedAlert")]
struct Raised {
    /// `ToolDegraded`, `LatencyRegression`, `TimeoutClassMismatch`, `TOOL_OUTPUT_SCHEMA_VIOLATION` or
    /// `TOOL_OUTPUT_CORRUPTION`.
    alert: &'static str,
    /// RFC 3339, UTC.
    raised_at: String,
}

/// Another timeout class.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "TimeoutSuggestion")]
pub(super) struct Suggestion {
    /// `RECLASSIFY_TIMEOUT`.
    recommendation: &'static str,
    from: TimeoutClass,
    to: TimeoutClass,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Alerts {
    alerts: Vec<AlertView>,
}

/// One alert that is raised.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Alert")]
struct AlertView {
    alert: &'static str,
    tenant_id: TenantId,
    tool_id: ToolId,
    version: Version,
    raised_at: String,
    score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<Suggestion>,
}

async fn of_tool(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [id] = incoming.path_values().await?;
    incoming.query(&[])?;
    let (tool_id, versions) = door.insights()?.tool_health(who.actor(), &id).await?;
    HttpAnswer::json(&ToolHealth { tool_id, versions: versions.iter().map(VersionHealth::of).collect() })
}

async fn of_all(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    incoming.query(&[])?;
    let tools = door.insights()?.tools_health(who.actor()).await?;
    HttpAnswer::json(&HealthList { tools: tools.iter().map(VersionHealth::of).collect() })
}

async fn alerts(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let tenant = tenant_asked(&incoming)?;
    let raised = door.insights()?.alerts(who.actor(), tenant.as_ref()).await?;
    let alerts = raised.into_iter().map(|(rule, at, report)| AlertView {
        alert: rule.as_str(),
        score: report.score,
        suggestion: report.suggestion.map(Suggestion::of),
        tenant_id: report.key.tenant,
        tool_id: report.key.tool,
        version: report.key.version,
        raised_at: at.to_string(),
    });
    HttpAnswer::json(&Alerts { alerts: alerts.collect() })
}

impl Suggestion {
    pub(super) fn of(Reclassify { from, to }: Reclassify) -> Self {
        Self { recommendation: Reclassify::NAME, from, to }
    }
}

impl VersionHealth {
    fn of(view: &HealthView) -> Self {
        let report = &view.report;
        Self {
            tool_id: report.key.tool.clone(),
            version: report.key.version.clone(),
            status: report.condition.as_str(),
            score: report.score.map(rounded),
            window_seconds: WINDOW.as_secs(),
            window: view.counts_shown.then(|| WindowView::of(report)),
            alerts: report
                .raised
                .iter()
                .map(|(rule, at)| Raised { alert: rule.as_str(), raised_at: at.to_string() })
                .collect(),
            suggestion: report.suggestion.map(Suggestion::of),
        }
    }
}

impl WindowView {
    fn of(report: &HealthReport) -> Self {
        let counts = &report.counts;
        Self {
            calls: counts.calls,
            errors: counts.errors,
            timeouts: counts.timeouts,
            error_rate: counts.error_rate().map(rounded),
            timeout_rate: counts.timeout_rate().map(rounded),
            p50_ms: millis(&counts.latencies, 0.5),
            p95_ms: millis(&counts.latencies, 0.95),
            p99_ms: millis(&counts.latencies, 0.99),
            baseline_p99_ms: report.baseline_p99_ms.map(rounded),
        }
    }
}

/// A percentile in milliseconds.
pub(super) fn millis(latencies: &ports::latency::Latencies, share: f64) -> Option<f64> {
    latencies.quantile(share).map(|took| rounded(took.as_secs_f64() * 1e3))
}

/// Three digits are more than is known.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
