//! `/v1/invocations/{id}/checkpoints` and what leads on from them. Callers see what was kept of their own calls, those who
//! manage invocations that of everybody in the tenant; every change is recorded. (CKPT-011, CKPT-014)
//!
//! ```text
//! GET, POST /v1/invocations/{id}/checkpoints          DELETE /v1/invocations/{id}/checkpoints/{checkpoint}
//! POST      /v1/invocations/{id}/rollback             POST   /v1/tools/resume/{id}
//! ```

use std::sync::Arc;

use axum::routing::{MethodFilter, MethodRouter};
use contract::envelope::{CheckpointKind, CheckpointOptions, ExecutionOptions, InvokeRequest, InvokeResponse};
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use ports::checkpoint_store::{CheckpointHead, CheckpointId, LIST_MAX, ListPage, ListedCheckpoint};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    invoke, tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::members::typed;
use crate::problem::RefusalResponse;

/// Checkpoints that are listed unless more are asked for.
const LIMIT_DEFAULT: usize = 50;

const ID: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "id",
    about: "the invocation",
    schema: SchemaGenerator::subschema_for::<InvocationId>,
};
const CHECKPOINT: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "checkpoint",
    about: "the checkpoint",
    schema: SchemaGenerator::subschema_for::<String>,
};
const LIMIT: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "limit",
    about: "how many, at most 256; default 50",
    schema: SchemaGenerator::subschema_for::<usize>,
};
const AFTER: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "after",
    about: "`next` of the former page",
    schema: SchemaGenerator::subschema_for::<String>,
};
/// What any of them can answer.
const CODES: &[ErrorCode] = &[
    ErrorCode::E3001,
    ErrorCode::E3004,
    ErrorCode::E3010,
    ErrorCode::E3206,
    ErrorCode::E3803,
    ErrorCode::E3903,
    ErrorCode::E3904,
    ErrorCode::E3905,
    ErrorCode::E3908,
];

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        parameters: &[ID, LIMIT, AFTER, TENANT],
        good: &[(200, "those there are, the newest first; none for an invocation that is not known")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Page>),
        ..about(
            RouteMethod::Get,
            "/v1/invocations/{id}/checkpoints",
            "listCheckpoints",
            "List what was kept of a call's state",
            |filter| to(filter, list),
        )
    },
    RouteOperation {
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<NameBody>),
        good: &[(201, "the new checkpoint")],
        ..about(
            RouteMethod::Post,
            "/v1/invocations/{id}/checkpoints",
            "nameCheckpoint",
            "Keep the newest state of a call under a name, until it is deleted",
            |filter| to(filter, name),
        )
    },
    RouteOperation {
        parameters: &[ID, CHECKPOINT, TENANT],
        good: &[(200, "it is gone")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Deleted>),
        ..about(
            RouteMethod::Delete,
            "/v1/invocations/{id}/checkpoints/{checkpoint}",
            "deleteCheckpoint",
            "Delete a checkpoint",
            |filter| to(filter, delete),
        )
    },
    RouteOperation {
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<RollbackBody>),
        good: &[(200, "the checkpoint, from which the call goes on when it is resumed")],
        ..about(
            RouteMethod::Post,
            "/v1/invocations/{id}/rollback",
            "rollBackInvocation",
            "Make an earlier checkpoint the newest of a call; later ones stay",
            |filter| to(filter, roll_back),
        )
    },
    RouteOperation {
        parameters: &[ID],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<ResumeBody>),
        good: &[(200, "the call ran to its end")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<InvokeResponse>),
        codes: invoke::CODES,
        ..about(
            RouteMethod::Post,
            "/v1/tools/resume/{id}",
            "resumeInvocation",
            "Call the tool of an earlier call again, from where that one had come to",
            |filter| to(filter, resume),
        )
    },
];

const fn about(
    verb: RouteMethod,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    mount: fn(MethodFilter) -> MethodRouter<Arc<Door>>,
) -> RouteOperation {
    RouteOperation {
        verb,
        path,
        id,
        tag: "checkpoints",
        summary,
        access: RouteAccess::Token,
        parameters: &[ID, TENANT],
        asks: RequestBody::Nothing,
        good: &[(200, "the checkpoint")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<CheckpointView>),
        codes: CODES,
        mount,
    }
}

/// One checkpoint.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Checkpoint")]
struct CheckpointView {
    checkpoint_id: String,
    checkpoint_type: CheckpointKind,
    invocation_id: InvocationId,
    tool_id: String,
    tool_version: String,
    /// RFC 3339, UTC.
    timestamp: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    /// The state it followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_checkpoint_id: Option<String>,
    /// Bytes of the whole record.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_bytes: Option<u64>,
    /// Bytes it takes, as compressed and as a difference to its parent.
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_bytes: Option<u64>,
    /// RFC 3339, UTC; absent: kept until it is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

/// A part of the list.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CheckpointPage")]
struct Page {
    checkpoints: Vec<CheckpointView>,
    /// Give it as `after` to go on; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "DeletedCheckpoint")]
struct Deleted {
    /// Always true: a checkpoint that is not there is a refusal.
    deleted: bool,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NameCheckpoint")]
struct NameBody {
    /// What it is to be called.
    #[schemars(length(min = 1, max = 255))]
    label: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RollBack")]
struct RollbackBody {
    checkpoint_id: String,
}

/// How to go on. What was asked of the first call is not kept with its state, so it is said again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Resume")]
struct ResumeBody {
    #[serde(default)]
    parameters: Map<String, Value>,
    /// Absent: the version that saved the state.
    #[serde(default)]
    tool_version: Option<String>,
    /// Absent: the newest that is intact.
    #[serde(default)]
    checkpoint_id: Option<String>,
    #[serde(default)]
    execution_options: ExecutionOptions,
}

async fn list(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let query = incoming.query(&["tenant", "limit", "after"])?;
    let limit = query.number("limit", 1..=LIST_MAX, LIMIT_DEFAULT)?;
    let after = query.one("after")?.map(str::parse::<CheckpointId>).transpose();
    let after = after.map_err(|_| Refusal::new(ErrorCode::E3004, "`after` is `next` of a former page"))?;
    let tenant = query.one("tenant")?.map(str::parse::<TenantId>).transpose();
    let tenant = tenant.map_err(|error| Refusal::new(ErrorCode::E3004, error.to_string()))?;
    let invocation = invocation_asked(&mut incoming).await?;
    let page = door.kernel().checkpoints(who.actor(), tenant.as_ref(), invocation, ListPage { after, limit }).await?;
    HttpAnswer::json(&Page {
        checkpoints: page.checkpoints.iter().map(CheckpointView::of_listed).collect(),
        next: page.next.map(|next| next.to_string()),
    })
}

async fn name(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let mut body = incoming.json(&door, &who).await?;
    let value = body.value.take();
    let NameBody { label } = typed(value, "", || body.again())?;
    let tenant = tenant_asked(&incoming)?;
    let invocation = invocation_asked(&mut incoming).await?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let head = kernel.name_checkpoint(who.actor(), tenant.as_ref(), invocation, &label).await?;
        HttpAnswer::json_with(http::StatusCode::CREATED, &CheckpointView::of(&head))
    })
    .await
}

async fn delete(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let tenant = tenant_asked(&incoming)?;
    let [id, checkpoint] = incoming.path_values().await?;
    let invocation = read_invocation(&id)?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        kernel.delete_checkpoint(who.actor(), tenant.as_ref(), invocation, &checkpoint).await?;
        HttpAnswer::json(&Deleted { deleted: true })
    })
    .await
}

async fn roll_back(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let mut body = incoming.json(&door, &who).await?;
    let value = body.value.take();
    let RollbackBody { checkpoint_id } = typed(value, "", || body.again())?;
    let tenant = tenant_asked(&incoming)?;
    let invocation = invocation_asked(&mut incoming).await?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        let head = kernel.roll_back(who.actor(), tenant.as_ref(), invocation, &checkpoint_id).await?;
        HttpAnswer::json(&CheckpointView::of(&head))
    })
    .await
}

async fn resume(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let mut body = incoming.json(&door, &who).await?;
    let value = body.value.take();
    let ResumeBody { parameters, tool_version, checkpoint_id, execution_options } = typed(value, "", || body.again())?;
    let invocation = invocation_asked(&mut incoming).await?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        kernel.recognise(who.actor()).await?;
        // Before the checkpoint is looked for: whoever goes on waits for the end.
        if let Some(option) = execution_options.of_the_background() {
            return Err(Refusal::new(
                ErrorCode::E3004,
                format!("`execution_options.{option}` is for calls in the background, and this one is waited for"),
            )
            .hint(format!("leave `{option}` out; nothing was run"))
            .into());
        }
        if execution_options.async_mode {
            return Err(Refusal::new(ErrorCode::E3010, "a call that goes on from a checkpoint is waited for")
                .hint("leave `async_mode` out; nothing was run")
                .into());
        }
        let newest = kernel.resumable(who.actor(), invocation).await?;
        let request = InvokeRequest {
            tool_id: newest.tool.to_string(),
            tool_version: Some(tool_version.unwrap_or_else(|| newest.version.to_string())),
            parameters,
            invocation_id: None,
            agent_context: None,
            execution_options,
            resource_limits: contract::envelope::CallLimits::default(),
            document_context: None,
            checkpoint_config: Some(CheckpointOptions {
                resume_from_checkpoint_id: Some(checkpoint_id.unwrap_or_else(|| newest.id.to_string())),
                ..CheckpointOptions::default()
            }),
            execution_mode: None,
        };
        HttpAnswer::json(&Box::pin(invoke::run(&kernel, &who, request)).await?)
    })
    .await
}

async fn invocation_asked(incoming: &mut IncomingRequest) -> Result<InvocationId, RefusalResponse> {
    let [id] = incoming.path_values().await?;
    read_invocation(&id)
}

fn read_invocation(id: &str) -> Result<InvocationId, RefusalResponse> {
    Ok(id.parse().map_err(|error: contract::ids::NameError| Refusal::new(ErrorCode::E3004, error.to_string()))?)
}

impl CheckpointView {
    fn of(head: &CheckpointHead) -> Self {
        Self {
            checkpoint_id: head.id.to_string(),
            checkpoint_type: head.kind,
            invocation_id: head.invocation,
            tool_id: head.tool.to_string(),
            tool_version: head.version.to_string(),
            timestamp: head.saved_at.to_string(),
            label: head.label.clone(),
            parent_checkpoint_id: head.parent.map(|parent| parent.to_string()),
            content_bytes: None,
            stored_bytes: None,
            expires_at: None,
        }
    }

    fn of_listed(listed: &ListedCheckpoint) -> Self {
        Self {
            content_bytes: Some(listed.content_bytes),
            stored_bytes: Some(listed.stored_bytes),
            expires_at: listed.expires_at.map(|end| end.to_string()),
            ..Self::of(&listed.head)
        }
    }
}
