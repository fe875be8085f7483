//! `POST /v1/tools/{id}/deprecate`, `/sunset`, `/restore`, `/remove` (REG-009…011). A body may say which version; without
//! one, every version for which the act makes sense is meant.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::version::Version;
use ports::lifecycle::LifecycleAction;
use schemars::{JsonSchema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::{ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::problem::RefusalResponse;
use crate::tool_view::VersionLine;

const PARAMETERS: &[RouteParameter] = &[RouteParameter {
    place: ParameterPlace::Path,
    name: "id",
    about: "`namespace.tool_id`, `tool_id`, or an alias",
    schema: SchemaGenerator::subschema_for::<String>,
}];
const CODES: &[ErrorCode] = &[
    ErrorCode::E3101,
    ErrorCode::E3102,
    ErrorCode::E3103,
    ErrorCode::E3206,
    ErrorCode::E3408,
    ErrorCode::E3801,
    ErrorCode::E3803,
];

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        asks: RequestBody::JsonIfAny(SchemaGenerator::subschema_for::<DeprecateBody>),
        mount: |filter| to(filter, deprecate),
        ..act("/v1/tools/{id}/deprecate", "deprecateTool", "Deprecate: still served, with a notice and an end date")
    },
    RouteOperation {
        mount: |filter| to(filter, |door, incoming| change(door, incoming, LifecycleAction::Sunset)),
        ..act("/v1/tools/{id}/sunset", "sunsetTool", "Sunset now: only exact pins are served")
    },
    RouteOperation {
        mount: |filter| to(filter, |door, incoming| change(door, incoming, LifecycleAction::Restore)),
        ..act("/v1/tools/{id}/restore", "restoreTool", "Make a deprecated or sunset version active again")
    },
    RouteOperation {
        mount: |filter| to(filter, |door, incoming| change(door, incoming, LifecycleAction::Remove)),
        ..act("/v1/tools/{id}/remove", "removeTool", "Remove: not served any more; the history stays readable")
    },
];

const fn act(path: &'static str, id: &'static str, summary: &'static str) -> RouteOperation {
    RouteOperation {
        verb: RouteMethod::Post,
        path,
        id,
        tag: "lifecycle",
        summary,
        access: RouteAccess::Token,
        parameters: PARAMETERS,
        asks: RequestBody::JsonIfAny(SchemaGenerator::subschema_for::<VersionBody>),
        good: &[(200, "the versions as they are now")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<LifecycleChanged>),
        codes: CODES,
        mount: |filter| to(filter, deprecate),
    }
}

/// Which version is meant, and what its users should do instead.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct DeprecateBody {
    /// Absent: every version that is active or deprecated.
    version: Option<Version>,
    #[schemars(length(max = 2000), extend("format" = "uri"))]
    migration_guide_url: Option<String>,
    replacement_tool_id: Option<ToolId>,
}

/// Which version is meant.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct VersionBody {
    /// Absent: every version for which the act makes sense.
    version: Option<Version>,
}

/// The versions that have changed, or already were as wanted.
#[derive(Debug, Serialize, JsonSchema)]
struct LifecycleChanged {
    tool_id: ToolId,
    versions: Vec<VersionLine>,
}

async fn deprecate(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let body: DeprecateBody = body_or_default(&door, &mut incoming, &who).await?;
    let action = LifecycleAction::Deprecate {
        successor: body.replacement_tool_id.map(|id| id.to_string()),
        migration_guide: body.migration_guide_url.map(web_address).transpose()?,
    };
    apply(door, incoming, who, body.version, action).await
}

async fn change(door: Arc<Door>, mut incoming: IncomingRequest, action: LifecycleAction) -> Handled {
    let who = incoming.credential()?;
    let body: VersionBody = body_or_default(&door, &mut incoming, &who).await?;
    apply(door, incoming, who, body.version, action).await
}

async fn apply(
    door: Arc<Door>,
    mut incoming: IncomingRequest,
    who: CallerCredential,
    version: Option<Version>,
    action: LifecycleAction,
) -> Handled {
    let [id] = incoming.path_values().await?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let changed = kernel.change_lifecycle(who.actor(), &id, version.as_ref(), &action).await?;
        let now = kernel.clock().now();
        let tool_id = changed.first().map(|version| version.id.clone());
        HttpAnswer::json(&LifecycleChanged {
            tool_id: tool_id
                .ok_or_else(|| Refusal::new(ErrorCode::E3408, "no version of the tool can be changed that way"))?,
            versions: changed.iter().map(|version| VersionLine::of(version, now)).collect(),
        })
    })
    .await
}

async fn body_or_default<T: DeserializeOwned + Default>(
    door: &Door,
    incoming: &mut IncomingRequest,
    who: &CallerCredential,
) -> Result<T, RefusalResponse> {
    let Some(body) = incoming.json_if_any(door, who).await? else { return Ok(T::default()) };
    Ok(body.typed()?)
}

/// A guide is a link that agents and people will follow, so it must be one.
fn web_address(text: String) -> Result<String, Refusal> {
    const CHARS_MAX: usize = 2000;
    let link = text.starts_with("https://") || text.starts_with("http://");
    let fine = link && text.chars().count() <= CHARS_MAX && !text.chars().any(|c| c.is_whitespace() || c.is_control());
    if fine {
        return Ok(text);
    }
    Err(Refusal::new(ErrorCode::E3004, "`migration_guide_url` is not a web address")
        .hint(format!("use an http or https URL of at most {CHARS_MAX} characters")))
}
