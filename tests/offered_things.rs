//! Resources and prompts of MCP servers are governed as two pure tools, `NAMESPACE.resources` and `NAMESPACE.prompts`: whatever
//! holds for a call of a tool holds for them. (AUTH-006, decision 0071)

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::http_server::HttpServer;
use crate::support::{Gantry, PATIENCE, Start};

const NOTE: &str = "gantry://servers/inside/note:%2F%2F1";
const PERMIT: &str = "permit(principal, action, resource);";

/// A server of the operator that offers one resource and one prompt.
struct OfferHarness {
    gantry: Gantry,
    _inside: HttpServer,
}

impl OfferHarness {
    async fn with(start: Start) -> Self {
        let (gantry, inside) = (start.run().await, HttpServer::start().await);
        let mut spec = inside.spec();
        (spec["resources"], spec["prompts"]) = (true.into(), true.into());
        let harness = Self { gantry, _inside: inside };
        harness.put("/v1/servers/inside", spec).await;
        harness
    }

    async fn put(&self, path: &str, body: Value) {
        let answer = self.gantry.request(Method::PUT, path, Some(&self.gantry.token), Some(body)).await;
        assert!(answer.status < 300, "{path}: {}", answer.text);
    }

    async fn policies(&self, more: &str) {
        self.put("/v1/policies", json!({ "policies": format!("{PERMIT}\n{more}") })).await;
    }

    /// Asks as an MCP client; the result, or the code of the refusal.
    async fn ask(&self, token: &str, method: &str, params: Value) -> Result<Value, String> {
        let mut params = params;
        params["_meta"] = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" } });
        let mut request = crate::support::client()
            .post(format!("{}/mcp", self.gantry.url))
            .bearer_auth(token)
            .header("accept", "application/json, text/event-stream")
            .header("content-type", "application/json")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        if let Some(name) = params["uri"].as_str().or_else(|| params["name"].as_str()) {
            request = request.header("mcp-name", name);
        }
        let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let text = request.body(ask.to_string()).send().await.unwrap().text().await.unwrap();
        let message = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
        let mut message: Value = serde_json::from_str(message).unwrap_or_else(|_| panic!("{text}"));
        match message.get_mut("result").map(Value::take) {
            Some(result) => Ok(result),
            None => Err(message["error"].to_string()),
        }
    }

    async fn read(&self, token: &str) -> Result<Value, String> {
        self.ask(token, "resources/read", json!({ "uri": NOTE })).await
    }

    async fn prompt(&self, token: &str) -> Result<Value, String> {
        self.ask(token, "prompts/get", json!({ "name": "inside__greet" })).await
    }

    /// Those of the server that are listed.
    async fn listed(&self, token: &str) -> (usize, usize) {
        let resources = self.ask(token, "resources/list", json!({})).await.unwrap();
        let prompts = self.ask(token, "prompts/list", json!({})).await.unwrap();
        let of_server = |list: &Value, member: &str, beginning: &str| {
            let items = list.as_array().unwrap().iter();
            items.filter(|item| item[member].as_str().unwrap().starts_with(beginning)).count()
        };
        (
            of_server(&resources["resources"], "uri", "gantry://servers/"),
            of_server(&prompts["prompts"], "name", "inside__"),
        )
    }
}

#[track_caller]
fn refused(answer: &Result<Value, String>, code: &str) {
    let error = answer.as_ref().expect_err("it was answered");
    assert!(error.contains(code), "{code} expected: {error}");
}

#[tokio::test]
async fn a_tenant_that_was_not_given_a_server_sees_nothing_it_offers() {
    let harness = OfferHarness::with(Start::new()).await;
    let tenants =
        json!({ "tenants": [{ "tenant_id": "finn", "tools": [] }, { "tenant_id": "gina", "tools": ["inside.*"] }] });
    harness.put("/v1/tenants", tenants).await;
    let finn = harness.gantry.mint(json!({ "tenant": "finn" })).await;
    assert_eq!(harness.listed(&finn).await, (0, 0));
    for answer in [harness.read(&finn).await, harness.prompt(&finn).await] {
        answer.expect_err("a tenant read what it was not given");
    }
    let gina = harness.gantry.mint(json!({ "tenant": "gina" })).await;
    assert_eq!(harness.listed(&gina).await, (1, 1));
    harness.read(&gina).await.unwrap();
    harness.prompt(&gina).await.unwrap();
}

#[tokio::test]
async fn activations_limits_and_budgets_hold_for_resources_and_prompts() {
    let harness = OfferHarness::with(Start::new()).await;
    let demands = json!({ "activations": [
        { "tenant": "local", "agent_id": "ann", "tool_id": "inside.resources",
            "policy_overrides": { "requires_approval": true } },
        { "tenant": "local", "agent_id": "ann", "tool_id": "inside.prompts",
            "policy_overrides": { "requires_confirmation": true } },
    ] });
    harness.put("/v1/activations", demands).await;
    let ann = harness.gantry.mint(json!({ "tenant": "local", "sub": "ann" })).await;
    refused(&harness.read(&ann).await, "E3208");
    refused(&harness.prompt(&ann).await, "E3210");

    let limit = |uri: &str| {
        json!({ "tenant": "local", "sub": "lou",
        "limits": [{ "tool_id": "inside.resources", "argument": "/uri", "one_of": [uri] }] })
    };
    let elsewhere = harness.gantry.mint(limit("note://2")).await;
    refused(&harness.read(&elsewhere).await, "E3206");
    harness.prompt(&elsewhere).await.unwrap();
    let here = harness.gantry.mint(limit("note://1")).await;
    harness.read(&here).await.unwrap();

    let none = harness.gantry.mint(json!({ "tenant": "local", "sub": "bo", "budget": { "calls": 0 } })).await;
    refused(&harness.read(&none).await, "E3211");
    let one = harness.gantry.mint(json!({ "tenant": "local", "sub": "bo", "budget": { "calls": 1 } })).await;
    harness.read(&one).await.unwrap();
    refused(&harness.prompt(&one).await, "E3211");
}

#[tokio::test]
async fn obligations_of_policies_are_kept_for_resources_and_prompts_or_they_are_refused() {
    let harness = OfferHarness::with(Start::new()).await;
    let token = harness.gantry.mint(json!({ "tenant": "local", "sub": "ann" })).await;
    let text = |answer: &Value| answer["contents"][0]["text"].as_str().unwrap().to_owned();
    assert!(text(&harness.read(&token).await.unwrap()).contains("ada@example.org"));
    harness.policies(r#"@id("mask") @obligations("redact=email") permit(principal, action, resource);"#).await;
    let shown = text(&harness.read(&token).await.unwrap());
    assert!(!shown.contains("ada@example.org") && shown.contains("buy milk"), "{shown}");
    harness.policies(r#"@id("small") @obligations("result_bytes=5") permit(principal, action, resource);"#).await;
    refused(&harness.read(&token).await, "E3414");
    refused(&harness.prompt(&token).await, "E3414");
    harness.policies(r#"@id("wall") @obligations("isolation=gvisor") permit(principal, action, resource);"#).await;
    refused(&harness.read(&token).await, "E3206");
    harness.policies(r#"forbid(principal, action, resource == Tool::"inside.prompts");"#).await;
    harness.read(&token).await.unwrap();
    refused(&harness.prompt(&token).await, "E3206");
}

#[tokio::test]
async fn isolation_that_the_operator_demands_is_demanded_of_resources_and_prompts() {
    let harness = OfferHarness::with(Start::new().env("GANTRY_ISOLATION__DEMANDS", "gvisor tool=inside.*")).await;
    let token = harness.gantry.mint(json!({ "tenant": "gina", "sub": "ann" })).await;
    refused(&harness.read(&token).await, "E3405");
    refused(&harness.prompt(&token).await, "E3405");
}

#[tokio::test]
async fn rate_limits_hold_for_resources() {
    let harness = OfferHarness::with(Start::new().env("GANTRY_RESILIENCE__TENANT_CALLS_PER_MINUTE", "2")).await;
    let token = harness.gantry.mint(json!({ "tenant": "gina", "sub": "ann" })).await;
    harness.read(&token).await.unwrap();
    harness.prompt(&token).await.unwrap();
    refused(&harness.read(&token).await, "E3003");
}

#[tokio::test]
async fn the_record_and_the_use_of_an_agent_name_what_was_read_from_a_server() {
    let harness = OfferHarness::with(Start::new()).await;
    let token = harness.gantry.mint(json!({ "tenant": "gina", "sub": "ann" })).await;
    harness.read(&token).await.unwrap();
    harness.prompt(&token).await.unwrap();
    let began = Instant::now();
    let found = loop {
        let found = harness.gantry.get("/v1/audit?tenant=gina&action=offering_asked").await;
        if found.body["records"].as_array().is_some_and(|records| records.len() == 2) {
            break found;
        }
        assert!(began.elapsed() < PATIENCE, "{}", found.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let records = found.body["records"].as_array().unwrap();
    for (tool, name) in [("inside.resources", "note://1"), ("inside.prompts", "greet")] {
        let record =
            records.iter().find(|record| record["tool_id"] == tool).unwrap_or_else(|| panic!("{}", found.text));
        let text = record.to_string();
        assert!(text.contains("of server inside") && text.contains(name), "{text}");
        assert_eq!(record["status"], "success", "{text}");
    }
    let began = Instant::now();
    loop {
        let used = harness.gantry.get("/v1/usage?tenant=gina&by=tool").await;
        if used.text.contains("inside.resources") && used.text.contains("inside.prompts") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", used.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_stream_of_news_ends_with_the_token_that_opened_it() {
    let harness = OfferHarness::with(Start::new()).await;
    let token = harness.gantry.mint(json!({ "tenant": "gina", "sub": "ann" })).await;
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" } });
    let params = json!({ "notifications": { "toolsListChanged": true }, "_meta": meta });
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params });
    let request = crate::support::client()
        .post(format!("{}/mcp", harness.gantry.url))
        .bearer_auth(&token)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "subscriptions/listen");
    let mut stream = request.body(ask.to_string()).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream", "{stream:?}");
    assert!(stream.chunk().await.unwrap().is_some());
    let revoked = harness.gantry.post("/v1/tokens/revoke", json!({ "sub": "ann", "tenant": "gina" })).await;
    assert_eq!(revoked.status, 200, "{}", revoked.text);
    let end = async { while stream.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(PATIENCE, end).await.expect("the stream goes on");
}
