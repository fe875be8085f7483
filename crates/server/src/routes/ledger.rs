//! `GET /v1/ledger` and `POST /v1/invocations/{id}/resolve`: calls with effects, for whoever looks after them. What nobody
//! knows the outcome of is listed here, and a person says what became of it.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, Subject, TenantId, ToolId};
use ports::ledger::{EntryFilter, EntryState, LedgerEntry};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::invocations::{ID, id_in_path};
use super::page_limit::{self, LIMIT};
use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::members::typed;

const STATE: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "state",
    about: "only those: in_flight, done, failed_clean or unknown",
    schema: SchemaGenerator::subschema_for::<String>,
};
const BEFORE: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "before",
    about: "only those older than this invocation: the last of the page before",
    schema: SchemaGenerator::subschema_for::<InvocationId>,
};

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/ledger",
        id: "listLedger",
        tag: "jobs",
        summary: "List calls with effects, newest first: which run, which are done, which nobody knows the outcome of",
        access: RouteAccess::Token,
        parameters: &[TENANT, STATE, BEFORE, LIMIT],
        asks: RequestBody::Nothing,
        good: &[(200, "a page of them")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Page>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3206],
        mount: |filter| to(filter, list),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/invocations/{id}/resolve",
        id: "resolveInvocation",
        tag: "jobs",
        summary: "Say what became of a call whose outcome nobody could know",
        access: RouteAccess::Token,
        parameters: &[ID, TENANT],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<Verdict>),
        good: &[(200, "it is settled")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Settled>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3004,
            ErrorCode::E3206,
            ErrorCode::E3301,
            ErrorCode::E3702,
            ErrorCode::E3801,
            ErrorCode::E3803,
            ErrorCode::E3908,
        ],
        mount: |filter| to(filter, resolve),
    },
];

/// One page.
#[derive(Debug, Serialize, JsonSchema)]
struct Page {
    calls: Vec<Line>,
}

/// One call, in a line.
#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    invocation_id: InvocationId,
    tenant: TenantId,
    tool_id: ToolId,
    tool_version: String,
    subject: Subject,
    /// `in_flight`, `done`, `failed_clean` or `unknown`.
    state: &'static str,
    side_effect_policy: &'static str,
    idempotency_key: Option<String>,
    /// Why its outcome is unknown.
    cause: Option<Value>,
    begun_at: String,
    settled_at: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Happened,
    DidNotHappen,
}

/// What a person found out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Verdict {
    outcome: Outcome,
    /// What repeated calls are answered with, if it happened; has to fit the tool. `null` if nothing is said.
    #[serde(default)]
    result: Option<Value>,
    /// How that is known; for the log.
    #[serde(default)]
    #[schemars(length(max = 500))]
    note: Option<String>,
}

/// How it is settled.
#[derive(Debug, Serialize, JsonSchema)]
struct Settled {
    invocation_id: InvocationId,
    outcome: Outcome,
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let query = incoming.query(&["tenant", "state", "before", "limit"])?;
    let wrong = |error: contract::ids::NameError| Refusal::new(ErrorCode::E3004, error.to_string());
    let filter = EntryFilter {
        tenant: query.one("tenant")?.map(str::parse).transpose().map_err(wrong)?,
        state: query.word("state", &EntryState::ALL.map(|state| (state.as_str(), state)))?,
        before: query.one("before")?.map(str::parse).transpose().map_err(wrong)?,
    };
    let limit = page_limit::limit(&query)?;
    let entries = door.kernel().ledger_lines(who.actor(), filter, limit).await?;
    HttpAnswer::json(&Page { calls: entries.into_iter().map(line).collect() })
}

async fn resolve(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let tenant = tenant_asked(&incoming)?;
    let id = id_in_path(&mut incoming).await?;
    let mut body = incoming.json(&door, &who).await?;
    let verdict: Verdict = typed(body.value.take(), "", || body.again())?;
    if verdict.outcome == Outcome::DidNotHappen && verdict.result.is_some() {
        return Err(Refusal::new(ErrorCode::E3004, "what did not happen has no result")
            .hint("leave `result` out, or say `happened`; nothing was changed")
            .into());
    }
    if let Some(note) = &verdict.note {
        tracing::info!(invocation = %id, %note, "somebody has found out what became of a call");
    }
    let happened = match verdict.outcome {
        Outcome::Happened => Some(verdict.result.unwrap_or(json!(null))),
        Outcome::DidNotHappen => None,
    };
    let (inner, outcome) = (Arc::clone(&door), verdict.outcome);
    door.carry_to_end(async move {
        match inner.jobs() {
            Some(jobs) => jobs.resolve(who.actor(), tenant.as_ref(), id, happened).await?,
            None => inner.kernel().resolve_invocation(who.actor(), tenant.as_ref(), id, happened).await?,
        }
        HttpAnswer::json(&Settled { invocation_id: id, outcome })
    })
    .await
}

fn line(entry: LedgerEntry) -> Line {
    let LedgerEntry { intent, state, begun_at, settled_at, outcome, .. } = entry;
    Line {
        invocation_id: intent.invocation,
        tenant: intent.tenant,
        tool_id: intent.tool,
        tool_version: intent.version.to_string(),
        subject: intent.caller.subject().clone(),
        state: state.as_str(),
        side_effect_policy: intent.effects.as_str(),
        idempotency_key: intent.key.map(|key| key.key),
        cause: outcome.and_then(|mut outcome| outcome.get_mut("unknown").map(Value::take)),
        begun_at: begun_at.to_string(),
        settled_at: settled_at.map(|at| at.to_string()),
    }
}
