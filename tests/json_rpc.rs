//! `POST /rpc`: the same calls as by REST, with the same outcomes, in the frames of JSON-RPC 2.0.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, PATIENCE, Start};

async fn rpc(gantry: &Gantry, token: &str, message: Value) -> Answer {
    gantry.request(Method::POST, "/rpc", Some(token), Some(message)).await
}

async fn ask(gantry: &Gantry, token: &str, method: &str, params: Value) -> Value {
    let answer = rpc(gantry, token, json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })).await;
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"), "{}", answer.text);
    assert_eq!((&answer.body["jsonrpc"], &answer.body["id"]), (&json!("2.0"), &json!(7)), "{}", answer.text);
    assert!(answer.body.get("result").is_some() != answer.body.get("error").is_some(), "{}", answer.text);
    answer.body
}

#[tokio::test]
async fn the_same_calls_by_rest_and_by_json_rpc_have_the_same_outcome() {
    let gantry = Gantry::start().await;
    let agent = gantry.mint(json!({ "tools": [{ "tool_id": "calculator" }] })).await;
    let sum = |expression: &str| json!({ "tool_id": "calculator", "parameters": { "expression": expression } });
    for (name, body, number) in [
        ("a sum", sum("6*7"), None),
        ("parameters under another name", json!({ "tool_id": "calculator", "args": { "expression": "2" } }), None),
        ("no tool", json!({ "parameters": {} }), Some(-32602)),
        ("a misspelt member", json!({ "tool_id": "calculator", "paramters": {} }), Some(-32602)),
        ("wrong parameters", json!({ "tool_id": "calculator", "parameters": {} }), Some(-32602)),
        ("a tool that is not there", json!({ "tool_id": "nowhere", "parameters": {} }), Some(-32002)),
        ("a version that is not there", json!({ "tool_id": "calculator", "tool_version": "9.9.9" }), Some(-32002)),
        ("a tool the token does not name", json!({ "tool_id": "datetime", "parameters": {} }), Some(-32001)),
        (
            "somebody else's context",
            json!({ "tool_id": "calculator", "parameters": { "expression": "1" }, "agent_context": { "tenant_id": "other" } }),
            Some(-32001),
        ),
        ("a sum that cannot be", sum("1/0"), Some(0)),
    ] {
        let rest = gantry.request(Method::POST, "/v1/tools/invoke", Some(&agent), Some(body.clone())).await;
        let answer = ask(&gantry, &agent, "tool.invoke", body).await;
        match number {
            None => {
                assert_eq!(rest.status, 200, "{name}: {}", rest.text);
                for member in ["status", "result", "tool_id", "tool_version"] {
                    assert_eq!(answer["result"][member], rest.body[member], "{name}: {answer}");
                }
                for member in ["invocation_id", "execution_metadata", "execution_time_ms", "trace_id"] {
                    assert!(answer["result"].get(member).is_some(), "{name}: {answer}");
                }
            }
            Some(number) => {
                let (data, error) = (&answer["error"]["data"], &rest.body["error"]);
                assert!(rest.status >= 400, "{name}: {}", rest.text);
                for member in ["code", "name", "kind", "retryable", "resolution"] {
                    assert_eq!(data[member], error[member], "{name}: {answer}");
                }
                assert_eq!(data["status"], rest.body["status"], "{name}: {answer}");
                assert!(data["trace_id"].is_string() && answer["error"]["message"] == data["message"], "{answer}");
                if number != 0 {
                    assert_eq!(answer["error"]["code"], number, "{name}: {answer}");
                }
            }
        }
    }
}

#[tokio::test]
async fn tools_are_listed_by_page_category_tag_and_capability() {
    let gantry = Gantry::start().await;
    let agent = gantry.mint(json!({ "tools": [{ "tool_id": "calculator" }] })).await;
    let rest = gantry.get("/v1/tools").await.body;
    let all = ask(&gantry, &gantry.token, "tool.list", json!({})).await;
    assert_eq!(all["result"], rest);
    assert_eq!(all["result"]["pagination"]["page_size"], 50);
    let own = ask(&gantry, &agent, "tool.list", json!({})).await;
    assert_eq!(own["result"]["tools"].as_array().unwrap().len(), 1, "{own}");
    for member in
        ["tool_id", "tool_name", "description", "category", "versions", "latest_version", "tags", "requires_approval"]
    {
        assert!(own["result"]["tools"][0].get(member).is_some(), "{member}: {own}");
    }
    let second = ask(&gantry, &gantry.token, "tool.list", json!({ "page": 2, "page_size": 1 })).await;
    assert_eq!(second["result"]["tools"][0], rest["tools"][1], "{second}");
    let found = ask(&gantry, &gantry.token, "tool.list", json!({ "capability_query": "arithmetic expression" })).await;
    assert_eq!(found["result"]["tools"][0]["tool_id"], "calculator", "{found}");
    let none = ask(&gantry, &gantry.token, "tool.list", json!({ "category": "no such category" })).await;
    assert_eq!(none["result"]["pagination"]["total_count"], 0, "{none}");
    for wrong in [json!({ "page_size": 201 }), json!({ "page": 0 }), json!({ "tag": [] }), json!([1])] {
        let refused = ask(&gantry, &gantry.token, "tool.list", wrong.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{wrong}: {refused}");
    }
    let another =
        ask(&gantry, &agent, "tool.list", json!({ "agent_context": { "agent_did": "did:example:eve" } })).await;
    assert_eq!((&another["error"]["code"], &another["error"]["data"]["code"]), (&json!(-32001), &json!("E3206")));
}

#[tokio::test]
async fn a_call_in_the_background_is_looked_at_and_cancelled_by_whom_it_belongs_to() {
    let gantry = Gantry::start().await;
    let (agent, other) = (gantry.mint(json!({})).await, gantry.mint(json!({ "sub": "did:example:other" })).await);
    let call = json!({ "tool_id": "calculator", "parameters": { "expression": "6*7" }, "execution_options": { "async_mode": true } });
    let accepted = ask(&gantry, &agent, "tool.invoke", call).await;
    let id = accepted["result"]["invocation_id"].as_str().unwrap().to_owned();
    assert!(accepted["result"]["polling_info"]["status_url"].as_str().unwrap().ends_with(&id), "{accepted}");
    let start = std::time::Instant::now();
    let ended = loop {
        let answer = ask(&gantry, &agent, "tool.status", json!({ "invocation_id": id })).await;
        if !["pending", "running"].contains(&answer["result"]["status"].as_str().unwrap()) {
            break answer;
        }
        assert!(start.elapsed() < PATIENCE, "{answer}");
    };
    assert_eq!(
        (&ended["result"]["status"], &ended["result"]["result"]["result"]),
        (&json!("success"), &json!(42)),
        "{ended}"
    );
    let rest = gantry.request(Method::GET, &format!("/v1/invocations/{id}"), Some(&agent), None).await;
    assert_eq!(ended["result"], rest.body);
    let cancel = json!({ "invocation_id": id, "reason": "too late" });
    let cancelled = ask(&gantry, &agent, "tool.cancel", cancel.clone()).await;
    assert_eq!(cancelled["result"], json!({ "invocation_id": id, "cancelled": false, "message": "Already completed" }));
    for method in ["tool.status", "tool.cancel"] {
        let refused = ask(&gantry, &other, method, json!({ "invocation_id": id })).await;
        assert_eq!(refused["error"]["data"]["code"], "E3702", "{method}: {refused}");
        assert_eq!(refused["error"]["code"], -32007, "{method}: {refused}");
        let unnamed = ask(&gantry, &agent, method, json!({})).await;
        assert_eq!(unnamed["error"]["code"], -32602, "{method}: {unnamed}");
    }
}

#[tokio::test]
async fn what_is_no_message_is_answered_in_json_rpc_and_never_in_plain_text() {
    let gantry = Gantry::start().await;
    for (body, id, number) in [
        ("{", Value::Null, -32700),
        ("", Value::Null, -32700),
        ("nonsense", Value::Null, -32700),
        (r#"{"jsonrpc":"2.0","jsonrpc":"2.0","method":"tool.list","id":1}"#, Value::Null, -32700),
        ("3", Value::Null, -32600),
        ("[]", Value::Null, -32600),
        (r#"{"method":"tool.list","id":1}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","id":"a"}"#, json!("a"), -32600),
        (r#"{"jsonrpc":"2.0","method":"tool.list","id":[]}"#, Value::Null, -32600),
        (r#"{"jsonrpc":"2.0","method":"tool.list","id":1,"params":3}"#, json!(1), -32600),
        (r#"{"jsonrpc":"2.0","method":"tool.run","id":1}"#, json!(1), -32601),
        (r#"{"jsonrpc":"2.0","method":"tool.invoke","id":1,"params":["calculator"]}"#, json!(1), -32602),
    ] {
        let answer = gantry.post_raw("/rpc", "application/json", body).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (200, "application/json"),
            "{body}: {}",
            answer.text
        );
        assert_eq!(
            (&answer.body["id"], &answer.body["error"]["code"]),
            (&id, &json!(number)),
            "{body}: {}",
            answer.text
        );
        for member in ["code", "kind", "message", "resolution", "trace_id"] {
            assert!(answer.body["error"]["data"][member].is_string(), "{member}: {}", answer.text);
        }
    }
    // What HTTP itself refuses is refused as everywhere.
    assert_eq!(gantry.post_raw("/rpc", "text/plain", "{}").await.refusal(), (415, "E3006"));
    let stranger = gantry.request(Method::POST, "/rpc", None, Some(json!({}))).await;
    assert_eq!(stranger.refusal(), (401, "E3203"));
    assert_eq!(gantry.get("/rpc").await.refusal(), (405, "E3007"));
}

#[tokio::test]
async fn batches_are_answered_in_order_and_notifications_not_at_all() {
    let gantry = Start::new().run().await;
    let sum = |id: Value, expression: &str| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tool.invoke",
            "params": { "tool_id": "calculator", "parameters": { "expression": expression } } })
    };
    let mut notification = sum(json!(0), "1");
    notification.as_object_mut().unwrap().remove("id");
    let batch =
        json!([sum(json!("a"), "1+1"), notification, 5, sum(json!(2), "("), { "jsonrpc": "2.0", "method": "no.such" }]);
    let answer = rpc(&gantry, &gantry.token, batch).await;
    let answers = answer.body.as_array().unwrap();
    let ids: Vec<&Value> = answers.iter().map(|one| &one["id"]).collect();
    assert_eq!(ids, [&json!("a"), &Value::Null, &json!(2)], "{}", answer.text);
    assert_eq!(answers[0]["result"]["result"]["result"], 2, "{}", answer.text);
    assert_eq!(answers[1]["error"]["code"], -32600, "{}", answer.text);
    assert!(answers[2]["error"]["data"]["code"].is_string(), "{}", answer.text);
    for silent in
        [json!([notification, notification]), notification.clone(), json!({ "jsonrpc": "2.0", "method": "no.such" })]
    {
        let answer = rpc(&gantry, &gantry.token, silent.clone()).await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""), "{silent}");
    }
    let ten: Vec<Value> = (0..10).map(|id| sum(json!(id), "1")).collect();
    assert_eq!(rpc(&gantry, &gantry.token, json!(ten)).await.body.as_array().unwrap().len(), 10);
    let eleven: Vec<Value> = (0..11).map(|id| sum(json!(id), "1")).collect();
    let refused = rpc(&gantry, &gantry.token, json!(eleven)).await;
    assert_eq!(
        (&refused.body["error"]["code"], &refused.body["id"]),
        (&json!(-32600), &Value::Null),
        "{}",
        refused.text
    );
    // What a notification asked for was done.
    let page = gantry.get("/metrics").await.text;
    assert!(page.contains(r#"tool_id="calculator",status="success""#), "{page}");
}

#[tokio::test]
async fn the_mcp_door_too_answers_in_json_rpc_what_is_no_message_of_its_own() {
    let gantry = Gantry::start().await;
    let post = async |accept: &str, body: &str| {
        let request = crate::support::client().post(format!("{}/mcp", gantry.url)).bearer_auth(&gantry.token);
        let request = request.header("content-type", "application/json").header("accept", accept).body(body.to_owned());
        Answer::of(request.send().await.unwrap()).await
    };
    let both = "application/json, text/event-stream";
    for (accept, body) in [
        (both, "{"),
        (both, "3"),
        (both, r#"{"jsonrpc":"2.0","id":1}"#),
        (both, r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#),
        (both, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#),
        (both, r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":7}"#),
        (both, r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#),
        (both, r#"{"jsonrpc":"2.0","id":1,"result":7}"#),
        ("text/html", r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#),
    ] {
        let answer = post(accept, body).await;
        let said = format!("{accept} {body}: {} {} {}", answer.status, answer.header("content-type"), answer.text);
        assert!(answer.header("content-type").starts_with("application/json"), "{said}");
        assert_eq!(answer.body["jsonrpc"], "2.0", "{said}");
        assert!(answer.body["error"]["code"].is_i64() && answer.body["error"]["message"].is_string(), "{said}");
    }
}

/// A call of the calculator whose arguments say one thing to one parser and another to the next.
const AMBIGUOUS: &str = r#"{"name":"calculator","arguments":{"expression":"1+1","expression":"6*7"}}"#;

#[tokio::test]
async fn a_key_that_stands_twice_is_refused_with_one_code_by_every_door() {
    let gantry = Gantry::start().await;
    let post = async |path: &str, body: String| {
        let request = crate::support::client().post(format!("{}{path}", gantry.url)).bearer_auth(&gantry.token);
        let request =
            request.header("content-type", "application/json").header("accept", "application/json, text/event-stream");
        Answer::of(request.body(body).send().await.unwrap()).await
    };
    let rest = r#"{"tool_id":"calculator","parameters":{"expression":"1+1","expression":"6*7"}}"#.to_owned();
    assert_eq!(post("/v1/tools/invoke", rest).await.refusal(), (400, "E3004"));
    let rpc = r#"{"jsonrpc":"2.0","id":5,"method":"tools/invoke","params":{"tool_id":"calculator","tool_id":"x"}}"#;
    let mcp = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{AMBIGUOUS}}}"#);
    for (path, body) in [("/rpc", rpc.to_owned()), ("/mcp", mcp)] {
        let refused = post(path, body).await;
        assert_eq!(refused.body["error"]["code"], -32700, "{path}: {}", refused.text);
        assert!(refused.text.contains("E3004") && refused.text.contains("stands twice"), "{path}: {}", refused.text);
        assert!(refused.body.get("result").is_none(), "{path}: it ran: {}", refused.text);
    }
}
