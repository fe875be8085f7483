//! Requests that are no calls: searches, listings, audit queries, registrations and other changes are shared.

use std::sync::atomic::Ordering;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::connections::Wire;
use super::{Receiver, call, metric, receiver, token, until};
use crate::support::{Answer, Gantry, Start, client, manifest};

/// A server with four places for requests, on which nobody waits in vain, and a receiver that never answers.
async fn narrow(waiting: &str, wait_ms: &str) -> (Gantry, Receiver) {
    let tarpit = receiver(false);
    let start = Start::new().env("GANTRY_WEBHOOKS__ALLOW", tarpit.url.clone());
    let start = start.env("GANTRY_WEBHOOKS__TIMEOUT_MS", "300000").env("GANTRY_SERVER__REQUESTS_MAX", "4");
    let start =
        start.env("GANTRY_SERVER__REQUESTS_WAITING_MAX", waiting).env("GANTRY_SERVER__REQUEST_WAIT_MS", wait_ms);
    (start.env("GANTRY_TOOLS__EXPOSURE", "lazy").run().await, tarpit)
}

async fn boss(gantry: &Gantry, tenant: &str, name: &str) -> String {
    let roles = ["admin", "agent"];
    gantry.mint(json!({ "sub": format!("did:example:{name}"), "tenant": tenant, "roles": roles })).await
}

/// Requests of many administrators of the hostile tenant, each of which is worked on until the receiver answers: never.
async fn hold(gantry: &Gantry, tarpit: &Receiver, number: usize) -> Vec<JoinHandle<Answer>> {
    let mut bosses = Vec::new();
    for at in 0..number {
        bosses.push(boss(gantry, "mallory", &format!("mallory-{at}")).await);
    }
    let body = json!({ "url": format!("{}/hook", tarpit.url), "events": ["invocation.completed"] });
    let added = gantry.request(Method::POST, "/v1/webhooks", Some(&bosses[0]), Some(body)).await;
    assert!(added.status < 300, "{}", added.text);
    let url = format!(
        "{}/v1/webhooks/{}/test",
        gantry.url,
        added.body["id"].as_str().unwrap_or_else(|| panic!("{}", added.text))
    );
    let ask = |token: &String| {
        let request = reqwest::Client::new().post(&url).bearer_auth(token);
        tokio::spawn(async move { Answer::of(request.send().await.unwrap()).await })
    };
    let held: Vec<_> = bosses.iter().map(ask).collect();
    until("requests of the hostile tenant", async || (tarpit.asked.load(Ordering::SeqCst) >= 3).then_some(())).await;
    held
}

async fn requests(gantry: &Gantry, what: &str) -> Option<u64> {
    metric(gantry, &format!("gantry_places_{what}{{resource=\"requests\"}}")).await
}

/// Asks as an MCP client without a session.
async fn mcp(gantry: &Gantry, token: &str, method: &str, mut params: Value) -> (u16, String) {
    const REVISION: &str = "2026-07-28";
    params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" } });
    let mut request = client().post(format!("{}/mcp", gantry.url)).bearer_auth(token).header("mcp-method", method);
    if let Some(name) = params["name"].as_str() {
        request = request.header("mcp-name", name);
    }
    let request = request.header("content-type", "application/json").header("mcp-protocol-version", REVISION);
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let answer = request.header("accept", "application/json, text/event-stream").body(body).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// Everything that is asked at a door and is no call.
async fn ask_all(gantry: &Gantry, token: &str, tenant: &str) {
    let listed = json!({ "jsonrpc": "2.0", "id": 1, "method": "tool.list", "params": {} });
    let found = json!({ "jsonrpc": "2.0", "id": 1, "method": "tool.list", "params": { "capability_query": "sums" } });
    let tool = manifest(json!({ "tool_id": format!("of_{tenant}"), "execution": null }));
    let enabled = json!({ "activations": [{ "tool_id": "calculator", "enabled": true }] });
    for (method, path, body) in [
        (Method::GET, "/v1/tools/search?q=sums", None),
        (Method::GET, "/v1/tools", None),
        (Method::GET, "/v1/audit", None),
        (Method::GET, "/v1/audit/checkpoint", None),
        (Method::GET, "/v1/policies", None),
        (Method::POST, "/v1/affordances", Some(json!({ "objective": "add two numbers", "token_budget": 2000 }))),
        (Method::POST, "/v1/tools/register", Some(tool)),
        (Method::PUT, "/v1/activations", Some(enabled)),
        (
            Method::POST,
            "/v1/tokens",
            Some(json!({ "sub": format!("did:example:new-{tenant}"), "ttl_seconds": 60, "roles": ["agent"] })),
        ),
        (Method::POST, "/rpc", Some(listed)),
        (Method::POST, "/rpc", Some(found)),
    ] {
        let answer = gantry.request(method.clone(), path, Some(token), body).await;
        assert!(answer.status < 300 && answer.body.get("error").is_none(), "{method} {path}: {}", answer.text);
    }
    for (method, params) in
        [("tools/list", json!({})), ("tools/call", json!({ "name": "search_tools", "arguments": { "query": "sums" } }))]
    {
        let (status, text) = mcp(gantry, token, method, params).await;
        assert!(status == 200 && text.contains("\"result\""), "{method}: {status} {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn searches_queries_and_changes_of_one_tenant_leave_room_for_those_of_others() {
    let (gantry, tarpit) = narrow("4", "600000").await;
    let mallory = token(&gantry, "mallory", "agent").await;
    let others = [boss(&gantry, "acme", "ann").await, boss(&gantry, "zeta", "zoe").await];
    let held = hold(&gantry, &tarpit, 8).await;
    // Three are worked on, three wait, and for two there is no room to wait.
    until("the rest waits or is refused", async || {
        let refused = held.iter().filter(|request| request.is_finished()).count();
        (refused == 2 && requests(&gantry, "waiting").await? == 3).then_some(())
    })
    .await;
    assert_eq!((requests(&gantry, "max").await, requests(&gantry, "held").await), (Some(4), Some(3)));
    for (token, tenant) in others.iter().zip(["acme", "zeta"]) {
        ask_all(&gantry, token, tenant).await;
    }
    // Calls have places of their own, also those of the hostile tenant; what else it asks for is refused at once.
    for token in others.iter().chain([&mallory]) {
        let answer = call(&gantry, token).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let searched = gantry.request(Method::GET, "/v1/tools/search?q=sums", Some(&mallory), None).await;
    assert_eq!(searched.refusal(), (503, "E3001"), "{}", searched.text);
    assert_eq!((searched.header("retry-after"), requests(&gantry, "refused_total").await), ("1", Some(3)));
    // What has begun goes on without its client, and keeps its place.
    held.iter().for_each(JoinHandle::abort);
    assert_eq!((requests(&gantry, "held").await, tarpit.asked.load(Ordering::SeqCst)), (Some(3), 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_waits_in_vain_is_refused_and_has_changed_nothing() {
    let (gantry, tarpit) = narrow("64", "200").await;
    let (mallory, acme) = (boss(&gantry, "mallory", "late").await, boss(&gantry, "acme", "ann").await);
    let held = hold(&gantry, &tarpit, 3).await;
    let tool = manifest(json!({ "tool_id": "late", "execution": null }));
    let late = gantry.request(Method::POST, "/v1/tools/register", Some(&mallory), Some(tool)).await;
    assert_eq!(late.refusal(), (503, "E3001"), "{}", late.text);
    assert_eq!(late.header("retry-after"), "1");
    let records = gantry.get("/v1/audit?action=tool_registered&tenant=mallory").await;
    assert_eq!(records.body["records"], json!([]), "{}", records.text);
    ask_all(&gantry, &acme, "acme").await;
    held.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_never_end_hold_no_places_for_requests() {
    let (gantry, _tarpit) = narrow("4", "600000").await;
    let (mallory, acme) = (boss(&gantry, "mallory", "mallory").await, boss(&gantry, "acme", "ann").await);
    let slow: Vec<Wire> = ["/v1/tools/register", "/v1/affordances", "/v1/tokens", "/rpc"]
        .into_iter()
        .cycle()
        .take(12)
        .map(|path| Wire::begin(&gantry, path, "application/json", Some(&mallory)))
        .collect();
    until("all of them have shown their token", async || {
        let open = metric(&gantry, "gantry_server_connections ").await?;
        let strangers = metric(&gantry, "gantry_server_connections_unauthenticated ").await?;
        (open.saturating_sub(strangers) >= 12).then_some(())
    })
    .await;
    assert_eq!((requests(&gantry, "held").await, requests(&gantry, "waiting").await), (Some(0), Some(0)));
    ask_all(&gantry, &acme, "acme").await;
    drop(slow);
}
