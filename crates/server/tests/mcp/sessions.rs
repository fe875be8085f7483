//! Sessions of older clients.

use gantry_server::{McpConfig, ToolExposure};
use serde_json::json;

use crate::stage::{ADMIN, Stage};

const OLD: &str = "2025-06-18";

#[tokio::test]
async fn a_session_answers_to_whoever_made_it_and_to_nobody_else() {
    let stage = Stage::new().await;
    let session = stage.session(&stage.agent, OLD, &json!({})).await;
    let ping = |token: &str| stage.in_session(token, &session, OLD).old(2, "ping", &json!({})).send();
    assert_eq!(ping(&stage.agent).await.status, 200);
    assert_eq!(ping(&stage.narrow).await.status, 404);
    assert_eq!(ping(ADMIN).await.status, 404);
    let listen = stage.in_session(ADMIN, &session, OLD).method("GET").header("accept", "text/event-stream");
    assert_eq!(listen.send().await.status, 404);
    assert_eq!(stage.in_session(ADMIN, &session, OLD).method("DELETE").send().await.status, 404);
    let unknown = stage.in_session(&stage.agent, "no-such-session", OLD).old(2, "ping", &json!({})).send().await;
    assert_eq!(unknown.status, 404);
    let elsewhere =
        stage.ask().token(&stage.agent).header("mcp-protocol-version", OLD).old(2, "ping", &json!({})).send().await;
    assert_eq!(elsewhere.status, 400, "older revisions need a session");
    let ended = stage.in_session(&stage.agent, &session, OLD).method("DELETE").send().await;
    assert!(matches!(ended.status, 200..=204), "{}", ended.status);
    assert_eq!(ping(&stage.agent).await.status, 404);
    assert_eq!(stage.door.mcp_state().await.sessions, 0);
}

#[tokio::test]
async fn there_are_only_so_many_and_idle_ones_make_room() {
    let config =
        McpConfig { exposure: ToolExposure::All, sessions_max: 4, session_idle_ms: 3_000, ..McpConfig::default() };
    let stage = Stage::with(config).await;
    let first = stage.session(&stage.agent, OLD, &json!({})).await;
    stage.session(&stage.agent, OLD, &json!({})).await;
    let third = stage.initialize(&stage.agent, OLD, &json!({})).await;
    assert_eq!((third.status, third.header("retry-after")), (503, Some("5")));
    let waiting = async {
        while stage.door.mcp_state().await.sessions > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::client::PATIENCE, waiting).await.expect("idle sessions are closed");
    assert_eq!(stage.in_session(&stage.agent, &first, OLD).old(2, "ping", &json!({})).send().await.status, 404);
    stage.session(&stage.agent, OLD, &json!({})).await;
}

#[tokio::test]
async fn a_thousand_sessions_of_one_principal_shut_nobody_else_out() {
    let stage =
        Stage::with(McpConfig { exposure: ToolExposure::All, sessions_max: 1_000, ..McpConfig::default() }).await;
    let mut refused = 0;
    for _ in 0..1_000 {
        let reply = stage.initialize(&stage.agent, OLD, &json!({})).await;
        match reply.status {
            200 => {}
            429 => {
                assert_eq!(reply.header("retry-after"), Some("5"));
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    assert_eq!((refused, stage.door.mcp_state().await.sessions), (900, 100));
    let mut told = stage.initialize(&stage.agent, OLD, &json!({})).await;
    assert!(told.body().await.contains("E3003"));
    let other = stage.session(&stage.narrow, OLD, &json!({})).await;
    assert_eq!(stage.in_session(&stage.narrow, &other, OLD).old(2, "ping", &json!({})).send().await.status, 200);
}

#[tokio::test]
async fn who_listens_too_often_leaves_room_for_others() {
    let config = McpConfig { exposure: ToolExposure::All, listeners_per_principal_max: 2, ..McpConfig::default() };
    let stage = Stage::with(config).await;
    let session = stage.session(&stage.agent, "2025-11-25", &json!({})).await;
    let get = |token: &str, session: &str| {
        stage.in_session(token, session, "2025-11-25").method("GET").header("accept", "text/event-stream").send()
    };
    let held = [get(&stage.agent, &session).await, get(&stage.agent, &session).await];
    assert!(held.iter().all(|reply| reply.status == 200));
    assert_eq!(get(&stage.agent, &session).await.status, 429);
    let other = stage.session(&stage.narrow, "2025-11-25", &json!({})).await;
    assert_eq!(get(&stage.narrow, &other).await.status, 200);
}

#[tokio::test]
async fn several_messages_at_once_are_for_the_one_revision_that_has_them() {
    let stage = Stage::new().await;
    let call = |id: u64| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
        "params": { "name": "demo__echo_tool", "arguments": { "text": id.to_string() } } })
    };
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    let both = json!([call(21), note, call(22)]).to_string();
    let session = stage.session(&stage.agent, "2025-03-26", &json!({})).await;
    let mut reply = stage.in_session(&stage.agent, &session, "2025-03-26").body(&both).send().await;
    assert_eq!(reply.status, 200);
    let mut texts = Vec::new();
    while let Some(event) = reply.event().await {
        texts.push(event["result"]["structuredContent"]["text"].as_str().unwrap().to_owned());
    }
    texts.sort();
    assert_eq!(texts, ["21", "22"]);
    let notes = json!([note]).to_string();
    assert_eq!(stage.in_session(&stage.agent, &session, "2025-03-26").body(&notes).send().await.status, 202);
    for wrong in ["[]".to_owned(), json!([{ "jsonrpc": "2.0", "id": 1, "method": "initialize" }]).to_string()] {
        assert_eq!(stage.in_session(&stage.agent, &session, "2025-03-26").body(&wrong).send().await.status, 400);
    }
    let newer = stage.session(&stage.agent, "2025-11-25", &json!({})).await;
    let mut refused = stage.in_session(&stage.agent, &newer, "2025-11-25").body(&both).send().await;
    assert_eq!((refused.status, refused.last().await["error"]["code"].as_i64()), (400, Some(-32600)));
}

#[tokio::test]
async fn a_client_that_asks_for_an_unknown_revision_is_offered_one_we_know() {
    let stage = Stage::new().await;
    for asked in ["1999-01-01", "2099-01-01", "2026-07-28"] {
        let mut reply = stage.initialize(&stage.agent, asked, &json!({})).await;
        let answer = reply.last().await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{asked}: {answer}");
    }
    let mut future = stage.ask().token(&stage.agent).new_style(1, "tools/list", json!({}), &json!({}));
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2099-01-01",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" } } } });
    future = future.header("mcp-protocol-version", "2099-01-01").body(&body.to_string());
    let mut reply = future.send().await;
    assert_eq!(reply.status, 400);
    let answer = reply.last().await;
    assert_eq!(answer["error"]["code"], -32022, "{answer}");
    assert!(answer["error"]["data"]["supported"].as_array().unwrap().contains(&json!("2026-07-28")), "{answer}");
}
