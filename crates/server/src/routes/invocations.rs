//! `/v1/invocations/{id}`: calls that outlive their request. (ASYNC-002, ASYNC-004, ASYNC-005, API-007, API-008)
//!
//! ```text
//! GET  /v1/invocations/{id}            where it stands, and its end once it has one
//! POST /v1/invocations/{id}/cancel     {"reason"?}
//! GET  /v1/invocations/{id}/events     server-sent events; goes on from `Last-Event-ID` or `?after=`
//! ```
//!
//! A job of somebody else is answered exactly like none.

use std::sync::Arc;

use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId, TraceId};
use contract::manifest::SideEffectPolicy;
use http::StatusCode;
use jobs::{AcceptedCall, InvocationView, Jobs};
use ports::clock::UnixMillis;
use ports::job_store::JobState;
use ports::ledger::{EntryState, LedgerEntry};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_asked, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::base_url::BaseUrl;
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::members::typed;
use crate::problem::RefusalResponse;

mod event_stream;

pub(super) const ID: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "id",
    about: "the invocation id",
    schema: SchemaGenerator::subschema_for::<InvocationId>,
};
const AFTER: RouteParameter = RouteParameter {
    place: ParameterPlace::Query,
    name: "after",
    about: "the number of the last event that was seen; the header `Last-Event-ID` says the same",
    schema: SchemaGenerator::subschema_for::<u64>,
};
const CODES: &[ErrorCode] = &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3010, ErrorCode::E3702];

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/invocations/{id}",
        id: "invocationStatus",
        tag: "jobs",
        summary: "Where a call in the background stands, and its result once there is one",
        access: RouteAccess::Token,
        parameters: &[ID, TENANT],
        asks: RequestBody::Nothing,
        good: &[(200, "where it stands")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<InvocationAnswer>),
        codes: CODES,
        mount: |filter| to(filter, status),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/invocations/{id}/cancel",
        id: "cancelInvocation",
        tag: "jobs",
        summary: "Cancel a call in the background: one that waits never starts, a running tool is told and then ended",
        access: RouteAccess::Token,
        parameters: &[ID, TENANT],
        asks: RequestBody::JsonIfAny(SchemaGenerator::subschema_for::<CancelBody>),
        good: &[(200, "what became of it; asking twice is asking once")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<CancelAnswer>),
        codes: &[ErrorCode::E3010, ErrorCode::E3702, ErrorCode::E3801, ErrorCode::E3803],
        mount: |filter| to(filter, cancel),
    },
    RouteOperation {
        verb: RouteMethod::Get,
        path: "/v1/invocations/{id}/events",
        id: "invocationEvents",
        tag: "jobs",
        summary: "What happens to a call in the background, as server-sent events, until it has ended",
        access: RouteAccess::Token,
        parameters: &[ID, TENANT, AFTER],
        asks: RequestBody::Nothing,
        good: &[(200, "events with `id`, `event` and JSON `data`; comments in between say that the stream is alive")],
        gives: ResponseBody::Plain("text/event-stream"),
        codes: CODES,
        mount: |filter| to(filter, event_stream::events),
    },
];

/// The answer to a call that goes on in the background.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AcceptedAnswer {
    invocation_id: InvocationId,
    status: InvocationStatus,
    polling_info: PollingInfo,
    trace_id: TraceId,
}

/// Where to ask, and when it is worth it.
#[derive(Debug, Serialize, JsonSchema)]
struct PollingInfo {
    status_url: String,
    estimated_completion_seconds: u64,
}

/// Where a call stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct InvocationAnswer {
    invocation_id: InvocationId,
    status: InvocationStatus,
    /// `tool_call`, or what else is done in the background.
    kind: String,
    /// The tool that is called, or what the job is about.
    label: String,
    progress_percent: Option<f64>,
    current_phase: Option<String>,
    /// The error it ended with, or that of the last attempt while it waits for the next.
    error: Option<Value>,
    result: Option<Value>,
    /// Times and usage: of the answer, or of the attempt that failed last.
    execution_metadata: Option<Value>,
    /// The newest state that was still kept when it ended, or when its last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    checkpoint_ref: Option<String>,
    tool_version: Option<Value>,
    /// `cache` or `compute`, and what computed the result when, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provenance: Option<Value>,
    /// The newest state that the tool has saved, if one was kept.
    latest_checkpoint: Option<Value>,
    /// Has somebody asked for its end?
    cancel_requested: bool,
    /// Tries that failed or run.
    attempts: u32,
    /// What was interrupted by the end of a server, which costs no try.
    interruptions: u32,
    attempts_max: u32,
    created_at: String,
    started_at: Option<String>,
    completed_at: Option<String>,
    /// When it is tried again, while it waits for that.
    next_attempt_at: Option<String>,
}

/// Why it is to end.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct CancelBody {
    #[schemars(length(max = 500))]
    reason: Option<String>,
}

/// What became of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CancelAnswer {
    invocation_id: InvocationId,
    cancelled: bool,
    message: &'static str,
}

impl AcceptedAnswer {
    /// Says where to ask.
    pub(super) fn of(accepted: &AcceptedCall, base: &BaseUrl) -> Self {
        let id = accepted.invocation_id;
        Self {
            invocation_id: id,
            status: accepted.status,
            polling_info: PollingInfo {
                status_url: format!("{}/v1/invocations/{id}", base.text().unwrap_or_default()),
                estimated_completion_seconds: accepted.polling_info.estimated_completion_seconds,
            },
            trace_id: accepted.trace_id,
        }
    }
}

/// 202, with where to ask.
pub(super) fn accepted(accepted: &AcceptedCall, base: &BaseUrl) -> Handled {
    HttpAnswer::json_with(StatusCode::ACCEPTED, &AcceptedAnswer::of(accepted, base))
}

async fn status(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let tenant = tenant_asked(&incoming)?;
    let id = id_in_path(&mut incoming).await?;
    HttpAnswer::json(&stand(&door, &who, tenant.as_ref(), id).await?)
}

/// Where a call stands.
pub(super) async fn stand(
    door: &Door,
    who: &CallerCredential,
    tenant: Option<&TenantId>,
    id: InvocationId,
) -> Result<InvocationAnswer, RefusalResponse> {
    let found = keeper(door, who).await?.status(who.actor(), tenant, id).await;
    let view = match found {
        Ok(view) => view,
        // A call that somebody waits for is no job; if it has effects, the ledger knows where it stands.
        Err(refusal) if refusal.code == ErrorCode::E3702 && tenant.is_none() => {
            let entry = door.kernel().ledger_line(who.actor(), id).await.map_err(|_| refusal)?;
            return Ok(of_the_ledger(&entry));
        }
        Err(refusal) => return Err(refusal.into()),
    };
    let newest = door.kernel().newest_checkpoint(&view.record.key.tenant, id).await?;
    let mut answer = rendered(view);
    answer.latest_checkpoint = newest.map(|newest| serde_json::json!({ "checkpoint_id": newest.to_string() }));
    Ok(answer)
}

async fn cancel(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let tenant = tenant_asked(&incoming)?;
    let id = id_in_path(&mut incoming).await?;
    let body: CancelBody = match incoming.json_if_any(&door, &who).await? {
        None => CancelBody::default(),
        Some(mut body) => typed(body.value.take(), "", || body.again())?,
    };
    HttpAnswer::json(&cancelled(&door, &who, tenant, id, body.reason).await?)
}

/// Cancels a call, and says what became of it.
pub(super) async fn cancelled(
    door: &Door,
    who: &CallerCredential,
    tenant: Option<TenantId>,
    id: InvocationId,
    reason: Option<String>,
) -> Result<CancelAnswer, RefusalResponse> {
    let (jobs, who) = (Arc::clone(keeper(door, who).await?), who.clone());
    door.carry_to_end(async move {
        let state = jobs.cancel(who.actor(), tenant.as_ref(), id, reason.as_deref()).await?;
        let (cancelled, message) = match state {
            JobState::Cancelled => (true, "Cancelled"),
            JobState::Running => (true, "Cancellation in progress"),
            _ => (false, "Already completed"),
        };
        Ok(CancelAnswer { invocation_id: id, cancelled, message })
    })
    .await
}

/// Who keeps jobs, if this server does. That it does not is told to those who may know.
pub(super) async fn keeper<'d>(door: &'d Door, who: &CallerCredential) -> Result<&'d Arc<Jobs>, RefusalResponse> {
    if let Some(jobs) = door.jobs() {
        return Ok(jobs);
    }
    door.kernel().recognise(who.actor()).await?;
    Err(Refusal::new(ErrorCode::E3010, "this server keeps no jobs").hint("call the tool without `async_mode`").into())
}

/// An id that is none names no job.
pub(super) async fn id_in_path(incoming: &mut IncomingRequest) -> Result<InvocationId, RefusalResponse> {
    let [id] = incoming.path_values().await?;
    Ok(id.parse().map_err(|error: contract::ids::NameError| Refusal::new(ErrorCode::E3702, error.to_string()))?)
}

/// A call with effects that is no job.
fn of_the_ledger(entry: &LedgerEntry) -> InvocationAnswer {
    let LedgerEntry { intent, state, begun_at, settled_at, outcome, .. } = entry;
    let part = |path: &str| outcome.as_ref().and_then(|outcome| outcome.pointer(path)).cloned();
    let (status, error) = match *state {
        EntryState::InFlight => (InvocationStatus::Running, None),
        // Calls of tools that nobody has classified were answered with what they failed with.
        EntryState::Unknown if intent.effects == SideEffectPolicy::Unclassified => {
            (InvocationStatus::Indeterminate, part("/unknown"))
        }
        EntryState::Unknown => {
            let told = kernel::indeterminate_end(entry).envelope(entry.intent.trace, Some(entry.intent.invocation));
            (InvocationStatus::Indeterminate, serde_json::to_value(told).ok())
        }
        EntryState::Done | EntryState::FailedClean => match part("/failure") {
            Some(failure) => (InvocationStatus::Error, Some(failure)),
            None => (InvocationStatus::Success, None),
        },
    };
    InvocationAnswer {
        invocation_id: intent.invocation,
        status,
        kind: ports::job_store::TOOL_CALL.to_owned(),
        label: intent.tool.to_string(),
        progress_percent: None,
        current_phase: None,
        error,
        result: part("/success/result").or_else(|| part("/resolved/result")),
        execution_metadata: None,
        checkpoint_ref: None,
        tool_version: Some(Value::String(intent.version.to_string())),
        source: None,
        provenance: None,
        latest_checkpoint: None,
        cancel_requested: false,
        attempts: 1,
        interruptions: 0,
        attempts_max: 1,
        created_at: begun_at.to_string(),
        started_at: Some(begun_at.to_string()),
        completed_at: settled_at.map(|at| at.to_string()),
        next_attempt_at: None,
    }
}

fn rendered(view: InvocationView) -> InvocationAnswer {
    let InvocationView { status, record, mut result, failed_run } = view;
    // The end of a call is kept as its whole answer; other jobs have just a result.
    let is_call = record.kind == ports::job_store::TOOL_CALL;
    let mut part = |name: &str| result.as_mut().and_then(|whole| whole.get_mut(name)).map(Value::take);
    let (inner, execution_metadata, tool_version) =
        if is_call { (part("result"), part("execution_metadata"), part("tool_version")) } else { (None, None, None) };
    let (source, provenance) = if is_call { (part("source"), part("provenance")) } else { (None, None) };
    let kept = if is_call { part("checkpoint_ref") } else { None };
    let checkpoint_ref = kept.and_then(|id| id.as_str().map(str::to_owned)).or(failed_run.checkpoint_ref);
    let attempts = record.tries();
    let waits_again = record.attempts > 0 && matches!(record.state, JobState::Delayed | JobState::Queued);
    let time = |time: Option<UnixMillis>| time.map(|time| time.to_string());
    InvocationAnswer {
        invocation_id: record.key.id,
        status,
        kind: record.kind,
        label: record.label,
        progress_percent: record.progress_percent,
        current_phase: record.phase,
        error: record.error,
        result: if is_call { inner } else { result },
        execution_metadata: execution_metadata.or(failed_run.execution_metadata),
        checkpoint_ref,
        tool_version,
        source,
        provenance,
        latest_checkpoint: None,
        cancel_requested: record.cancel_asked.is_some(),
        attempts,
        interruptions: record.interruptions,
        attempts_max: record.attempts_max,
        created_at: record.created_at.to_string(),
        started_at: time(record.started_at),
        completed_at: time(record.ended_at),
        next_attempt_at: time(waits_again.then_some(record.due_at)),
    }
}
