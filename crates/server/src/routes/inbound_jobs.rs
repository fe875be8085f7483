//! `POST /jobs/{type}`, the signed door for jobs of other queues, and `POST /v1/workflows/callback`, where workflows say that
//! they have ended. (ASYNC-010, ASYNC-011, FLOW-006, API-015)
//!
//! Neither knows tokens: the signature over the raw body is the proof. As much of it as can be judged without the body is
//! judged before the body is read; a body that is too long is refused before its first byte. A signature that does not hold
//! counts as a failed authentication of its address.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use http::HeaderMap;
use jobs::inbound_jobs::{CallbackTaken, InboundJobs, InboundResult, not_genuine};
use jobs::webhooks::SIGNATURE_HEADER;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::problem::RefusalResponse;

/// Where QStash puts its proof, and the id that stays the same when it sends again.
const QSTASH_SIGNATURE: &str = "upstash-signature";
const QSTASH_MESSAGE_ID: &str = "upstash-message-id";

const TYPE: RouteParameter = RouteParameter {
    place: ParameterPlace::Path,
    name: "type",
    about: "`generate_embedding`, `execute_workflow` or `send_notification`",
    schema: SchemaGenerator::subschema_for::<String>,
};

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/jobs/{type}",
        id: "takeJob",
        tag: "jobs",
        summary: "Take a job of another queue, proven by its `Upstash-Signature`",
        access: RouteAccess::Public,
        parameters: &[TYPE],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<Map<String, Value>>),
        good: &[(200, "it is kept and will be done; or it was before")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Taken>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3003,
            ErrorCode::E3008,
            ErrorCode::E3010,
            ErrorCode::E3202,
            ErrorCode::E3408,
            ErrorCode::E3410,
            ErrorCode::E3701,
        ],
        mount: |filter| to(filter, take),
    },
    RouteOperation {
        verb: RouteMethod::Post,
        path: "/v1/workflows/callback",
        id: "workflowCallback",
        tag: "jobs",
        summary: "Hear from a workflow that it has ended, proven by its `Gantry-Signature`",
        access: RouteAccess::Public,
        parameters: &[],
        asks: RequestBody::Json(SchemaGenerator::subschema_for::<Map<String, Value>>),
        good: &[(200, "the run has ended with it; or it had before, and nothing was changed")],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Taken>),
        codes: &[
            ErrorCode::E3001,
            ErrorCode::E3003,
            ErrorCode::E3010,
            ErrorCode::E3202,
            ErrorCode::E3408,
            ErrorCode::E3702,
        ],
        mount: |filter| to(filter, callback),
    },
];

/// It was taken.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "JobTaken")]
struct Taken {
    /// Always true: everything else is a refusal.
    success: bool,
    /// It came before, and nothing was done.
    duplicate: bool,
}

async fn take(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let jobs = jobs(&door)?;
    let signature = header(&incoming.parts.headers, QSTASH_SIGNATURE)?.ok_or_else(unproven)?;
    let message_id = header(&incoming.parts.headers, QSTASH_MESSAGE_ID)?;
    let [kind] = incoming.path_values().await?;
    let forged = counted(&door, &incoming);
    jobs.judge(&kind, &signature).map_err(&forged)?;
    incoming.query(&[])?;
    let body = incoming.bytes(&door, jobs.bytes_max()).await?;
    door.carry_to_end(async move {
        let arrived = jobs.take(&kind, &signature, message_id.as_deref(), &body).await.map_err(forged)?;
        HttpAnswer::json(&Taken { success: true, duplicate: arrived == InboundResult::Again })
    })
    .await
}

async fn callback(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let jobs = jobs(&door)?;
    let signature = header(&incoming.parts.headers, SIGNATURE_HEADER)?.ok_or_else(unproven)?;
    let forged = counted(&door, &incoming);
    jobs.judge_callback(&signature).map_err(&forged)?;
    incoming.query(&[])?;
    let body = incoming.bytes(&door, jobs.bytes_max()).await?;
    let kernel = door.shared_kernel();
    door.carry_to_end(async move {
        // What cannot be recorded is not taken.
        let slot = kernel.record_slot().await?;
        let taken = jobs.called_back(&signature, &body).await.map_err(forged)?;
        let duplicate = match taken {
            CallbackTaken::Before => true,
            CallbackTaken::Now { audit: (action, note) } => {
                kernel.note_done(slot, jobs.tenant(), action, note).await?;
                false
            }
        };
        HttpAnswer::json(&Taken { success: true, duplicate })
    })
    .await
}

/// What a refusal becomes: one for a signature that does not hold counts against whoever has sent it, and nothing more is read
/// of the connection.
fn counted(door: &Door, incoming: &IncomingRequest) -> impl Fn(Refusal) -> RefusalResponse + Send + Sync + use<> {
    let (kernel, source) = (door.shared_kernel(), incoming.source());
    move |refusal| match refusal.code {
        ErrorCode::E3202 => RefusalResponse::from(kernel.unproven(source, refusal)).and_hang_up(),
        _ => refusal.into(),
    }
}

/// A header that may stand once; two are two answers to "who is it?".
fn header(headers: &HeaderMap, name: &str) -> Result<Option<String>, RefusalResponse> {
    let mut found = headers.get_all(name).iter();
    let first = found.next().map(|value| value.to_str().map(str::to_owned));
    match (first, found.next()) {
        (None, _) => Ok(None),
        (Some(Ok(text)), None) => Ok(Some(text)),
        _ => Err(unproven()),
    }
}

fn unproven() -> RefusalResponse {
    RefusalResponse::from(not_genuine()).and_hang_up()
}

fn jobs(door: &Door) -> Result<Arc<InboundJobs>, RefusalResponse> {
    let none = || {
        Refusal::new(ErrorCode::E3010, "this server takes no jobs from other queues")
            .hint("let the operator set `[inbound_jobs] signing_key` and `public_url`")
    };
    Ok(door.inbound_jobs().ok_or_else(none)?)
}
