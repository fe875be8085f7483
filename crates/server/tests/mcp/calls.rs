//! `tools/call`: results, failures, progress, cancellation.

use contract::error::ErrorCode;
use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage, manifest};

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

/// What must not happen twice, waiting at the gate; its key is `k`.
pub(super) async fn payments(stage: &Stage) -> Value {
    let effects = json!([{ "resource": "money", "op": "CREATE", "scope": "account" }]);
    let with = |id: &str, policy: &str, undo: Value| {
        json!({ "tool_id": id, "side_effect_policy": policy, "side_effects": effects, "idempotency": {},
            "compensation_tool_id": undo })
    };
    stage.publish(manifest("echo", &with("refund", "idempotent", Value::Null))).await;
    stage.publish(manifest("gate", &with("pay", "compensatable", json!("demo.refund")))).await;
    json!({ "name": "demo__pay", "arguments": { "text": "x" }, "_meta": { "dev.gantry/idempotency_key": "k" } })
}

#[tokio::test]
async fn a_call_with_effects_and_a_key_goes_on_without_its_client_and_is_found_again() {
    let stage = Stage::new().await;
    let call = payments(&stage).await;
    let ask = || stage.ask().token(&stage.agent).new_style(1, "tools/call", call.clone(), &json!({}));
    let calling = tokio::spawn(ask().send());
    stage.gated(1).await;
    calling.abort();
    assert!(calling.await.is_err(), "the line is broken");
    // Another round, so that the server has seen the end of the line.
    stage.new_style("tools/list", json!({})).await;
    let again = tokio::spawn(ask().message());
    stage.tools.gate.add_permits(1);
    let answer = again.await.unwrap();
    assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
    stage.until("both are recorded", || stage.paper.ends() == [None, None]).await;
    assert_eq!(*stage.tools.running.borrow(), 1, "it ran once");
}

#[tokio::test]
async fn a_client_that_says_so_cancels_also_a_call_with_effects_and_a_key() {
    let stage = Stage::new().await;
    let call = payments(&stage).await;
    let version = "2025-06-18";
    let session = stage.session(&stage.agent, version, &json!({})).await;
    let calling = stage.in_session(&stage.agent, &session, version).old(12, "tools/call", &call).send().await;
    stage.gated(1).await;
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 12 } });
    assert_eq!(stage.in_session(&stage.agent, &session, version).body(&cancel.to_string()).send().await.status, 202);
    stage.until("nobody knows how far it came", || stage.paper.ends() == [Some(ErrorCode::E3413)]).await;
    drop(calling);
}

#[tokio::test]
async fn a_missing_key_is_asked_for_where_this_protocol_has_a_place_for_it() {
    let stage = Stage::new().await;
    payments(&stage).await;
    let refused = stage.call("demo__pay", json!({ "text": "x" })).await;
    let error = &refused["result"]["_meta"]["dev.gantry/error"];
    assert_eq!(error["code"], "E3004", "{refused}");
    let told = refused["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.contains(r#"_meta["dev.gantry/idempotency_key"]"#), "{told}");
    assert!(!refused.to_string().contains("execution_options"), "{refused}");
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
