//! What tools ask while they run: input required, and requests of the server to older clients.

use contract::error::ErrorCode;
use gantry_server::{McpConfig, ToolExposure};
use serde_json::{Value, json};

use crate::client::Reply;
use crate::stage::Stage;

fn call() -> Value {
    json!({ "name": "demo__curious_tool", "arguments": { "text": "x" } })
}

async fn begin(stage: &Stage) -> Value {
    let capabilities = json!({ "elicitation": { "form": {} } });
    stage.ask().token(&stage.agent).new_style(1, "tools/call", call(), &capabilities).message().await
}

fn answer_with(state: &Value) -> Value {
    let mut params = call();
    params["requestState"] = state.clone();
    params["inputResponses"] = json!({ "colour": { "action": "accept", "content": { "colour": "blue" } } });
    params
}

async fn retry(stage: &Stage, token: &str, params: Value) -> Value {
    let capabilities = json!({ "elicitation": { "form": {} } });
    stage.ask().token(token).new_style(2, "tools/call", params, &capabilities).message().await
}

#[tokio::test]
async fn a_question_ends_the_request_and_the_answer_goes_on_with_the_same_call() {
    let stage = Stage::new().await;
    let asked = begin(&stage).await;
    let result = &asked["result"];
    assert_eq!(result["resultType"], "input_required", "{asked}");
    assert_eq!(result["inputRequests"]["colour"]["method"], "elicitation/create");
    assert_eq!(result["inputRequests"]["colour"]["params"]["message"], "Which colour?");
    assert_eq!(stage.door.mcp_state().await.waiting_calls, 1);
    let done = retry(&stage, &stage.agent, answer_with(&result["requestState"])).await;
    assert_eq!(done["result"]["structuredContent"], json!({ "text": "blue" }), "{done}");
    assert_eq!(stage.door.mcp_state().await.waiting_calls, 0);
    stage.until("it was one call", || stage.paper.ends() == [None]).await;
    // An answer is used once.
    let again = retry(&stage, &stage.agent, answer_with(&result["requestState"])).await;
    assert_eq!(again["error"]["code"], -32602, "{again}");
}

#[tokio::test]
async fn who_knows_what_will_be_asked_may_answer_at_once() {
    let stage = Stage::new().await;
    let mut params = answer_with(&Value::Null);
    params.as_object_mut().unwrap().remove("requestState");
    params["inputResponses"]["something_else"] = json!({ "action": "accept" });
    let done = retry(&stage, &stage.agent, params.clone()).await;
    assert_eq!(done["result"]["structuredContent"], json!({ "text": "blue" }), "{done}");
    params["inputResponses"].as_object_mut().unwrap().remove("colour");
    let asked = retry(&stage, &stage.agent, params).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
}

#[tokio::test]
async fn an_answer_is_taken_from_its_own_caller_for_its_own_call_in_time() {
    let stage = Stage::new().await;
    let state = begin(&stage).await["result"]["requestState"].clone();
    let refused = async |token: &str, params: Value, word: &str| {
        let answer = retry(&stage, token, params).await;
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
        assert_eq!(answer["error"]["code"], -32602);
        assert!(message.contains(word), "{message}");
    };
    refused(crate::stage::ADMIN, answer_with(&state), "another call").await;
    let mut other = answer_with(&state);
    other["arguments"]["text"] = json!("y");
    refused(&stage.agent, other, "another call").await;
    let mut other = answer_with(&state);
    other["name"] = json!("demo__echo_tool");
    refused(&stage.agent, other, "another call").await;
    let broken = state.as_str().unwrap().replace('0', "1");
    refused(&stage.agent, answer_with(&json!(broken)), "changed").await;
    // Nothing of this has touched the call; one that lacks the answer is asked again.
    let mut empty = answer_with(&state);
    empty["inputResponses"] = json!({});
    let again = retry(&stage, &stage.agent, empty).await;
    assert_eq!(again["result"]["resultType"], "input_required", "{again}");
    let state = again["result"]["requestState"].clone();
    stage.step(301);
    refused(&stage.agent, answer_with(&state), "over").await;
}

#[tokio::test]
async fn a_call_whose_caller_never_answers_is_cancelled() {
    let config = McpConfig { exposure: ToolExposure::All, answer_ms: 100, ..McpConfig::default() };
    let stage = Stage::with(config).await;
    assert_eq!(begin(&stage).await["result"]["resultType"], "input_required");
    stage.until("it is recorded as cancelled", || stage.paper.ends() == [Some(ErrorCode::E3703)]).await;
    assert_eq!(stage.door.mcp_state().await.waiting_calls, 0);
}

#[tokio::test]
async fn a_client_that_cannot_be_asked_is_not_and_there_is_a_limit_to_waiting() {
    let config = McpConfig { exposure: ToolExposure::All, questions_max: 1, ..McpConfig::default() };
    let stage = Stage::with(config).await;
    let refused = stage.new_style("tools/call", call()).await;
    assert_eq!(refused["result"]["_meta"]["dev.gantry/error"]["code"], "E3010", "{refused}");
    assert_eq!(begin(&stage).await["result"]["resultType"], "input_required");
    let too_many = begin(&stage).await;
    assert_eq!(too_many["result"]["_meta"]["dev.gantry/error"]["code"], "E3001", "{too_many}");
}

#[tokio::test]
async fn an_older_client_is_asked_on_the_stream_of_its_call() {
    let stage = Stage::new().await;
    let version = "2025-11-25";
    let session = stage.session(&stage.agent, version, &json!({ "elicitation": {} })).await;
    let mut reply: Reply = stage.in_session(&stage.agent, &session, version).old(5, "tools/call", &call()).send().await;
    let question = reply.event().await.unwrap();
    assert_eq!(
        (&question["method"], &question["params"]["message"]),
        (&json!("elicitation/create"), &json!("Which colour?"))
    );
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept", "content": { "colour": "red" } } });
    assert_eq!(stage.in_session(&stage.agent, &session, version).body(&answer.to_string()).send().await.status, 202);
    let done = reply.event().await.unwrap();
    assert_eq!(done["result"]["structuredContent"], json!({ "text": "red" }), "{done}");
    // One that has not said that it can be asked is not.
    let mute = stage.session(&stage.agent, version, &json!({})).await;
    let refused = stage.in_session(&stage.agent, &mute, version).old(6, "tools/call", &call()).message().await;
    assert_eq!(refused["result"]["_meta"]["dev.gantry/error"]["code"], "E3010", "{refused}");
}
