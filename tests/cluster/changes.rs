//! What is changed at one replica is so at the others, soon: policies, activations, tools, tokens.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::site::{Site, figure, until};
use crate::support::{Gantry, manifest};

/// The promise is a second; what is asserted is what a machine with much else to do can keep.
const SOON: Duration = Duration::from_secs(10);

async fn call(gantry: &Gantry, token: &str, tool: &str) -> u16 {
    let body = json!({ "tool_id": tool, "parameters": { "expression": "6*7" } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await.status
}

async fn put(gantry: &Gantry, path: &str, body: Value) {
    let answer = gantry.request(Method::PUT, path, Some(&gantry.token), Some(body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Waits until a call has this end at every replica but the first, beginning now.
async fn everywhere(what: &str, three: &[Gantry; 3], token: &str, tool: &str, status: u16) {
    assert_eq!(call(&three[0], token, tool).await, status, "{what}: at the replica that made it, at once");
    let start = Instant::now();
    for gantry in &three[1..] {
        until(what, async || call(gantry, token, tool).await == status).await;
    }
    let took = start.elapsed();
    figure(&format!("{what}: everywhere after {took:?}"));
    assert!(took < SOON, "{what} took {took:?}");
}

async fn what_is_changed_at_one_is_so_at_all(site: Site) {
    let three = site.three().await;
    let one = &three[0];
    let token = one.mint(json!({ "sub": "did:example:ann" })).await;
    for gantry in &three {
        assert_eq!(call(gantry, &token, "calculator").await, 200, "a token of one is a token of all, at once");
    }

    assert_eq!(one.register(manifest(json!({}))).await.status, 201);
    everywhere("a registration", &three, &token, "demo.echo_sum", 200).await;
    put(
        one,
        "/v1/activations",
        json!({ "activations": [
        { "tenant": "acme", "agent_id": "did:example:ann", "tool_id": "demo.echo_sum", "enabled": false }] }),
    )
    .await;
    everywhere("an activation taken away", &three, &token, "demo.echo_sum", 404).await;

    let forbid = r#"permit (principal, action, resource);
        forbid (principal, action, resource) when { context.arguments.text.hasTag("expression") };"#;
    put(one, "/v1/policies", json!({ "policies": forbid })).await;
    everywhere("a policy that forbids", &three, &token, "calculator", 403).await;
    put(one, "/v1/policies", json!({ "policies": "permit (principal, action, resource);" })).await;
    everywhere("a policy that allows", &three, &token, "calculator", 200).await;

    let revoked = one.post("/v1/tokens/revoke", json!({ "sub": "did:example:ann", "tenant": "acme" })).await;
    assert_eq!(revoked.status, 200, "{}", revoked.text);
    everywhere("a revocation", &three, &token, "calculator", 401).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_changed_at_one_replica_is_so_at_all_of_them() {
    what_is_changed_at_one_is_so_at_all(Site::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_redis_the_database_tells_of_changes() {
    what_is_changed_at_one_is_so_at_all(Site::new().set("SHARED_STATE__URL", "memory:")).await;
}
