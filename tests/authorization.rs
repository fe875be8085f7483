//! Who may do what, at every endpoint.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gantry, manifest};

#[tokio::test]
async fn every_endpoint_answers_every_kind_of_caller_as_the_table_says() {
    let gantry = Gantry::start().await;
    gantry.register(manifest(json!({}))).await;
    let agent = gantry.mint(json!({ "tools": [{ "tool_id": "calculator" }], "scopes": [] })).await;
    // Of the home tenant: what it publishes is the shared catalogue.
    let author = gantry.mint(json!({ "roles": ["tool_author"], "tools": [], "tenant": "local" })).await;
    let operator = gantry.mint(json!({ "roles": ["operator"], "tools": [], "tenant": "local" })).await;
    let sum = json!({ "tool_id": "calculator", "parameters": { "expression": "1" } });
    let mint = json!({ "sub": "did:example:x", "tenant": "acme", "ttl_seconds": 60 });
    let schemas = json!({ "old": { "type": "object" }, "new": { "type": "object" } });
    let offer = json!({ "expected": { "type": "object" }, "offered": { "type": "object" } });
    // method, path, body, then the status for: nobody, nonsense, agent, tool author, operator, admin
    let table: &[(Method, &str, Option<Value>, [u16; 6])] = &[
        (Method::GET, "/health/live", None, [200; 6]),
        (Method::GET, "/health/ready", None, [200; 6]),
        (Method::GET, "/health", None, [200; 6]),
        (Method::GET, "/openapi.json", None, [200; 6]),
        (Method::GET, "/docs", None, [200; 6]),
        (Method::GET, "/.well-known/jwks.json", None, [200; 6]),
        (Method::GET, "/v1/tools", None, [401, 401, 200, 200, 200, 200]),
        (Method::GET, "/v1/tools/search?q=sum", None, [401, 401, 200, 200, 200, 200]),
        (Method::GET, "/v1/tools/calculator", None, [401, 401, 200, 200, 200, 200]),
        (Method::GET, "/v1/tools/demo.echo_sum", None, [401, 401, 404, 200, 200, 200]),
        (Method::GET, "/v1/tools/calculator/versions/1.0.1", None, [401, 401, 200, 200, 200, 200]),
        (Method::POST, "/v1/tools/compare", Some(schemas), [401, 401, 200, 200, 200, 200]),
        (Method::POST, "/v1/tools/negotiate", Some(offer), [401, 401, 200, 200, 200, 200]),
        (Method::POST, "/v1/tools/invoke", Some(sum.clone()), [401, 401, 200, 403, 403, 200]),
        (
            Method::POST,
            "/v1/tools/invoke/batch",
            Some(json!({ "calls": [sum.clone()] })),
            [401, 401, 200, 200, 200, 200],
        ),
        (Method::POST, "/v1/tools/register", Some(manifest(json!({}))), [401, 401, 403, 200, 403, 200]),
        (Method::POST, "/v1/tools/demo.echo_sum/restore", Some(json!({})), [401, 401, 403, 403, 200, 200]),
        (Method::GET, "/v1/tools/demo.echo_sum/deprecation", None, [401, 401, 404, 403, 200, 200]),
        (Method::GET, "/v1/tools/demo.echo_sum/logs", None, [401, 401, 403, 403, 200, 200]),
        (
            Method::POST,
            "/v1/tools/demo.echo_sum/quarantine",
            Some(json!({ "reason": "it is looked at" })),
            [401, 401, 403, 403, 200, 200],
        ),
        (
            Method::POST,
            "/v1/tools/demo.echo_sum/release",
            Some(json!({ "reason": "it was looked at" })),
            [401, 401, 403, 403, 200, 412],
        ),
        (Method::POST, "/v1/tokens", Some(mint), [401, 401, 403, 403, 403, 201]),
        (Method::POST, "/v1/tokens/revoke", Some(json!({ "jti": "some-token" })), [401, 401, 403, 403, 200, 200]),
        (Method::POST, "/v1/keys/rotate", Some(json!({})), [401, 401, 403, 403, 403, 200]),
        (Method::GET, "/v1/tenants", None, [401, 401, 403, 403, 200, 200]),
        (
            Method::PUT,
            "/v1/tenants",
            Some(json!({ "tenants": [{ "tenant": "acme" }] })),
            [401, 401, 403, 403, 403, 200],
        ),
        (Method::GET, "/v1/agents", None, [401, 401, 403, 403, 200, 200]),
        (Method::PUT, "/v1/agents", Some(json!({ "agents": [{ "agent_id": "x" }] })), [401, 401, 403, 403, 403, 200]),
        (Method::GET, "/v1/activations", None, [401, 401, 403, 403, 200, 200]),
        (Method::PUT, "/v1/activations", Some(json!({ "activations": [] })), [401, 401, 403, 403, 200, 200]),
        (Method::GET, "/v1/policies", None, [401, 401, 403, 403, 200, 200]),
        (
            Method::PUT,
            "/v1/policies",
            Some(json!({ "policies": "permit (principal, action, resource);" })),
            [401, 401, 403, 403, 403, 200],
        ),
        (Method::POST, "/v1/tools/explain", Some(sum.clone()), [401, 401, 200, 200, 200, 200]),
        (Method::GET, "/v1/tenants/local/tools", None, [401, 401, 404, 200, 200, 200]),
    ];
    let callers = [None, Some("nonsense"), Some(&*agent), Some(&*author), Some(&*operator), Some(&*gantry.token)];
    for (method, path, body, expected) in table {
        for (who, (token, status)) in callers.iter().zip(expected).enumerate() {
            let answer = gantry.request(method.clone(), path, *token, body.clone()).await;
            assert_eq!(answer.status, *status, "{method} {path} as caller {who}: {}", answer.text);
            if *status == 401 {
                assert!(answer.header("www-authenticate").starts_with("Bearer"), "{method} {path}");
                answer.refusal();
            }
        }
    }
}

#[tokio::test]
async fn listings_show_a_caller_only_what_its_token_names() {
    let gantry = Gantry::start().await;
    gantry.register(manifest(json!({}))).await;
    let agent = gantry.mint(json!({ "tools": [{ "tool_id": "demo.*" }] })).await;
    let list = gantry.request(Method::GET, "/v1/tools", Some(&agent), None).await;
    let ids: Vec<_> = list.body["tools"].as_array().unwrap().iter().map(|t| t["tool_id"].clone()).collect();
    assert_eq!(ids, ["demo.echo_sum"]);
    let hits = gantry.request(Method::GET, "/v1/tools/search?q=calculator", Some(&agent), None).await;
    assert_eq!(hits.body["results"], json!([]), "{}", hits.text);
    // Nothing about a tool is said to those whose token does not name it, not even what its parameters are.
    let call = json!({ "tool_id": "calculator", "parameters": { "wrong": true } });
    let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(&agent), Some(call)).await;
    assert_eq!(answer.refusal(), (403, "E3204"));
}

#[tokio::test]
async fn a_token_that_has_expired_or_was_tampered_with_is_told_apart() {
    let gantry = Gantry::start().await;
    let token = gantry.mint(json!({ "ttl_seconds": 1 })).await;
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "1" } });
    let start = std::time::Instant::now();
    let expired = loop {
        let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(&token), Some(body.clone())).await;
        // A call caught under way by the end of its token runs out of time (504); the one after it is refused.
        if answer.status == 401 {
            break answer;
        }
        assert!(start.elapsed() < crate::support::PATIENCE, "the token never expired");
    };
    assert_eq!(expired.refusal(), (401, "E3201"));
    let good = gantry.mint(json!({})).await;
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    let forged = format!("{signed}.{first}{}", signature.split_at(1).1);
    let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(&forged), Some(body)).await;
    assert_eq!(answer.refusal(), (401, "E3202"));
    assert!(!gantry.log().contains(&good), "no token in the log");
}

#[tokio::test]
async fn secrets_of_the_data_directory_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let gantry = Gantry::start().await;
    let mode = |path: &str| std::fs::metadata(gantry.data.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("admin.token"), 0o600);
    assert_eq!(mode("keys/signing.pem"), 0o600);
    assert_eq!(mode(""), 0o700);
    assert!(!gantry.log().contains(&gantry.token));
}

/// `billing.refund`, which was called `billing.pay_back` before.
fn renamed() -> Value {
    manifest(json!({ "tool_id": "refund", "namespace": "billing", "aliases": ["billing.pay_back"] }))
}

#[tokio::test]
async fn what_restricts_a_former_name_of_a_tool_restricts_the_tool_or_is_refused() {
    let gantry = Gantry::start().await;
    gantry.register(renamed()).await;
    let limit = json!({ "tool_id": "billing.pay_back", "argument": "/expression", "max_length": 1 });
    let agent = gantry.mint(json!({ "tools": [{ "tool_id": "*" }], "limits": [limit] })).await;
    for name in ["billing.pay_back", "billing.refund"] {
        let call = json!({ "tool_id": name, "parameters": { "expression": "100 + 100" } });
        let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(&agent), Some(call)).await;
        assert_eq!(answer.refusal(), (403, "E3206"), "{name}: {}", answer.text);
    }
    let activation = json!({ "activations": [{ "agent_id": "x", "tool_id": "billing.pay_back", "enabled": false }] });
    let policies = json!({ "policies": "forbid (principal, action, resource == Tool::\"billing.pay_back\");" });
    for (path, body) in [("/v1/activations", activation), ("/v1/policies", policies)] {
        let answer = gantry.request(Method::PUT, path, Some(&gantry.token), Some(body)).await;
        assert_eq!(answer.refusal(), (400, "E3004"), "{path}: {}", answer.text);
        assert!(answer.text.contains("billing.refund"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_tenant_cannot_publish_under_a_former_name_of_a_shared_tool() {
    let gantry = Gantry::start().await;
    gantry.register(renamed()).await;
    let author = gantry.mint(json!({ "roles": ["tool_author"], "tools": [], "tenant": "shop" })).await;
    let own = manifest(json!({ "tool_id": "pay_back", "namespace": "billing", "execution": null }));
    let answer = gantry.request(Method::POST, "/v1/tools/register", Some(&author), Some(own)).await;
    assert_eq!(answer.refusal(), (409, "E3103"), "{}", answer.text);
}
