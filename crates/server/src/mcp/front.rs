//! What stands before the protocol: host name, origin, token, path, session and body of each request, in this order, so that strangers
//! cost little. What passes is handed to `rmcp` without its token (MCP-C).
//!
//! Refusals here are those of HTTP and rendered as everywhere (`problem`), except that a body which is no message gets the
//! answer JSON-RPC has for it; so does what `rmcp` would refuse in plain text.
//!
//! Not here: which headers must agree with the body, which revision it is, and how streams are made (`rmcp`).

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use bytes::Bytes;
use contract::error::{ErrorCode, Refusal};
use fair_places::FairPermit;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::header::{ACCEPT, ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::BodyExt as _;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::config::is_toolset_name;
use super::handler::{From, McpHandler};
use super::quota::QuotaExceeded;
use super::sessions::{SessionOwner, SessionTable};
use super::strict_message::UnreadableMessage;
use super::{McpVisit, seal, session_transfer, strict_message};
use crate::answer::dress;
use crate::door::Door;
use crate::incoming_request::{CallerCredential, IncomingRequest};
use crate::origin;
use crate::problem::{RESOURCE_METADATA, RefusalResponse, wrong_way};

/// Where the door is.
pub(crate) const PATH: &str = "/mcp";

/// Which of its paths was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum McpPath {
    /// Everything that the caller may call.
    Whole,
    /// A toolset, named in the path.
    Toolset,
}

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The first revision without sessions.
const MODERN: &str = "2026-07-28";
/// The only revision with batches.
pub(super) const BATCHING: &str = "2025-03-26";
/// Messages of one batch. At the limit: -32600.
const BATCH_MAX: usize = 32;
/// Bytes of a refusal's text that are handed on.
const REFUSAL_BYTES_MAX: usize = 4096;
/// How often a silent stream shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Both forms of an answer.
pub(super) const BOTH: &str = "application/json, text/event-stream";

/// What must be known of a message before it is handed on.
#[derive(Debug, Deserialize)]
struct Peek {
    jsonrpc: Option<String>,
    method: Option<String>,
    #[serde(default)]
    params: Option<PeekParams>,
    #[serde(default)]
    id: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct PeekParams {
    #[serde(default, rename = "protocolVersion")]
    protocol_version: Option<Value>,
    /// How a client of revision 2025-11-25 asks for a task; `rmcp` does not read it.
    #[serde(default)]
    task: Option<Value>,
    #[serde(default)]
    capabilities: Option<Value>,
    #[serde(default, rename = "clientInfo")]
    client: Option<Value>,
}

impl PeekParams {
    /// What a client says about itself when it begins.
    fn of_client(&self) -> Value {
        json!({ "protocolVersion": self.protocol_version, "capabilities": self.capabilities, "clientInfo": self.client })
    }
}

/// Answers a request to `/mcp` or `/mcp/{toolset}`.
pub(crate) async fn answer(door: Arc<Door>, request: Request, part: McpPath) -> Response<Body> {
    let mut incoming = IncomingRequest::new(&door, request);
    let mut asked = incoming.asked();
    // A name that cannot be read is refused when it is known who asks, as everything else about the request.
    let toolset = match part {
        McpPath::Whole => Ok(None),
        McpPath::Toolset => incoming.path_values().await.map(|[name]| Some(name)),
    };
    asked.resource = resource(toolset.as_ref().ok().and_then(Option::as_deref));
    let trace_id = incoming.trace_id;
    let mut response = match handed_on(&door, incoming, toolset).await {
        Ok(response) => response,
        Err(refused) => return refused.into_response(&asked),
    };
    dress(response.headers_mut(), trace_id);
    response
}

/// The path of this resource, as its metadata and the way there have it. A name that cannot be one of ours is left out.
fn resource(toolset: Option<&str>) -> String {
    match toolset {
        Some(name) if is_toolset_name(name) => format!("{PATH}/{name}"),
        _ => PATH.to_owned(),
    }
}

async fn handed_on(
    door: &Arc<Door>,
    mut incoming: IncomingRequest,
    toolset: Result<Option<String>, RefusalResponse>,
) -> Result<Response<Body>, RefusalResponse> {
    let config = &door.mcp().config;
    let headers_max = door.config().headers_max;
    if incoming.parts.headers.len() > headers_max {
        let refusal = Refusal::new(ErrorCode::E3004, format!("the request has more than {headers_max} headers"));
        return Err(refusal.hint("send fewer headers").into());
    }
    door.called_by_name(&incoming.parts, true)?;
    if !origin::origin_is_fine(&incoming.parts.headers, &config.allowed_origins) {
        return Err(wrong_way("origin", "mcp.allowed_origins"));
    }
    let who = incoming.credential()?;
    let caller = incoming.recognise(door, &who).await?;
    incoming.query(&[])?;
    let toolset: Option<Arc<str>> = match toolset? {
        None => None,
        Some(name) if config.toolsets.contains_key(&name) => Some(Arc::from(name)),
        Some(_) => return Err(Refusal::new(ErrorCode::E3008, "there is no toolset of this name").into()),
    };
    let owner = SessionOwner { principal: seal::principal(caller.caller()), toolset: toolset.clone() };
    let visit = McpVisit { who, caller, toolset, as_task: false, lacks: Arc::default(), seen: Arc::default() };
    let session = match session_of(&incoming.parts).filter(|_| !is_modern(&incoming.parts)) {
        Some(text) => Some(session_transfer::find(door, &mut incoming.parts, text, &visit, &owner).await?),
        None => None,
    };
    let method = incoming.parts.method.clone();
    match method {
        Method::POST => {
            let body = incoming.bytes(door, door.config().body_bytes_max).await?;
            posted(door, incoming.parts, body, visit, owner, session).await
        }
        Method::GET => {
            let place = door.mcp().listeners.take(visit.caller.caller()).map_err(|why| no_place(why, "listen"))?;
            let who = visit.who.clone();
            let response = service(door, &visit, &door.mcp().ending)
                .handle(without_token(incoming.parts, visit, Bytes::new()))
                .await;
            let response = as_message(response.map(Body::new), &Value::Null).await;
            Ok(holding(while_welcome(door, who, response), place))
        }
        Method::DELETE => {
            let request = without_token(incoming.parts, visit.clone(), Bytes::new());
            let response = service(door, &visit, &CancellationToken::new()).handle(request).await;
            let mut response = as_message(response.map(Body::new), &Value::Null).await;
            if response.status() == StatusCode::ACCEPTED {
                // It is done, not only begun, and there is nothing to say about it.
                *response.status_mut() = StatusCode::NO_CONTENT;
            }
            Ok(response)
        }
        _ => {
            let mut refused = crate::problem::method_not_allowed(&method, PATH).into_response(&incoming.asked());
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, POST, DELETE"));
            Ok(refused)
        }
    }
}

/// A message, or several of the one revision that has batches.
async fn posted(
    door: &Arc<Door>,
    mut parts: Parts,
    body: Bytes,
    mut visit: McpVisit,
    owner: SessionOwner,
    session: Option<String>,
) -> Result<Response<Body>, RefusalResponse> {
    // Whoever does not say what it understands gets what the protocol has.
    let accept = parts.headers.get(ACCEPT).map(|value| value.to_str().unwrap_or_default().trim().to_owned());
    if accept.is_none_or(|accept| accept == "*/*") {
        parts.headers.insert(ACCEPT, HeaderValue::from_static(BOTH));
    }
    if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return batch(door, parts, &body, visit, session.as_deref()).await;
    }
    let message = match strict_message::read(&body, &door.json_limits()) {
        Ok(message) => message,
        Err(unreadable) => return Ok(not_read(&unreadable)),
    };
    let Ok(peek) = serde_json::from_value::<Peek>(message) else {
        return Ok(not_a_message(-32600, "the body is no JSON-RPC message", &Value::Null));
    };
    if peek.jsonrpc.as_deref() != Some("2.0") {
        let id = peek.id.unwrap_or_default();
        return Ok(not_a_message(-32600, "the body is no JSON-RPC message: `jsonrpc` must be `2.0`", &id));
    }
    let begins = peek.method.as_deref() == Some("initialize");
    let place = match begins {
        true => Some(door.mcp().sessions.place(visit.caller.caller()).map_err(|why| no_place(why, "have a session"))?),
        false => None,
    };
    if matches!(peek.method.as_deref(), Some("subscriptions/listen" | "notifications/initialized")) {
        let _first = visit.seen.set(door.mcp().listing(door.kernel(), &visit).fingerprint);
    }
    visit.as_task = peek.params.as_ref().is_some_and(|params| params.task.as_ref().is_some_and(Value::is_object));
    let lacks = Arc::clone(&visit.lacks);
    let base = crate::base_url::BaseUrl::of_request(&parts);
    let resource = resource(visit.toolset.as_deref());
    let service = service(door, &visit, &CancellationToken::new());
    let listener = (peek.method.as_deref() == Some("subscriptions/listen")).then(|| visit.who.clone());
    let response = service.handle(without_token(parts, visit, body)).await.map(Body::new);
    let mut response = as_message(response, peek.id.as_ref().unwrap_or(&Value::Null)).await;
    if let Some(who) = listener {
        response = while_welcome(door, who, response);
    }
    if let Some(place) = place
        && let Some(id) = response.headers().get(SESSION_ID).and_then(|id| id.to_str().ok())
    {
        let asked = peek.params.as_ref().and_then(|params| params.protocol_version.as_ref());
        let batches = asked.and_then(Value::as_str) == Some(BATCHING);
        let params = peek.params.as_ref().map_or(Value::Null, PeekParams::of_client);
        let outside = session_transfer::outside_id(door, id, &params, &owner);
        door.mcp().sessions.belongs(id, owner, place, batches).await;
        if let Some(outside) = outside {
            response.headers_mut().insert(SESSION_ID, outside);
        }
    }
    if let Some(scope) = lacks.get()
        && !is_stream(&response)
        && response.status() == StatusCode::OK
    {
        challenge(&mut response, scope, &base, &resource);
    }
    Ok(response)
}

/// A stream of news, which ends when the token that opened it is revoked or ends: asked before each piece is sent, and there
/// is one every [`KEEP_ALIVE`] at least.
fn while_welcome(door: &Arc<Door>, who: CallerCredential, response: Response<Body>) -> Response<Body> {
    if !is_stream(&response) {
        return response;
    }
    let door = Arc::clone(door);
    response.map(|body| {
        Body::from_stream(stream::unfold((body.into_data_stream(), door, who), |(mut pieces, door, who)| async move {
            let piece = pieces.next().await?;
            door.kernel().recognise(who.actor()).await.ok()?;
            Some((piece, (pieces, door, who)))
        }))
    })
}

/// Each message goes its own way; the answers come on one stream.
async fn batch(
    door: &Arc<Door>,
    parts: Parts,
    body: &Bytes,
    visit: McpVisit,
    session: Option<&str>,
) -> Result<Response<Body>, RefusalResponse> {
    let fine = session.is_some_and(|id| door.mcp().sessions.takes_batches(id));
    if !fine {
        let why = format!("several messages at once are known to revision {BATCHING} only: send one after the other");
        return Ok(not_a_message(-32600, &why, &Value::Null));
    }
    let messages = match strict_message::read(body, &door.json_limits()) {
        Ok(Value::Array(messages)) => messages,
        Ok(_) => return Ok(not_a_message(-32600, "the body is no batch of messages", &Value::Null)),
        Err(unreadable) => return Ok(not_read(&unreadable)),
    };
    if messages.is_empty() || messages.len() > BATCH_MAX {
        return Ok(not_a_message(-32600, &format!("a batch has 1 to {BATCH_MAX} messages"), &Value::Null));
    }
    if messages.iter().any(|message| message.get("method").and_then(Value::as_str) == Some("initialize")) {
        return Ok(not_a_message(-32600, "`initialize` cannot be part of a batch", &Value::Null));
    }
    let service = service(door, &visit, &CancellationToken::new());
    let mut streams: Vec<BoxStream<'static, Result<Bytes, axum::Error>>> = Vec::new();
    for message in messages {
        let id = message.get("id").cloned().unwrap_or_default();
        let request = without_token(parts.clone(), visit.clone(), Bytes::from(message.to_string()));
        let response = service.handle(request).await.map(Body::new);
        match response.status() {
            StatusCode::ACCEPTED => {}
            StatusCode::OK if is_stream(&response) => streams.push(Box::pin(response.into_body().into_data_stream())),
            // One message that is none spoils its batch.
            _ => return Ok(as_message(response, &id).await),
        }
    }
    if streams.is_empty() {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::ACCEPTED;
        return Ok(response);
    }
    let mut response = Response::new(Body::from_stream(stream::select_all(streams)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

// ---------------------------------------------------------------------------------------------------------------- rmcp

fn service(
    door: &Arc<Door>,
    visit: &McpVisit,
    ending: &CancellationToken,
) -> StreamableHttpService<McpHandler, SessionTable> {
    made(door, visit, configured(door, ending))
}

/// One that can begin a session again, because it knows what was said at its beginning.
pub(super) fn service_knowing(
    door: &Arc<Door>,
    visit: &McpVisit,
    known: Arc<session_transfer::Known>,
) -> StreamableHttpService<McpHandler, SessionTable> {
    let mut config = configured(door, &CancellationToken::new());
    config.session_store = Some(known);
    made(door, visit, config)
}

fn configured(door: &Arc<Door>, ending: &CancellationToken) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_cancellation_token(ending.child_token())
        .with_max_request_body_bytes(door.config().body_bytes_max)
}

fn made(
    door: &Arc<Door>,
    visit: &McpVisit,
    config: StreamableHttpServerConfig,
) -> StreamableHttpService<McpHandler, SessionTable> {
    let (door, visit) = (Arc::clone(door), visit.clone());
    let sessions = Arc::clone(&door.mcp().sessions);
    let make = move || Ok(McpHandler::new(Arc::clone(&door), From::Http { first: visit.clone() }));
    StreamableHttpService::new(make, sessions, config)
}

/// The request as it is handed on: with its sender, and without what proves it.
pub(super) fn without_token(
    mut parts: Parts,
    visit: McpVisit,
    body: Bytes,
) -> http::Request<http_body_util::Full<Bytes>> {
    parts.headers.remove(AUTHORIZATION);
    parts.extensions.insert(visit);
    http::Request::from_parts(parts, http_body_util::Full::new(body))
}

fn session_of(parts: &Parts) -> Option<String> {
    // A header that is no text names no session of ours.
    parts.headers.get(SESSION_ID).map(|value| value.to_str().unwrap_or("?").to_owned())
}

fn is_modern(parts: &Parts) -> bool {
    let version = parts.headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    version.is_some_and(|version| version >= MODERN)
}

/// Is this a request whose client cancels it by going away?
pub(crate) fn is_conversation<B>(request: &http::Request<B>) -> bool {
    request.method() == Method::POST && request.uri().path().starts_with(PATH)
}

pub(crate) fn is_stream<B>(response: &Response<B>) -> bool {
    response.headers().get(CONTENT_TYPE).is_some_and(|media| media.as_bytes().starts_with(b"text/event-stream"))
}

/// A response that holds a slot for as long as it lasts.
fn holding(response: Response<Body>, place: FairPermit) -> Response<Body> {
    if !is_stream(&response) {
        return response;
    }
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _held = &place;
            frame
        }))
    })
}

// ------------------------------------------------------------------------------------------------------------- refusals

/// The words of a session that never was, whatever the reason.
pub(super) fn no_session() -> RefusalResponse {
    Refusal::new(ErrorCode::E3008, "there is no such session").hint("begin a new one with `initialize`").into()
}

pub(super) fn no_place(why: QuotaExceeded, what: &str) -> RefusalResponse {
    let refusal = match why {
        QuotaExceeded::All => Refusal::new(ErrorCode::E3001, format!("too many clients {what} at the moment")),
        QuotaExceeded::Own => Refusal::new(ErrorCode::E3003, format!("too many clients of this principal {what}")),
    };
    let refusal = refusal.hint("close those that are not used any more, or try again later");
    Refusal { retry_after_ms: Some(5_000), ..refusal }.into()
}

/// The answer of JSON-RPC to a body that is no message.
fn not_a_message(code: i32, why: &str, id: &Value) -> Response<Body> {
    answered_400(&json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } }))
}

fn not_read(unreadable: &UnreadableMessage) -> Response<Body> {
    answered_400(&json!({ "jsonrpc": "2.0", "id": unreadable.id, "error": unreadable.error }))
}

fn answered_400(body: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::BAD_REQUEST;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A refusal that `rmcp` has written as plain text, in the form that clients of JSON-RPC read; its status stays. Anything else is
/// left as it is.
async fn as_message(response: Response<Body>, id: &Value) -> Response<Body> {
    let is_json =
        response.headers().get(CONTENT_TYPE).is_some_and(|media| media.as_bytes().starts_with(b"application/json"));
    if !(response.status().is_client_error() || response.status().is_server_error()) || is_json || is_stream(&response)
    {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let said = http_body_util::Limited::new(body, REFUSAL_BYTES_MAX).collect().await.map(|said| said.to_bytes());
    let said = said.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned()).unwrap_or_default();
    let why = match said.is_empty() {
        true => parts.status.canonical_reason().unwrap_or("the request was refused").to_owned(),
        false => said,
    };
    let code = if parts.status.is_server_error() { -32603 } else { -32600 };
    let known = id.is_string() || id.is_number();
    let body = json!({ "jsonrpc": "2.0", "id": known.then_some(id), "error": { "code": code, "message": why } });
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    parts.headers.remove(http::header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(body.to_string()))
}

/// RFC 6750 §3.1: the token is good, and not enough.
fn challenge(response: &mut Response<Body>, scope: &str, base: &crate::base_url::BaseUrl, resource: &str) {
    let plain: String = scope.chars().filter(|c| matches!(c, '!' | '#'..='[' | ']'..='~')).collect();
    let mut text = format!("Bearer realm=\"gantry\", error=\"insufficient_scope\", scope=\"{plain}\"");
    if let Some(base) = base.text() {
        text += &format!(", resource_metadata=\"{base}{RESOURCE_METADATA}{resource}\"");
    }
    if let Ok(value) = HeaderValue::try_from(text) {
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.headers_mut().insert(WWW_AUTHENTICATE, value);
    }
}
