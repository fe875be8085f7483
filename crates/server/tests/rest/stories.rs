//! What people do with the door, from beginning to end.

use serde_json::{Value, json};

use crate::stage::{Stage, manifest};

#[tokio::test]
async fn a_tool_is_published_found_called_deprecated_and_removed() {
    let stage = Stage::new().await;
    let one = manifest("story", "1.0.0", &json!({ "execution": { "type": "builtin", "handler": "echo" } }));

    let first = stage.admin("POST", "/v1/tools/register", Some(one.clone())).await;
    assert_eq!((first.status, first.json()["created"].as_bool()), (201, Some(true)));
    assert_eq!(first.json()["warnings"], json!([]));
    let again = stage.admin("POST", "/v1/tools/register", Some(one)).await;
    assert_eq!((again.status, again.json()["created"].as_bool()), (200, Some(false)));
    assert_eq!(again.json()["digest"], first.json()["digest"]);
    let other = manifest("story", "1.0.0", &json!({ "description": "Something else entirely." }));
    assert_eq!(stage.admin("POST", "/v1/tools/register", Some(other)).await.code(), "E3103");

    let hits = stage.admin("GET", "/v1/tools/search?q=story&limit=5", None).await.json();
    assert_eq!(
        (hits["mode"].as_str(), hits["results"][0]["tool_id"].as_str()),
        (Some("lexical"), Some("demo.story_tool"))
    );
    assert!(hits["results"][0]["score"].as_f64().unwrap() > 0.0);

    let called = stage.invoke("demo.story_tool", json!({ "text": "once" })).await;
    assert_eq!(called.status, 200);
    let answer = called.json();
    assert_eq!((answer["status"].as_str(), answer["result"]["text"].as_str()), (Some("success"), Some("once")));
    assert_eq!(called.header("deprecation"), None);

    let advice = json!({ "replacement_tool_id": "demo.echo_tool", "migration_guide_url": "https://example.com/move" });
    let deprecated = stage.admin("POST", "/v1/tools/demo.story_tool/deprecate", Some(advice)).await;
    assert_eq!(deprecated.json()["versions"][0]["lifecycle_state"], "deprecated");
    let called = stage.invoke("demo.story_tool", json!({ "text": "twice" })).await;
    assert_eq!(called.header("deprecation"), Some("@1800000000"));
    assert_eq!(called.header("sunset"), Some("Thu, 15 Apr 2027 08:00:00 GMT"));
    assert_eq!(called.json()["execution_metadata"]["deprecation"]["successor"], "demo.echo_tool");

    assert_eq!(stage.admin("POST", "/v1/tools/demo.story_tool/sunset", None).await.status, 200);
    assert_eq!(
        stage.admin("POST", "/v1/tools/demo.story_tool/restore", Some(json!({ "version": "1.0.0" }))).await.status,
        200
    );
    assert_eq!(stage.admin("POST", "/v1/tools/demo.story_tool/remove", None).await.status, 200);
    assert_eq!(stage.admin("POST", "/v1/tools/demo.story_tool/restore", None).await.code(), "E3408");
    let gone = stage
        .admin("POST", "/v1/tools/invoke", Some(json!({ "tool_id": "demo.story_tool", "tool_version": "1.0.0" })))
        .await;
    assert_eq!((gone.status, gone.code().as_str()), (410, "E3104"));
    let history = stage.admin("GET", "/v1/tools/demo.story_tool", None).await.json();
    assert_eq!(history["versions"][0]["lifecycle_state"], "removed");
}

#[tokio::test]
async fn a_manifest_without_execution_is_published_with_a_warning() {
    let stage = Stage::new().await;
    let reply =
        stage.admin("POST", "/v1/tools/register", Some(manifest("mute", "1.0.0", &json!({ "execution": null })))).await;
    assert_eq!(reply.status, 201);
    assert!(reply.json()["warnings"][0].as_str().unwrap().contains("execution"));
    assert_eq!(stage.invoke("demo.mute_tool", json!({ "text": "x" })).await.code(), "E3108");
}

#[tokio::test]
async fn listings_are_filtered_and_paged() {
    let stage = Stage::new().await;
    let ids = |reply: Value| -> Vec<String> {
        reply["tools"].as_array().unwrap().iter().map(|t| t["tool_id"].as_str().unwrap().to_owned()).collect()
    };
    let list = async |query: &str| stage.admin("GET", &format!("/v1/tools{query}"), None).await.json();
    let all = ["demo.echo_tool", "demo.fail_tool", "demo.gate_tool", "demo.panic_tool"];
    assert_eq!(ids(list("").await), all);
    assert_eq!(ids(list("?tags=test,echo").await), ["demo.echo_tool"]);
    assert_eq!(ids(list("?tags=test&tags=gate").await), ["demo.gate_tool"]);
    assert_eq!(ids(list("?category=demo&q=PANIC").await), ["demo.panic_tool"]);
    assert_eq!(ids(list("?category=none").await), [""; 0]);
    assert_eq!(ids(list("?lifecycle=removed&tier=tenant").await), [""; 0]);
    let page = list("?page=2&page_size=3").await;
    assert_eq!(page["pagination"], json!({ "total_count": 4, "page": 2, "page_size": 3 }));
    let line = &page["tools"][0];
    for member in [
        "tool_name",
        "name",
        "description",
        "category",
        "categories",
        "versions",
        "latest_version",
        "tags",
        "requires_approval",
        "side_effect_policy",
        "timeout_class",
        "lifecycle_state",
        "provider",
        "protocol",
    ] {
        assert!(line.get(member).is_some(), "{member}");
    }
}

#[tokio::test]
async fn versions_are_shown_by_number_and_by_range() {
    let stage = Stage::new().await;
    let two = manifest("echo", "1.1.0", &json!({ "description": "Does echo with whatever text it is given, faster." }));
    assert_eq!(stage.admin("POST", "/v1/tools/register", Some(two)).await.status, 201);
    for (spec, expected) in [("1.0.0", "1.0.0"), ("%5E1.0.0", "1.1.0"), ("LATEST", "1.1.0"), ("1.x", "1.1.0")] {
        let shown = stage.admin("GET", &format!("/v1/tools/demo.echo_tool/versions/{spec}"), None).await.json();
        assert_eq!(
            (shown["version"].as_str(), shown["manifest"]["version"].as_str()),
            (Some(expected), Some(expected)),
            "{spec}"
        );
    }
    let tool = stage.admin("GET", "/v1/tools/demo.echo_tool", None).await.json();
    assert_eq!((tool["current_version"].as_str(), tool["versions"].as_array().unwrap().len()), (Some("1.1.0"), 2));
}

#[tokio::test]
async fn a_batch_stops_at_the_first_failed_critical_call_and_keeps_its_length() {
    let stage = Stage::new().await;
    let call =
        |tool: &str, critical: bool| json!({ "tool_id": tool, "parameters": { "text": "x" }, "critical": critical });
    let calls = json!({ "calls": [
        call("demo.echo_tool", true), call("demo.fail_tool", false), call("demo.echo_tool", true),
        call("demo.fail_tool", true), call("demo.echo_tool", true),
    ] });
    let reply = stage.admin("POST", "/v1/tools/invoke/batch", Some(calls)).await;
    assert_eq!(reply.status, 200);
    let results = reply.json()["results"].clone();
    let words: Vec<&str> = results.as_array().unwrap().iter().map(|r| r["status"].as_str().unwrap()).collect();
    assert_eq!(words, ["success", "error", "success", "error", "skipped"]);
    assert_eq!(results[3]["error"]["code"], "E3401");
    assert!(results[3]["invocation_id"].is_string());
}

#[tokio::test]
async fn schemas_and_versions_are_compared_and_negotiated() {
    let stage = Stage::new().await;
    let narrow = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"] });
    let wide = json!({ "type": "object", "properties": { "a": { "type": "string" }, "b": { "type": "string" } }, "required": ["a"] });
    let verdict = stage.admin("POST", "/v1/tools/compare", Some(json!({ "old": narrow, "new": wide }))).await.json();
    assert_eq!(verdict["verdict"], "minor");
    let verdict = stage.admin("POST", "/v1/tools/compare", Some(json!({ "old": wide, "new": narrow }))).await.json();
    assert_eq!(
        (verdict["verdict"].as_str(), verdict["reasons"][0]["change"].as_str()),
        (Some("major"), Some("property_removed"))
    );
    let version = json!({ "tool_id": "demo.echo_tool", "version": "1.0.0" });
    let same = stage.admin("POST", "/v1/tools/compare", Some(json!({ "old": version, "new": version }))).await.json();
    assert_eq!((same["verdict"].as_str(), same["result"]["verdict"].as_str()), (Some("patch"), Some("patch")));
    let fit =
        stage.admin("POST", "/v1/tools/negotiate", Some(json!({ "expected": wide, "offered": narrow }))).await.json();
    assert_eq!(fit["outcome"], "partial_match");
}

#[tokio::test]
async fn a_minted_token_calls_what_it_names_and_nothing_else() {
    let stage = Stage::new().await;
    let wish = json!({ "sub": "did:example:bot", "tenant": "acme", "roles": ["agent"], "tools": [{ "tool_id": "demo.echo_tool", "version_range": "^1" }],
        "scopes": ["tool:*"], "ttl_seconds": 60 });
    let minted = stage.admin("POST", "/v1/tokens", Some(wish)).await;
    assert_eq!((minted.status, minted.header("cache-control")), (201, Some("no-store")));
    assert_eq!(minted.json()["expires_at"], "2027-01-15T08:01:00.000Z");
    let token = minted.json()["token"].as_str().unwrap().to_owned();
    let call = |tool: &str| json!({ "tool_id": tool, "parameters": { "text": "x" } });
    let ours = stage.ask("POST", "/v1/tools/invoke", Some(&token), Some(call("demo.echo_tool"))).await;
    assert_eq!(ours.status, 200);
    let theirs = stage.ask("POST", "/v1/tools/invoke", Some(&token), Some(call("demo.fail_tool"))).await;
    assert!(matches!(theirs.status, 403 | 404), "{}", theirs.status);
    let keys = stage.ask("GET", "/.well-known/jwks.json", None, None).await.json();
    assert_eq!((keys["keys"][0]["kty"].as_str(), keys["keys"][0]["crv"].as_str()), (Some("OKP"), Some("Ed25519")));
}

#[tokio::test]
async fn the_callers_trace_and_invocation_id_are_carried_through() {
    let stage = Stage::new().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let id = "0190b3c4-0000-7000-8000-000000000001";
    let body = json!({ "tool_id": "demo.echo_tool", "parameters": { "text": "x" }, "invocation_id": id }).to_string();
    let head = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\ncontent-type: application/json");
    let raw = format!(
        "POST /v1/tools/invoke HTTP/1.1\r\nhost: g\r\nauthorization: bearer {}\r\n{head}\r\ncontent-length: {}\r\n\r\n{body}",
        stage.agent,
        body.len()
    );
    let reply = stage.raw(raw.as_bytes(), false).await;
    assert_eq!((reply.status, reply.header("x-trace-id")), (200, Some(trace)));
    assert_eq!((reply.json()["trace_id"].as_str(), reply.json()["invocation_id"].as_str()), (Some(trace), Some(id)));
}

#[tokio::test]
async fn pages_are_self_contained_and_head_is_answered() {
    let stage = Stage::new().await;
    let docs = stage.ask("GET", "/docs", None, None).await;
    let html = String::from_utf8(docs.body.clone()).unwrap();
    assert!(html.contains("/openapi.json") && !html.contains("src=\"http") && !html.contains("href=\"http"));
    assert!(docs.header("content-security-policy").unwrap().starts_with("default-src 'none'"));
    let head = stage.ask("HEAD", "/docs", None, None).await;
    assert_eq!((head.status, head.header("content-length").unwrap().parse().ok()), (200, Some(html.len())));
    let browser = stage.raw(b"GET / HTTP/1.1\r\nhost: g\r\naccept: text/html,*/*\r\n\r\n", false).await;
    assert_eq!((browser.status, browser.header("location")), (303, Some("/docs")));
    assert_eq!(stage.ask("GET", "/", None, None).await.json()["name"], "gantry");
    let schema = stage.ask("GET", "/schemas/tool-manifest.schema.json", None, None).await;
    assert_eq!(schema.json()["title"], "Tool Manifest");
}

#[tokio::test]
async fn health_names_each_dependency() {
    let stage = Stage::new().await;
    let health = stage.admin("GET", "/health", None).await;
    assert_eq!(health.status, 200);
    let health = health.json();
    for check in ["store", "audit", "door"] {
        assert_eq!(health["checks"][check]["healthy"], true, "{check}");
    }
    assert_eq!((health["healthy"].as_bool(), health["tools"].as_u64()), (Some(true), Some(4)));
}
