//! What is told of tools by their tiers: whole descriptions, the same over REST and as MCP resources, and a tenant's tool by
//! its name also for an agent that may not use it. (VIS-006, VIS-007, VIS-010…012)

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gantry, manifest};

/// A tenant with a tool that changes something and is not enabled, and the token of one of its agents.
async fn tenant() -> (Gantry, String) {
    let gantry = Gantry::start().await;
    let effects = json!([{ "resource": "ledger", "op": "CREATE", "scope": "row" }]);
    let undo =
        manifest(json!({ "tool_id": "unbook", "side_effect_policy": "idempotent", "side_effects": effects.clone(),
        "idempotency": { "key_fields": [] }, "categories": ["finance"] }));
    let registered = gantry.register(undo).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let book = manifest(json!({ "tool_id": "book", "side_effect_policy": "compensatable", "side_effects": effects,
        "idempotency": { "key_fields": [] }, "compensation_tool_id": "demo.unbook", "categories": ["finance"] }));
    let registered = gantry.register(book).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let unknown = manifest(json!({ "tool_id": "odd", "protocol": "custom", "side_effect_policy": "unclassified" }));
    let registered = gantry.register(unknown).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let agent = gantry.mint(json!({ "sub": "clerk" })).await;
    (gantry, agent)
}

fn of<'l>(list: &'l Value, tool: &str) -> &'l Value {
    let tools = list["tools"].as_array().unwrap_or_else(|| panic!("{list}"));
    tools.iter().find(|line| line["tool_id"] == tool).unwrap_or_else(|| panic!("no {tool} in {list}"))
}

/// A resource, read by MCP.
async fn resource(gantry: &Gantry, token: &str, uri: &str) -> Value {
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" } });
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": { "uri": uri, "_meta": meta } });
    let request = crate::support::client().post(format!("{}/mcp", gantry.url)).bearer_auth(token);
    let request = request
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "resources/read")
        .header("mcp-name", uri);
    let text = request.body(ask.to_string()).send().await.unwrap().text().await.unwrap();
    let message = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
    let message: Value = serde_json::from_str(message).unwrap_or_else(|_| panic!("{text}"));
    let contents = message["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{text}"));
    serde_json::from_str(contents).unwrap()
}

#[tokio::test]
async fn listings_say_what_undoes_a_call_and_whether_it_may_be_repeated() {
    let (gantry, agent) = tenant().await;
    let list = gantry.request(Method::GET, "/v1/tenants/acme/tools", Some(&agent), None).await.body;
    let flags = |tool: &str| {
        let line = of(&list, tool);
        json!([line["compensation_tool"], line["is_irreversible"], line["is_safe_to_retry"]])
    };
    assert_eq!(flags("demo.book"), json!(["demo.unbook", false, false]));
    assert_eq!(flags("demo.unbook"), json!([null, false, true]));
    assert_eq!(
        flags("demo.odd"),
        json!([null, true, false]),
        "nobody has said what it does, so it counts as irreversible"
    );
    let own = gantry.request(Method::GET, "/v1/agents/clerk/tools", Some(&agent), None).await.body;
    assert_eq!(of(&own, "calculator")["is_safe_to_retry"], true, "{own}");
}

#[tokio::test]
async fn a_tool_of_the_tenant_is_found_by_its_name_also_by_those_who_may_not_use_it() {
    let (gantry, agent) = tenant().await;
    let get = async |path: &str| gantry.request(Method::GET, path, Some(&agent), None).await;
    assert_eq!(get("/v1/tools/demo.book").await.refusal(), (404, "E3101"));
    let shown = get("/v1/tenants/acme/tools/demo.book").await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    let said = &shown.body;
    assert_eq!(
        json!([said["tool_id"], said["is_enabled"], said["why_unavailable"], said["compensation_tool"]]),
        json!(["demo.book", false, "never_activated", "demo.unbook"]),
        "{said}"
    );
    assert_eq!(said["parameter_schema"]["required"], json!(["expression"]));
    assert_eq!(said["result_schema"]["required"], json!(["result"]));
    let usable = get("/v1/tenants/acme/tools/calculator").await.body;
    assert_eq!((&usable["is_enabled"], &usable["why_unavailable"]), (&json!(true), &Value::Null), "{usable}");
    // What the tenant does not have, and another tenant, do not exist.
    assert_eq!(get("/v1/tenants/acme/tools/demo.nothing").await.refusal(), (404, "E3101"));
    assert_eq!(get("/v1/tenants/local/tools/calculator").await.refusal(), (404, "E3008"));
}

#[tokio::test]
async fn mcp_resources_say_of_tools_what_rest_says() {
    let (gantry, agent) = tenant().await;
    for (path, uri) in [
        ("/v1/tenants/acme/tools", "gantry://tools/tenant/acme/available"),
        ("/v1/agents/clerk/tools", "gantry://tools/agent/clerk/enabled"),
        ("/v1/agents/clerk/tools/unavailable", "gantry://tools/agent/clerk/unavailable"),
    ] {
        let rest = gantry.request(Method::GET, path, Some(&agent), None).await.body;
        let mcp = resource(&gantry, &agent, uri).await;
        let (rest, mcp) = (rest["tools"].as_array().unwrap(), mcp["tools"].as_array().unwrap());
        assert_eq!(rest.len(), mcp.len(), "{uri}");
        for (line, twin) in rest.iter().zip(mcp) {
            for (member, value) in line.as_object().unwrap() {
                assert_eq!(&twin[member], value, "{uri}: `{member}` of {}", line["tool_id"]);
            }
            assert!(twin["mcp_name"].is_string(), "{twin}");
        }
    }
}

#[tokio::test]
async fn an_activation_keeps_its_id_and_says_when_it_was_made_and_changed() {
    let (gantry, _) = tenant().await;
    let put = async |activation: Value| {
        let body = json!({ "activations": [activation] });
        gantry.request(Method::PUT, "/v1/activations", Some(&gantry.token), Some(body)).await
    };
    let wish =
        |enabled: bool| json!({ "tenant": "acme", "agent_id": "clerk", "tool_id": "demo.book", "enabled": enabled });
    let made = put(wish(true)).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let made = made.body["activations"][0].clone();
    assert_eq!(made["id"].as_str().unwrap().len(), 36, "{made}");
    assert_eq!(made["created_at"], made["updated_at"], "{made}");
    // The clock of the server has thousandths of a second.
    let changed = loop {
        let changed = put(wish(false)).await.body["activations"][0].clone();
        if changed["updated_at"] != made["updated_at"] {
            break changed;
        }
    };
    assert_eq!((&changed["id"], &changed["created_at"]), (&made["id"], &made["created_at"]), "{changed}");
    assert_eq!(changed["enabled"], false);
    let listed = gantry.get("/v1/activations?tenant=acme").await;
    assert_eq!(listed.body["activations"], json!([changed]), "{}", listed.text);

    // What was read can be sent back as long as nobody has changed it; what is out of date changes nothing.
    assert_eq!(put(made).await.refusal(), (400, "E3004"));
    let mut other = changed.clone();
    other["id"] = json!("7d444840-9dc0-41d1-b245-5ffdce74fad2");
    assert_eq!(put(other).await.refusal(), (400, "E3004"));
    let sent_back = put(changed.clone()).await;
    assert_eq!(sent_back.body["activations"][0]["id"], changed["id"], "{}", sent_back.text);

    // People see it at their terminal.
    let shown = gantry.cli(&["activation", "list", "--tenant", "acme", "--json"]).ok().json();
    assert_eq!(shown["activations"][0]["id"], changed["id"], "{shown}");
}
