//! Foreign clients in front of Gantry: the official Python SDK in two versions and the official inspector, over HTTP and
//! over `gantry mcp`.

use serde_json::json;

use super::peers::{inspector, python_sdk};
use super::*;
use crate::support::binary;

/// Version of the SDK, and the revision it speaks when it may choose.
const SDKS: [(&str, &str); 2] = [("python", "2026-07-28"), ("python-old", "2025-11-25")];

async fn harness() -> McpHarness {
    let harness = McpHarness::open().await;
    harness.put("plain", &harness.plain(&[])).await;
    harness
}

fn assert_greeted(seen: &Value, revision: &str) {
    assert_eq!(seen["revision"], revision, "{seen}");
    let tools = seen["tools"].as_array().unwrap();
    for tool in ["plain__echo", "calculator"] {
        assert!(tools.contains(&json!(tool)), "{tool}: {seen}");
    }
    assert_eq!(seen["results"][0], json!({ "text": "hello from outside", "failed": false }), "{seen}");
    assert_eq!(seen["results"][1]["text"], "Hello, yes from python!", "{seen}");
    assert_eq!(seen["results"][2]["failed"], true, "{seen}");
}

/// A call that works, one that asks, and one that a model got wrong.
fn calls() -> Value {
    json!([["plain__echo", { "text": "hello from outside" }], ["plain__ask_name", {}], ["plain__echo", { "txt": "x" }]])
}

#[tokio::test]
async fn the_python_sdk_lists_calls_and_is_asked_over_http() {
    let harness = harness().await;
    for (sdk, revision) in SDKS {
        let plan = json!({ "http": harness.door(), "token": harness.agent, "calls": calls() });
        assert_greeted(&python_sdk(sdk, &plan), revision);
    }
}

#[tokio::test]
async fn the_python_sdk_lists_calls_and_is_asked_over_stdio() {
    let harness = harness().await;
    for (sdk, revision) in SDKS {
        let env = json!({ "GANTRY_DATA_DIR": harness.path("data"), "PATH": "/usr/bin:/bin", "NO_COLOR": "1" });
        let plan = json!({ "stdio": [binary(), "mcp"], "env": env, "calls": calls() });
        assert_greeted(&python_sdk(sdk, &plan), revision);
    }
}

#[tokio::test]
async fn the_inspector_lists_and_calls_over_http_and_stdio() {
    let harness = harness().await;
    let (door, header) = (harness.door(), format!("Authorization: Bearer {}", harness.agent));
    let data = format!("GANTRY_DATA_DIR={}", harness.path("data"));
    let targets: [(Vec<&str>, Vec<String>); 2] =
        [(vec![&door, "--transport", "http"], vec![header]), (vec!["-e", &data, binary(), "mcp"], Vec::new())];
    for (target, headers) in &targets {
        let listed = inspector(target, headers, &["--method", "tools/list"]).ok().json();
        assert!(listed["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "plain__echo"), "{listed}");
        let call = ["--method", "tools/call", "--tool-name", "plain__echo", "--tool-arg", "text=hi"];
        let called = inspector(target, headers, &call).ok().json();
        assert_eq!(called["content"][0]["text"], "hi", "{called}");
    }
}

#[tokio::test]
async fn a_client_without_a_token_is_told_where_to_get_one() {
    let harness = harness().await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {} });
    let answer = harness.gantry.request(Method::POST, "/mcp", None, Some(body)).await;
    assert_eq!(answer.status, 401, "{}", answer.text);
    let challenge = answer.header("www-authenticate");
    assert!(challenge.starts_with("Bearer ") && challenge.contains("resource_metadata="), "{challenge}");
}
