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
