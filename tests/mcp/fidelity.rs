//! What a server says about its tools and results is what a client hears: annotations, icons, metadata, progress in the
//! server's own units, log notifications, tasks, results of tools that failed. Schemas of older drafts and with look-around are kept and checked.

use super::*;

const TALKATIVE: &str = include_str!("servers/talkative.py");

async fn with_talk() -> McpHarness {
    let harness = McpHarness::open().await;
    std::fs::write(harness.file("servers/talkative.py"), TALKATIVE).unwrap();
    let permissions = [format!("filesystem:read:{}", harness.path("servers"))];
    let args = [harness.path("servers/talkative.py")];
    let reach = json!({ "type": "stdio", "command": "python3", "args": args, "permissions": permissions });
    harness.put("talk", &json!({ "reach": reach })).await;
    harness
}

#[tokio::test]
async fn what_a_server_says_about_a_tool_is_what_clients_are_shown() {
    let harness = with_talk().await;
    for client in [harness.old_client("2025-11-25").await, harness.new_client()] {
        let tools = client.list("tools").await.unwrap();
        let report = tools.iter().find(|tool| tool["name"] == "talk__report").unwrap_or_else(|| panic!("{tools:?}"));
        // Hints are handed on as such; nobody has classified the tool, and nothing claims that somebody has.
        let hints = json!({ "title": "Reporting", "readOnlyHint": true, "openWorldHint": false });
        assert_eq!(report["annotations"], hints, "{report}");
        assert_eq!(report["title"], "Report");
        let icon = json!([{ "src": "https://example.com/report.png", "mimeType": "image/png", "sizes": ["48x48"] }]);
        assert_eq!(report["icons"], icon, "{report}");
        assert_eq!(report["_meta"], json!({ "example.com/area": { "name": "reports" } }), "{report}");
    }
    let token = Some(harness.gantry.token.as_str());
    let shown = harness.gantry.request(Method::GET, "/v1/tools/talk.report", token, None).await;
    assert_eq!(shown.body["manifest"]["side_effect_policy"], "unclassified", "{}", shown.text);
}

#[tokio::test]
async fn results_and_progress_arrive_as_the_server_said_them() {
    let harness = with_talk().await;
    for client in [harness.old_client("2025-11-25").await, harness.new_client()] {
        let asked = json!({ "name": "talk__report", "arguments": { "name": "a.b", "pair": [1, "x"] },
            "_meta": { "progressToken": "p" } });
        let reply = client.request("tools/call", asked).await.unwrap();
        let told = |note: &&Value| note["method"] == "notifications/progress";
        let progress: Vec<Value> = reply.notifications.iter().filter(told).map(|note| note["params"].clone()).collect();
        let step = |done: f64| json!({ "progressToken": "p", "progress": done, "total": 7.0, "message": format!("step {done}") });
        assert_eq!(progress, [step(3.0), step(5.0)], "{:?}", reply.notifications);
        let result = reply.result().unwrap();
        assert_eq!(result["structuredContent"], json!({ "steps": 7 }), "{result}");
        assert_eq!(result["_meta"]["example.com/page"], json!({ "next": 2 }), "{result}");
        // A server does not speak for Gantry.
        assert_ne!(result["_meta"]["dev.gantry/trace_id"], "forged", "{result}");
        let block = json!({ "type": "text", "text": "7 steps", "annotations": { "audience": ["user"] }, "_meta": { "example.com/block": 1 } });
        assert_eq!(result["content"], json!([block]), "{result}");

        let failed = client.call("talk__collapse", &json!({})).await.unwrap().result().unwrap();
        assert_eq!((&failed["isError"], &failed["content"][0]["text"]), (&json!(true), &json!("it broke")), "{failed}");
        assert_eq!(failed["structuredContent"], json!({ "at": 3 }), "{failed}");
        assert_eq!(failed["_meta"]["example.com/page"], json!({ "next": 2 }), "{failed}");
    }
}

#[tokio::test]
async fn log_notifications_arrive_with_the_level_and_the_data_that_the_server_gave_them() {
    let harness = with_talk().await;
    let note = |level: &str, more: Value| {
        let mut note = json!({ "level": level });
        note.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        note
    };
    let debug = note("debug", json!({ "data": "fine" }));
    let notice = note("notice", json!({ "logger": "disk", "data": { "free": [1, 2.5, null], "of": "two\nlines" } }));
    let alert = note("alert", json!({ "data": 7 }));
    let heard = async |client: &RawClient, meta: Value| {
        let asked = json!({ "name": "talk__chatter", "arguments": {}, "_meta": meta });
        let reply = client.request("tools/call", asked).await.unwrap();
        let notes = reply.notifications.iter().filter(|note| note["method"] == "notifications/message");
        (notes.map(|note| note["params"].clone()).collect::<Vec<_>>(), reply.text())
    };
    // Clients of sessions hear it on the stream of the call, whether they ask for progress or not; one that sets no level hears
    // what is usual. A server's log is never set to less than that.
    for (level, expected, set) in [
        (None, vec![notice.clone(), alert.clone()], ""),
        (Some("critical"), vec![alert.clone()], "info"),
        (Some("debug"), vec![debug.clone(), notice.clone(), alert.clone()], "info debug"),
    ] {
        let old = harness.old_client("2025-11-25").await;
        if let Some(level) = level {
            old.request("logging/setLevel", json!({ "level": level })).await.unwrap().result().unwrap();
        }
        for meta in [json!({}), json!({ "progressToken": "mine" })] {
            assert_eq!(heard(&old, meta.clone()).await, (expected.clone(), set.to_owned()), "{level:?} {meta}");
        }
        let told = old.told();
        assert!(!told.iter().any(|told| told["method"] == "notifications/message"), "{level:?}: {told:?}");
    }
    let new = harness.new_client();
    assert_eq!(heard(&new, json!({})).await.0, Vec::<Value>::new(), "newer clients ask for it");
    let asked = json!({ "io.modelcontextprotocol/logLevel": "notice" });
    assert_eq!(heard(&new, asked).await.0, [notice, alert]);
}

#[tokio::test]
async fn what_a_server_says_of_tasks_is_shown_and_a_tool_that_must_be_one_is_called_as_one() {
    let harness = with_talk().await;
    let client = harness.old_client("2025-11-25").await;
    let tools = client.list("tools").await.unwrap();
    for (tool, task_support) in
        [("talk__chatter", "forbidden"), ("talk__research", "required"), ("talk__report", "optional")]
    {
        let tool = tools.iter().find(|one| one["name"] == tool).unwrap_or_else(|| panic!("{tools:?}"));
        assert_eq!(tool["execution"]["taskSupport"], task_support, "{tool}");
    }
    for client in [client, harness.new_client()] {
        let found = client.call("talk__research", &json!({})).await.unwrap();
        assert_eq!(found.text(), "found by t1", "{}", found.message);
    }
}

#[tokio::test]
async fn schemas_of_older_drafts_with_look_around_are_kept_and_checked() {
    let harness = with_talk().await;
    for (parameters, status) in [
        (json!({ "name": "a.b" }), 200),
        (json!({ "name": ".b" }), 400),
        (json!({ "name": "a", "pair": [1, "x"] }), 200),
        (json!({ "name": "a", "pair": [1, 2] }), 400),
        (json!({ "name": "a", "pair": [1, "x", 3] }), 400),
    ] {
        let answer = harness.invoke("talk.report", parameters.clone()).await;
        assert_eq!(answer.status, status, "{parameters}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_session_that_is_ended_is_answered_with_204_and_gone() {
    let harness = McpHarness::open().await;
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let send = |method: Method, session: Option<String>, body: Value| {
        let request = http.request(method, harness.door()).bearer_auth(&harness.agent);
        let request = request.header("accept", "application/json, text/event-stream");
        let request = session.into_iter().fold(request, |request, id| request.header("mcp-session-id", id));
        if body.is_null() { request.send() } else { request.json(&body).send() }
    };
    let about = json!({ "name": "t", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about });
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let opened = send(Method::POST, None, hello).await.unwrap();
    let session = opened.headers().get("mcp-session-id").unwrap().to_str().unwrap().to_owned();
    let ended = send(Method::DELETE, Some(session.clone()), Value::Null).await.unwrap();
    assert_eq!((ended.status().as_u16(), ended.text().await.unwrap()), (204, String::new()));
    let ping = json!({ "jsonrpc": "2.0", "id": 2, "method": "ping" });
    let after = send(Method::POST, Some(session), ping).await.unwrap();
    assert_eq!(after.status().as_u16(), 404);
}

#[tokio::test]
async fn the_words_of_a_server_that_answers_with_an_error_are_read_by_whoever_called() {
    let harness = McpHarness::open().await;
    let echo = "    if name == \"echo\":\n";
    assert!(PLAIN.contains(echo));
    let broken =
        PLAIN.replace(echo, &format!("{echo}        raise Fault(-32603, \"bad credentials for the archive\")\n"));
    std::fs::write(harness.file("servers/plain.py"), broken).unwrap();
    harness.put("plain", &harness.plain(&[])).await;
    let words = "bad credentials for the archive";
    let both = async |code: &str| {
        for client in [harness.old_client("2025-11-25").await, harness.new_client()] {
            let result = client.call("plain__echo", &json!({ "text": "x" })).await.unwrap().result().unwrap();
            assert!(result["content"][0]["text"].as_str().unwrap().starts_with(code), "{result}");
            assert_eq!((&result["isError"], &result["content"][1]["text"]), (&json!(true), &json!(words)), "{result}");
        }
        let ran = harness.gantry.cli(&["call", "plain.echo", "text=x"]);
        assert!(ran.err().contains(code) && ran.err().contains(&format!("│ {words}")), "{}", ran.err());
    };
    // Nobody has said what it does, so nobody knows whether it did something.
    both("E3413").await;
    harness.gantry.cli(&["tool", "classify", "plain.echo", "pure"]).ok();
    both("E3502").await;
}
