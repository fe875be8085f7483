//! `POST /v1/tools/invoke`: one call (API-001, LIFE-012…020). The hot path: one parse, one pass through the kernel, one
//! serialisation.

use std::sync::Arc;
use std::time::Duration;

use contract::envelope::{DeprecationNotice, ExecutionMode, InvokeRequest, InvokeResponse};
use contract::error::{ErrorCode, Refusal};
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue, StatusCode};
use jobs::{CallOutcome, Jobs};
use kernel::{IncomingCall, Kernel};
use policy::Caller;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::invocations::AcceptedAnswer;
use super::{RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, to};
use crate::answer::{Handled, HttpAnswer};
use crate::base_url::BaseUrl;
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::members::typed;
use crate::problem::RefusalResponse;

/// Everything the six phases of a call can answer.
pub(super) const CODES: &[ErrorCode] = &[
    ErrorCode::E3002,
    ErrorCode::E3010,
    ErrorCode::E3101,
    ErrorCode::E3102,
    ErrorCode::E3103,
    ErrorCode::E3104,
    ErrorCode::E3107,
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
    ErrorCode::E3410,
    ErrorCode::E3411,
    ErrorCode::E3414,
    ErrorCode::E3501,
    ErrorCode::E3502,
    ErrorCode::E3503,
    ErrorCode::E3504,
    ErrorCode::E3701,
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

pub(super) static OPERATIONS: &[RouteOperation] = &[RouteOperation {
    verb: RouteMethod::Post,
    path: PATH,
    id: "invokeTool",
    tag: "invocation",
    summary: "Call a tool",
    access: RouteAccess::Token,
    parameters: &[],
    asks: RequestBody::Json(SchemaGenerator::subschema_for::<InvokeRequest>),
    good: &[
        (200, "the call ran to its end"),
        (202, "the call goes on in the background; `polling_info` says where to ask"),
    ],
    gives: ResponseBody::Json(answers),
    codes: CODES,
    mount: |filter| to(filter, invoke),
}];

pub(super) async fn invoke(door: Arc<Door>, mut incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    if !incoming.is_recognised()
        && let Err(refusal) = incoming.recognise(&door, &who).await
    {
        let source = who.actor().source;
        return Err(Box::pin(door.kernel().refuse_unread(source, who.trace().clone(), refusal)).await.into());
    }
    // The table that would ask this is passed by for calls.
    incoming.query(&[])?;
    let mut body = incoming.json(&door, &who).await?;
    let value = body.value.take();
    let request = invoke_request(value, "", || body.again())?;
    let preference = Preference::of(&incoming.parts.headers);
    let caller = incoming.caller(&door, &who).await?;
    match performed(&door, (&caller, &who), &incoming.base(), request, preference).await? {
        InvokeAnswer::GoesOn(answer) => HttpAnswer::json_with(StatusCode::ACCEPTED, &answer),
        InvokeAnswer::Ended(response) => {
            let answer = HttpAnswer::json(&response)?;
            Ok(match &response.execution_metadata.deprecation {
                None => answer,
                Some(notice) => with_notice(answer, notice),
            })
        }
    }
}

/// What a call is answered with, at every door that speaks BC-2.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum InvokeAnswer {
    Ended(Box<InvokeResponse>),
    GoesOn(AcceptedAnswer),
}

/// Runs a call for as long as its caller waits, or submits it.
pub(super) async fn performed(
    door: &Door,
    (caller, who): (&Caller, &CallerCredential),
    base: &BaseUrl,
    request: InvokeRequest,
    preference: Preference,
) -> Result<InvokeAnswer, RefusalResponse> {
    let (jobs, kernel, who, base) = (door.jobs().cloned(), door.shared_kernel(), who.clone(), base.clone());
    door.carry_call_to_end(caller, async move {
        let response = match jobs {
            None => Box::pin(run(&kernel, &who, request)).await?,
            // Boxed once, so that the futures around it are moved without the room of all phases.
            Some(jobs) => match Box::pin(called(&jobs, &who, request, preference)).await? {
                CallOutcome::Returned(returned) => returned.into_response(),
                CallOutcome::Promoted(accepted) => {
                    return Ok(InvokeAnswer::GoesOn(AcceptedAnswer::of(&accepted, &base)));
                }
            },
        };
        Ok(InvokeAnswer::Ended(Box::new(response)))
    })
    .await
}

/// The answer of a call that ended, or of one that goes on.
pub(super) fn answers(generator: &mut SchemaGenerator) -> Schema {
    let ended = generator.subschema_for::<InvokeResponse>();
    let goes_on = generator.subschema_for::<AcceptedAnswer>();
    schemars::json_schema!({ "anyOf": [ended, goes_on] })
}

/// What the caller prefers (RFC 7240).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Preference {
    /// `respond-async`: do not wait at all.
    background: bool,
    /// `wait=N`: wait so many seconds at most.
    wait: Option<Duration>,
}

impl Preference {
    /// Preferences that are not understood are ignored, as the standard wants it.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
        let mut preference = Self::default();
        for token in values.flat_map(|value| value.split([',', ';'])).map(str::trim) {
            if token.eq_ignore_ascii_case("respond-async") {
                preference.background = true;
            } else if let Some(("wait", seconds)) =
                token.split_once('=').map(|(name, value)| (name.trim(), value.trim()))
            {
                preference.wait = seconds.parse().ok().map(Duration::from_secs).or(preference.wait);
            }
        }
        preference
    }
}

/// Submits the call, or runs it for as long as its caller waits.
async fn called(
    jobs: &Arc<Jobs>,
    who: &CallerCredential,
    request: InvokeRequest,
    preference: Preference,
) -> Result<CallOutcome, RefusalResponse> {
    // A preference gives way to what the request itself says.
    let prefers = preference.background && request.execution_mode != Some(ExecutionMode::Sync);
    if Jobs::wants_background(&request) || prefers {
        return Ok(CallOutcome::Promoted(Box::pin(jobs.submit(arrival(who, request))).await?));
    }
    let patience = preference.wait.map(|wait| wait.min(kernel::SYNC_MAX));
    Ok(jobs.call(who.actor(), who.trace().clone(), request, patience).await?)
}

/// Hands one call to the kernel.
pub(super) async fn run(
    kernel: &Kernel,
    who: &CallerCredential,
    request: InvokeRequest,
) -> Result<InvokeResponse, RefusalResponse> {
    let arrival = IncomingCall { cancellation: kernel.drain_cancellation().child_token(), ..arrival(who, request) };
    Ok(kernel.invoke(arrival).await?.into_response())
}

/// One call as the kernel wants it.
pub(super) fn arrival(who: &CallerCredential, request: InvokeRequest) -> IncomingCall<'_> {
    let (credential, source) = (who.secret(), who.source());
    IncomingCall {
        credential,
        source,
        request,
        trace: Some(who.trace().clone()),
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
    match request.against_waiting() {
        None => Ok(request),
        Some(option) => Err(Refusal::new(
            ErrorCode::E3004,
            format!("`execution_mode` is `sync`, and `execution_options.{option}` is for calls in the background"),
        )
        .hint("leave one of them out; the call was not run")),
    }
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
fn with_notice(answer: HttpAnswer, notice: &DeprecationNotice) -> HttpAnswer {
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
    fn preferences_are_read_as_the_standard_has_them() {
        for (header, background, wait) in [
            ("respond-async, wait=10", true, Some(10)),
            ("Respond-Async", true, None),
            ("wait = 3; x=y", false, Some(3)),
            ("return=minimal", false, None),
            ("wait=soon", false, None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", HeaderValue::from_static(header));
            let preference = Preference::of(&headers);
            assert_eq!((preference.background, preference.wait.map(|it| it.as_secs())), (background, wait), "{header}");
        }
    }

    #[test]
    fn parameters_under_two_names_are_refused() {
        let value = json!({ "tool_id": "x", "parameters": {}, "params": { "a": 1 } });
        assert!(invoke_request(value.clone(), "", || value).is_err());
    }
}
