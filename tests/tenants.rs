//! Two tenants, three agents, one shared tool: what each of them sees and may do is what was configured, through every
//! endpoint.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gantry, manifest};

struct Agent {
    id: &'static str,
    tenant: &'static str,
    token: String,
}

impl Agent {
    async fn new(gantry: &Gantry, id: &'static str, tenant: &'static str) -> Self {
        let token = gantry.mint(json!({ "sub": id, "tenant": tenant, "tools": [{ "tool_id": "demo.*" }] })).await;
        Self { id, tenant, token }
    }

    async fn get(&self, gantry: &Gantry, path: &str) -> Value {
        let answer = gantry.request(Method::GET, path, Some(&self.token), None).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        answer.body
    }

    async fn listed(&self, gantry: &Gantry) -> Vec<String> {
        ids(&self.get(gantry, "/v1/tools").await["tools"])
    }

    async fn found(&self, gantry: &Gantry) -> Vec<String> {
        ids(&self.get(gantry, "/v1/tools/search?q=arithmetic+expression").await["results"])
    }

    async fn unavailable(&self, gantry: &Gantry) -> Vec<(String, String)> {
        let body = self.get(gantry, &format!("/v1/agents/{}/tools/unavailable", self.id)).await;
        let demo =
            body["tools"].as_array().unwrap().iter().filter(|t| t["tool_id"].as_str().unwrap().starts_with("demo."));
        demo.map(|t| (t["tool_id"].as_str().unwrap().into(), t["why_unavailable"].as_str().unwrap().into())).collect()
    }

    async fn call(&self, gantry: &Gantry, tool: &str) -> u16 {
        let body = json!({ "tool_id": tool, "parameters": { "expression": "1+1" } });
        gantry.request(Method::POST, "/v1/tools/invoke", Some(&self.token), Some(body)).await.status
    }
}

fn ids(tools: &Value) -> Vec<String> {
    tools.as_array().unwrap().iter().map(|tool| tool["tool_id"].as_str().unwrap().to_owned()).collect()
}

async fn put(gantry: &Gantry, path: &str, body: Value) {
    let answer = gantry.request(Method::PUT, path, Some(&gantry.token), Some(body)).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
}

#[tokio::test]
async fn listing_search_invoke_and_unavailable_differ_exactly_as_configured() {
    let gantry = Gantry::start().await;
    let effects = json!([{ "resource": "sheet", "op": "UPDATE", "scope": "cell" }]);
    let writing = json!({ "side_effect_policy": "idempotent", "side_effects": effects, "idempotency": {} });
    let registered = gantry.register(manifest(writing)).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let (ann, bob, eve) = (
        Agent::new(&gantry, "did:example:ann", "acme").await,
        Agent::new(&gantry, "did:example:bob", "acme").await,
        Agent::new(&gantry, "did:example:eve", "globex").await,
    );
    let tool = "demo.echo_sum";
    // Nobody has activated it, and it changes things.
    for agent in [&ann, &bob, &eve] {
        assert_eq!(agent.listed(&gantry).await, Vec::<String>::new());
        assert_eq!(agent.call(&gantry, tool).await, 404);
        assert_eq!(agent.unavailable(&gantry).await, [(tool.into(), "never_activated".into())]);
    }
    let activations = json!({ "activations": [
        { "tenant": "acme", "agent_id": "did:example:ann", "tool_id": tool, "enabled": true },
        { "tenant": "acme", "agent_id": "did:example:bob", "tool_id": tool, "enabled": false },
        { "tenant": "globex", "tool_id": "demo.*", "enabled": true,
          "policy_overrides": { "requires_confirmation": true } },
    ] });
    put(&gantry, "/v1/activations", activations).await;
    for (agent, visible, status, why) in
        [(&ann, true, 200, None), (&bob, false, 404, Some("disabled_for_agent")), (&eve, true, 409, None)]
    {
        let expected: Vec<String> = visible.then(|| tool.to_owned()).into_iter().collect();
        assert_eq!(agent.listed(&gantry).await, expected, "{}", agent.id);
        assert_eq!(agent.found(&gantry).await, expected, "{}", agent.id);
        assert_eq!(agent.call(&gantry, tool).await, status, "{}", agent.id);
        let missing: Vec<_> = why.map(|why| (tool.to_owned(), why.to_owned())).into_iter().collect();
        assert_eq!(agent.unavailable(&gantry).await, missing, "{}", agent.id);
        // What the tenant has is the same for all its agents, and for no one else's.
        let has = agent.get(&gantry, &format!("/v1/tenants/{}/tools", agent.tenant)).await;
        assert!(ids(&has["tools"]).contains(&tool.to_owned()));
    }
    let other = gantry.request(Method::GET, "/v1/tenants/globex/tools", Some(&ann.token), None).await;
    let nowhere = gantry.request(Method::GET, "/v1/tenants/nowhere/tools", Some(&ann.token), None).await;
    assert_eq!((other.status, other.code()), (404, nowhere.code()));
    // The overrides are told before they bite.
    let enabled = eve.get(&gantry, "/v1/agents/did:example:eve/tools").await;
    let entry = enabled["tools"].as_array().unwrap().iter().find(|t| t["tool_id"] == tool).unwrap();
    assert_eq!(entry["requires_confirmation"], true);
    // Looser than the manifest is not to be had.
    let loose = json!({ "activations": [{ "tenant": "acme", "agent_id": "*", "tool_id": tool,
        "policy_overrides": { "requires_confirmation": false } }] });
    let refused = gantry.request(Method::PUT, "/v1/activations", Some(&gantry.token), Some(loose)).await;
    assert_eq!(refused.refusal(), (400, "E3004"));
}

#[tokio::test]
async fn tools_and_settings_of_a_tenant_cannot_be_guessed_by_another() {
    let gantry = Gantry::start().await;
    let author = gantry.mint(json!({ "sub": "author", "roles": ["tool_author"] })).await;
    let chief = gantry.mint(json!({ "sub": "chief", "tenant": "globex", "roles": ["admin"] })).await;
    let secret = manifest(json!({ "tool_id": "secret_sum", "execution": null }));
    let answer = gantry.request(Method::POST, "/v1/tools/register", Some(&author), Some(secret.clone())).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    // As an administrator of another tenant: neither by id, nor by version, nor by a call, nor by registering it.
    for path in ["/v1/tools/demo.secret_sum", "/v1/tools/demo.secret_sum/versions/1.0.0"] {
        let answer = gantry.request(Method::GET, path, Some(&chief), None).await;
        assert_eq!(answer.refusal(), (404, "E3101"), "{path}");
    }
    let call = json!({ "tool_id": "demo.secret_sum", "parameters": { "expression": "1" } });
    let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(&chief), Some(call)).await;
    assert_eq!(answer.refusal(), (404, "E3101"));
    let answer = gantry.request(Method::POST, "/v1/tools/register", Some(&chief), Some(secret)).await;
    assert_eq!(answer.status, 201, "the same id is free in every tenant: {}", answer.text);
    for (method, path, body) in [
        (Method::PUT, "/v1/policies", json!({ "tenant": "acme", "policies": "permit (principal, action, resource);" })),
        (
            Method::PUT,
            "/v1/activations",
            json!({ "activations": [{ "tenant": "acme", "tool_id": "*", "enabled": false }] }),
        ),
        (Method::POST, "/v1/tokens", json!({ "sub": "x", "tenant": "acme" })),
        (Method::POST, "/v1/tokens", json!({ "sub": "x", "tenant": "local", "roles": ["admin"] })),
        (Method::POST, "/v1/tokens/revoke", json!({ "sub": "author", "tenant": "acme" })),
        (Method::PUT, "/v1/tenants", json!({ "tenants": [{ "tenant": "acme", "enabled": false }] })),
    ] {
        let answer = gantry.request(method, path, Some(&chief), Some(body)).await;
        assert_eq!(answer.refusal(), (403, "E3206"), "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn what_was_configured_outlives_the_process() {
    let home = tempfile::TempDir::new().unwrap();
    let data = home.path().join("data");
    let start = || crate::support::Start::new().data(&data).run();
    let gantry = start().await;
    let agent = gantry.mint(json!({ "sub": "did:example:ann" })).await;
    let gone = gantry.mint(json!({ "sub": "did:example:gone" })).await;
    put(&gantry, "/v1/tenants", json!({ "tenants": [{ "tenant": "acme", "visibility": "disabled" }] })).await;
    let only = json!({ "activations": [{ "tenant": "acme", "agent_id": "did:example:ann", "tool_id": "calculator" }] });
    put(&gantry, "/v1/activations", only).await;
    let text = r#"permit (principal, action, resource) unless { context.arguments.text.hasTag("expression") &&
        context.arguments.text.getTag("expression") like "*13*" };"#;
    put(&gantry, "/v1/policies", json!({ "policies": text })).await;
    assert_eq!(
        gantry.post("/v1/tokens/revoke", json!({ "sub": "did:example:gone", "tenant": "acme" })).await.status,
        200
    );
    gantry.kill();
    let gantry = start().await;
    let call = async |token: &str, tool: &str, expression: &str| {
        let parameters =
            if tool == "calculator" { json!({ "expression": expression }) } else { json!({ "operation": "now" }) };
        let body = json!({ "tool_id": tool, "parameters": parameters });
        let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await;
        (answer.status, answer.code().to_owned())
    };
    assert_eq!(call(&agent, "calculator", "1").await.0, 200);
    assert_eq!(call(&agent, "calculator", "13").await, (403, "E3206".into()));
    assert_eq!(call(&agent, "datetime", "").await, (404, "E3101".into()));
    assert_eq!(call(&gone, "calculator", "1").await, (401, "E3201".into()));
}

#[tokio::test]
async fn the_administrator_of_a_tenant_gives_nobody_the_name_of_somebody_else_s_agent() {
    let gantry = Gantry::start().await;
    let chief = gantry.mint(json!({ "sub": "chief", "tenant": "bob", "roles": ["admin"] })).await;
    let mint = async |token: &str, sub: &str| {
        let wish = json!({ "sub": sub, "tenant": "bob", "roles": ["agent"], "ttl_seconds": 60,
            "tools": [{ "tool_id": "calculator" }], "scopes": [] });
        gantry.request(Method::POST, "/v1/tokens", Some(token), Some(wish)).await
    };
    gantry.mint(json!({ "sub": "cfo", "tenant": "local" })).await;
    gantry.mint(json!({ "sub": "did:example:cfo", "tenant": "local" })).await;
    gantry.mint(json!({ "sub": "did:example:ann", "tenant": "acme" })).await;
    gantry.mint(json!({ "sub": "ann", "tenant": "acme" })).await;
    for taken in ["cfo", "did:example:cfo", "did:example:ann"] {
        let refused = mint(&chief, taken).await;
        assert_eq!(refused.refusal(), (403, "E3206"), "{taken}: {}", refused.text);
    }
    // A name that is no DID is each tenant's own, and whoever administers the installation may do as it likes.
    for (token, sub) in [(&chief, "ann"), (&chief, "did:example:own"), (&gantry.token, "did:example:cfo")] {
        let minted = mint(token, sub).await;
        assert_eq!(minted.status, 201, "{sub}: {}", minted.text);
    }
}
