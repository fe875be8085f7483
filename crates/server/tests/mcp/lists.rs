//! `server/discover`, `tools/list`, toolsets, news.

use std::time::Duration;

use gantry_server::{McpConfig, McpMode, ToolExposure};
use policy::WhyUnavailable;
use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage, manifest};

fn names(list: &Value) -> Vec<&str> {
    list["result"]["tools"]
        .as_array()
        .unwrap_or_else(|| panic!("{list}"))
        .iter()
        .map(|t| t["name"].as_str().unwrap())
        .collect()
}

const DEMO: [&str; 6] = [
    "demo__chatty_tool",
    "demo__curious_tool",
    "demo__echo_tool",
    "demo__fail_tool",
    "demo__gate_tool",
    "demo__large_tool",
];

#[tokio::test]
async fn the_server_says_what_it_is_in_both_ways() {
    let stage = Stage::new().await;
    let discovered = stage.new_style("server/discover", json!({})).await;
    let result = &discovered["result"];
    assert_eq!(result["resultType"], "complete", "{discovered}");
    let versions: Vec<&str> =
        result["supportedVersions"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
    assert_eq!(versions, ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]);
    assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "gantry");
    assert_eq!(result["cacheScope"], "private");
    let mut old = stage.initialize(&stage.agent, "2025-06-18", &json!({})).await;
    let old = old.last().await;
    assert_eq!(old["result"]["serverInfo"]["name"], "gantry");
    assert_eq!(old["result"]["capabilities"]["tools"]["listChanged"], true);
}

#[tokio::test]
async fn each_caller_sees_what_it_may_use_in_one_order_with_what_is_known_of_it() {
    let stage = Stage::new().await;
    let hard = json!({
        "tool_id": "hard", "side_effect_policy": "irreversible",
        "side_effects": [{ "resource": "mail", "op": "CREATE", "scope": "outbox" }],
        "idempotency": { "key_fields": [], "window_seconds": 86_400 },
    });
    stage.publish(manifest("echo", &hard)).await;
    let list = stage.new_style("tools/list", json!({})).await;
    let mut expected: Vec<&str> = DEMO.to_vec();
    expected.insert(5, "demo__hard");
    assert_eq!(names(&list), expected);
    let result = &list["result"];
    assert_eq!(
        (&result["resultType"], &result["cacheScope"], &result["ttlMs"]),
        (&json!("complete"), &json!("private"), &json!(60_000))
    );
    let echo = &result["tools"][2];
    assert_eq!(echo["title"], "The echo tool");
    assert_eq!(
        echo["annotations"],
        json!({ "readOnlyHint": true, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false })
    );
    assert_eq!(echo["inputSchema"]["properties"]["text"]["type"], "string");
    assert_eq!(echo["outputSchema"]["type"], "object");
    assert_eq!(result["tools"][5]["annotations"]["destructiveHint"], true);
    let narrow = stage.ask().token(&stage.narrow).new_style(1, "tools/list", json!({}), &json!({})).message().await;
    assert_eq!(names(&narrow), ["demo__echo_tool"]);
    // Whatever was called in between.
    stage.call("demo__echo_tool", json!({ "text": "x" })).await;
    assert_eq!(stage.new_style("tools/list", json!({})).await, list);
    // An older client sees the same, without what it does not know.
    let session = stage.session(&stage.agent, "2025-06-18", &json!({})).await;
    let old = stage.in_session(&stage.agent, &session, "2025-06-18").old(2, "tools/list", &json!({})).message().await;
    assert_eq!(old["result"]["tools"], list["result"]["tools"]);
    assert!(old["result"].get("resultType").is_none());
}

#[tokio::test]
async fn what_is_not_to_be_had_is_not_offered() {
    let stage = Stage::new().await;
    let key = ("local".parse().unwrap(), "demo.fail_tool".parse().unwrap());
    stage.kernel.availability().set([(key, Some(WhyUnavailable::Quarantined))]);
    let list = stage.new_style("tools/list", json!({})).await;
    assert!(!names(&list).contains(&"demo__fail_tool") && names(&list).len() == 5);
    let called = stage.call("demo__fail_tool", json!({ "text": "x" })).await;
    let code = &called["result"]["_meta"]["dev.gantry/error"]["code"];
    assert!(code == "E3107" || code == "E3108", "{called}");
}

#[tokio::test]
async fn pages_stay_right_when_tools_come_in_between() {
    let stage = Stage::with(McpConfig { exposure: ToolExposure::All, page_size: 2, ..McpConfig::default() }).await;
    let mut seen = Vec::new();
    let mut params = json!({});
    loop {
        let page = stage.new_style("tools/list", params.clone()).await;
        assert!(names(&page).len() <= 2);
        seen.extend(names(&page).into_iter().map(str::to_owned));
        if seen.len() == 2 {
            stage.publish(manifest("echo", &json!({ "tool_id": "aaa" }))).await;
        }
        match page["result"]["nextCursor"].as_str() {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    assert_eq!(seen, DEMO, "nothing twice, nothing left out");
    let wrong = stage.new_style("tools/list", json!({ "cursor": "nonsense" })).await;
    assert_eq!(wrong["error"]["code"], -32602);
}

#[tokio::test]
async fn a_toolset_is_a_part_of_what_one_may_use() {
    let toolsets = [("echoes".to_owned(), vec!["demo.echo_tool".parse().unwrap(), "other.*".parse().unwrap()])];
    let config = McpConfig { exposure: ToolExposure::All, toolsets: toolsets.into(), ..McpConfig::default() };
    let stage = Stage::with(config).await;
    let list =
        |token: &str| stage.at("/mcp/echoes").token(token).new_style(1, "tools/list", json!({}), &json!({})).message();
    assert_eq!(names(&list(&stage.agent).await), ["demo__echo_tool"]);
    assert_eq!(names(&list(ADMIN).await), ["demo__echo_tool", "other__echo_tool"]);
    let call = |name: &str| {
        let params = json!({ "name": name, "arguments": { "text": "x" } });
        stage.at("/mcp/echoes").token(ADMIN).new_style(1, "tools/call", params, &json!({})).message()
    };
    assert_eq!(call("other__echo_tool").await["result"]["structuredContent"], json!({ "text": "x" }));
    assert_eq!(call("demo__fail_tool").await["error"]["code"], -32602, "it is there, but not here");
    let nowhere = stage.at("/mcp/nowhere").token(ADMIN).new_style(1, "tools/list", json!({}), &json!({})).send().await;
    assert_eq!(nowhere.status, 404);
}

#[tokio::test]
async fn in_discovery_nothing_can_be_called() {
    let stage =
        Stage::with(McpConfig { mode: McpMode::Discovery, exposure: ToolExposure::All, ..McpConfig::default() }).await;
    assert_eq!(names(&stage.new_style("tools/list", json!({})).await), DEMO);
    let called = stage.call("demo__echo_tool", json!({ "text": "x" })).await;
    assert_eq!(called["error"]["code"], -32601, "{called}");
    // A tool is one whatever it is called: without tools that look, nothing here has their names but it.
    let asked = |method: &str, params| stage.ask().token(ADMIN).new_style(1, method, params, &json!({})).message();
    for name in ["search_tools", "describe_tool", "call_tool"] {
        stage.publish(manifest("echo", &json!({ "tool_id": name, "namespace": null }))).await;
        let called = asked("tools/call", json!({ "name": name, "arguments": { "text": "x" } })).await;
        assert_eq!(called["error"]["code"], -32601, "{name}: {called}");
    }
    let listed = asked("tools/list", json!({})).await;
    assert!(names(&listed).contains(&"search_tools"), "{listed}");
    assert!(stage.paper.ends().is_empty());
    let lazy =
        Stage::with(McpConfig { mode: McpMode::Discovery, exposure: ToolExposure::Lazy, ..McpConfig::default() }).await;
    assert_eq!(names(&lazy.new_style("tools/list", json!({})).await), ["search_tools", "describe_tool"]);
    let called = lazy.call("call_tool", json!({ "name": "demo__echo_tool", "arguments": { "text": "x" } })).await;
    assert_eq!(called["error"]["code"], -32601, "{called}");
    assert!(lazy.paper.ends().is_empty());
}

#[tokio::test]
async fn whoever_listens_is_told_when_its_own_list_has_changed() {
    let stage = Stage::new().await;
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let listening =
        |token: &str| stage.ask().token(token).new_style(7, "subscriptions/listen", filter.clone(), &json!({})).send();
    let mut agent = listening(&stage.agent).await;
    let mut narrow = listening(&stage.narrow).await;
    for reply in [&mut agent, &mut narrow] {
        let first = reply.event().await.unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged", "{first}");
    }
    let session = stage.session(&stage.agent, "2025-11-25", &json!({})).await;
    let get =
        stage.in_session(&stage.agent, &session, "2025-11-25").method("GET").header("accept", "text/event-stream");
    let mut old = get.send().await;
    assert_eq!(old.status, 200);
    stage.publish(manifest("echo", &json!({ "tool_id": "fresh" }))).await;
    assert_eq!(agent.event().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(old.event().await.unwrap()["method"], "notifications/tools/list_changed");
    // The other one is told of what concerns it, and of nothing before.
    let key = ("local".parse().unwrap(), "demo.echo_tool".parse().unwrap());
    stage.kernel.availability().set([(key, Some(WhyUnavailable::Quarantined))]);
    assert_eq!(narrow.event().await.unwrap()["method"], "notifications/tools/list_changed");
    assert_eq!(
        names(&stage.ask().token(&stage.narrow).new_style(1, "tools/list", json!({}), &json!({})).message().await),
        [""; 0]
    );
}

#[tokio::test]
async fn listeners_end_when_the_server_does() {
    let mut stage = Stage::new().await;
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut listening =
        stage.ask().token(&stage.agent).new_style(7, "subscriptions/listen", filter, &json!({})).send().await;
    listening.event().await.unwrap();
    stage.stop();
    while listening.event().await.is_some() {}
    assert_eq!(stage.drained().await.aborted, 0);
}

#[tokio::test]
async fn a_thousand_tools_are_listed_from_what_was_built_once() {
    let stage = Stage::new().await;
    for n in 0..1_000 {
        stage.publish(manifest("echo", &json!({ "tool_id": format!("tool_{n}"), "namespace": "many" }))).await;
    }
    let ask = || stage.ask().token(ADMIN).new_style(1, "tools/list", json!({}), &json!({}));
    assert_eq!(names(&ask().message().await).len(), 1_007);
    // Without optimisation and on a busy machine; the bench measures the real thing.
    let again = tokio::time::timeout(Duration::from_secs(10), ask().message()).await.expect("it is there at once");
    assert_eq!(names(&again).len(), 1_007);
    assert_eq!(stage.door.mcp_state().await.listings, 1);
}
