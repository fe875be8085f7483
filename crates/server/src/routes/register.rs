//! `POST /v1/tools/register`: publish a manifest (API-002, REG-001…003).

use std::sync::Arc;

use contract::canonical::Digest;
use contract::error::ErrorCode;
use contract::ids::ToolId;
use contract::manifest::{LifecycleState, Manifest};
use contract::version::Version;
use http::StatusCode;
use kernel::registry::RegistrationOutcome;
use ports::tool_version::ToolVersion;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Post,
    path: "/v1/tools/register",
    id: "registerTool",
    tag: "registry",
    summary: "Register a manifest",
    access: RouteAccess::Token,
    parameters: &[],
    asks: RequestBody::Json(SchemaGenerator::subschema_for::<Manifest>),
    good: &[(201, "published"), (200, "the very same content was published before")],
    gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Registered>),
    codes: &[ErrorCode::E3103, ErrorCode::E3105, ErrorCode::E3206, ErrorCode::E3801, ErrorCode::E3803],
    mount: |filter| to(filter, register),
}];

/// What became of a registration.
#[derive(Debug, Serialize, JsonSchema)]
struct Registered {
    tool_id: ToolId,
    version: Version,
    digest: Digest,
    lifecycle_state: LifecycleState,
    /// False: the very same content was there already.
    created: bool,
    /// RFC 3339, UTC.
    published_at: String,
    /// What the author may have forgotten, and what of the schemas is not checked.
    warnings: Vec<String>,
}

async fn register(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let body = incoming.json(&door, &who).await?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let registration = Box::pin(kernel.publish(who.actor(), body.value)).await?;
        let status = if registration.created { StatusCode::CREATED } else { StatusCode::OK };
        let state = registration.version.lifecycle.state(kernel.clock().now());
        HttpAnswer::json_with(status, &Registered::of(&registration, state))
    })
    .await
}

impl Registered {
    fn of(registration: &RegistrationOutcome, lifecycle_state: LifecycleState) -> Self {
        let version = &registration.version;
        Self {
            tool_id: version.id.clone(),
            version: version.version.clone(),
            digest: version.digest,
            lifecycle_state,
            created: registration.created,
            published_at: version.published_at.to_string(),
            warnings: warnings(version),
        }
    }
}

fn warnings(version: &ToolVersion) -> Vec<String> {
    let manifest = &version.manifest;
    let oddities = [
        (manifest.execution.is_none(), "there is no `execution`: the tool can be found but not called"),
        (!manifest.is_enabled(), "`enabled` is false: the tool can be found but not called"),
        (
            manifest.tags.is_empty() && manifest.categories.is_empty(),
            "there are no `tags` or `categories`: filters will not find the tool",
        ),
    ];
    let oddities = oddities.into_iter().filter(|(odd, _)| *odd).map(|(_, warning)| warning.to_owned());
    let unchecked = version.unchecked().into_iter().map(|part| format!("`{}`: {}", part.path, part.message));
    oddities.chain(unchecked).collect()
}
