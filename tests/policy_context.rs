//! Policies hear everything a call may touch: the hosts that a tool's network policy opens, and who the server behind an
//! imported tool is, where it is and what it was given. (AUTH-006, MAN-009)

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, Start, manifest};

/// A server of the tests with nothing but the standard library of Python.
const PLAIN: &str = include_str!("mcp/servers/plain.py");

const EVERYBODY: &str = r#"@id("everybody") permit (principal, action, resource);"#;

async fn forbid(gantry: &Gantry, condition: &str) {
    let text = format!("{EVERYBODY}\n@id(\"objection\") forbid (principal, action, resource) when {{ {condition} }};");
    let body = json!({ "policies": text });
    let answer = gantry.request(Method::PUT, "/v1/policies", Some(&gantry.token), Some(body)).await;
    assert_eq!(answer.status, 200, "{condition}: {}", answer.text);
}

/// Which policies deny the call, if they do.
async fn objections(gantry: &Gantry, tool: &str, parameters: Value) -> Value {
    let body = json!({ "tool_id": tool, "parameters": parameters });
    let answer: Answer = gantry.post("/v1/tools/explain", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    if answer.body["code"] == "E3206" { answer.body["policies"].clone() } else { json!([]) }
}

#[tokio::test]
async fn a_policy_denies_by_the_hosts_that_a_network_policy_opens() {
    let gantry = Gantry::start().await;
    let tool = manifest(
        json!({ "tool_id": "fetch_rates", "execution": null, "required_permissions": ["network:https://api.rates.example"],
        "network_policy": { "allowed_domains": ["cdn.rates.example"], "allowed_ports": [443] } }),
    );
    let registered = gantry.register(tool).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let asked = async || objections(&gantry, "demo.fetch_rates", json!({ "expression": "1" })).await;
    for (condition, denies) in [
        (r#"resource.hosts.contains("cdn.rates.example")"#, true),
        (r#"resource.hosts.contains("api.rates.example")"#, true),
        (r#"resource.hosts.contains("elsewhere.example")"#, false),
        // A list of what is allowed: everything else is denied.
        (r#"!["api.rates.example"].containsAll(resource.hosts)"#, true),
        (r#"!["api.rates.example", "cdn.rates.example"].containsAll(resource.hosts)"#, false),
        (r#"resource.permissions.contains("network:https://cdn.rates.example")"#, true),
        ("resource has upstream", false),
        (r#"resource.output_schema == "unconstrained""#, false),
    ] {
        forbid(&gantry, condition).await;
        let expected = if denies { json!(["objection"]) } else { json!([]) };
        assert_eq!(asked().await, expected, "{condition}");
    }
    let misspelt =
        json!({ "policies": r#"forbid (principal, action, resource) when { resource.output_schema == "free" };"# });
    let refused = gantry.request(Method::PUT, "/v1/policies", Some(&gantry.token), Some(misspelt)).await;
    assert_eq!(refused.refusal(), (400, "E3004"), "a word that never occurs is a mistake");
}

#[tokio::test]
async fn a_policy_denies_by_the_server_behind_a_tool_and_by_what_that_server_was_given() {
    let gantry = Gantry::start().await;
    let put = async |permissions: Value| {
        let spec = json!({ "reach": { "type": "stdio", "command": "python3", "args": ["-c", PLAIN, "--secret-word"],
            "permissions": permissions } });
        let answer = gantry.request(Method::PUT, "/v1/servers/shop", Some(&gantry.token), Some(spec)).await;
        assert_eq!(answer.status, 200, "{}\n{}", answer.text, gantry.log());
    };
    put(json!(["network:https://api.shop.example"])).await;
    let asked = async || objections(&gantry, "shop.echo", json!({ "text": "tea" })).await;
    for (condition, denies) in [
        (r#"resource has upstream && resource.upstream.server == "shop""#, true),
        (r#"resource has upstream && resource.upstream.transport == "stdio""#, true),
        (r#"resource has upstream && resource.upstream has command && resource.upstream.command == "python3""#, true),
        (r#"resource has upstream && resource.upstream.addresses.contains("https://shop.example/")"#, false),
        (r#"resource.hosts.contains("api.shop.example")"#, true),
        (r#"resource.permissions.contains("network:https://api.shop.example")"#, true),
        // The server says nothing about what comes back.
        (r#"resource.output_schema == "unconstrained""#, true),
        (r#"resource.hosts.contains("pay.shop.example")"#, false),
    ] {
        forbid(&gantry, condition).await;
        let expected = if denies { json!(["objection"]) } else { json!([]) };
        assert_eq!(asked().await, expected, "{condition}");
    }
    // What was decided about the server as it was does not hold for what it is now: the tool itself has not changed.
    put(json!(["network:https://api.shop.example", "network:https://pay.shop.example"])).await;
    assert_eq!(asked().await, json!(["objection"]));
    put(json!(["network:https://api.shop.example"])).await;
    assert_eq!(asked().await, json!([]));
}

#[tokio::test]
async fn a_policy_denies_by_the_host_of_the_model_that_a_built_in_tool_asks() {
    let start = Start::new().env("GANTRY_MODEL__BASE_URL", "https://model.example:8443/v1");
    let gantry = start.env("GANTRY_MODEL__MODEL", "some-model").run().await;
    let asked = async |tool: &str, parameters: Value| objections(&gantry, tool, parameters).await;
    for (condition, denies) in [
        (r#"resource.hosts.contains("model.example")"#, true),
        (r#"resource.permissions.contains("network:https://model.example:8443")"#, true),
        (r#"resource.hosts.contains("elsewhere.example")"#, false),
        // The model is no server behind Gantry.
        ("resource has upstream", false),
    ] {
        forbid(&gantry, condition).await;
        let expected = if denies { json!(["objection"]) } else { json!([]) };
        assert_eq!(asked("deep_reasoning", json!({ "problem": "2+2?" })).await, expected, "{condition}");
        // What they are given may go there, too.
        let translate = json!({ "text": "tea", "operation": "translate", "options": { "targetLanguage": "French" } });
        assert_eq!(asked("text_transform", translate).await, expected, "{condition}");
        assert_eq!(asked("calculator", json!({ "expression": "1" })).await, json!([]), "{condition}");
    }
}
