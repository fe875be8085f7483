//! Lazy exposure: three tools for all the others.

use gantry_server::{McpConfig, ToolExposure};
use serde_json::{Value, json};

use crate::stage::{Stage, manifest};

async fn lazy() -> Stage {
    Stage::with(McpConfig { exposure: ToolExposure::Lazy, ..McpConfig::default() }).await
}

fn names(list: &Value) -> Vec<&str> {
    list["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn three_tools_stand_for_all_and_say_how_many_there_are() {
    let stage = lazy().await;
    let list = stage.new_style("tools/list", json!({})).await;
    assert_eq!(names(&list), ["search_tools", "describe_tool", "call_tool"]);
    let about = list["result"]["tools"][0]["description"].as_str().unwrap();
    assert!(about.contains("6 tools: demo (6): echo_tool, fail_tool, gate_tool"), "{about}");
    assert!(!about.contains("whatever text"), "no words of strangers");
    let narrow = stage.ask().token(&stage.narrow).new_style(1, "tools/list", json!({}), &json!({})).message().await;
    assert!(narrow["result"]["tools"][0]["description"].as_str().unwrap().contains("1 tool: demo (1): echo_tool."));
}

#[tokio::test]
async fn a_tool_is_found_described_and_called_as_if_it_were_listed() {
    let stage = lazy().await;
    let found = stage.call("search_tools", json!({ "query": "echo", "limit": 3 })).await;
    assert_eq!(found["result"]["structuredContent"]["tools"][0]["name"], "demo__echo_tool", "{found}");
    let tools = found["result"]["structuredContent"]["tools"].as_array().unwrap();
    assert!(tools.iter().all(|tool| tool["name"] != "other__echo_tool"), "not for this caller");
    for name in ["demo__echo_tool", "demo.echo_tool"] {
        let described = stage.call("describe_tool", json!({ "name": name })).await;
        assert_eq!(described["result"]["structuredContent"]["inputSchema"]["properties"]["text"]["type"], "string");
        let called = stage.call("call_tool", json!({ "name": name, "arguments": { "text": "x" } })).await;
        assert_eq!(called["result"]["structuredContent"], json!({ "text": "x" }), "{called}");
    }
    let direct = stage.call("demo__echo_tool", json!({ "text": "x" })).await;
    assert_eq!(direct["result"]["structuredContent"], json!({ "text": "x" }));
    let wrong = stage.call("call_tool", json!({ "name": "demo__echo_tool", "arguments": { "txt": "x" } })).await;
    assert!(wrong["result"]["content"][0]["text"].as_str().unwrap().contains("did you mean `text`?"), "{wrong}");
    let wrong = stage.call("search_tools", json!({ "query": "x", "limit": 500 })).await;
    assert!(wrong["result"]["content"][0]["text"].as_str().unwrap().contains("/limit"), "{wrong}");
    stage.until("every call went through the kernel", || stage.paper.ends().len() == 4).await;
    let unknown = stage.call("call_tool", json!({ "name": "demo__ecko_tool" })).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[tokio::test]
async fn by_itself_it_becomes_lazy_when_there_are_too_many() {
    let stage = Stage::with(McpConfig { auto_tools_max: 6, ..McpConfig::default() }).await;
    assert_eq!(names(&stage.new_style("tools/list", json!({})).await).len(), 6);
    stage.publish(manifest("echo", &json!({ "tool_id": "seventh" }))).await;
    assert_eq!(names(&stage.new_style("tools/list", json!({})).await), ["search_tools", "describe_tool", "call_tool"]);
    let heavy = Stage::with(McpConfig { auto_tokens_max: 100, ..McpConfig::default() }).await;
    assert_eq!(names(&heavy.new_style("tools/list", json!({})).await).len(), 3);
}
