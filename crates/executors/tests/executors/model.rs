//! The model adapter against a real HTTP server: both wire shapes, and everything a server can do wrong.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use contract::error::ErrorCode;
use gantry_executors::BuiltinExecutor;
use gantry_executors::builtin::manifests;
use gantry_executors::model::{ModelClient, ModelConfig, ModelPrompt, ModelProvider, ModelSecret};
use ports::executor::{ExecutionReach, Executor, ToolOutput};
use serde_json::{Value, json};

use crate::calls::{StillClock, call, version_of};

const ENOUGH: Duration = Duration::from_secs(20);

/// What the server was sent.
type Seen = Arc<Mutex<Vec<(HeaderMap, Value)>>>;

/// A server that gives the same answer to everything, and what it was asked.
async fn serve(path: &str, answer: fn() -> Response) -> (String, Seen) {
    let seen = Seen::default();
    let record = Arc::clone(&seen);
    let handler = move |headers: HeaderMap, body: Bytes| async move {
        record.lock().unwrap().push((headers, serde_json::from_slice(&body).unwrap()));
        answer()
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().route(path, post(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, seen)
}

fn client(provider: ModelProvider, base_url: &str) -> ModelClient {
    let config = ModelConfig {
        provider,
        base_url: Some(base_url.to_owned()),
        model: "small".into(),
        reasoning_model: Some("large".into()),
        api_key: Some(ModelSecret::new("sk-test")),
        timeout_ms: 10_000,
        max_response_bytes: 4096,
    };
    ModelClient::from_config(&config).unwrap().unwrap()
}

fn prompt(reasoning: bool) -> ModelPrompt {
    ModelPrompt { text: "why?".into(), tokens_max: 8000, reasoning }
}

fn openai(content: &str) -> Value {
    json!({ "model": "large-2024", "choices": [{ "message": { "role": "assistant", "content": content } }],
            "usage": { "prompt_tokens": 10, "completion_tokens": 32, "total_tokens": 42 } })
}

const OPENAI_PATH: &str = "/v1/chat/completions";

#[tokio::test]
async fn an_openai_compatible_server_is_asked_and_understood() {
    let (address, seen) = serve(OPENAI_PATH, || axum::Json(openai("because")).into_response()).await;
    let answer = client(ModelProvider::Openai, &address).complete(&prompt(true), ENOUGH).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.model.as_str(), answer.tokens), ("because", "large-2024", Some(42)));
    assert!(answer.bytes_sent > 0 && answer.bytes_received > 0);
    let (headers, body) = seen.lock().unwrap().remove(0);
    assert_eq!(headers["authorization"], "Bearer sk-test");
    assert_eq!(body["model"], "large");
    assert_eq!((&body["max_tokens"], &body["temperature"], &body["stream"]), (&json!(8000), &json!(0), &json!(false)));
    assert_eq!(body["messages"], json!([{ "role": "user", "content": "why?" }]));
}

#[tokio::test]
async fn an_ollama_server_is_asked_and_understood() {
    let answer = || {
        axum::Json(json!({ "model": "small", "message": { "role": "assistant", "content": "so" },
                           "prompt_eval_count": 5, "eval_count": 6 }))
        .into_response()
    };
    let (address, seen) = serve("/api/chat", answer).await;
    let answer = client(ModelProvider::Ollama, &address).complete(&prompt(false), ENOUGH).await.unwrap();
    assert_eq!((answer.text.as_str(), answer.tokens), ("so", Some(11)));
    let (_, body) = seen.lock().unwrap().remove(0);
    assert_eq!(body["model"], "small");
    assert_eq!(body["options"], json!({ "temperature": 0, "num_predict": 8000 }));
}

#[tokio::test]
async fn each_failure_of_the_server_has_its_code() {
    type Case = (&'static str, fn() -> Response, ErrorCode, Option<bool>, &'static str);
    let cases: [Case; 9] = [
        ("500", || StatusCode::INTERNAL_SERVER_ERROR.into_response(), ErrorCode::E3502, None, "status 500"),
        ("400", || StatusCode::BAD_REQUEST.into_response(), ErrorCode::E3502, Some(false), "status 400"),
        ("401", || StatusCode::UNAUTHORIZED.into_response(), ErrorCode::E3502, Some(false), "credentials"),
        ("404", || StatusCode::NOT_FOUND.into_response(), ErrorCode::E3502, Some(false), "does not know"),
        (
            "429",
            || (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "7")]).into_response(),
            ErrorCode::E3504,
            None,
            "rate limit",
        ),
        (
            "redirect",
            || (StatusCode::FOUND, [("location", "http://example.com/")]).into_response(),
            ErrorCode::E3502,
            Some(false),
            "redirect",
        ),
        (
            "garbage",
            || "<html>not json</html>".into_response(),
            ErrorCode::E3502,
            Some(false),
            "could not be understood",
        ),
        (
            "no answer in it",
            || axum::Json(json!({ "choices": [] })).into_response(),
            ErrorCode::E3502,
            Some(false),
            "could not be understood",
        ),
        ("oversized", || "x".repeat(10_000).into_response(), ErrorCode::E3502, Some(false), "larger than 4096 bytes"),
    ];
    for (name, answer, code, retryable, message) in cases {
        let (address, _) = serve(OPENAI_PATH, answer).await;
        let error = client(ModelProvider::Openai, &address).complete(&prompt(false), ENOUGH).await.unwrap_err();
        let turned_away = matches!(name, "401" | "403" | "404" | "400" | "422" | "429");
        let reach = if turned_away { ExecutionReach::Refused } else { ExecutionReach::MayHaveRun };
        assert_eq!(error.reach, reach, "{name}: {error}");
        let refusal = error.refusal;
        assert_eq!((refusal.code, refusal.retryable), (code, retryable), "{name}: {refusal}");
        assert!(refusal.message.contains(message), "{name}: {}", refusal.message);
        assert_eq!(refusal.retry_after_ms, (name == "429").then_some(7000), "{name}");
        assert!(!format!("{refusal:?}").contains("sk-test"));
    }
}

#[tokio::test]
async fn a_server_that_is_slow_absent_or_hangs_up_is_told_apart() {
    // Accepts and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let slow = client(ModelProvider::Openai, &format!("http://{}", silent.local_addr().unwrap()));
    let refusal = slow.complete(&prompt(false), Duration::from_millis(50)).await.unwrap_err().refusal;
    assert_eq!(refusal.code, ErrorCode::E3503);

    // Accepts and hangs up.
    let rude = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = rude.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = rude.accept().await {
            drop(connection);
        }
    });
    let closed = client(ModelProvider::Openai, &format!("http://{address}"));
    assert_eq!(closed.complete(&prompt(false), ENOUGH).await.unwrap_err().refusal.code, ErrorCode::E3502);

    // Nobody is there any more.
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let absent = client(ModelProvider::Openai, &format!("http://{gone}"));
    let refusal = absent.complete(&prompt(false), ENOUGH).await.unwrap_err().refusal;
    assert_eq!(refusal.code, ErrorCode::E3502);
    assert!(refusal.message.contains("cannot be reached"), "{}", refusal.message);
}

#[test]
fn the_key_does_not_show_in_debug_output() {
    assert!(!format!("{:?}", client(ModelProvider::Openai, "http://127.0.0.1:1")).contains("sk-test"));
    assert!(ModelClient::from_config(&ModelConfig::default()).unwrap().is_none());
}

async fn run(id: &str, answer: fn() -> Response, parameters: Value) -> ToolOutput {
    let (address, _) = serve(OPENAI_PATH, answer).await;
    let executor = BuiltinExecutor::new(Arc::new(StillClock), Some(client(ModelProvider::Openai, &address)));
    let tool = version_of(manifests().unwrap().into_iter().find(|m| m.tool_id == id).unwrap());
    let output = executor.execute(call(&tool, parameters)).await.unwrap_or_else(|refusal| panic!("{refusal}"));
    assert_eq!(tool.result_schema().unwrap().check(&output.value), Ok(()));
    output
}

#[tokio::test]
async fn the_builtins_that_need_a_model_use_it_and_report_tokens() {
    let because = || axum::Json(openai("because")).into_response();
    let reasoned = run("deep_reasoning", because, json!({ "problem": "why" })).await;
    assert_eq!(
        reasoned.value,
        json!({ "reasoning": "because", "model": "large-2024", "tokensUsed": 42, "durationMs": 0 })
    );
    assert_eq!(reasoned.usage.tokens, Some(42));

    let options = json!({ "targetLanguage": "French" });
    let translated =
        run("text_transform", because, json!({ "text": "hi", "operation": "translate", "options": options })).await;
    assert_eq!(translated.value["translation"], "because");
    let options = json!({ "mode": "abstractive" });
    let summarized =
        run("text_transform", because, json!({ "text": "hi", "operation": "summarize", "options": options })).await;
    assert_eq!((&summarized.value["summary"], &summarized.value["mode"]), (&json!("because"), &json!("abstractive")));
}

#[tokio::test]
async fn what_the_model_extracts_must_satisfy_the_schema() {
    let schema = json!({ "type": "object", "properties": { "age": { "type": "integer" } }, "required": ["age"] });
    let parameters = json!({ "text": "Ada is 36 years old.", "schema": schema });
    let good = || axum::Json(openai("```json\n{\"age\": 36}\n```")).into_response();
    let extracted = run("json_parser", good, parameters.clone()).await;
    assert_eq!(extracted.value, json!({ "success": true, "data": { "age": 36 }, "method": "llm_extraction" }));
    assert_eq!(extracted.usage.tokens, Some(42));
    let bad = || axum::Json(openai("{\"age\": \"thirty-six\"}")).into_response();
    assert_eq!(run("json_parser", bad, parameters).await.value["success"], false);
}
