//! Two servers on one Redis: what they share, and what each does by itself while Redis is away. (RES-001, RES-017, RES-020)

use reqwest::Method;
use serde_json::{Value, json};
use test_servers::RedisServer;

use crate::support::{Answer, Gantry, Start, manifest};

async fn server(redis: &RedisServer) -> Gantry {
    let gantry = Start::new()
        .env("GANTRY_SHARED_STATE__URL", redis.url())
        // On a busy machine, an answer may take a while.
        .env("GANTRY_SHARED_STATE__OPERATION_TIMEOUT_MS", "10000")
        .env("GANTRY_SHARED_STATE__FALLBACK_REPLICAS", "2")
        .run()
        .await;
    let limited = manifest(json!({ "rate_limit": { "max_per_day": 8 }, "external_service": "sums" }));
    assert_eq!(gantry.register(limited).await.status, 201);
    gantry
}

/// How the shared state is, as soon as it is so.
async fn until_shared_is(gantry: &Gantry, healthy: bool) {
    let start = std::time::Instant::now();
    loop {
        let check = &gantry.get("/health").await.body["checks"]["shared_state"];
        if check["healthy"] == healthy {
            assert_eq!(check["required"], false);
            return;
        }
        assert!(start.elapsed() < crate::support::PATIENCE, "{check}");
    }
}

/// Waits until the page of metrics says so too.
async fn until_metrics_say(gantry: &Gantry, up: u8) {
    let start = std::time::Instant::now();
    let line = format!("gantry_shared_state_up {up}\n");
    loop {
        let page = gantry.get("/metrics").await.text;
        if page.contains(&line) {
            return;
        }
        assert!(start.elapsed() < crate::support::PATIENCE, "{page}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

async fn call(gantry: &Gantry, token: &str) -> Answer {
    let body = json!({ "tool_id": "demo.echo_sum", "parameters": { "expression": "1+1" } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

#[tokio::test]
async fn two_servers_share_limits_and_breakers_and_each_has_its_part_while_redis_is_away() {
    let mut redis = RedisServer::start().unwrap();
    let (one, other) = (server(&redis).await, server(&redis).await);
    until_shared_is(&one, true).await;
    until_shared_is(&other, true).await;
    until_metrics_say(&other, 1).await;
    let user = json!({ "tenant": "local", "sub": "did:example:same" });
    let (first, second) = (one.mint(user.clone()).await, other.mint(user).await);

    // One limit for both.
    let mut passed = 0;
    for _ in 0..6 {
        for (gantry, token) in [(&one, &first), (&other, &second)] {
            let answer = call(gantry, token).await;
            if answer.status == 200 {
                passed += 1;
            } else {
                assert_eq!(answer.refusal().0, 429, "{}", answer.text);
            }
        }
    }
    assert_eq!(passed, 8);

    // What is done to a breaker at one server is so at the other.
    one.cli(&["breakers", "open", "sums"]).ok();
    let answer = call(&other, &other.mint(json!({ "tenant": "local", "sub": "did:example:other" })).await).await;
    assert_eq!(answer.refusal(), (503, "E3501"));
    assert!(answer.text.contains("by hand"), "{}", answer.text);
    assert_eq!(other.cli(&["breakers", "list", "--json"]).ok().json()["current"], json!(true));

    // Alone, a server gives its part, keeps forced open what was, and changes nothing for all.
    redis.kill();
    until_shared_is(&other, false).await;
    until_metrics_say(&other, 0).await;
    assert_eq!(call(&other, &second).await.refusal(), (503, "E3501"));
    let alone = other.cli(&["breakers", "reset", "sums"]);
    assert_ne!(alone.code(), 0);
    assert!(alone.err().contains("one server only"), "{}", alone.err());
    let listed = other.cli(&["breakers", "list", "--json"]).ok().json();
    assert_eq!(
        (&listed["current"], &listed["breakers"][0]["state"]),
        (&json!(false), &json!("forced_open")),
        "{listed}"
    );
    let told = other.cli(&["breakers", "list"]);
    assert!(told.err().contains("in force on the server that answered"), "{}", told.err());
    let metrics = other.get("/metrics").await.text;
    assert!(metrics.contains(r#"gantry_shared_state_fallback_total{use="limit"}"#), "{metrics}");
    assert!(metrics.contains(r#"gantry_shared_state_fallback_total{use="breaker"}"#), "{metrics}");
    assert_eq!(other.get("/health/ready").await.status, 200);

    // It comes back empty, and is used again.
    redis.start_again().unwrap();
    until_shared_is(&one, true).await;
    until_shared_is(&other, true).await;
    let listed = other.cli(&["breakers", "list", "--json"]).ok().json();
    assert_eq!(listed["current"], json!(true), "{listed}");
    assert_eq!(call(&one, &first).await.status, 200, "{listed}");
    assert_ne!(listed, Value::Null);
}

/// Decisions that had to be made anew so far.
async fn decisions_made(gantry: &Gantry) -> u64 {
    let page = gantry.get("/metrics").await.text;
    let line = page.lines().find_map(|line| line.strip_prefix(r#"gantry_policy_decisions_total{cache="miss"} "#));
    line.map_or(0, |count| count.parse().unwrap())
}

/// Calls, and says whether a decision had to be made for it.
async fn is_decided_anew(gantry: &Gantry, token: &str) -> bool {
    let before = decisions_made(gantry).await;
    let answer = call(gantry, token).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    decisions_made(gantry).await > before
}

#[tokio::test]
async fn a_policy_update_in_redis_voids_the_decisions_of_those_it_names() {
    let redis = RedisServer::start().unwrap();
    let gantry = Start::new()
        .env("GANTRY_SHARED_STATE__URL", redis.url())
        .env("GANTRY_SHARED_STATE__OPERATION_TIMEOUT_MS", "10000")
        .run()
        .await;
    until_shared_is(&gantry, true).await;
    assert_eq!(gantry.register(manifest(json!({}))).await.status, 201);
    let permit = json!({ "policies": "@id(\"all\") permit(principal, action, resource);" });
    let put = gantry.request(Method::PUT, "/v1/policies", Some(&gantry.token), Some(permit)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let ann = gantry.mint(json!({ "tenant": "local", "sub": "did:example:ann" })).await;
    let bob = gantry.mint(json!({ "tenant": "local", "sub": "did:example:bob" })).await;
    let start = std::time::Instant::now();
    // Until Ann is decided about anew and Bob is not: a word that gets lost, which voids everything, costs one more round.
    loop {
        is_decided_anew(&gantry, &bob).await;
        redis.ask(&["PUBLISH", "abac:policy:updates", r#"{"affected_subjects":["did:example:ann"]}"#]).unwrap();
        while !is_decided_anew(&gantry, &ann).await {
            assert!(start.elapsed() < crate::support::PATIENCE, "the word about Ann was not heard");
        }
        if !is_decided_anew(&gantry, &bob).await {
            break;
        }
        assert!(start.elapsed() < crate::support::PATIENCE, "a word about Ann voids what is remembered about Bob");
    }
}
