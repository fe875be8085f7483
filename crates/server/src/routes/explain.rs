//! `POST /v1/tools/explain`: what would become of this call, and why? Nothing is run and nothing is spent.

use std::sync::Arc;

use contract::cost::{CostEstimate, EstimateConfidence};
use contract::envelope::InvokeRequest;
use contract::error::{ErrorCode, RefusalReason};
use contract::money::{Amount, Currency};
use kernel::CallExplanation;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::invoke::{arrival, invoke_request};
use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Post,
    path: "/v1/tools/explain",
    id: "explainCall",
    tag: "invocation",
    summary: "Say whether a call would be allowed, and which policies decide; nothing is run",
    access: RouteAccess::Token,
    parameters: &[],
    asks: RequestBody::Json(SchemaGenerator::subschema_for::<InvokeRequest>),
    good: &[(200, "the explanation, also of a call that would be refused")],
    gives: ResponseBody::Json(SchemaGenerator::subschema_for::<ExplainAnswer>),
    codes: &[],
    mount: |filter| to(filter, explain),
}];

/// What would become of a call.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Explanation")]
struct ExplainAnswer {
    allowed: bool,
    /// The code it would be refused with.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolution: Option<String>,
    /// The policies that decide: those that allow it, or those that deny it.
    policies: Vec<String>,
    /// What the policies demand besides, for example `redact=email`.
    obligations: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Box<Value>>,
    /// What it would probably cost; absent if it would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<EstimateView>,
}

/// What a call will probably cost, and how long it may take.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CostEstimate")]
struct EstimateView {
    estimated_cost: Amount,
    currency: Currency,
    /// There if the tool is paid for by the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_tokens: Option<u64>,
    estimated_latency_ms: u64,
    confidence: EstimateConfidence,
}

impl EstimateView {
    fn of(estimate: CostEstimate) -> Self {
        Self {
            estimated_cost: estimate.cost.amount,
            currency: estimate.cost.currency,
            estimated_tokens: estimate.tokens,
            estimated_latency_ms: estimate.latency_ms,
            confidence: estimate.confidence,
        }
    }
}

async fn explain(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    let mut body = incoming.json(&door, &who).await?;
    let value = body.value.take();
    let request = invoke_request(value, "", || body.again())?;
    let (jobs, kernel) = (door.jobs().cloned(), door.shared_kernel());
    door.carry_to_end(async move {
        let arrival = arrival(&who, request);
        let explanation = match jobs {
            None => Box::pin(kernel.explain(arrival)).await?,
            Some(jobs) => Box::pin(jobs.explain(arrival)).await?,
        };
        HttpAnswer::json(&ExplainAnswer::of(explanation))
    })
    .await
}

impl ExplainAnswer {
    fn of(explanation: CallExplanation) -> Self {
        let CallExplanation { refusal, mut policies, obligations, estimate } = explanation;
        let estimate = estimate.map(EstimateView::of);
        let Some(refusal) = refusal else {
            let (code, message, resolution, details) = (None, None, None, None);
            return Self { allowed: true, code, message, resolution, policies, obligations, details, estimate };
        };
        if let Some(RefusalReason::Denied { policies: denying }) = refusal.reason.as_deref() {
            policies.extend(denying.iter().cloned());
        }
        Self {
            allowed: false,
            code: Some(refusal.code),
            resolution: Some(refusal.resolution().to_owned()),
            message: Some(refusal.message),
            policies,
            obligations,
            details: refusal.details,
            estimate,
        }
    }
}
