//! A service that fails is left alone, tried, and used again; what is tried again costs no more than everybody's share; and
//! nobody calls more often than they may. The service is an HTTP server on loopback that does what the test says.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{Answer, Gantry, PATIENCE, Start, manifest};

/// An HTTP server that speaks the protocol of model servers, and fails as long as it is told to.
struct Service {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    /// How many requests still fail.
    failures: Arc<AtomicUsize>,
    /// With which status.
    status: Arc<AtomicUsize>,
}

impl Service {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, failures) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let status = Arc::new(AtomicUsize::new(500));
        let (asked_of_it, fails, failing) = (Arc::clone(&asked), Arc::clone(&failures), Arc::clone(&status));
        let service = Self { address, asked: asked_of_it, failures: fails, status: failing };
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (asked, failures, status) = (Arc::clone(&asked), Arc::clone(&failures), Arc::clone(&status));
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
                    asked.fetch_add(1, Ordering::SeqCst);
                    let fails = failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                    let (status, body) = if fails.is_ok() {
                        (format!("{} Failed", status.load(Ordering::SeqCst)), "{}".to_owned())
                    } else {
                        let completion = json!({ "model": "test-model", "usage": { "total_tokens": 7 },
                            "choices": [{ "message": { "role": "assistant", "content": "because" } }] });
                        ("200 OK".to_owned(), completion.to_string())
                    };
                    let answer = format!(
                        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                        body.len()
                    );
                    // Whoever has gone away does not want it.
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        service
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn fail(&self, times: usize) {
        self.failures.store(times, Ordering::SeqCst);
    }

    /// The same, with another status than 500.
    fn fail_with(&self, status: usize, times: usize) {
        self.status.store(status, Ordering::SeqCst);
        self.fail(times);
    }

    fn server(&self) -> Start {
        Start::new()
            .env("GANTRY_MODEL__BASE_URL", format!("http://{}", self.address))
            .env("GANTRY_MODEL__MODEL", "test-model")
    }
}

/// A tool that asks the service.
fn asking(change: &Value) -> Value {
    let mut manifest = manifest(json!({
        "tool_id": "ask", "name": "Ask the service", "timeout_class": "long_running", "external_service": "thinker",
        "parameters": { "type": "object", "properties": { "problem": { "type": "string" } }, "required": ["problem"] },
        "result_schema": { "type": "object", "additionalProperties": true },
        "execution": { "type": "builtin", "handler": "deep_reasoning" },
        "retry_policy": { "max_attempts": 1 },
    }));
    for (member, value) in change.as_object().unwrap() {
        manifest[member] = value.clone();
    }
    manifest
}

async fn ask(gantry: &Gantry) -> Answer {
    gantry.invoke("demo.ask", json!({ "problem": "why?" })).await
}

async fn breaker(gantry: &Gantry) -> Value {
    let answer = gantry.get("/v1/breakers?service=thinker").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["breakers"][0].clone()
}

#[tokio::test]
async fn the_model_behind_deep_reasoning_is_a_service_with_a_breaker() {
    let service = Service::start().await;
    let start =
        service.server().env("GANTRY_RESILIENCE__FAILURE_THRESHOLD", "2").env("GANTRY_RESILIENCE__OPEN_MS", "600000");
    let gantry = start.env("GANTRY_RESILIENCE__RETRY_FIRST_MS", "1").run().await;
    service.fail(usize::MAX);
    for _ in 0..2 {
        let answer = gantry.invoke("deep_reasoning", json!({ "problem": "why?" })).await;
        assert!(["E3501", "E3502"].contains(&answer.code()), "{}", answer.text);
    }
    let asked = service.asked();
    let refused = gantry.invoke("deep_reasoning", json!({ "problem": "why?" })).await;
    assert_eq!(refused.refusal(), (503, "E3501"), "{}", refused.text);
    assert_eq!(service.asked(), asked, "no call reaches the model while the breaker is open");
    let breakers = gantry.get("/v1/breakers?service=model").await;
    assert_eq!(breakers.body["breakers"][0]["state"], "open", "{}", breakers.text);
}

#[tokio::test]
async fn the_status_the_model_server_answered_with_is_the_one_that_is_listed() {
    let service = Service::start().await;
    let start = service.server().env("GANTRY_RESILIENCE__RETRY_FIRST_MS", "1");
    let gantry = start.env("GANTRY_RESILIENCE__FAILURE_THRESHOLD", "50").run().await;
    let retry = json!({ "retry_policy": { "max_attempts": 3, "retry_on_status_codes": [502] } });
    assert_eq!(gantry.register(asking(&retry)).await.status, 201);
    // Each of them is E3502, which is 503 for whoever calls.
    for (status, asked) in [(500, 1), (503, 1), (502, 3)] {
        let before = service.asked();
        service.fail_with(status, 3);
        let answer = ask(&gantry).await;
        assert_eq!(answer.code(), "E3502", "{status}: {}", answer.text);
        assert_eq!(service.asked() - before, asked, "{status}");
        assert_eq!(answer.body["error"]["details"]["upstream_status"], status, "{}", answer.text);
        service.fail(0);
    }
}

#[tokio::test]
async fn a_failing_service_is_left_alone_tried_and_used_again() {
    let service = Service::start().await;
    let gantry = service
        .server()
        .env("GANTRY_RESILIENCE__FAILURE_THRESHOLD", "2")
        .env("GANTRY_RESILIENCE__SUCCESS_THRESHOLD", "2")
        .env("GANTRY_RESILIENCE__OPEN_MS", "700")
        .run()
        .await;
    assert_eq!(gantry.register(asking(&json!({}))).await.status, 201);
    service.fail(usize::MAX);
    for _ in 0..2 {
        assert_eq!(ask(&gantry).await.refusal(), (503, "E3502"));
    }
    // On a busy machine its wait may be over before the next call, which then is a trial that fails.
    let start = Instant::now();
    let refused = loop {
        let before = service.asked();
        let answer = ask(&gantry).await;
        if answer.code() == "E3501" {
            assert_eq!(service.asked(), before, "no call reaches the service while the breaker is open");
            break answer;
        }
        assert_eq!(answer.refusal(), (503, "E3502"));
        assert!(start.elapsed() < PATIENCE, "it never opened");
    };
    assert_eq!(refused.refusal(), (503, "E3501"));
    assert!(!refused.header("retry-after").is_empty());
    assert_eq!(refused.body["error"]["details"]["breaker"], "thinker");
    let history = breaker(&gantry).await["history"].clone();
    let first = history.as_array().unwrap().last().unwrap();
    assert_eq!(
        (&first["from"], &first["to"], &first["reason"]),
        (&json!("closed"), &json!("open"), &json!("2 failures"))
    );

    service.fail(0);
    let start = Instant::now();
    while breaker(&gantry).await["state"] != "closed" {
        let answer = ask(&gantry).await;
        assert!(answer.status == 200 || answer.code() == "E3501", "{}", answer.text);
        assert!(start.elapsed() < PATIENCE, "it never closed");
    }
    assert_eq!(ask(&gantry).await.status, 200);
    let start = Instant::now();
    let kept = loop {
        let answer = gantry.get("/v1/breakers/history?breaker=thinker").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let kept = answer.body["transitions"].as_array().unwrap().clone();
        if kept.first().is_some_and(|newest| newest["to"] == "closed") {
            break kept;
        }
        assert!(start.elapsed() < PATIENCE, "what became of it was not written down: {}", answer.text);
    };
    assert_eq!(
        Some(&kept),
        breaker(&gantry).await["history"]
            .as_array()
            .map(|past| {
                past.iter()
                    .map(|past| {
                        let mut past = past.clone();
                        past["breaker"] = json!("thinker");
                        past
                    })
                    .collect::<Vec<_>>()
            })
            .as_ref()
    );
    assert_eq!(gantry.get("/v1/breakers/history?before=yesterday").await.refusal(), (400, "E3004"));
    let metrics = gantry.get("/metrics").await.text;
    for line in
        ["gantry_breaker_refusals_total{service=\"thinker\"", "gantry_breaker_transitions_total{service=\"thinker\""]
    {
        assert!(metrics.contains(line), "{line}");
    }
}

#[tokio::test]
async fn breakers_are_opened_and_closed_by_hand_and_that_is_recorded() {
    let service = Service::start().await;
    let gantry = service.server().run().await;
    assert_eq!(gantry.register(asking(&json!({}))).await.status, 201);
    assert_eq!(ask(&gantry).await.status, 200);
    let open = gantry.cli(&["breakers", "open", "thinker", "--json"]).ok();
    assert_eq!(open.json()["state"], "forced_open");
    let refused = ask(&gantry).await;
    assert_eq!(refused.refusal(), (503, "E3501"));
    assert_eq!(refused.body["error"]["details"]["state"], "forced_open");
    assert!(gantry.cli(&["breakers", "list"]).ok().out().contains("forced_open"));
    assert_eq!(gantry.cli(&["breakers", "close", "thinker", "--json"]).ok().json()["state"], "closed");
    assert_eq!(ask(&gantry).await.status, 200);
    assert_eq!(gantry.cli(&["breakers", "open", "thinker", "--for", "600", "--json"]).ok().json()["state"], "open");
    assert_eq!(gantry.cli(&["breakers", "reset", "thinker", "--json"]).ok().json()["calls"], 0);
    for (name, body, expected) in [
        ("nobody", json!({ "to": "closed" }), (404, "E3008")),
        ("thinker", json!({ "to": "half_open" }), (412, "E3408")),
        ("thinker", json!({ "to": "closed", "seconds": 5 }), (400, "E3004")),
        ("thinker", json!({ "to": "ajar" }), (400, "E3004")),
        ("a%25zz", json!({ "to": "open" }), (400, "E3004")),
    ] {
        let answer = gantry.post(&format!("/v1/breakers/{name}/move"), body).await;
        assert_eq!(answer.refusal(), expected, "{}", answer.text);
    }
    let start = Instant::now();
    while gantry.get("/v1/audit").await.text.matches("breaker_moved").count() < 4 {
        assert!(start.elapsed() < PATIENCE, "the moves are not on record");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_can_be_repeated_is_until_the_shared_budget_is_used_up() {
    let service = Service::start().await;
    let gantry = service
        .server()
        .env("GANTRY_RESILIENCE__RETRY_FIRST_MS", "1")
        .env("GANTRY_RESILIENCE__RETRIES_PER_MINUTE", "2")
        .env("GANTRY_RESILIENCE__FAILURE_THRESHOLD", "1000")
        .run()
        .await;
    assert_eq!(gantry.register(asking(&json!({ "retry_policy": { "max_attempts": 10 } }))).await.status, 201);
    service.fail(2);
    let answer = ask(&gantry).await;
    assert_eq!((answer.status, service.asked()), (200, 3), "{}", answer.text);
    service.fail(usize::MAX);
    let answer = ask(&gantry).await;
    assert_eq!(answer.refusal(), (503, "E3411"), "{}", answer.text);
    assert_eq!(answer.body["error"]["details"]["last_error"]["code"], "E3502");
}

#[tokio::test]
async fn nobody_calls_more_often_than_they_may_and_everybody_is_told_when_they_may_again() {
    let service = Service::start().await;
    let gantry = service.server().env("GANTRY_RESILIENCE__SERVICE_CALLS_PER_MINUTE", "2").run().await;
    assert_eq!(gantry.register(asking(&json!({}))).await.status, 201);
    let rare = manifest(json!({ "tool_id": "rare", "rate_limit": { "max_per_hour": 2 } }));
    assert_eq!(gantry.register(rare).await.status, 201);
    for (tool, parameters, expected) in [
        ("demo.rare", json!({ "expression": "1 + 1" }), (429, "E3003")),
        ("demo.ask", json!({ "problem": "why?" }), (429, "E3504")),
    ] {
        // Slow machines give some of it back between the calls.
        let start = Instant::now();
        let mut allowed = 0;
        let refused = loop {
            let answer = gantry.invoke(tool, parameters.clone()).await;
            if answer.status != 200 {
                break answer;
            }
            allowed += 1;
            assert!(start.elapsed() < PATIENCE, "{tool} has no limit");
        };
        assert!(allowed >= 2, "{tool}");
        assert_eq!(refused.refusal(), expected, "{}", refused.text);
        let seconds: u64 = refused.header("retry-after").parse().unwrap();
        assert!((1..=1_800).contains(&seconds), "{seconds}");
    }
}

#[tokio::test]
async fn while_a_service_is_left_alone_a_tool_that_asks_for_it_answers_with_what_it_said_last() {
    let service = Service::start().await;
    let gantry = service
        .server()
        .env("GANTRY_RESILIENCE__FAILURE_THRESHOLD", "2")
        // Longer than the test takes.
        .env("GANTRY_RESILIENCE__OPEN_MS", "3600000")
        .run()
        .await;
    let wanted = json!({ "stale_results": { "max_age_seconds": 3600 } });
    assert_eq!(gantry.register(asking(&wanted)).await.status, 201);
    let fresh = ask(&gantry).await;
    assert_eq!((fresh.status, &fresh.body["cached"]), (200, &json!(false)), "{}", fresh.text);
    assert!(fresh.body["execution_metadata"].get("stale").is_none());
    service.fail(usize::MAX);
    for _ in 0..2 {
        assert_eq!(ask(&gantry).await.refusal(), (503, "E3502"));
    }
    let before = service.asked();
    let stale = ask(&gantry).await;
    assert_eq!((stale.status, &stale.body["cached"]), (200, &json!(true)), "{}", stale.text);
    assert_eq!(stale.body["result"], fresh.body["result"]);
    assert!(stale.body["execution_metadata"]["stale"]["age_ms"].is_u64(), "{}", stale.text);
    assert_eq!(service.asked(), before);
    // Another caller was never answered, so there is nothing to answer with.
    let other = gantry.mint(json!({ "tenant": "local", "sub": "did:example:other" })).await;
    let body = json!({ "tool_id": "demo.ask", "parameters": { "problem": "why?" } });
    let refused = gantry.request(reqwest::Method::POST, "/v1/tools/invoke", Some(&other), Some(body)).await;
    assert_eq!(refused.refusal(), (503, "E3501"));
    let metrics = gantry.get("/metrics").await.text;
    assert!(metrics.contains(r#"gantry_stale_results_total{answer="given"} 1"#), "{metrics}");
}

#[tokio::test]
async fn calls_that_their_caller_gave_no_time_do_not_close_a_service_to_anybody() {
    // It takes whoever comes, and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        // Held for as long as the test lasts: a closed connection would be an answer.
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
            counted.store(held.len(), Ordering::SeqCst);
        }
    });
    let gantry = Start::new()
        .env("GANTRY_MODEL__BASE_URL", format!("http://{address}"))
        .env("GANTRY_MODEL__MODEL", "test-model")
        .env("GANTRY_RESILIENCE__FAILURE_THRESHOLD", "2")
        .run()
        .await;
    let quick = json!({ "timeout_default": 2 });
    assert_eq!(gantry.register(asking(&quick)).await.status, 201);
    let call = async |limits: Value| {
        let body = json!({ "tool_id": "demo.ask", "parameters": { "problem": "why?" }, "resource_limits": limits });
        gantry.post("/v1/tools/invoke", body).await
    };
    for _ in 0..6 {
        let answer = call(json!({ "timeout_seconds": 0.05 })).await;
        assert!(["E3402", "E3503"].contains(&answer.code()), "{}", answer.text);
    }
    assert_eq!(breaker(&gantry).await["state"], "closed", "the caller's haste is not the service's failure");
    // With the tool's own time it is.
    for _ in 0..2 {
        let answer = call(json!({})).await;
        assert!(["E3402", "E3503"].contains(&answer.code()), "{}", answer.text);
    }
    assert_eq!(call(json!({})).await.code(), "E3501");
    assert!(asked.load(Ordering::SeqCst) > 0);
}
