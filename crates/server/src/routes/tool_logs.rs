//! `GET /v1/tools/{id}/logs?limit=`: what the program of a tool wrote in the last calls of the caller's own tenant.
//! Administrators and operators only. (decision 0105)

use std::sync::Arc;

use contract::error::ErrorCode;
use contract::ids::{InvocationId, ToolId};
use contract::version::Version;
use kernel::{LOGGED_CALLS_MAX, LoggedCall};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use super::{ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

/// Calls that are given unless more are asked for.
const CALLS_DEFAULT: usize = 10;

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Get,
    path: "/v1/tools/{id}/logs",
    id: "toolLogs",
    tag: "operations",
    summary: "What the program of a tool of the own tenant wrote to stderr in its last calls by that tenant",
    access: RouteAccess::Token,
    parameters: &[
        RouteParameter {
            place: ParameterPlace::Path,
            name: "id",
            about: "`namespace.tool_id`, `tool_id`, or an alias",
            schema: SchemaGenerator::subschema_for::<String>,
        },
        RouteParameter {
            place: ParameterPlace::Query,
            name: "limit",
            about: "how many calls, at most 50; default 10",
            schema: SchemaGenerator::subschema_for::<usize>,
        },
    ],
    asks: RequestBody::Nothing,
    good: &[(200, "the last calls that ran on this instance, oldest first")],
    gives: ResponseBody::Json(SchemaGenerator::subschema_for::<ToolLogs>),
    codes: &[ErrorCode::E3004, ErrorCode::E3101, ErrorCode::E3206],
    mount: |filter| to(filter, logs),
}];

/// What a tool wrote.
#[derive(Debug, Serialize, JsonSchema)]
struct ToolLogs {
    tool_id: ToolId,
    /// Oldest first. Only those that ran on this instance since it started, and of a tool of the own tenant.
    calls: Vec<CallLog>,
}

/// What a tool wrote in one call.
#[derive(Debug, Serialize, JsonSchema)]
struct CallLog {
    invocation_id: InvocationId,
    /// When it ended: RFC 3339, UTC.
    ended_at: String,
    version: Version,
    /// Who called.
    agent_id: String,
    duration_ms: u64,
    /// The error code, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// What the caller was told of that.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// How the program ended; -1 if it has no exit code.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// The end of stderr, at most 4 KiB, redacted. A line of stdout that spoiled the result stands there too. Null if a
    /// policy masks parts of what the tool says.
    stderr: Option<String>,
}

async fn logs(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let [id] = incoming.path_values().await?;
    let query = incoming.query(&["limit"])?;
    let limit = query.number("limit", 1..=LOGGED_CALLS_MAX, CALLS_DEFAULT)?;
    let (tool_id, calls) = door.kernel().tool_logs(who.actor(), &id, limit).await?;
    HttpAnswer::json(&ToolLogs { tool_id, calls: calls.iter().map(|call| CallLog::of(call)).collect() })
}

impl CallLog {
    fn of(call: &LoggedCall) -> Self {
        Self {
            invocation_id: call.invocation_id,
            ended_at: call.at.to_string(),
            version: call.version.clone(),
            agent_id: call.subject.to_string(),
            duration_ms: call.duration_ms,
            code: call.code.map(ErrorCode::as_str),
            message: call.message.clone(),
            exit_code: call.exit_code,
            stderr: call.log.clone(),
        }
    }
}
