//! `tools/call`: results, failures, progress, cancellation.

use contract::error::ErrorCode;
use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage};

#[tokio::test]
async fn a_call_gives_its_result_structured_and_as_text_in_every_revision() {
    let stage = Stage::new().await;
    let called = stage.call("demo__echo_tool", json!({ "text": "hello" })).await;
    let result = &called["result"];
    assert_eq!(result["structuredContent"], json!({ "text": "hello" }), "{called}");
    assert_eq!(result["content"], json!([{ "type": "text", "text": r#"{"text":"hello"}"# }]));
    assert_eq!((&result["isError"], &result["resultType"]), (&json!(false), &json!("complete")));
    assert!(result["_meta"]["dev.gantry/invocation_id"].is_string());
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let session = stage.session(&stage.agent, version, &json!({})).await;
        let params = json!({ "name": "demo__echo_tool", "arguments": { "text": "hello" } });
        let old = stage.in_session(&stage.agent, &session, version).old(2, "tools/call", &params).message().await;
        assert_eq!(old["result"]["structuredContent"], json!({ "text": "hello" }), "{version}: {old}");
        assert!(old["result"].get("resultType").is_none());
    }
    stage.until("five calls are recorded", || stage.paper.ends() == [None; 5]).await;
}

#[tokio::test]
async fn what_a_model_did_wrong_it_is_told_as_a_result() {
    let stage = Stage::new().await;
    let text = |called: &Value| {
        called["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{called}")).to_owned()
    };
    let wrong = stage.call("demo__echo_tool", json!({ "txt": "x" })).await;
    assert_eq!(wrong["result"]["isError"], true);
    assert!(text(&wrong).contains("/txt: `txt` is not declared; did you mean `text`?"), "{}", text(&wrong));
    assert_eq!(wrong["result"]["_meta"]["dev.gantry/error"]["code"], "E3301");
    let wrong = stage.call("demo__echo_tool", json!({ "text": {} })).await;
    assert!(text(&wrong).contains("/text: expected string"), "{}", text(&wrong));
    let failed = stage.call("demo__fail_tool", json!({ "text": "x" })).await;
    assert_eq!(
        (&failed["result"]["isError"], failed["result"]["_meta"]["dev.gantry/error"]["code"].as_str()),
        (&json!(true), Some("E3401"))
    );
    assert!(text(&failed).contains("the tool fell over"));
    for name in ["demo__ecko_tool", "nothing", "no-such-0123456789ab"] {
        let unknown = stage.call(name, json!({})).await;
        assert_eq!(unknown["error"]["code"], -32602, "{name}: {unknown}");
    }
    let foreign = stage.call("other__echo_tool", json!({})).await;
    assert_eq!(foreign["result"]["_meta"]["dev.gantry/error"]["code"], "E3204", "{foreign}");
    let near = stage.call("demo__ecko_tool", json!({})).await;
    assert!(near["error"]["message"].as_str().unwrap().contains("did you mean `demo"), "{near}");
}

#[tokio::test]
async fn the_trace_and_the_idempotency_key_come_from_meta() {
    let stage = Stage::new().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let params = json!({ "name": "demo__echo_tool", "arguments": { "text": "x" }, "_meta": { "traceparent": trace } });
    let called = stage.new_style("tools/call", params).await;
    assert_eq!(called["result"]["_meta"]["dev.gantry/trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736", "{called}");
    let params = json!({ "name": "demo__echo_tool", "arguments": { "text": "x" }, "_meta": { "dev.gantry/idempotency_key": "" } });
    let called = stage.new_style("tools/call", params).await;
    assert_eq!(
        called["result"]["_meta"]["dev.gantry/error"]["code"], "E3004",
        "an empty key is refused by the kernel: {called}"
    );
}

#[tokio::test]
async fn progress_and_log_come_on_the_stream_of_the_call_when_asked_for() {
    let stage = Stage::new().await;
    let meta = json!({ "progressToken": "p1", "io.modelcontextprotocol/logLevel": "warning" });
    let params = json!({ "name": "demo__chatty_tool", "arguments": { "text": "x" }, "_meta": meta });
    let mut reply = stage.ask().token(&stage.agent).new_style(1, "tools/call", params, &json!({})).send().await;
    assert!(reply.is_stream());
    let mut events = Vec::new();
    while let Some(event) = reply.event().await {
        events.push(event);
    }
    let progress: Vec<&Value> =
        events.iter().filter(|e| e["method"] == "notifications/progress").map(|e| &e["params"]).collect();
    assert_eq!(progress.len(), 2, "{events:?}");
    assert_eq!(
        (&progress[0]["progressToken"], &progress[0]["progress"], &progress[0]["total"]),
        (&json!("p1"), &json!(10.0), &json!(100.0))
    );
    assert!(progress[1]["progress"].as_f64() > progress[0]["progress"].as_f64());
    assert!(events.iter().any(|e| e["method"] == "notifications/message" && e["params"]["data"] == "nearly done"));
    assert_eq!(events.last().unwrap()["result"]["isError"], false);
    // Whoever has not asked hears nothing of it.
    let params = json!({ "name": "demo__chatty_tool", "arguments": { "text": "x" } });
    let reply = stage.ask().token(&stage.agent).new_style(1, "tools/call", params, &json!({})).send().await;
    assert!(!reply.is_stream());
}

#[tokio::test]
async fn closing_the_stream_cancels_the_call_and_leaves_a_record() {
    let stage = Stage::new().await;
    let call = json!({ "name": "demo__gate_tool", "arguments": { "text": "x" } });
    let ask = stage.ask().token(&stage.agent).new_style(1, "tools/call", call, &json!({}));
    let calling = tokio::spawn(ask.send());
    stage.gated(1).await;
    calling.abort();
    stage.until("the call is recorded as cancelled", || stage.paper.ends() == [Some(ErrorCode::E3703)]).await;
}

#[tokio::test]
async fn an_older_client_cancels_with_a_message_and_a_closed_stream_is_no_cancellation() {
    let stage = Stage::new().await;
    let version = "2025-06-18";
    let session = stage.session(&stage.agent, version, &json!({})).await;
    let call = json!({ "name": "demo__gate_tool", "arguments": { "text": "x" } });
    let first = stage.in_session(&stage.agent, &session, version).old(11, "tools/call", &call).send().await;
    stage.gated(1).await;
    drop(first);
    let second = stage.in_session(&stage.agent, &session, version).old(12, "tools/call", &call).send().await;
    stage.gated(2).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 12 } });
    assert_eq!(stage.in_session(&stage.agent, &session, version).body(&cancel.to_string()).send().await.status, 202);
    stage.until("the second is recorded as cancelled", || stage.paper.ends() == [Some(ErrorCode::E3703)]).await;
    drop(second);
    stage.tools.gate.add_permits(1);
    stage.until("the first comes to its end", || stage.paper.ends() == [Some(ErrorCode::E3703), None]).await;
}

#[tokio::test]
async fn calls_that_run_when_the_server_stops_come_to_their_end() {
    let mut stage = Stage::new().await;
    let call = json!({ "name": "demo__gate_tool", "arguments": { "text": "late" } });
    let calling = tokio::spawn(stage.ask().token(ADMIN).new_style(1, "tools/call", call, &json!({})).message());
    stage.gated(1).await;
    stage.stop();
    stage.tools.gate.add_permits(1);
    assert_eq!(calling.await.unwrap()["result"]["structuredContent"]["text"], "late");
    assert_eq!(stage.drained().await.aborted, 0);
}
