//! `GET /v1/invocations` and `POST /v1/invocations/{id}/retry`: what is in the background, for whoever looks after it.
//!
//! Agents see their own; those with a role that may look see all of their tenant. What somebody decides about an
//! invocation whose effect is unknown is `…/resolve`, and belongs to the ledger.

use std::sync::Arc;

use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, Subject, TenantId};
use ports::job_store::{JobFilter, JobRecord, JobState};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::invocations::{ID, accepted, id_in_path, keeper};
use super::page_limit::{self, LIMIT};
use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

const STATE: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "state",
    about: "only those: delayed, queued, running, done, failed, dead or cancelled",
    schema: SchemaGenerator::subschema_for::<String>,
};
const KIND: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "kind",
    about: "only those, for example tool_call",
    schema: SchemaGenerator::subschema_for::<String>,
};
const BEFORE: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "before",
    about: "the `next` of the page before",
    schema: SchemaGenerator::subschema_for::<u64>,
};

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/invocations",
        id: "listInvocations",
        tag: "jobs",
        summary: "List what is done in the background, newest first",
        access: RouteAccess::Token,
        parameters: &[TENANT, STATE, KIND, BEFORE, LIMIT],
        asks: RequestBody::Nothing,
        good: &[(200, "a page of them")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Page>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3010],
        mount: |filter| to(filter, list),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/invocations/{id}/retry",
        id: "retryInvocation",
        tag: "jobs",
        summary: "Begin a job that failed, died or was cancelled again, under a new id",
        access: RouteAccess::Token,
        parameters: &[ID, TENANT],
        asks: RequestBody::Nothing,
        good: &[(202, "the new job")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<super::invocations::AcceptedAnswer>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3003,
            ErrorCode::E3004,
            ErrorCode::E3010,
            ErrorCode::E3101,
            ErrorCode::E3204,
            ErrorCode::E3205,
            ErrorCode::E3206,
            ErrorCode::E3208,
            ErrorCode::E3210,
            ErrorCode::E3211,
            ErrorCode::E3301,
            ErrorCode::E3408,
            ErrorCode::E3410,
            ErrorCode::E3413,
            ErrorCode::E3701,
            ErrorCode::E3702,
        ],
        mount: |filter| to(filter, retry),
    },
];

/// One page.
#[derive(Debug, Serialize, JsonSchema)]
struct Page {
    invocations: Vec<Line>,
    /// What to give as `before` for the next page; none on the last.
    next: Option<u64>,
}

/// One job, in a line.
#[derive(Debug, Serialize, JsonSchema)]
struct Line {
    invocation_id: InvocationId,
    tenant: TenantId,
    status: InvocationStatus,
    state: &'static str,
    kind: String,
    label: String,
    subject: Subject,
    priority: u8,
    progress_percent: Option<f64>,
    current_phase: Option<String>,
    /// Tries that failed or run.
    attempts: u32,
    /// What was interrupted by the end of a server, which costs no try.
    interruptions: u32,
    attempts_max: u32,
    error_code: Option<Value>,
    created_at: String,
    completed_at: Option<String>,
}

async fn list(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let query = incoming.query(&["tenant", "state", "kind", "before", "limit"])?;
    let tenant = query.one("tenant")?.map(str::parse::<TenantId>).transpose();
    let filter = JobFilter {
        tenant: tenant.map_err(|error| Refusal::new(ErrorCode::E3004, error.to_string()))?,
        owner: None,
        state: query.word("state", &JobState::ALL.map(|state| (state.as_str(), state)))?,
        kind: query.one("kind")?.map(str::to_owned),
    };
    let before = query.number("before", 0..=u64::MAX, u64::MAX)?;
    let limit = page_limit::limit(&query)?;
    let listing = keeper(&door, &who).await?.list(who.actor(), filter, Some(before), limit).await?;
    let invocations = listing.jobs.into_iter().map(|(status, record)| line(status, record)).collect();
    HttpAnswer::json(&Page { invocations, next: listing.next })
}

async fn retry(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let tenant = tenant_asked(&incoming)?;
    let base = incoming.base();
    let id = id_in_path(&mut incoming).await?;
    let jobs = Arc::clone(keeper(&door, &who).await?);
    door.carry_to_end(async move { accepted(&Box::pin(jobs.retry(who.actor(), tenant.as_ref(), id)).await?, &base) })
        .await
}

fn line(status: InvocationStatus, record: JobRecord) -> Line {
    let attempts = record.tries();
    Line {
        invocation_id: record.key.id,
        tenant: record.key.tenant,
        status,
        state: record.state.as_str(),
        kind: record.kind,
        label: record.label,
        subject: record.owner.subject().clone(),
        priority: record.priority.level(),
        progress_percent: record.progress_percent,
        current_phase: record.phase,
        attempts,
        interruptions: record.interruptions,
        attempts_max: record.attempts_max,
        error_code: record.error.as_ref().and_then(|error| error.get("code").cloned()),
        created_at: record.created_at.to_string(),
        completed_at: record.ended_at.map(|time| time.to_string()),
    }
}
