//! Before the protocol: tokens, origins, paths, bodies.

use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage};

#[tokio::test]
async fn nobody_gets_in_without_a_good_token_and_is_told_where_to_get_one() {
    let stage = Stage::new().await;
    for token in ["", "rubbish", stage.expired.as_str()] {
        let ask = if token.is_empty() { stage.ask() } else { stage.ask().token(token) };
        let mut reply = ask.new_style(1, "tools/list", json!({}), &json!({})).send().await;
        assert_eq!(reply.status, 401, "{token}");
        let challenge = reply.header("www-authenticate").unwrap().to_owned();
        let way = format!("resource_metadata=\"http://{}/.well-known/oauth-protected-resource/mcp\"", stage.address);
        assert!(challenge.starts_with("Bearer") && challenge.contains(&way), "{challenge}");
        assert_eq!(challenge.contains("invalid_token"), !token.is_empty());
        let told: Value = serde_json::from_str(&reply.body().await).unwrap();
        assert!(told["error"]["code"].as_str().unwrap().starts_with("E32"), "{told}");
    }
    for resource in ["/mcp", "/mcp/research"] {
        let path = format!("/.well-known/oauth-protected-resource{resource}");
        let mut metadata = stage.at(&path).method("GET").send().await;
        let metadata: Value = serde_json::from_str(&metadata.body().await).unwrap();
        assert_eq!(metadata["resource"], format!("http://{}{resource}", stage.address), "{metadata}");
    }
}

#[tokio::test]
async fn a_page_from_elsewhere_and_a_borrowed_name_are_turned_away() {
    let stage = Stage::new().await;
    for (header, value, expected) in [
        ("origin", "http://localhost:3000", 200),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("host", "rebound.example", 403),
        ("host", "localhost:1", 200),
    ] {
        let ask = stage.ask().token(&stage.agent).header(header, value);
        let reply = ask.new_style(1, "tools/list", json!({}), &json!({})).send().await;
        assert_eq!(reply.status, expected, "{header}: {value}");
    }
}

#[tokio::test]
async fn what_is_no_message_is_answered_as_json_rpc_has_it() {
    let stage = Stage::new().await;
    for (body, code) in
        [("{", -32700), ("", -32700), ("3", -32600), ("{}", -32600), ("[]", -32600), (r#"{"jsonrpc":"1.0"}"#, -32600)]
    {
        let mut reply = stage.ask().token(&stage.agent).body(body).send().await;
        assert_eq!(reply.status, 400, "{body}");
        assert_eq!(reply.last().await["error"]["code"], code, "{body}");
    }
    let put = stage.ask().token(&stage.agent).method("PUT").send().await;
    assert_eq!((put.status, put.header("allow")), (405, Some("GET, POST, DELETE")));
}

#[tokio::test]
async fn headers_must_agree_with_the_body() {
    let stage = Stage::new().await;
    let call = json!({ "name": "demo__echo_tool", "arguments": { "text": "x" } });
    for (header, value) in [("mcp-method", "tools/list"), ("mcp-name", "other"), ("mcp-protocol-version", "2025-11-25")]
    {
        let ask =
            stage.ask().token(&stage.agent).new_style(1, "tools/call", call.clone(), &json!({})).header(header, value);
        let mut reply = ask.send().await;
        assert_eq!((reply.status, &reply.last().await["error"]["code"]), (400, &json!(-32020)), "{header}");
    }
    let ask = stage.ask().token(&stage.agent).new_style(1, "tools/list", json!({}), &json!({}));
    let unknown = ask.header("mcp-protocol-version", "1999-01-01").send().await;
    assert_eq!(unknown.status, 400);
}

#[tokio::test]
async fn a_token_that_lacks_a_scope_is_told_which() {
    let stage = Stage::new().await;
    let needs = json!({ "tool_id": "needy", "required_permissions": ["tool:demo.needy"] });
    stage.publish(crate::stage::manifest("echo", &needs)).await;
    let ask = stage.ask().token(&stage.agent);
    let call = json!({ "name": "demo__needy", "arguments": { "text": "x" } });
    let mut reply = ask.new_style(1, "tools/call", call, &json!({})).send().await;
    let answer = reply.last().await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(answer["result"]["_meta"]["dev.gantry/error"]["code"], "E3206", "{answer}");
    let challenge = reply.header("www-authenticate").unwrap();
    assert_eq!(reply.status, 403);
    assert!(challenge.contains("error=\"insufficient_scope\", scope=\"tool:demo.needy\""), "{challenge}");
    // The administrator has every scope.
    let ask = stage.ask().token(ADMIN);
    let call = json!({ "name": "demo__needy", "arguments": { "text": "x" } });
    assert_eq!(ask.new_style(1, "tools/call", call, &json!({})).send().await.status, 200);
}
