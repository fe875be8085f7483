//! MCP: sessions, listeners and calls on one server behind Gantry are shared.

use reqwest::Method;
use serde_json::json;
use tokio::task::JoinHandle;

use super::{begin_call, metric, token, until};
use crate::http_server::HttpServer;
use crate::mcp::raw_client::{RawClient, agreeable};
use crate::support::{Answer, Gantry, Start, client};

async fn initialize(gantry: &Gantry, token: &str) -> u16 {
    begun_session(gantry, token).await.status().as_u16()
}

async fn begun_session(gantry: &Gantry, token: &str) -> reqwest::Response {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" } } });
    let request = client().post(format!("{}/mcp", gantry.url)).bearer_auth(token).body(body.to_string());
    let request =
        request.header("content-type", "application/json").header("accept", "application/json, text/event-stream");
    request.send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_one_tenant_leave_room_and_exchanged_names_make_no_more_of_them() {
    let start = Start::new().env("GANTRY_MCP__SESSIONS_MAX", "8").env("GANTRY_MCP__SESSIONS_PER_PRINCIPAL_MAX", "2");
    let gantry = start.run().await;
    let mut begun = 0;
    for number in 0..10 {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        begun += u32::from(initialize(&gantry, &agent).await == 200);
    }
    assert_eq!(begun, 6, "three quarters");
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        assert_eq!(initialize(&gantry, &other).await, 200, "{tenant}");
    }

    let gantry = Start::new().env("GANTRY_MCP__SESSIONS_PER_PRINCIPAL_MAX", "2").run().await;
    let root = token(&gantry, "acme", "ann").await;
    assert_eq!([initialize(&gantry, &root).await, initialize(&gantry, &root).await], [200, 200]);
    token(&gantry, "acme", "bot").await;
    let form = format!(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token={root}&sub=did%3Aexample%3Abot\
         &subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt"
    );
    let exchange = client().post(format!("{}/oauth/token", gantry.url)).body(form);
    let exchange = exchange.header("content-type", "application/x-www-form-urlencoded");
    let exchanged = Answer::of(exchange.send().await.unwrap()).await;
    let renamed = exchanged.body["access_token"].as_str().unwrap_or_else(|| panic!("{}", exchanged.text));
    assert_eq!(initialize(&gantry, renamed).await, 429, "the same agent under another name");
}

/// The stream on which a session hears of changes; it stays open.
async fn listen(gantry: &Gantry, token: &str) -> reqwest::Response {
    let begun = begun_session(gantry, token).await;
    assert_eq!(begun.status(), 200);
    let session = begun.headers().get("mcp-session-id").unwrap().clone();
    let request = reqwest::Client::new().get(format!("{}/mcp", gantry.url)).bearer_auth(token);
    request.header("mcp-session-id", session).header("accept", "text/event-stream").send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_of_one_tenant_leave_room_for_those_of_others() {
    let gantry = Start::new().env("GANTRY_MCP__LISTENERS_MAX", "8").run().await;
    let (mut open, mut refused) = (Vec::new(), 0);
    for number in 0..10 {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        let stream = listen(&gantry, &agent).await;
        if stream.status() == 200 { open.push(stream) } else { refused += 1 }
    }
    assert_eq!((open.len(), refused), (6, 4), "three quarters");
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let stream = listen(&gantry, &other).await;
        assert_eq!(stream.status(), 200, "{tenant}");
        open.push(stream);
    }
    assert_eq!(metric(&gantry, "gantry_places_held{resource=\"mcp_listeners\"}").await, Some(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_tenant_on_a_shared_server_leave_room_for_those_of_others() {
    // Of 64 calls on one server, one tenant may have 48, the last of them only for an agent that has none.
    const AGENTS: usize = 20;
    let server = HttpServer::start().await;
    let gantry = Gantry::start().await;
    let mut spec = server.spec();
    spec["shareable"] = json!(true);
    let added = gantry.request(Method::PUT, "/v1/servers/inside", Some(&gantry.token), Some(spec)).await;
    assert_eq!(added.status, 200, "{}", added.text);
    let tenants = ["mallory", "acme", "zeta"];
    let wishes = tenants.map(|tenant| json!({ "tenant": tenant, "tool_id": "inside.*", "enabled": true }));
    let body = json!({ "activations": wishes });
    let activated = gantry.request(Method::PUT, "/v1/activations", Some(&gantry.token), Some(body)).await;
    assert_eq!(activated.status, 200, "{}", activated.text);
    let mut calls = Vec::new();
    for number in 0..AGENTS {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        for _ in 0..4 {
            calls.push(begin_call(&gantry, &agent, "inside.hello", &json!({ "hold": true })));
        }
    }
    until("calls of the hostile tenant", async || {
        assert!(!calls.iter().any(JoinHandle::is_finished), "a call was not held");
        (server.held() >= 47).then_some(())
    })
    .await;
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        for _ in 0..3 {
            let answer = begin_call(&gantry, &other, "inside.hello", &json!({})).await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
    }
    assert!((47..=48).contains(&server.held()), "three quarters at most: {}", server.held());
    calls.iter().for_each(JoinHandle::abort);
}

/// The address at which a result of this tool waits.
async fn parked(client: &RawClient, letter: &str) -> String {
    let arguments = json!({ "text": json!([letter.repeat(3_000)]).to_string() });
    let result = client.call("json_parser", &arguments).await.unwrap().result().unwrap();
    let uri = result["_meta"]["dev.gantry/parked"][0]["uri"].as_str();
    uri.unwrap_or_else(|| panic!("{result}")).to_owned()
}

async fn can_read(client: &RawClient, uri: &str) -> bool {
    client.request("resources/read", json!({ "uri": uri })).await.unwrap().result().is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_results_of_one_tenant_do_not_push_out_those_of_others() {
    let start = Start::new().env("GANTRY_MCP__RESULT_BYTES_MAX", "1024").env("GANTRY_MCP__PARKED_BYTES_MAX", "30000");
    let gantry = start.run().await;
    let mcp = format!("{}/mcp", gantry.url);
    let mut clients = Vec::new();
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe"), ("mallory", "moe"), ("mallory", "max")] {
        let token = token(&gantry, tenant, agent).await;
        clients.push(RawClient::new(&mcp, &token, agreeable));
    }
    let [ann, zoe, moe, max] = clients.as_slice() else { panic!("four clients") };
    let quiet = [(ann, parked(ann, "a").await), (zoe, parked(zoe, "z").await), (moe, parked(moe, "m").await)];
    let mut loud = Vec::new();
    for letter in ('b'..='y').map(String::from) {
        loud.push(parked(max, &letter).await);
    }
    for (client, uri) in &quiet {
        assert!(can_read(client, uri).await, "the loud one took a neighbour's room");
    }
    assert!(can_read(max, loud.last().unwrap()).await, "its newest is there");
    assert!(!can_read(max, &loud[0]).await, "its oldest made room");
    let evicted = metric(&gantry, "gantry_mcp_parked_results_evicted_total").await;
    assert!(evicted.is_some_and(|count| count > 0), "{evicted:?}");
}
