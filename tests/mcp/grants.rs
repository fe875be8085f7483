//! What a credential may have over MCP is one answer at every method: versions that a token names, resources that it may read,
//! members of `_meta` that are understood. (VIS-010, AUTH-004, LIFE-11)

use reqwest::Method;
use serde_json::{Value, json};

use super::{McpHarness, names};
use crate::mcp::raw_client::{RawClient, agreeable};
use crate::support::manifest;

#[tokio::test]
async fn the_newest_version_that_a_token_names_is_listed_called_and_shown() {
    let harness = McpHarness::open().await;
    for (tool, version) in [("echo_sum", "1.0.0"), ("echo_sum", "2.0.0"), ("early_sum", "1.1.0-rc.1")] {
        let words = format!("Evaluates an arithmetic expression, release {version} of it.");
        let change = json!({ "tool_id": tool, "version": version, "description": words });
        let registered = harness.gantry.register(manifest(change)).await;
        assert_eq!(registered.status, 201, "{}", registered.text);
    }
    let careful = json!({ "sub": "careful", "tools": [{ "tool_id": "demo.*", "version_range": "^1" }] });
    let careful = harness.gantry.mint(careful).await;
    let client = RawClient::new(&harness.door(), &careful, agreeable);
    let listed = client.list("tools").await.unwrap();
    let told: Vec<(&Value, &Value)> = listed.iter().map(|tool| (&tool["name"], &tool["description"])).collect();
    let one = json!("Evaluates an arithmetic expression, release 1.0.0 of it.");
    assert_eq!(told, [(&json!("demo__echo_sum"), &one)]);
    let called = client.call("demo__echo_sum", &json!({ "expression": "6*7" })).await.unwrap().result().unwrap();
    assert_eq!(called["structuredContent"]["result"], 42, "{called}");
    let objective = json!({ "objective": "evaluate an arithmetic expression", "token_budget": 3000 });
    let shown = harness.gantry.request(Method::POST, "/v1/affordances", Some(&careful), Some(objective)).await;
    assert!(shown.text.contains("1.0.0") && !shown.text.contains("2.0.0"), "{}", shown.text);

    // What is not released is reached by its number only, which MCP has no place for; and the newest is the newest to others.
    let others = harness.new_client();
    let all = names(&others).await;
    assert!(all.contains(&"demo__echo_sum".to_owned()) && !all.contains(&"demo__early_sum".to_owned()), "{all:?}");
    let call = json!({ "tool_id": "demo.echo_sum", "tool_version": "=2.0.0", "parameters": { "expression": "1" } });
    let answer = harness.gantry.request(Method::POST, "/v1/tools/invoke", Some(&careful), Some(call)).await;
    assert_eq!(answer.refusal(), (403, "E3204"));
}

#[tokio::test]
async fn what_a_caller_cannot_read_it_cannot_watch() {
    let harness = McpHarness::open().await;
    harness.gantry.mint(json!({ "sub": "neighbour", "tenant": "depot" })).await;
    let token = harness.gantry.mint(json!({ "sub": "clerk", "tenant": "shop" })).await;
    let client = RawClient::old(&harness.door(), &token, "2025-06-18", agreeable).await.unwrap();
    let asked = async |method: &str, uri: &str| {
        let reply = client.request(method, json!({ "uri": uri })).await.unwrap();
        reply.message["error"]["code"].as_i64()
    };
    for uri in [
        "gantry://tools/tenant/depot/available",
        "gantry://tools/tenant/nope/available",
        "focal://tools/tenant/depot/available",
        "gantry://tools/agent/neighbour/enabled",
        "gantry://tools/agent/nobody/unavailable",
    ] {
        let read = asked("resources/read", uri).await;
        assert!(read.is_some(), "{uri}");
        assert_eq!(asked("resources/subscribe", uri).await, read, "{uri}");
    }
    for uri in ["gantry://tools/tenant/shop/available", "gantry://tools/agent/clerk/enabled"] {
        assert_eq!(asked("resources/subscribe", uri).await, None, "{uri}");
    }
}

#[tokio::test]
async fn a_member_of_meta_that_is_ours_is_understood_or_refused() {
    let harness = McpHarness::open().await;
    let client = harness.new_client();
    let call = async |member: &str, value: Value| {
        let params = json!({ "name": "calculator", "arguments": { "expression": "6*7" }, "_meta": { member: value } });
        client.request("tools/call", params).await.unwrap().message["result"].take()
    };
    for key in [json!(123), json!(true), json!(["a"]), json!({ "a": 1 })] {
        let answer = call("dev.gantry/idempotency_key", key.clone()).await;
        assert_eq!(answer["_meta"]["dev.gantry/error"]["code"], "E3004", "{key}: {answer}");
    }
    let misspelt = call("dev.gantry/idempotency-key", json!("a")).await;
    assert_eq!(misspelt["_meta"]["dev.gantry/error"]["code"], "E3004", "{misspelt}");
    for (member, value) in [
        ("dev.gantry/idempotency_key", json!("order-7")),
        ("dev.gantry/idempotency_key", Value::Null),
        ("dev.gantry/user", json!("did:example:ada")),
        ("com.example/whatever", json!(1)),
    ] {
        let answer = call(member, value).await;
        assert_eq!(answer["structuredContent"]["result"], 42, "{member}: {answer}");
    }
}
