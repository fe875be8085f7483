//! Tokens: minted with limits and budgets, revoked, and the keys that sign them; strangers who keep guessing.

use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage};

fn echo(text: &str) -> Value {
    json!({ "tool_id": "demo.echo_tool", "parameters": { "text": text } })
}

async fn call(stage: &Stage, token: &str, text: &str) -> String {
    let reply = stage.ask("POST", "/v1/tools/invoke", Some(token), Some(echo(text))).await;
    format!("{} {}", reply.status, reply.code())
}

#[tokio::test]
async fn limits_and_a_budget_of_a_token_hold() {
    let stage = Stage::new().await;
    let token = stage
        .mint(json!({ "sub": "ann", "tools": [{ "tool_id": "demo.*" }], "budget": { "calls": 2 },
            "limits": [{ "tool_id": "demo.*", "argument": "/text", "max_length": 3 }] }))
        .await;
    assert_eq!(call(&stage, &token, "one").await, "200 -");
    assert_eq!(call(&stage, &token, "three").await, "403 E3206");
    assert_eq!(call(&stage, &token, "two").await, "200 -");
    assert_eq!(call(&stage, &token, "end").await, "402 E3211");
}

#[tokio::test]
async fn a_revoked_token_is_refused_at_the_next_call_and_others_are_not() {
    let stage = Stage::new().await;
    let wish = |sub: &str| json!({ "sub": sub, "tenant": "acme", "tools": [{ "tool_id": "demo.*" }] });
    let minted = stage.admin("POST", "/v1/tokens", Some(wish("ann"))).await.json();
    let (one, other) = (minted["token"].as_str().unwrap(), stage.mint(wish("ann")).await);
    assert_eq!(call(&stage, one, "x").await, "200 -");
    let revoked = stage.admin("POST", "/v1/tokens/revoke", Some(json!({ "jti": minted["jti"] }))).await;
    assert_eq!((revoked.status, revoked.json()), (200, json!({ "revoked": true })));
    assert_eq!(call(&stage, one, "x").await, "401 E3201");
    assert_eq!(call(&stage, &other, "x").await, "200 -");
    // The same name in another tenant is somebody else.
    let elsewhere = json!({ "sub": "ann", "tenant": "globex" });
    assert_eq!(stage.admin("POST", "/v1/tokens/revoke", Some(elsewhere)).await.status, 200);
    assert_eq!(call(&stage, &other, "x").await, "200 -");
    let all = json!({ "sub": "ann", "tenant": "acme" });
    assert_eq!(stage.admin("POST", "/v1/tokens/revoke", Some(all)).await.status, 200);
    assert_eq!(call(&stage, &other, "x").await, "401 E3201");
    stage.step(1);
    assert_eq!(call(&stage, &stage.mint(wish("ann")).await, "x").await, "200 -");
}

#[tokio::test]
async fn whoever_holds_a_token_may_give_it_up_but_no_other() {
    let stage = Stage::new().await;
    let own = stage.ask("POST", "/v1/tokens/revoke", Some(&stage.agent), Some(json!({ "jti": "jti-2" }))).await;
    assert_eq!(own.code(), "E3206");
    let own = stage.ask("POST", "/v1/tokens/revoke", Some(&stage.agent), Some(json!({ "jti": "jti-1" }))).await;
    assert_eq!(own.status, 200);
    assert_eq!(call(&stage, &stage.agent, "x").await, "401 E3201");
}

#[tokio::test]
async fn keys_rotate_and_tokens_of_the_former_one_stay_good() {
    let stage = Stage::new().await;
    let keys = async || stage.ask("GET", "/.well-known/jwks.json", None, None).await;
    let before = keys().await.json()["keys"].as_array().unwrap().len();
    let rotated = stage.admin("POST", "/v1/keys/rotate", None).await;
    assert_eq!(rotated.status, 200);
    let after = keys().await;
    assert_eq!(after.header("cache-control"), Some("public, max-age=300"));
    assert_eq!(after.json()["keys"].as_array().unwrap().len(), before + 1);
    assert_eq!(after.json()["keys"][0]["kid"], rotated.json()["kid"]);
    assert!(after.json()["keys"].as_array().unwrap().iter().all(|key| key.get("d").is_none()));
    let fresh = stage.mint(json!({ "sub": "ann", "tools": [{ "tool_id": "demo.*" }] })).await;
    for token in [&stage.agent, &fresh] {
        assert_eq!(call(&stage, token, "x").await, "200 -");
    }
}

#[tokio::test]
async fn an_administrator_of_a_tenant_mints_for_that_tenant_only() {
    let stage = Stage::new().await;
    let chief = stage.mint(json!({ "sub": "chief", "tenant": "acme", "roles": ["admin"] })).await;
    let mint = async |wish: Value| stage.ask("POST", "/v1/tokens", Some(&chief), Some(wish)).await;
    assert_eq!(mint(json!({ "sub": "ann" })).await.status, 201);
    let agents = stage.ask("GET", "/v1/agents", Some(&chief), None).await.json();
    let names: Vec<&str> =
        agents["agents"].as_array().unwrap().iter().map(|agent| agent["agent_id"].as_str().unwrap()).collect();
    assert_eq!(names, ["ann", "chief"]);
    let there = mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let nowhere = mint(json!({ "sub": "ann", "tenant": "nowhere" })).await;
    assert_eq!((there.status, there.code()), (403, nowhere.code()));
    assert_eq!(there.json()["detail"], nowhere.json()["detail"]);
    assert_eq!(stage.ask("POST", "/v1/keys/rotate", Some(&chief), None).await.code(), "E3206");
}

#[tokio::test]
async fn an_address_that_keeps_failing_has_to_wait_while_good_tokens_go_on() {
    let stage = Stage::with_failures(gantry_server::ServerConfig::default(), 3).await;
    assert_eq!(call(&stage, &stage.agent, "x").await, "200 -");
    for guess in ["guess-1", "guess-2", "guess-3"] {
        assert_eq!(call(&stage, guess, "x").await, "401 E3203");
    }
    let held = stage.ask("GET", "/v1/tools", Some("guess-4"), None).await;
    assert_eq!((held.status, held.code().as_str(), held.header("retry-after")), (429, "E3003", Some("20")));
    assert_eq!(call(&stage, &stage.agent, "x").await, "200 -");
    assert_eq!(stage.ask("GET", "/v1/tools", Some(ADMIN), None).await.status, 200);
    stage.step(60);
    assert_eq!(call(&stage, "guess-5", "x").await, "401 E3203");
}
