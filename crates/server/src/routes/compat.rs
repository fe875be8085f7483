//! `POST /v1/tools/compare` and `/negotiate` (REG-016…018). A side is a schema, or a published version by its name.

use std::sync::Arc;

use contract::compat::{Comparison, CompatReason, CompatVerdict, Negotiation, SchemaDirection};
use contract::error::{ErrorCode, Refusal};
use contract::version::VersionSpec;
use kernel::{ComparisonResult, ComparisonSide};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::members::typed;

const CODES: &[ErrorCode] = &[ErrorCode::E3101, ErrorCode::E3102, ErrorCode::E3103, ErrorCode::E3104];

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/tools/compare",
        id: "compareSchemas",
        tag: "compatibility",
        summary: "Say what a change of schema means for callers: patch, minor or major, with reasons",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<CompareBody>),
        good: &[(200, "the verdict")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<CompareAnswer>),
        codes: CODES,
        mount: |filter| to(filter, compare),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/tools/negotiate",
        id: "negotiateSchemas",
        tag: "compatibility",
        summary: "Say whether what a caller wants to send fits what a tool takes",
        access: RouteAccess::Token,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<NegotiateBody>),
        good: &[(200, "full_match, partial_match or incompatible, with what stands in the way")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Negotiation>),
        codes: CODES,
        mount: |filter| to(filter, negotiate),
    },
];

/// Two sides to compare.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CompareBody {
    #[schemars(with = "SideBody")]
    old: Value,
    #[schemars(with = "SideBody")]
    new: Value,
    /// Which end of a tool bare schemas describe; default `input`.
    #[serde(default)]
    direction: End,
}

/// Two sides to fit together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NegotiateBody {
    /// What the caller wants to send.
    #[schemars(with = "SideBody")]
    expected: Value,
    /// What the tool takes.
    #[schemars(with = "SideBody")]
    offered: Value,
}

/// A published version by its name, or else a JSON Schema.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "exists only for its schema")]
enum SideBody {
    Published(PublishedSide),
    Schema(Map<String, Value>),
}

/// A published version.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PublishedSide {
    tool_id: String,
    /// Absent means `LATEST`.
    #[serde(default)]
    version: VersionSpec,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum End {
    #[default]
    Input,
    Output,
}

/// The verdict over everything that was compared, and each part of it.
#[derive(Debug, Serialize, JsonSchema)]
struct CompareAnswer {
    verdict: CompatVerdict,
    /// Of parameters and results together, the weightiest first.
    reasons: Vec<CompatReason>,
    /// The parameters, or the two bare schemas.
    parameters: Comparison,
    /// There when both sides were published versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Comparison>,
}

async fn compare(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let CompareBody { old, new, direction } = incoming.json(&door, &who).await?.typed()?;
    let (old, new) = (side(old, "old")?, side(new, "new")?);
    let direction = match direction {
        End::Input => SchemaDirection::Input,
        End::Output => SchemaDirection::Output,
    };
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        HttpAnswer::json(&CompareAnswer::of(kernel.compare(who.actor(), &old, &new, direction).await?))
    })
    .await
}

async fn negotiate(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let NegotiateBody { expected, offered } = incoming.json(&door, &who).await?.typed()?;
    let (expected, offered) = (side(expected, "expected")?, side(offered, "offered")?);
    let kernel = door.shared_kernel();
    door.carry_to_end(async move { HttpAnswer::json(&kernel.negotiate(who.actor(), &expected, &offered).await?) }).await
}

/// An object whose `tool_id` is a string names a version; no JSON Schema has such a keyword.
fn side(value: Value, place: &str) -> Result<ComparisonSide, Refusal> {
    if value.get("tool_id").is_some_and(Value::is_string) {
        let again = value.clone();
        let PublishedSide { tool_id, version } = typed(value, place, || again)?;
        return Ok(ComparisonSide::Published { tool: tool_id, version });
    }
    if value.is_object() || value.is_boolean() {
        return Ok(ComparisonSide::Schema(value));
    }
    Err(Refusal::new(ErrorCode::E3004, format!("`{place}` is neither a schema nor a version"))
        .hint("send a JSON Schema, or { \"tool_id\": …, \"version\": … }"))
}

impl CompareAnswer {
    fn of(compared: ComparisonResult) -> Self {
        let ComparisonResult { parameters, result } = compared;
        let others = result.iter().flat_map(|comparison| &comparison.reasons);
        let mut reasons: Vec<CompatReason> = parameters.reasons.iter().chain(others).cloned().collect();
        // Stable, so that each part keeps its own order.
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.verdict));
        let verdict = result.as_ref().map_or(parameters.verdict, |result| result.verdict.max(parameters.verdict));
        Self { verdict, reasons, parameters, result }
    }
}
