//! Calls over REST: versions, coercion, batches, traces, records.

use serde_json::{Value, json};

use crate::support::{Gantry, manifest, wait_for};

#[tokio::test]
async fn ranges_pick_the_highest_version_by_precedence() {
    let gantry = Gantry::start().await;
    for version in ["1.9.0", "1.10.0", "1.2.0", "2.0.0-rc.1"] {
        assert_eq!(gantry.register(manifest(json!({ "version": version }))).await.status, 201, "{version}");
    }
    for (spec, expected) in [
        ("^1.0.0", "1.10.0"),
        ("~1.9", "1.9.0"),
        ("1.x", "1.10.0"),
        ("LATEST", "1.10.0"),
        ("*", "1.10.0"),
        ("2.0.0-rc.1", "2.0.0-rc.1"),
        ("1.2.0", "1.2.0"),
    ] {
        let body = json!({ "tool_id": "demo.echo_sum", "tool_version": spec, "parameters": { "expression": "1" } });
        let answer = gantry.post("/v1/tools/invoke", body).await;
        assert_eq!(answer.body["tool_version"], expected, "{spec}: {}", answer.text);
    }
}

#[tokio::test]
async fn strings_that_stand_for_numbers_are_taken_and_reported() {
    let gantry = Gantry::start().await;
    let parameters = json!({ "type": "object", "properties": { "expression": { "type": "string" }, "count": { "type": "integer" },
        "price": { "type": "number" }, "active": { "type": "boolean" } }, "required": ["expression"] });
    gantry.register(manifest(json!({ "parameters": parameters }))).await;
    let answer = gantry
        .invoke("demo.echo_sum", json!({ "expression": "1", "count": "42", "price": "19.99", "active": "true" }))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["execution_metadata"]["coercions"].as_array().unwrap().len(), 3, "{}", answer.text);
    let answer = gantry.invoke("demo.echo_sum", json!({ "expression": "1", "count": "many" })).await;
    assert_eq!(answer.refusal(), (400, "E3302"));
}

#[tokio::test]
async fn a_batch_stops_at_the_first_critical_failure_and_answers_in_full_length() {
    let gantry = Gantry::start().await;
    let call = |expression: &str, critical: Value| {
        let mut call = json!({ "tool_id": "calculator", "parameters": { "expression": expression } });
        if !critical.is_null() {
            call["critical"] = critical;
        }
        call
    };
    let calls = json!([
        call("1", Value::Null),
        call("1/0", json!(false)),
        call("2", Value::Null),
        call("1/0", Value::Null),
        call("3", Value::Null)
    ]);
    let answer = gantry.post("/v1/tools/invoke/batch", json!({ "calls": calls })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let statuses: Vec<_> =
        answer.body["results"].as_array().unwrap().iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!(statuses, ["success", "error", "success", "error", "skipped"]);
    let many: Vec<Value> = (0..11).map(|_| call("1", Value::Null)).collect();
    assert_eq!(gantry.post("/v1/tools/invoke/batch", json!({ "calls": many })).await.refusal(), (400, "E3004"));
    assert_eq!(gantry.post("/v1/tools/invoke/batch", json!({ "calls": [] })).await.refusal(), (400, "E3004"));
}

#[tokio::test]
async fn a_callers_own_ids_are_kept() {
    let gantry = Gantry::start().await;
    let id = "0190c0de-0000-7000-8000-000000000001";
    let client = crate::support::client();
    let response = client
        .post(format!("{}/v1/tools/invoke", gantry.url))
        .bearer_auth(&gantry.token)
        .header("content-type", "application/json")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        .body(json!({ "tool_id": "calculator", "invocation_id": id, "parameters": { "expression": "1" } }).to_string())
        .send()
        .await
        .unwrap();
    let body: Value = response.json().await.unwrap();
    assert_eq!(body["invocation_id"], id);
    assert_eq!(body["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[tokio::test]
async fn every_call_leaves_a_record_that_shows_no_secret_of_its_parameters() {
    let gantry = Gantry::start().await;
    let text = r#"{ "apiKey": "sk-secret123456", "password": "supersecret", "to": "ann@example.com", "city": "Oslo" }"#;
    let answer = gantry.invoke("json_parser", json!({ "text": text })).await;
    let id = answer.body["invocation_id"].as_str().unwrap().to_owned();
    gantry.invoke("calculator", json!({ "expression": "import os" })).await;
    let log = gantry.data.join("audit/audit-000001.jsonl");
    let lines = wait_for("the audit records", || {
        let lines: Vec<Value> =
            std::fs::read_to_string(&log).ok()?.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let calls: Vec<Value> = lines.into_iter().filter(|l| l["action"] == "invocation_finished").collect();
        (calls.len() == 2).then_some(calls)
    });
    assert_eq!(lines[0]["invocation_id"], id);
    assert_eq!(lines[0]["status"], "success");
    assert!(lines[0]["parameters_digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!((lines[1]["status"].as_str(), lines[1]["code"].as_str()), (Some("error"), Some("E3301")));
    let shown = lines[0]["parameters"].to_string();
    assert!(shown.contains("[REDACTED]") && shown.contains("[EMAIL_REDACTED]") && shown.contains("Oslo"), "{shown}");
    let whole = std::fs::read_to_string(&log).unwrap();
    for secret in ["sk-secret123456", "supersecret", "ann@example.com"] {
        assert!(!whole.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn built_in_tools_answer_and_refuse_as_their_manifests_say() {
    let gantry = Gantry::start().await;
    let cases = [
        ("calculator", json!({ "expression": "10 / 4" }), 200, ""),
        ("calculator", json!({ "expression": "9^9^9^9" }), 400, "E3301"),
        ("calculator", json!({ "expression": "(".repeat(900) }), 400, "E3301"),
        ("calculator", json!({ "expression": "require('fs')" }), 400, "E3301"),
        ("calculator", json!({}), 400, "E3301"),
        ("datetime", json!({ "operation": "now" }), 200, ""),
        (
            "datetime",
            json!({ "operation": "diff", "date1": "2026-01-01", "date2": "2026-01-31", "unit": "day" }),
            200,
            "",
        ),
        ("datetime", json!({ "operation": "add", "date": "2026-01-31", "amount": 1, "unit": "month" }), 200, ""),
        ("datetime", json!({ "operation": "parse", "date": "yesterday-ish" }), 400, "E3301"),
        ("datetime", json!({ "operation": "travel" }), 400, "E3301"),
        ("datetime", json!({ "operation": "now", "timezone": "Mars/Olympus" }), 400, "E3301"),
        ("json_parser", json!({ "text": "see {\"a\": 1} there" }), 200, ""),
        ("json_parser", json!({ "text": "nothing" }), 200, ""),
        ("text_transform", json!({ "text": "One two. Three!", "operation": "word_count" }), 200, ""),
        ("text_transform", json!({ "text": "hello", "operation": "shout" }), 400, "E3301"),
        (
            "text_transform",
            json!({ "text": "hello", "operation": "translate", "options": { "targetLanguage": "de" } }),
            412,
            "E3408",
        ),
        ("deep_reasoning", json!({ "problem": "why?" }), 412, "E3408"),
    ];
    for (tool, parameters, status, code) in cases {
        let answer = gantry.invoke(tool, parameters.clone()).await;
        assert_eq!(answer.status, status, "{tool} {parameters}: {}", answer.text);
        if status != 200 {
            assert_eq!(answer.refusal().1, code, "{tool} {parameters}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn an_operation_without_its_model_names_the_setting() {
    let gantry = Gantry::start().await;
    let answer = gantry.invoke("deep_reasoning", json!({ "problem": "why?" })).await;
    assert!(answer.text.contains("GANTRY_MODEL__BASE_URL"), "{}", answer.text);
}

#[tokio::test]
async fn metrics_count_calls_by_tool_and_code() {
    let gantry = Gantry::start().await;
    gantry.invoke("calculator", json!({ "expression": "1" })).await;
    gantry.invoke("calculator", json!({ "expression": "" })).await;
    let page = gantry.get("/metrics").await.text;
    assert!(
        page.contains(r#"gantry_tool_invocations_total{tool_id="calculator",status="success",code=""} 1"#),
        "{page}"
    );
    assert!(page.contains(r#"code="E3301"} 1"#), "{page}");
}
