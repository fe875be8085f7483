//! `POST /v1/tools/{id}/quarantine` and `/release` (REG-024), and `GET /v1/tools/{id}/deprecation`: who still calls versions
//! that end (REG-012).

use std::sync::Arc;

use contract::envelope::DeprecationNotice;
use contract::error::ErrorCode;
use contract::ids::{Subject, ToolId};
use contract::manifest::LifecycleState;
use contract::version::Version;
use insights::EndingVersion;
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

const TOOL: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "id",
    about: "`namespace.tool_id`, `tool_id`, or an alias",
    schema: SchemaGenerator::subschema_for::<String>,
};
const CODES: &[ErrorCode] =
    &[ErrorCode::E3004, ErrorCode::E3101, ErrorCode::E3206, ErrorCode::E3408, ErrorCode::E3801, ErrorCode::E3803];

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/tools/{id}/quarantine",
        id: "quarantineTool",
        tag: "lifecycle",
        summary: "Take a tool out of use, in every version and on every instance, until it is released",
        access: RouteAccess::Token,
        parameters: &[TOOL, TENANT],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<ReasonBody>),
        good: &[(200, "nobody can call it any more")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<QuarantineAnswer>),
        codes: CODES,
        mount: |filter| to(filter, quarantine),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/tools/{id}/release",
        id: "releaseTool",
        tag: "lifecycle",
        summary: "Put a tool that a person has taken out of use back into it",
        access: RouteAccess::Token,
        parameters: &[TOOL, TENANT],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<ReasonBody>),
        good: &[(200, "it can be called again")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<QuarantineAnswer>),
        codes: CODES,
        mount: |filter| to(filter, release),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/tools/{id}/deprecation",
        id: "getToolDeprecation",
        tag: "lifecycle",
        summary: "How often the versions of a tool that end are still called, on all instances",
        access: RouteAccess::Token,
        parameters: &[TOOL],
        asks: RequestBody::Nothing,
        good: &[(200, "its versions that end, newest first")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<DeprecationUse>),
        codes: &[ErrorCode::E3010, ErrorCode::E3101, ErrorCode::E3206],
        mount: |filter| to(filter, deprecation),
    },
];

/// Why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Reason")]
struct ReasonBody {
    #[schemars(length(min = 1, max = 500))]
    reason: String,
}

/// How a tool stands.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolQuarantine")]
struct QuarantineAnswer {
    tool_id: ToolId,
    quarantined: bool,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    quarantine: Option<QuarantineView>,
}

/// By whom a tool was taken out of use, and why.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Quarantine")]
struct QuarantineView {
    reason: String,
    by: Subject,
    /// RFC 3339, UTC.
    at: String,
}

/// The versions of a tool that end.
#[derive(Debug, Serialize, JsonSchema)]
struct DeprecationUse {
    tool_id: ToolId,
    versions: Vec<EndingVersionView>,
}

/// One of them.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EndingVersion")]
struct EndingVersionView {
    version: Version,
    lifecycle_state: LifecycleState,
    deprecation: DeprecationNotice,
    calls_last_24_hours: u64,
    calls_last_7_days: u64,
    /// RFC 3339, UTC: since when its calls are counted.
    counted_since: String,
}

async fn quarantine(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let ReasonBody { reason } = incoming.json(&door, &who).await?.typed()?;
    let [id] = incoming.path_values().await?;
    let tenant = tenant_asked(&incoming)?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let held = kernel.quarantine(who.actor(), tenant.as_ref(), &id, &reason).await?;
        let quarantine = QuarantineView { reason: held.reason, by: held.by, at: held.at.to_string() };
        HttpAnswer::json(&QuarantineAnswer { tool_id: held.tool, quarantined: true, quarantine: Some(quarantine) })
    })
    .await
}

async fn release(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let ReasonBody { reason } = incoming.json(&door, &who).await?.typed()?;
    let [id] = incoming.path_values().await?;
    let tenant = tenant_asked(&incoming)?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let tool_id = kernel.release(who.actor(), tenant.as_ref(), &id, &reason).await?;
        HttpAnswer::json(&QuarantineAnswer { tool_id, quarantined: false, quarantine: None })
    })
    .await
}

async fn deprecation(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [id] = incoming.path_values().await?;
    incoming.query(&[])?;
    let (tool_id, versions) = door.insights()?.ending_versions(who.actor(), &id).await?;
    HttpAnswer::json(&DeprecationUse { tool_id, versions: versions.into_iter().map(EndingVersionView::of).collect() })
}

impl EndingVersionView {
    fn of(ending: EndingVersion) -> Self {
        Self {
            version: ending.version,
            lifecycle_state: ending.state,
            deprecation: ending.notice.on_the_wire(),
            calls_last_24_hours: ending.calls_last_day,
            calls_last_7_days: ending.calls_last_week,
            counted_since: ending.counted_since.to_string(),
        }
    }
}
