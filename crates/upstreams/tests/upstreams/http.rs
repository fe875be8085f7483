//! Servers elsewhere: Streamable HTTP in both eras, the HTTP+SSE of 2024-11-05, sessions that end, tokens that expire.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, Response, StatusCode};
use axum::routing::any;
use contract::error::ErrorCode;
use gantry_upstreams::observer::ReconnectKind;
use gantry_upstreams::spec::{OauthClient, ServerReach, ServerSetting, ServerSpec};
use gantry_upstreams::{ProtocolEra, ServerState, UpstreamEvent, UpstreamExecutor};
use ports::executor::{Executor as _, ToolCall};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::rig::{Listener, Rig, call, home, spec, text};

/// One request as the server saw it.
#[derive(Debug, Clone)]
struct Seen {
    verb: Method,
    method: String,
    headers: HeaderMap,
    body: Value,
}

/// A server with a way of its own for each path.
#[derive(Debug, Default)]
struct Elsewhere {
    seen: Mutex<Vec<Seen>>,
    sessions: AtomicU32,
    tokens: AtomicU32,
    /// Where events of 2024-11-05 go.
    stream: Mutex<Option<mpsc::Sender<String>>>,
    /// Answers that are given when a stream is taken up again.
    owed: Mutex<Option<Value>>,
}

impl Elsewhere {
    async fn start() -> (Arc<Self>, String) {
        let state = Arc::new(Self::default());
        let app = Router::new().route("/{mode}", any(handle)).with_state(Arc::clone(&state));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (state, address)
    }

    fn seen(&self, method: &str) -> Vec<Seen> {
        self.seen.lock().unwrap().iter().filter(|seen| seen.method == method).cloned().collect()
    }
}

fn plain(status: u16) -> Response<Body> {
    Response::builder().status(status).body(Body::from("no")).unwrap()
}

fn as_json(value: &Value) -> Response<Body> {
    Response::builder().header("content-type", "application/json").body(Body::from(value.to_string())).unwrap()
}

fn as_events(events: String) -> Response<Body> {
    Response::builder().header("content-type", "text/event-stream; charset=utf-8").body(Body::from(events)).unwrap()
}

/// Events as they are sent; the sender hears when nobody listens any more.
fn as_stream(receiver: mpsc::Receiver<String>) -> Response<Body> {
    let events = futures_util::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|text| (Ok::<_, std::convert::Infallible>(text), receiver))
    });
    Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(events)).unwrap()
}

fn event(value: &Value) -> String {
    format!("event: message\ndata: {value}\n\n")
}

async fn handle(
    State(state): State<Arc<Elsewhere>>,
    Path(mode): Path<String>,
    verb: Method,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    if mode == "token" {
        let n = state.tokens.fetch_add(1, Ordering::SeqCst);
        let form = String::from_utf8(body.to_vec()).unwrap();
        state.seen.lock().unwrap().push(Seen { verb, method: "token".into(), headers, body: json!(form) });
        let refresh = format!("r{n}");
        return as_json(&json!({ "access_token": format!("t{n}"), "expires_in": 3600, "refresh_token": refresh }));
    }
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let method = body["method"].as_str().unwrap_or_default().to_owned();
    let seen = Seen { verb: verb.clone(), method: method.clone(), headers: headers.clone(), body: body.clone() };
    state.seen.lock().unwrap().push(seen);
    match mode.as_str() {
        "sse2024" => return of_2024(&state, &verb, &body, &method),
        "elsewhere" => {
            let to = format!("http://localhost:1/{mode}");
            return Response::builder().status(307).header("location", to).body(Body::empty()).unwrap();
        }
        "guarded" | "left" if headers.get("authorization").is_none_or(|shown| shown == "Bearer t0") => {
            return plain(401);
        }
        _ => {}
    }
    if verb == Method::GET && mode == "talkative" {
        let changed = json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" });
        let (sender, receiver) = mpsc::channel(1);
        sender.try_send(event(&changed)).unwrap();
        *state.stream.lock().unwrap() = Some(sender);
        return as_stream(receiver);
    }
    if verb == Method::GET {
        let Some(owed) = state.owed.lock().unwrap().take() else { return plain(405) };
        assert_eq!(headers["last-event-id"], "e7");
        return as_events(event(&owed));
    }
    if verb == Method::DELETE {
        return plain(204);
    }
    let Some(id) = body.get("id").cloned() else { return Response::builder().status(202).body(Body::empty()).unwrap() };
    let result = |result: Value| json!({ "jsonrpc": "2.0", "id": id, "result": result });
    if mode == "modern" {
        return modern(&headers, &body, &method, result);
    }
    let session = headers.get("mcp-session-id").map(|value| value.to_str().unwrap().to_owned());
    match method.as_str() {
        "server/discover" => plain(400),
        "initialize" => {
            let n = state.sessions.fetch_add(1, Ordering::SeqCst) + 1;
            let mut response = as_json(&result(json!({ "protocolVersion": "2025-06-18", "capabilities": {} })));
            response.headers_mut().insert("mcp-session-id", format!("s{n}").parse().unwrap());
            response
        }
        _ if session != Some(format!("s{}", state.sessions.load(Ordering::SeqCst))) => plain(404),
        "tools/call" => called(&state, &body, result),
        _ => as_json(&result(json!({ "tools": [] }))),
    }
}

fn modern(headers: &HeaderMap, body: &Value, method: &str, result: impl Fn(Value) -> Value) -> Response<Body> {
    assert_eq!(headers["mcp-protocol-version"], "2026-07-28");
    assert_eq!(headers["mcp-method"], method);
    assert_eq!(body["params"]["_meta"]["io.modelcontextprotocol/clientInfo"]["name"], "gantry");
    if method == "tools/call" {
        // Those between client and server see the trace in the header, the server in the body.
        let trace = headers["traceparent"].to_str().unwrap();
        assert!(trace.starts_with("00-01010101010101010101010101010101-") && trace.ends_with("-02"), "{trace}");
        assert_eq!(body["params"]["_meta"]["traceparent"], trace);
    }
    let complete = |mut value: Value| {
        value["resultType"] = json!("complete");
        as_json(&result(value))
    };
    match method {
        "server/discover" => complete(json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "tools": {} } })),
        "tools/call" => {
            assert_eq!(headers["mcp-name"], body["params"]["name"].as_str().unwrap());
            complete(json!({ "content": [{ "type": "text", "text": "modern" }] }))
        }
        _ => complete(json!({})),
    }
}

fn called(state: &Elsewhere, body: &Value, result: impl Fn(Value) -> Value) -> Response<Body> {
    let done = |text: &str| result(json!({ "content": [{ "type": "text", "text": text }] }));
    match body["params"]["name"].as_str().unwrap() {
        "streamed" => {
            let token = &body["params"]["_meta"]["progressToken"];
            let params = json!({ "progressToken": token, "progress": 1, "total": 2 });
            let progress = json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
            as_events(format!(": hello\n\n{}{}", event(&progress), event(&done("streamed"))))
        }
        "taken_up" => {
            *state.owed.lock().unwrap() = Some(done("taken up"));
            as_events("id: e7\nretry: 10\ndata:\n\n".to_owned())
        }
        "hang" => {
            let (sender, receiver) = mpsc::channel(1);
            *state.stream.lock().unwrap() = Some(sender);
            as_stream(receiver)
        }
        "broken_off" => as_events(": nothing\n\n".to_owned()),
        "forgetful" => {
            // From the next request on the session is not known any more.
            state.sessions.fetch_add(1, Ordering::SeqCst);
            as_json(&done("forgotten"))
        }
        "busy" => Response::builder().status(429).header("retry-after", "7").body(Body::empty()).unwrap(),
        "broken" => plain(502),
        "long" => as_json(&done(&"x".repeat(33 << 20))),
        _ => as_json(&done("plain")),
    }
}

/// One stream for everything that comes, as it was in 2024.
fn of_2024(state: &Elsewhere, verb: &Method, body: &Value, method: &str) -> Response<Body> {
    if *verb == Method::GET {
        let (sender, receiver) = mpsc::channel::<String>(16);
        sender.try_send("event: endpoint\ndata: /sse2024?session=1\n\n".to_owned()).unwrap();
        *state.stream.lock().unwrap() = Some(sender);
        return as_stream(receiver);
    }
    let result = match method {
        "initialize" => json!({ "protocolVersion": "2024-11-05", "capabilities": {} }),
        "tools/call" if body["params"]["name"] == "hang_up" => {
            state.stream.lock().unwrap().take();
            return plain(202);
        }
        "tools/call" if body["params"]["name"] == "turned_away" => return plain(400),
        "tools/call" if body["params"]["name"] == "broken" => return plain(500),
        _ => json!({ "content": [{ "type": "text", "text": "of 2024" }] }),
    };
    if let Some(id) = body.get("id") {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        state.stream.lock().unwrap().as_ref().unwrap().try_send(event(&answer)).unwrap();
    }
    plain(202)
}

async fn reaching(mode: &str) -> (Rig, Arc<Elsewhere>) {
    let (elsewhere, address) = Elsewhere::start().await;
    let rig = Rig::new();
    let url = format!("{address}/{mode}");
    let headers: BTreeMap<String, ServerSetting> =
        [("x-key".to_owned(), ServerSetting::Secret { secret: "key".into() })].into();
    let oauth = matches!(mode, "guarded" | "left").then(|| OauthClient {
        token_url: format!("{address}/token"),
        client_id: "gantry".into(),
        client_secret: Some("key".into()),
        scopes: vec!["a".into(), "b".into()],
        refresh_token: (mode == "left").then(|| "key".to_owned()),
    });
    let reach = match mode {
        "sse2024" => ServerReach::Sse { url, headers, oauth },
        _ => ServerReach::Http { url, headers, oauth },
    };
    rig.apply(spec(reach));
    (rig, elsewhere)
}

#[tokio::test]
async fn servers_of_every_age_are_met_and_called() {
    for (mode, era, said) in [
        ("old", ProtocolEra::Legacy, "plain"),
        ("modern", ProtocolEra::Modern, "modern"),
        ("sse2024", ProtocolEra::Legacy, "of 2024"),
    ] {
        let (rig, elsewhere) = reaching(mode).await;
        for _ in 0..3 {
            let result = rig.call("anything", json!({})).await.unwrap();
            assert_eq!(text(&result), said);
        }
        assert_eq!(rig.upstreams.status()[0].era, Some(era), "{mode}");
        let calls = elsewhere.seen("tools/call");
        assert_eq!(calls.len(), 3);
        assert!(calls.iter().all(|seen| seen.headers["x-key"] == "secret-of-local"));
        if mode == "old" {
            assert!(calls.iter().all(|seen| seen.headers["mcp-protocol-version"] == "2025-06-18"));
            assert_eq!(elsewhere.seen("notifications/initialized")[0].headers["mcp-protocol-version"], "2025-06-18");
        }
        rig.upstreams.shut_down().await;
        let farewells = elsewhere.seen.lock().unwrap().iter().filter(|seen| seen.verb == Method::DELETE).count();
        assert_eq!(farewells, usize::from(mode == "old"), "{mode}");
    }
}

#[tokio::test]
async fn an_answer_that_is_streamed_or_taken_up_again_is_whole_and_its_progress_is_heard() {
    let (rig, elsewhere) = reaching("old").await;
    let listener = Arc::new(Listener::default());
    let mut streamed = call("streamed", "unclassified", json!({}));
    streamed.companion = Arc::clone(&listener) as _;
    assert_eq!(text(&rig.run(streamed).await.unwrap()), "streamed");
    assert_eq!(*listener.heard.lock().unwrap(), ["progress 50 "]);
    assert_eq!(text(&rig.call_unclassified("taken_up", json!({})).await.unwrap()), "taken up");
    let sent = elsewhere.seen("tools/call").iter().filter(|seen| seen.body["params"]["name"] == "taken_up").count();
    assert_eq!(sent, 1, "a stream is taken up, the call is not repeated");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn what_may_have_happened_elsewhere_is_unknown_and_what_surely_has_not_is_not() {
    let (rig, elsewhere) = reaching("old").await;
    for (tool, unclassified, pure) in [
        ("broken_off", ErrorCode::E3413, ErrorCode::E3502),
        ("broken", ErrorCode::E3413, ErrorCode::E3502),
        ("long", ErrorCode::E3414, ErrorCode::E3414),
        ("busy", ErrorCode::E3504, ErrorCode::E3504),
    ] {
        let sent = |elsewhere: &Elsewhere| {
            elsewhere.seen("tools/call").iter().filter(|seen| seen.body["params"]["name"] == tool).count()
        };
        let refused = rig.call_unclassified(tool, json!({})).await.unwrap_err();
        assert_eq!(refused.code, unclassified, "{tool}");
        assert_eq!(sent(&elsewhere), 1, "{tool}");
        assert_eq!(refused.retry_after_ms, (tool == "busy").then_some(7_000));
        assert_eq!(rig.call(tool, json!({})).await.unwrap_err().code, pure, "{tool}");
        assert!(sent(&elsewhere) <= 3, "{tool}");
    }
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_session_that_has_ended_is_replaced_without_the_caller_noticing() {
    let (rig, elsewhere) = reaching("old").await;
    assert_eq!(text(&rig.call_unclassified("forgetful", json!({})).await.unwrap()), "forgotten");
    assert_eq!(text(&rig.call_unclassified("plain", json!({})).await.unwrap()), "plain");
    assert_eq!(elsewhere.seen("initialize").len(), 2);
    assert_eq!(rig.state(), ServerState::Ready);
    let reconnected = UpstreamEvent::Reconnected(ReconnectKind::Session);
    assert_eq!(rig.counted.times(|event| *event == reconnected), 1);
    assert_eq!(rig.counted.times(|event| matches!(event, UpstreamEvent::Started { again: true, .. })), 0);
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_token_is_fetched_once_for_all_and_again_when_it_is_turned_away() {
    let (rig, elsewhere) = reaching("guarded").await;
    let calls = (0..8).map(|_| rig.call("plain", json!({})));
    for outcome in futures_util::future::join_all(calls).await {
        assert_eq!(text(&outcome.unwrap()), "plain");
    }
    let tokens = elsewhere.seen("token");
    assert_eq!(tokens.len(), 2, "one that was turned away, and one for everybody");
    let form = tokens[0].body.as_str().unwrap();
    assert_eq!(form, "grant_type=client_credentials&client_id=gantry&client_secret=secret-of-local&scope=a+b");
    assert!(elsewhere.seen("tools/call").iter().all(|seen| seen.headers["authorization"] == "Bearer t1"));
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_refresh_token_that_a_person_has_left_is_used_and_replaced() {
    let (rig, elsewhere) = reaching("left").await;
    assert_eq!(text(&rig.call("plain", json!({})).await.unwrap()), "plain");
    let forms: Vec<String> =
        elsewhere.seen("token").iter().map(|seen| seen.body.as_str().unwrap().to_owned()).collect();
    assert_eq!(forms.len(), 2);
    assert!(forms[0].starts_with("grant_type=refresh_token&refresh_token=secret-of-local&"), "{forms:?}");
    assert!(forms[1].starts_with("grant_type=refresh_token&refresh_token=r0&"), "{forms:?}");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn what_an_old_server_says_by_itself_is_heard_on_its_own_stream() {
    let (rig, _elsewhere) = reaching("talkative").await;
    assert_eq!(text(&rig.call("plain", json!({})).await.unwrap()), "plain");
    // Once for the start, once for the notification.
    rig.until("the change is told", |rig| rig.watching.changed.load(Ordering::SeqCst) == 2).await;
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_call_that_is_dropped_closes_its_stream_and_tells_an_old_server() {
    let (rig, elsewhere) = reaching("old").await;
    let hanging = rig.call_unclassified("hang", json!({}));
    tokio::select! {
        outcome = hanging => panic!("{outcome:?}"),
        () = rig.until("it hangs", |_| elsewhere.stream.lock().unwrap().is_some()) => {}
    }
    rig.until("its stream is closed", |_| elsewhere.stream.lock().unwrap().as_ref().unwrap().is_closed()).await;
    rig.until("the server is told", |_| !elsewhere.seen("notifications/cancelled").is_empty()).await;
    let call = elsewhere.seen("tools/call").remove(0);
    assert_eq!(elsewhere.seen("notifications/cancelled")[0].body["params"]["requestId"], call.body["id"]);
    assert_eq!(text(&rig.call("plain", json!({})).await.unwrap()), "plain");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn no_request_is_redirected_to_another_host() {
    let (rig, elsewhere) = reaching("elsewhere").await;
    let refused = rig.call("plain", json!({})).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3502);
    assert!(elsewhere.seen.lock().unwrap().iter().all(|seen| seen.verb == Method::POST));
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_stream_of_2024_that_ends_is_a_lost_connection() {
    let (rig, elsewhere) = reaching("sse2024").await;
    for (tool, code) in [("turned_away", ErrorCode::E3502), ("broken", ErrorCode::E3413)] {
        assert_eq!(rig.call_unclassified(tool, json!({})).await.unwrap_err().code, code, "{tool}");
    }
    let refused = rig.call_unclassified("hang_up", json!({})).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3413);
    assert_eq!(text(&rig.call_unclassified("anything", json!({})).await.unwrap()), "of 2024");
    assert_eq!(elsewhere.seen("initialize").len(), 2);
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_refused_as_unreachable() {
    let rig = Rig::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    drop(listener);
    rig.apply(spec(ServerReach::Http { url, headers: BTreeMap::new(), oauth: None }));
    let refused = rig.call_unclassified("plain", json!({})).await.unwrap_err();
    assert_eq!((refused.code, refused.code.row().http), (ErrorCode::E3502, StatusCode::SERVICE_UNAVAILABLE.as_u16()));
    let listed = tokio::time::timeout(Duration::from_secs(20), rig.upstreams.list_tools(&home(), "misbehaving")).await;
    assert_eq!(listed.unwrap().unwrap_err().code, ErrorCode::E3502);
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_server_is_called_at_the_address_that_a_call_is_for() {
    let (_first, first) = Elsewhere::start().await;
    let (second, other) = Elsewhere::start().await;
    let nobody = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let away = format!("http://{}/old", nobody.local_addr().unwrap());
    drop(nobody);
    let rig = Rig::new();
    let reach = ServerReach::Http { url: away, headers: BTreeMap::new(), oauth: None };
    let fallbacks = vec![format!("{other}/old"), format!("{first}/modern")];
    let several = ServerSpec { fallbacks, ..spec(reach) };
    rig.apply(several.clone());
    let at = |endpoint: usize| ToolCall { endpoint, ..call("anything", "pure", json!({})) };
    let executor = UpstreamExecutor::new(Arc::clone(&rig.upstreams));
    let names = executor.endpoints(&at(0).tool);
    assert_eq!(names.len(), 3);
    assert!(other.ends_with(&names[1]) && first.ends_with(&names[2]), "{names:?}");
    assert_eq!(rig.run(at(0)).await.unwrap_err().code, ErrorCode::E3502);
    assert_eq!(text(&rig.run(at(1)).await.unwrap()), "plain");
    assert_eq!(text(&rig.run(at(2)).await.unwrap()), "modern");
    assert_eq!(rig.upstreams.status().len(), 1, "one server, whatever its addresses");
    // An address that is taken away is not called any more, and the others go on.
    rig.apply(ServerSpec { fallbacks: several.fallbacks[..1].to_vec(), ..several.clone() });
    assert_eq!(rig.run(at(2)).await.unwrap_err().code, ErrorCode::E3108);
    assert_eq!(text(&rig.run(at(1)).await.unwrap()), "plain");
    assert_eq!(second.seen("initialize").len(), 1, "what has not changed was not started anew");
    rig.apply(ServerSpec { fallbacks: Vec::new(), ..several });
    assert!(executor.endpoints(&at(0).tool).is_empty());
    rig.upstreams.shut_down().await;
}
