//! `GET` and `PUT /v1/admin/log-level`: how much the server says in its log, changed while it runs, until it ends.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/admin/log-level",
        id: "getLogLevel",
        tag: "operations",
        summary: "How much the server says in its log",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Nothing,
        good: &[(200, "the level in force")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<LogLevel>),
        codes: &[ErrorCode::E3001, ErrorCode::E3010],
        mount: |filter| to(filter, show),
    },
    RouteOperation {
        verb: RouteMethod::Put,
        path: "/v1/admin/log-level",
        id: "putLogLevel",
        tag: "operations",
        summary: "Change how much the server says in its log, until it ends",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<LogLevel>),
        good: &[(200, "in force")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<LogLevel>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3010, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, change),
    },
];

/// How much is said.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LogLevel {
    /// `error`, `warn`, `info`, `debug` or `trace`, or per module: `info,gantry_calls=debug`.
    level: String,
}

async fn show(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().may_see_log_level(who.actor()).await?;
    let log = door.log().ok_or_else(not_here)?;
    HttpAnswer::json(&LogLevel { level: log.level() })
}

async fn change(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let LogLevel { level } = incoming.json(&door, &who).await?.typed()?;
    let (kernel, log) = (door.shared_kernel(), door.log().cloned());
    door.carry_to_end(async move {
        let set = |level: &str| {
            let log = log.as_ref().ok_or_else(not_here)?;
            log.set(level).map_err(|error| Refusal::new(ErrorCode::E3004, error.to_string()))
        };
        kernel.change_log_level(who.actor(), &level, set).await?;
        HttpAnswer::json(&LogLevel { level })
    })
    .await
}

fn not_here() -> Refusal {
    Refusal::new(ErrorCode::E3010, "the log of this server cannot be changed while it runs")
        .hint("change `[log] level` and start it again")
}
