//! What is masked is masked wherever it stands: however many values there are, however deep they stand, in parts that nobody can
//! look into, and in everything that is told of a job later.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::output_policy::clinic;
use crate::support::{Answer, Gantry, PATIENCE, Start};

const HIDDEN: &str = "[REDACTED]";
/// What stands in the pictures of the clinic.
const PICTURE: &str = "aVZCT1J3MEtHZ28tZWFzdA==";

/// A server with one tool, which answers this under the profile.
async fn answering(home: &Path, profile: &str, answer: &Value) -> Gantry {
    let tool = home.join("tools/answers");
    std::fs::create_dir_all(&tool).unwrap();
    let manifest = json!({
        "tool_id": "answers", "namespace": "out", "version": "1.0.0", "name": "answers",
        "description": "Says what it knows.", "provider": "Test", "protocol": "native",
        "side_effect_policy": "pure", "timeout_class": "standard", "parameters": { "type": "object" },
        "result_schema": { "type": "object" }, "output_policy": profile, "execution": { "type": "process", "command": ["cat", "answer.json"] },
    });
    std::fs::write(tool.join("answer.json"), answer.to_string()).unwrap();
    std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
    let start = Start::new().data(&home.join("data")).arg("--tools").arg(home.join("tools").to_str().unwrap());
    start.arg("--unsandboxed-processes").run().await
}

async fn put_policy(server: &Gantry, obligation: &str) {
    let policies = format!(r#"@id("masked") @obligations("{obligation}") permit (principal, action, resource);"#);
    let body = json!({ "policies": policies });
    let put = server.request(Method::PUT, "/v1/policies", Some(&server.token), Some(body)).await;
    assert_eq!(put.status, 200, "{}", put.text);
}

async fn call(server: &Gantry, token: &str, tool: &str, options: Value) -> Answer {
    let body = json!({ "tool_id": tool, "parameters": {}, "execution_options": options });
    server.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

#[tokio::test]
async fn every_one_of_many_hidden_values_is_hidden_in_all_places() {
    let home = tempfile::tempdir().unwrap();
    let word = |number: usize| format!("zebra-{number:04}-crossing");
    let rows: Vec<Value> = (0..2_000).map(|number| json!({ "password": word(number), "row": number })).collect();
    let prose: Vec<String> = (0..2_000).map(|number| format!("row {number} says {} again", word(number))).collect();
    let server = answering(home.path(), "standard", &json!({ "rows": rows, "prose": prose })).await;
    let called = server.invoke("out.answers", json!({})).await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert!(!called.text.contains("crossing"), "a copy was left");
    assert_eq!(called.body["result"]["prose"][1_999], format!("row 1999 says {HIDDEN} again"));
}

#[tokio::test]
async fn what_a_policy_masks_is_hidden_however_deep_texts_stand_in_texts() {
    let home = tempfile::tempdir().unwrap();
    let mut text = json!({ "ssn": "open-sesame", "kept": "word" }).to_string();
    for _ in 0..6 {
        text = json!({ "inner": text }).to_string();
    }
    // The profile itself hides nothing.
    let server = answering(home.path(), "raw", &json!({ "outer": text, "beside": "plain" })).await;
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let clear = call(&server, &agent, "out.answers", json!({})).await;
    assert!(clear.text.contains("open-sesame"), "nobody hides it yet: {}", clear.text);
    put_policy(&server, "redact=ssn").await;
    let called = call(&server, &agent, "out.answers", json!({})).await;
    assert_eq!((called.status, &called.body["result"]["beside"]), (200, &json!("plain")), "{}", called.text);
    assert!(!called.text.contains("open-sesame"), "{}", called.text);
}

#[tokio::test]
async fn what_nobody_can_look_into_is_not_delivered_where_a_policy_masks() {
    let home = tempfile::tempdir().unwrap();
    let server = clinic(home.path()).await;
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let clear = call(&server, &agent, "clinic.scan", json!({})).await;
    assert_eq!(clear.text.matches(PICTURE).count(), 2, "{}", clear.text);
    put_policy(&server, "redact=ward").await;
    let called = call(&server, &agent, "clinic.scan", json!({})).await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert!(!called.text.contains(PICTURE), "{}", called.text);
    let blocks = &called.body["result"]["content"];
    assert_eq!(blocks[0], json!({ "type": "text", "text": HIDDEN }));
    assert_eq!(blocks[1]["resource"], json!({ "uri": "scan://1", "mimeType": "text/plain", "text": HIDDEN }));
    assert_eq!(blocks[2], json!({ "type": "text", "text": "two pictures" }));
}

/// One request by MCP, and the result in its answer.
async fn by_mcp(server: &Gantry, token: &str, method: &str, name: &str, params: Value) -> Value {
    let text = told_by_mcp(server, token, method, name, params).await;
    let message = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .find(|line| line.contains("\"result\""))
        .unwrap_or(&text);
    let message: Value = serde_json::from_str(message).unwrap_or_else(|_| panic!("{text}"));
    assert!(message["result"].is_object(), "{text}");
    message["result"].clone()
}

/// One request by MCP, and everything that is said until it is answered.
async fn told_by_mcp(server: &Gantry, token: &str, method: &str, name: &str, mut params: Value) -> String {
    params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" }, "progressToken": "p-1" });
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = crate::support::client().post(format!("{}/mcp", server.url)).bearer_auth(token);
    let request = request
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("mcp-name", name);
    request.body(ask.to_string()).send().await.unwrap().text().await.unwrap()
}

#[tokio::test]
async fn what_a_tool_tells_on_the_way_is_masked_as_its_result_is() {
    let home = tempfile::tempdir().unwrap();
    let server = clinic(home.path()).await;
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    put_policy(&server, "redact=ward").await;
    let name = "clinic__visits";
    let call = json!({ "name": name, "arguments": {} });
    let told = told_by_mcp(&server, &agent, "tools/call", name, call).await;
    assert!(told.contains("notifications/progress") && told.contains("visitors"), "{told}");
    assert!(!told.contains("hunter2") && !told.contains("south-wing"), "{told}");
}

#[tokio::test]
async fn a_large_result_that_waits_to_be_fetched_is_masked_for_whoever_reads_it_now() {
    let home = tempfile::tempdir().unwrap();
    let rows: Vec<Value> =
        (0..8_000).map(|row| json!({ "row": row, "ssn": "open-sesame", "kept": "word-of-it" })).collect();
    let server = answering(home.path(), "raw", &json!({ "rows": rows, "prose": "it was open-sesame" })).await;
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let called =
        by_mcp(&server, &agent, "tools/call", "out__answers", json!({ "name": "out__answers", "arguments": {} })).await;
    let uri = called["content"][1]["uri"].as_str().unwrap_or_else(|| panic!("it is not kept: {called}"));
    let read = async || {
        let (mut text, mut next) = (String::new(), Some(uri.to_owned()));
        while let Some(at) = next {
            let piece = by_mcp(&server, &agent, "resources/read", &at, json!({ "uri": at })).await;
            text += piece["contents"][0]["text"].as_str().unwrap();
            next = piece["contents"][0]["_meta"]["dev.gantry/next"].as_str().map(str::to_owned);
        }
        text
    };
    let clear = read().await;
    assert!(clear.contains("open-sesame"), "nobody hides it yet");
    put_policy(&server, "redact=ssn").await;
    let masked = read().await;
    assert!(!masked.contains("open-sesame"), "what is masked now is masked in what was said before");
    let value: Value = serde_json::from_str(&masked).unwrap();
    assert_eq!(value["rows"][7_999], json!({ "row": 7_999, "ssn": HIDDEN, "kept": "word-of-it" }));
    assert_eq!(value["prose"], format!("it was {HIDDEN}"));
}

#[tokio::test]
async fn the_events_of_a_job_are_masked_as_its_status_is() {
    let home = tempfile::tempdir().unwrap();
    let server = clinic(home.path()).await;
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let accepted = call(&server, &agent, "clinic.broken", json!({ "async_mode": true })).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let path = format!("/v1/invocations/{}", accepted.body["invocation_id"].as_str().unwrap());
    let events = format!("{path}/events");
    let began = Instant::now();
    while server.request(Method::GET, &path, Some(&agent), None).await.body["status"] != "error" {
        assert!(began.elapsed() < PATIENCE, "the job does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for at in [&path, &events] {
        let clear = server.request(Method::GET, at, Some(&agent), None).await;
        assert!(clear.text.contains("east"), "nobody hides it yet: {}", clear.text);
    }
    put_policy(&server, "redact=ward").await;
    // Its owner, and somebody who may see the jobs of all.
    for reader in [&agent, &server.token] {
        for at in [&path, &events] {
            let masked = server.request(Method::GET, at, Some(reader), None).await;
            assert_eq!(masked.status, 200, "{}", masked.text);
            assert!(masked.text.contains(HIDDEN) && !masked.text.contains("east"), "{at}: {}", masked.text);
        }
    }
}
