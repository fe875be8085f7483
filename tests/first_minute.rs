//! What a stranger does in the first minute: the commands of the README, as they stand there.

use serde_json::json;

use crate::support::Gantry;

#[tokio::test]
async fn a_governed_call_by_cli_answers_twelve() {
    let gantry = Gantry::start().await;
    let ran = gantry.cli(&["call", "calculator", "expression=sqrt(16) + 2^3"]).ok();
    assert!(ran.out().contains("12"), "{}", ran.out());
    let ran = gantry.cli(&["call", "calculator", "expression=sqrt(16) + 2^3", "--json"]).ok();
    let envelope = ran.json();
    assert_eq!(envelope["status"], "success");
    assert_eq!(envelope["result"]["result"], 12);
    assert_eq!(envelope["tool_id"], "calculator");
}

#[tokio::test]
async fn the_same_call_by_rest_answers_with_the_whole_envelope() {
    let gantry = Gantry::start().await;
    let answer = gantry.invoke("calculator", json!({ "expression": "sqrt(16) + 2^3" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["result"]["result"], 12);
    for member in ["invocation_id", "status", "tool_version", "cached", "execution_time_ms", "trace_id"] {
        assert!(!answer.body[member].is_null(), "{member}: {}", answer.text);
    }
    let metadata = &answer.body["execution_metadata"];
    for member in [
        "duration_ms",
        "started_at",
        "completed_at",
        "cpu_used_millicore_seconds",
        "memory_peak_mb",
        "network_bytes_sent",
        "network_bytes_received",
        "coercions",
        "cost",
    ] {
        assert!(!metadata[member].is_null(), "{member}: {}", answer.text);
    }
    assert!(metadata["deprecation"].is_null());
}

#[tokio::test]
async fn register_list_search_compare_and_invoke_work_with_nothing_but_http() {
    let gantry = Gantry::start().await;
    let manifest = crate::support::manifest(json!({}));
    assert_eq!(gantry.register(manifest.clone()).await.status, 201);
    assert_eq!(gantry.register(manifest).await.status, 200);
    let list = gantry.get("/v1/tools").await;
    let ids: Vec<_> = list.body["tools"].as_array().unwrap().iter().map(|t| t["tool_id"].as_str().unwrap()).collect();
    for id in ["calculator", "datetime", "deep_reasoning", "demo.echo_sum", "json_parser", "text_transform"] {
        assert!(ids.contains(&id), "{id} in {ids:?}");
    }
    let hits = gantry.get("/v1/tools/search?q=evaluate%20arithmetic%20demonstration").await;
    assert_eq!(hits.body["results"][0]["tool_id"], "demo.echo_sum", "{}", hits.text);
    let verdict = gantry
        .post(
            "/v1/tools/compare",
            json!({
            "old": { "type": "object", "properties": { "a": { "type": "string" } } },
            "new": { "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "integer" } } } }),
        )
        .await;
    assert_eq!(verdict.body["verdict"], "minor", "{}", verdict.text);
    let answer = gantry.invoke("demo.echo_sum", json!({ "expression": "1 + 2" })).await;
    assert_eq!(answer.body["result"]["result"], 3, "{}", answer.text);
}
