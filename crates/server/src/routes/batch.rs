//! `POST /v1/tools/invoke/batch`: up to ten calls, one after the other (LIFE-021, X-53).
//!
//! The batch stops at the first failed call that is critical; the list of results is always as long as the list of
//! calls. A batch with a malformed call is refused as a whole, before anything has run.

use std::sync::Arc;

use contract::envelope::{BatchRequest, ErrorResponse, InvokeRequest, InvokeResponse};
use contract::error::{ErrorCode, Refusal};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::invoke::{CODES, invoke_request, run};
use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

/// Most calls in one batch.
const CALLS_MAX: usize = 10;

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Post,
    path: "/v1/tools/invoke/batch",
    id: "invokeBatch",
    tag: "invocation",
    summary: "Call up to ten tools, one after the other, stopping at the first failed critical one",
    access: RouteAccess::Token,
    parameters: &[],
    asks: RequestBody::Json(SchemaGenerator::subschema_for::<BatchRequest>),
    good: &[(200, "one result per call, in order, whatever became of each")],
    gives: ResponseBody::Json(SchemaGenerator::subschema_for::<BatchAnswer>),
    codes: CODES,
    mount: |filter| to(filter, batch),
}];

/// The results, one per call.
#[derive(Debug, Serialize, JsonSchema)]
struct BatchAnswer {
    results: Vec<BatchResult>,
}

/// What became of one call.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum BatchResult {
    Finished(Box<InvokeResponse>),
    Failed(Box<ErrorResponse>),
    Skipped(Skipped),
}

/// A call that was not run, because a critical one before it failed.
#[derive(Debug, Serialize, JsonSchema)]
struct Skipped {
    status: SkippedStatus,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SkippedStatus {
    Skipped,
}

/// One call of a batch. The contract's own type is for the published schema: reading it would ignore misspelt members.
#[derive(Debug)]
struct Call {
    critical: bool,
    request: InvokeRequest,
}

/// The body with its calls still unread.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Calls {
    calls: Vec<Value>,
}

async fn batch(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let calls = calls(incoming.json(&door, &who).await?.typed()?)?;
    let caller = incoming.caller(&door, &who).await?;
    let kernel = door.shared_kernel();
    door.carry_call_to_end(&caller, async move {
        // Before the first call, so that a batch of nobody's is refused as a whole.
        kernel.recognise(who.actor()).await?;
        let mut results = Vec::with_capacity(calls.len());
        let mut stopped = false;
        for Call { critical, request } in calls {
            if stopped {
                results.push(BatchResult::Skipped(Skipped { status: SkippedStatus::Skipped }));
                continue;
            }
            results.push(match Box::pin(run(&kernel, &who, request)).await {
                Ok(response) => BatchResult::Finished(Box::new(response)),
                Err(refused) => {
                    stopped = critical;
                    BatchResult::Failed(Box::new(refused.body(who.trace_id)))
                }
            });
        }
        HttpAnswer::json(&BatchAnswer { results })
    })
    .await
}

fn calls(body: Calls) -> Result<Vec<Call>, Refusal> {
    let count = body.calls.len();
    if !(1..=CALLS_MAX).contains(&count) {
        return Err(Refusal::new(ErrorCode::E3004, format!("`calls` has {count} calls"))
            .hint(format!("send 1 to {CALLS_MAX} calls, and more of them in further batches")));
    }
    body.calls.into_iter().enumerate().map(|(at, value)| call(value, &format!("calls[{at}]"))).collect()
}

fn call(mut value: Value, place: &str) -> Result<Call, Refusal> {
    let critical = match value.as_object_mut().and_then(|members| members.remove("critical")) {
        None => true,
        Some(Value::Bool(critical)) => critical,
        Some(_) => return Err(Refusal::new(ErrorCode::E3004, format!("`{place}.critical` must be true or false"))),
    };
    let again = value.clone();
    Ok(Call { critical, request: invoke_request(value, place, || again)? })
}
