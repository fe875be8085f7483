//! A job that is begun again has the rights of whoever begins it again, now: nothing is left of those it was submitted with.
//! And what a call in the background asks for besides its tool needs rights, too. (decision 0072)

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, PATIENCE};

struct Office(Gantry);

impl Office {
    async fn ask(&self, token: &str, method: Method, path: &str, body: Option<Value>) -> Answer {
        self.0.request(method, path, Some(token), body).await
    }

    async fn agent(&self, change: Value) -> String {
        let mut wish = json!({ "tenant": "acme", "sub": "alice" });
        wish.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        self.0.mint(wish).await
    }

    async fn submit(&self, token: &str, expression: &str, options: Value) -> Answer {
        let mut all = json!({ "async_mode": true });
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let call =
            json!({ "tool_id": "calculator", "parameters": { "expression": expression }, "execution_options": all });
        self.ask(token, Method::POST, "/v1/tools/invoke", Some(call)).await
    }

    /// A job that came to nothing.
    async fn failed(&self, token: &str) -> String {
        let accepted = self.submit(token, "1 / 0", json!({})).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        let path = format!("/v1/invocations/{}", accepted.body["invocation_id"].as_str().unwrap());
        self.until(token, &path, "error").await;
        path
    }

    async fn until(&self, token: &str, path: &str, status: &str) -> Answer {
        let began = Instant::now();
        loop {
            let seen = self.ask(token, Method::GET, path, None).await;
            if seen.body["status"] == status {
                return seen;
            }
            assert!(began.elapsed() < PATIENCE, "{}", seen.text);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn retry(&self, token: &str, path: &str) -> Answer {
        self.ask(token, Method::POST, &format!("{path}/retry"), Some(json!({}))).await
    }
}

#[tokio::test]
async fn a_job_is_begun_again_with_the_rights_of_the_token_that_is_shown_now() {
    let office = Office(Gantry::start().await);
    let alice = office.agent(json!({})).await;
    let path = office.failed(&alice).await;
    let limits = json!([{ "tool_id": "calculator", "argument": "/expression", "one_of": ["1 + 1"] }]);
    for (narrow, code) in [(json!({ "tools": [] }), "E3204"), (json!({ "limits": limits }), "E3206")] {
        let narrow = office.agent(narrow).await;
        let refused = office.retry(&narrow, &path).await;
        assert_eq!(refused.refusal(), (403, code), "{}", refused.text);
    }
    // What it may spend is its own.
    let poor = office.agent(json!({ "budget": { "calls": 0 } })).await;
    let again = office.retry(&poor, &path).await;
    assert_eq!(again.status, 202, "{}", again.text);
    let again = format!("/v1/invocations/{}", again.body["invocation_id"].as_str().unwrap());
    let began = Instant::now();
    let ended = loop {
        let seen = office.ask(&alice, Method::GET, &again, None).await;
        if !["pending", "running"].contains(&seen.body["status"].as_str().unwrap()) {
            break seen;
        }
        assert!(began.elapsed() < PATIENCE, "{}", seen.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(ended.body["error"]["code"], "E3211", "{}", ended.text);
    assert_eq!(office.retry(&alice, &path).await.status, 202);
}

#[tokio::test]
async fn rights_that_have_ended_begin_nothing_again() {
    let office = Office(Gantry::start().await);
    let operator = office.agent(json!({ "sub": "olga", "roles": ["operator"] })).await;
    let alice = office.agent(json!({})).await;
    // On a busy machine a token of a second may have ended before it is used: then with another.
    let began = Instant::now();
    let (short, accepted) = loop {
        let short = office.agent(json!({ "ttl_seconds": 1 })).await;
        let accepted = office.submit(&short, "1 / 0", json!({})).await;
        if accepted.status == 202 {
            break (short, accepted);
        }
        assert!(began.elapsed() < PATIENCE, "{}", accepted.text);
    };
    let path = format!("/v1/invocations/{}", accepted.body["invocation_id"].as_str().unwrap());
    office.until(&alice, &path, "error").await;
    let blind = office.agent(json!({ "sub": "omar", "roles": ["operator"], "tools": [] })).await;
    let lasting = office.failed(&alice).await;
    assert_eq!(office.retry(&operator, &lasting).await.status, 202);
    assert_eq!(office.retry(&blind, &lasting).await.refusal(), (403, "E3204"));
    // Until the token has ended, whatever the clock allows besides.
    let began = Instant::now();
    while office.ask(&short, Method::GET, "/v1/tools", None).await.status != 401 {
        assert!(began.elapsed() < PATIENCE, "the token does not end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused = office.retry(&operator, &path).await;
    assert_eq!(refused.refusal(), (403, "E3206"), "{}", refused.text);
    assert!(refused.text.contains("has ended"), "{}", refused.text);
    let own = office.retry(&alice, &path).await;
    assert_eq!(own.status, 202, "its owner has a token that lasts: {}", own.text);
}

#[tokio::test]
async fn whoever_begins_a_job_of_another_again_must_be_allowed_to_make_its_call() {
    let office = Office(Gantry::start().await);
    let (admin, alice) = (office.0.token.clone(), office.agent(json!({})).await);
    let path = office.failed(&alice).await;
    let manager = async |change: Value| {
        let mut wish = json!({ "sub": "olga", "roles": ["operator"] });
        wish.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        office.agent(wish).await
    };
    // Its own budget is asked, and spent.
    let one = manager(json!({ "budget": { "calls": 1 } })).await;
    assert_eq!(office.retry(&one, &path).await.status, 202);
    assert_eq!(office.retry(&one, &path).await.refusal(), (402, "E3211"));
    // So are its activations, with what they demand.
    let olga = manager(json!({})).await;
    let activation = |more: Value| {
        let mut one = json!({ "tenant": "acme", "agent_id": "olga", "tool_id": "calculator" });
        one.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "activations": [one] })
    };
    for (more, expected) in [
        (json!({ "enabled": false }), (404, "E3101")),
        (json!({ "enabled": true, "policy_overrides": { "requires_approval": true } }), (403, "E3208")),
    ] {
        let put = office.ask(&admin, Method::PUT, "/v1/activations", Some(activation(more.clone()))).await;
        assert_eq!(put.status, 200, "{}", put.text);
        let refused = office.retry(&olga, &path).await;
        assert_eq!(refused.refusal(), expected, "{more}: {}", refused.text);
    }
    let put = office.ask(&admin, Method::PUT, "/v1/activations", Some(activation(json!({ "enabled": true })))).await;
    assert_eq!(put.status, 200, "{}", put.text);
    assert_eq!(office.retry(&olga, &path).await.status, 202);
    // And what policies say of it.
    let policies = r#"permit(principal, action, resource);
        forbid(principal == Agent::"olga", action, resource == Tool::"calculator");"#;
    let put = office.ask(&admin, Method::PUT, "/v1/policies", Some(json!({ "policies": policies }))).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let refused = office.retry(&olga, &path).await;
    assert_eq!(refused.refusal(), (403, "E3206"), "{}", refused.text);
    assert_eq!(office.retry(&alice, &path).await.status, 202, "its owner may");
}

#[tokio::test]
async fn a_callback_signs_only_with_a_credential_that_the_token_covers() {
    let office = Office(Gantry::start().await);
    let agent = office.agent(json!({ "scopes": ["credentials:other"] })).await;
    let sign = |name: &str| json!({ "callback": { "url": "https://8.8.8.8/hook", "secret": name } });
    let refused = office.submit(&agent, "1 + 1", sign("apikey")).await;
    assert_eq!(refused.refusal(), (403, "E3206"), "{}", refused.text);
    let covered = office.submit(&agent, "1 + 1", sign("other")).await;
    assert_ne!(covered.code(), "E3206", "{}", covered.text);
}

#[tokio::test]
async fn what_a_job_came_to_is_masked_as_its_reader_may_see_it_now() {
    let office = Office(Gantry::start().await);
    let alice = office.agent(json!({})).await;
    let accepted = office.submit(&alice, "6 * 7", json!({ "idempotency_key": "once" })).await;
    let id = accepted.body["invocation_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/invocations/{id}");
    let seen = office.until(&alice, &path, "success").await;
    assert_eq!(seen.body["result"]["result"], 42, "{}", seen.text);
    let mask = json!({ "activations": [{ "tenant": "acme", "agent_id": "alice", "tool_id": "calculator",
        "policy_overrides": { "redact": ["result"] } }] });
    let admin = office.0.token.clone();
    assert_eq!(office.ask(&admin, Method::PUT, "/v1/activations", Some(mask)).await.status, 200);
    let again = office.submit(&alice, "6 * 7", json!({ "idempotency_key": "once" })).await;
    assert_eq!(again.body["invocation_id"], id, "{}", again.text);
    let seen = office.ask(&alice, Method::GET, &path, None).await;
    assert_eq!(seen.body["result"]["result"], "[REDACTED]", "{}", seen.text);
    let unmasked = json!({ "activations": [{ "tenant": "acme", "agent_id": "alice", "tool_id": "calculator" }] });
    assert_eq!(office.ask(&admin, Method::PUT, "/v1/activations", Some(unmasked)).await.status, 200);
    let policies = r#"permit(principal, action, resource);
        @id("m") @obligations("redact=result") permit(principal, action, resource == Tool::"calculator");"#;
    let put = office.ask(&admin, Method::PUT, "/v1/policies", Some(json!({ "policies": policies }))).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let seen = office.ask(&alice, Method::GET, &path, None).await;
    assert_eq!(seen.body["result"]["result"], "[REDACTED]", "{}", seen.text);
}

#[tokio::test]
async fn a_call_that_no_budget_is_left_for_is_explained_as_refused() {
    let office = Office(Gantry::start().await);
    let call = || Some(json!({ "tool_id": "calculator", "parameters": { "expression": "1 + 1" } }));
    let one = office.agent(json!({ "budget": { "calls": 1 } })).await;
    for (status, explained) in [(200, true), (402, false)] {
        let told = office.ask(&one, Method::POST, "/v1/tools/explain", call()).await;
        assert_eq!(told.text.contains("E3211"), !explained, "{}", told.text);
        // Being asked about counts nothing.
        let made = office.ask(&one, Method::POST, "/v1/tools/invoke", call()).await;
        assert_eq!(made.status, status, "{}", made.text);
    }
}
