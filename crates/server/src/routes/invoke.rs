//! `POST /v1/tools/invoke`: one call (API-001, LIFE-012…020). The hot path: one parse, one pass through the kernel, one
//! serialisation.

use std::sync::Arc;

use contract::envelope::{DeprecationNotice, InvokeRequest, InvokeResponse};
use contract::error::{ErrorCode, Refusal};
use http::HeaderValue;
use http::header::HeaderName;
use kernel::{Arrival, Kernel};
use schemars::SchemaGenerator;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{Access, Asks, Gives, Operation, Verb, to};
use crate::answer::{Answer, Handled};
use crate::door::Door;
use crate::incoming::{Credential, Incoming};
use crate::members::typed;
use crate::problem::Refused;

/// Everything the six phases of a call can answer.
pub(super) const CODES: &[ErrorCode] = &[
    ErrorCode::E3002,
    ErrorCode::E3010,
    ErrorCode::E3101,
    ErrorCode::E3102,
    ErrorCode::E3103,
    ErrorCode::E3104,
    ErrorCode::E3108,
    ErrorCode::E3204,
    ErrorCode::E3205,
    ErrorCode::E3206,
    ErrorCode::E3208,
    ErrorCode::E3210,
    ErrorCode::E3211,
    ErrorCode::E3301,
    ErrorCode::E3302,
    ErrorCode::E3303,
    ErrorCode::E3305,
    ErrorCode::E3401,
    ErrorCode::E3402,
    ErrorCode::E3404,
    ErrorCode::E3405,
    ErrorCode::E3407,
    ErrorCode::E3502,
    ErrorCode::E3503,
    ErrorCode::E3504,
    ErrorCode::E3801,
    ErrorCode::E3803,
    ErrorCode::E3903,
    ErrorCode::E3904,
    ErrorCode::E3905,
    ErrorCode::E3908,
];

/// Other names of `parameters`.
const ALIASES: [&str; 3] = ["params", "args", "input"];

/// Where calls go.
pub(super) const PATH: &str = "/v1/tools/invoke";

pub(super) static OPERATIONS: &[Operation] = &[Operation {
    verb: Verb::Post,
    path: PATH,
    id: "invokeTool",
    tag: "invocation",
    summary: "Call a tool",
    access: Access::Token,
    parameters: &[],
    asks: Asks::Json(SchemaGenerator::subschema_for::<InvokeRequest>),
    good: &[(200, "the call ran to its end")],
    gives: Gives::Json(SchemaGenerator::subschema_for::<InvokeResponse>),
    codes: CODES,
    mount: |filter| to(filter, invoke),
}];

pub(super) async fn invoke(door: Arc<Door>, mut incoming: Incoming) -> Handled {
    let who = incoming.credential()?;
    let mut body = incoming.json(&door, &who).await?;
    let value = body.value.take();
    let request = invoke_request(value, "", || body.again())?;
    let kernel = door.shared_kernel();
    door.settle(async move {
        let response = run(&kernel, &who, request).await?;
        let answer = Answer::json(&response)?;
        Ok(match &response.execution_metadata.deprecation {
            None => answer,
            Some(notice) => with_notice(answer, notice),
        })
    })
    .await
}

/// Hands one call to the kernel.
pub(super) async fn run(kernel: &Kernel, who: &Credential, request: InvokeRequest) -> Result<InvokeResponse, Refused> {
    Ok(kernel.invoke(arrival(who, request)).await?.into_response())
}

/// One call as the kernel wants it.
pub(super) fn arrival(who: &Credential, request: InvokeRequest) -> Arrival<'_> {
    let (credential, source) = (who.secret(), who.source());
    Arrival {
        credential,
        source,
        request,
        trace_id: Some(who.trace_id),
        parent_left: None,
        audience: None,
        cancellation: CancellationToken::new(),
    }
}

/// Reads the request. Parameters are set aside first, because serde would rebuild them member by member.
pub(super) fn invoke_request(
    mut value: Value,
    place: &str,
    again: impl FnOnce() -> Value,
) -> Result<InvokeRequest, Refusal> {
    let parameters = take_parameters(&mut value);
    let mut request: InvokeRequest = typed(value, place, again)?;
    if let Some(parameters) = parameters {
        request.parameters = parameters;
    }
    Ok(request)
}

/// The parameters, if they stand under their own name alone and are an object; everything else is left to serde.
fn take_parameters(value: &mut Value) -> Option<Map<String, Value>> {
    let members = value.as_object_mut()?;
    if ALIASES.iter().any(|alias| members.contains_key(*alias)) {
        return None;
    }
    match members.get_mut("parameters")? {
        Value::Object(parameters) => Some(std::mem::take(parameters)),
        _ => None,
    }
}

/// The notice in headers that generic clients understand (RFC 9745, RFC 8594); the body has all of it.
fn with_notice(answer: Answer, notice: &DeprecationNotice) -> Answer {
    let since = moment(&notice.deprecated_at).map(|at| format!("@{}", at.as_second()));
    let until = moment(&notice.sunset_at).map(|at| at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
    [("deprecation", since), ("sunset", until)].into_iter().fold(answer, |answer, (name, text)| {
        match text.and_then(|text| HeaderValue::try_from(text).ok()) {
            Some(value) => answer.header(HeaderName::from_static(name), value),
            None => answer,
        }
    })
}

fn moment(rfc3339: &str) -> Option<jiff::Timestamp> {
    rfc3339.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_arrive_under_each_of_their_names() {
        for name in ["parameters", "params", "args", "input"] {
            let value = json!({ "tool_id": "x", name: { "a": 1 } });
            let request = invoke_request(value.clone(), "", || value).unwrap();
            assert_eq!(request.parameters.get("a"), Some(&json!(1)), "{name}");
        }
    }

    #[test]
    fn parameters_under_two_names_are_refused() {
        let value = json!({ "tool_id": "x", "parameters": {}, "params": { "a": 1 } });
        assert!(invoke_request(value.clone(), "", || value).is_err());
    }
}
