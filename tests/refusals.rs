//! Codes that need a special situation: each is brought about for real, with the whole way from the door to the reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Gantry, Start, manifest};

#[tokio::test]
async fn what_this_server_cannot_honour_is_refused_and_not_run() {
    let gantry = Gantry::start().await;
    let effects = json!([{ "resource": "thing", "op": "DELETE", "scope": "tenant" }]);
    let tools = [
        json!({ "tool_id": "no_way", "execution": null }),
        json!({ "tool_id": "wipe_all", "side_effect_policy": "irreversible", "side_effects": effects, "idempotency": {} }),
        json!({ "tool_id": "undoable", "side_effect_policy": "compensatable", "side_effects": effects, "idempotency": {}, "compensation_tool_id": "calculator" }),
        json!({ "tool_id": "ask_user", "requires_confirmation": true }),
        json!({ "tool_id": "reads_data", "required_permissions": ["filesystem:read:/data"] }),
    ];
    for tool in tools {
        assert_eq!(gantry.register(manifest(tool.clone())).await.status, 201, "{tool}");
    }
    let call = |tool: &str, options: Value| json!({ "tool_id": format!("demo.{tool}"), "parameters": { "expression": "1" }, "execution_options": options });
    for (request, expected) in [
        (call("no_way", json!({})), (503, "E3108")),
        (call("wipe_all", json!({})), (403, "E3208")),
        (call("undoable", json!({})), (400, "E3004")),
        (call("ask_user", json!({})), (409, "E3210")),
        (call("reads_data", json!({ "dry_run": true })), (501, "E3010")),
        (call("reads_data", json!({ "require_approval": true })), (403, "E3208")),
    ] {
        let answer = gantry.post("/v1/tools/invoke", request.clone()).await;
        assert_eq!(answer.refusal(), expected, "{request}");
    }
    let narrow = gantry.mint(json!({ "scopes": ["filesystem:read:/other"] })).await;
    let request = call("reads_data", json!({}));
    let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(&narrow), Some(request.clone())).await;
    assert_eq!(answer.refusal(), (403, "E3206"));
    assert_eq!(answer.body["status"], "permission_denied");
    let answer = gantry.request(Method::POST, "/v1/tools/invoke", None, Some(request)).await;
    assert_eq!(answer.refusal(), (401, "E3203"));
}

#[tokio::test]
async fn a_body_that_contradicts_the_token_is_refused() {
    let gantry = Gantry::start().await;
    let token = gantry.mint(json!({})).await;
    let request = |context: Value| json!({ "tool_id": "calculator", "parameters": { "expression": "1" }, "agent_context": context });
    let good = request(json!({ "agent_did": "did:example:test", "tenant_id": "acme", "session_id": "s-1" }));
    assert_eq!(gantry.request(Method::POST, "/v1/tools/invoke", Some(&token), Some(good)).await.status, 200);
    for context in
        [json!({ "tenant_id": "other" }), json!({ "agent_did": "did:key:other" }), json!({ "user_did": "did:key:u" })]
    {
        let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(&token), Some(request(context))).await;
        assert_eq!(answer.refusal(), (403, "E3206"));
    }
}

#[tokio::test]
async fn troubles_of_a_model_endpoint_are_told_apart() {
    let endpoint = Endpoint::start().await;
    let gantry = Start::new()
        .env("GANTRY_MODEL__BASE_URL", format!("http://{}", endpoint.address))
        .env("GANTRY_MODEL__MODEL", "test-model")
        .env("GANTRY_MODEL__API_KEY", "sk-planted-secret")
        .env("GANTRY_MODEL__TIMEOUT_MS", "1000")
        // Failures are what is looked at here, not what becomes of many.
        .env("GANTRY_RESILIENCE__FAILURE_THRESHOLD", "100")
        .env("GANTRY_RESILIENCE__RETRY_FIRST_MS", "1")
        .run()
        .await;
    for (turn, expected) in [(503, "E3502"), (429, "E3504"), (504, "E3503")].into_iter().enumerate() {
        // A failure is tried again, and finds the same.
        endpoint.turn.store(turn, Ordering::SeqCst);
        let answer = gantry.invoke("deep_reasoning", json!({ "problem": "why?" })).await;
        assert_eq!(answer.refusal(), expected, "{}", answer.text);
        assert!(!answer.text.contains("sk-planted-secret"));
    }
    endpoint.turn.store(3, Ordering::SeqCst);
    let answer = gantry.invoke("deep_reasoning", json!({ "problem": "why?" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(answer.text.contains("because"));
    assert_eq!(answer.body["execution_metadata"]["tokens_used"], 7);
    assert!(!gantry.log().contains("sk-planted-secret"));
}

/// An HTTP server that does what its turn says: 500, 429, silence, a completion.
struct Endpoint {
    address: std::net::SocketAddr,
    turn: Arc<AtomicUsize>,
}

impl Endpoint {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let turn = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&turn);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let turn = told.load(Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut request = Vec::new();
                    let mut chunk = [0; 4096];
                    // The request is JSON in one piece; its end is the end of the object.
                    while !request.ends_with(b"}") {
                        let n = stream.read(&mut chunk).await.unwrap();
                        if n == 0 {
                            return;
                        }
                        request.extend_from_slice(&chunk[..n]);
                    }
                    let completion = json!({ "model": "test-model", "choices": [{ "message": { "role": "assistant", "content": "because" } }],
                        "usage": { "prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7 } })
                    .to_string();
                    let (status, headers, body) = match turn {
                        0 => ("500 Internal Server Error", "", "{}".to_owned()),
                        1 => ("429 Too Many Requests", "retry-after: 2\r\n", "{}".to_owned()),
                        2 => return std::future::pending().await,
                        _ => ("200 OK", "content-type: application/json\r\n", completion),
                    };
                    let answer = format!(
                        "HTTP/1.1 {status}\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    stream.write_all(answer.as_bytes()).await.unwrap();
                });
            }
        });
        Self { address, turn }
    }
}
