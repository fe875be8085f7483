//! Programs in the sandbox: meeting them, calling their tools, and what they get of the machine.

use std::sync::Arc;

use contract::error::ErrorCode;
use gantry_upstreams::{ProtocolEra, ServerState};
use serde_json::{Value, json};

use crate::rig::{Listener, Rig, call, home, text};

#[tokio::test]
async fn a_tool_of_an_old_and_of_a_new_server_is_called_and_its_result_is_whole() {
    for (switches, era) in [(&[][..], ProtocolEra::Legacy), (&["--modern"][..], ProtocolEra::Modern)] {
        let rig = Rig::misbehaving(switches);
        assert_eq!(rig.state(), ServerState::Stopped, "nothing is started before it is wanted");
        let result = rig.call("echo", json!({ "a": [1, "ü"] })).await.unwrap();
        assert_eq!(result["structuredContent"], json!({ "a": [1, "ü"] }));
        assert_eq!(text(&result), r#"{"a": [1, "\u00fc"]}"#);
        let strange = rig.call("hologram", json!({})).await.unwrap();
        assert_eq!(strange["content"][0], json!({ "type": "hologram", "beam": [1, { "x": "ü" }] }));
        assert_eq!(strange["content"][1]["later"], 1);
        let status = rig.upstreams.status().remove(0);
        assert_eq!((status.state, status.era, status.restarts, status.calls), (ServerState::Ready, Some(era), 0, 2));
        assert!(status.pid.is_some());
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn a_program_sees_its_own_environment_and_its_secret_does_not_come_back() {
    let rig = Rig::misbehaving(&[]);
    let result = rig.call("environment", json!({})).await.unwrap();
    let seen: Value = serde_json::from_str(text(&result)).unwrap();
    let mut names: Vec<&str> = seen.as_object().unwrap().keys().map(String::as_str).collect();
    // Every server is told the way out, also one that may go nowhere: what it wanted is then in its log (decision 0140).
    assert!(seen["HTTPS_PROXY"].as_str().is_some_and(|proxy| proxy.starts_with("http://127.0.0.1:")), "{seen}");
    names.retain(|name| !name.starts_with("LC_") && !name.to_lowercase().contains("_proxy"));
    assert_eq!(names, ["HOME", "KEY", "LANG", "PATH", "TMPDIR"]);
    assert_eq!(seen["KEY"], "[secret key]");
    assert!(rig.marked("hello-gantry") == 1, "it was told who calls");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_failed_tool_and_a_refused_call_are_told_apart() {
    let rig = Rig::misbehaving(&[]);
    let failed = rig.call("fail", json!({})).await.unwrap_err();
    assert_eq!(failed.code, ErrorCode::E3401);
    assert_eq!(failed.details.unwrap()["content"][0]["text"], "it went wrong");
    for (code, expected) in [(-32602, ErrorCode::E3301), (-32603, ErrorCode::E3502), (7, ErrorCode::E3502)] {
        let refused = rig.call("refuse", json!({ "code": code })).await.unwrap_err();
        assert_eq!(refused.code, expected);
        assert_eq!(refused.details.unwrap()["content"][0]["text"], "not today");
    }
    for result in [json!("nonsense"), json!({}), json!({ "content": 1 })] {
        let refused = rig.call("nonsense", json!({ "result": result })).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::E3502);
    }
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn progress_and_log_lines_reach_the_companion_of_their_call() {
    for switches in [&[][..], &["--modern"][..]] {
        let rig = Rig::misbehaving(switches);
        let listener = Arc::new(Listener::default());
        let mut call = call("progress", "pure", json!({}));
        call.companion = Arc::clone(&listener) as _;
        rig.run(call).await.unwrap();
        let heard = listener.heard.lock().unwrap().clone();
        assert_eq!(heard, ["progress 25 step 1", "progress 50 step 2", "warn careful"]);
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn a_question_in_the_middle_of_a_call_is_answered_by_the_caller_in_both_ways_of_asking() {
    for switches in [&[][..], &["--modern"][..]] {
        let rig = Rig::misbehaving(switches);
        let answer = json!({ "action": "accept", "content": { "ok": true } });
        let listener = Arc::new(Listener { answer: Some(answer.clone()), ..Listener::default() });
        let mut asked = call("confirm", "unclassified", json!({}));
        asked.companion = Arc::clone(&listener) as _;
        let result = rig.run(asked).await.unwrap();
        let given: Value = serde_json::from_str(text(&result)).unwrap();
        assert_eq!(given["given"], answer);
        assert_eq!(*listener.heard.lock().unwrap(), ["asked elicitation/create"]);
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn questions_that_nobody_may_or_can_answer_are_refused_and_the_call_goes_on() {
    // The old way: the server hears an error and says so.
    let rig = Rig::misbehaving(&[]);
    for tool in ["confirm", "sample"] {
        let result = rig.call(tool, json!({})).await.unwrap();
        assert!(text(&result).contains("code"), "{result}");
    }
    rig.upstreams.shut_down().await;
    // The new way: the call itself is refused with what to do about it.
    let rig = Rig::misbehaving(&["--modern"]);
    let refused = rig.call("confirm", json!({})).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3010);
    let mut spec = rig.spec(&["--modern"]);
    spec.relay.elicitation = false;
    rig.apply(spec);
    rig.until("the change has come through", |rig| rig.marked("start") == 2).await;
    let listener = Arc::new(Listener { answer: Some(json!({})), ..Listener::default() });
    let mut asked = call("confirm", "pure", json!({}));
    asked.companion = Arc::clone(&listener) as _;
    assert_eq!(rig.run(asked).await.unwrap_err().code, ErrorCode::E3010);
    assert!(listener.heard.lock().unwrap().is_empty(), "the caller was not asked");
    let nagged = rig.call("nag", json!({})).await.unwrap_err();
    assert_eq!(nagged.code, ErrorCode::E3407, "rounds are bounded");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn all_pages_are_listed_as_they_are_and_lists_without_end_are_refused() {
    let rig = Rig::misbehaving(&["--tools", "5000", "--twins", "--long-names"]);
    let tools = rig.upstreams.list_tools(&home(), "misbehaving").await.unwrap();
    let named = |name: &str| tools.iter().filter(|tool| tool["name"] == name).count();
    assert!(tools.len() > 5_000);
    assert_eq!((named("extra_4999"), named("twin"), named(&"n".repeat(200))), (1, 2, 1));
    assert_eq!(rig.upstreams.list_tools(&home(), "unknown").await.unwrap_err().code, ErrorCode::E3108);
    rig.upstreams.shut_down().await;
    for (switches, code) in
        [(&["--tools", "20000", "--page", "5000"][..], ErrorCode::E3414), (&["--endless-pages"][..], ErrorCode::E3502)]
    {
        let rig = Rig::misbehaving(switches);
        assert_eq!(rig.upstreams.list_tools(&home(), "misbehaving").await.unwrap_err().code, code);
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn resources_and_prompts_are_there_where_the_operator_offers_them() {
    let rig = Rig::misbehaving(&[]);
    let (home, name) = (home(), "misbehaving");
    let refused = rig.upstreams.list_resources(&home, name, &home).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3010);
    let mut spec = rig.spec(&[]);
    (spec.resources, spec.prompts) = (true, true);
    rig.apply(spec);
    assert_eq!(rig.upstreams.list_resources(&home, name, &home).await.unwrap()[0]["uri"], "memo://one");
    let nobody = ports::tool_companion::SilentCompanion::new();
    let turn = gantry_upstreams::upstreams::ListTurn { tenant: &home, agent: "somebody" };
    let read = rig.upstreams.read_resource(&home, name, turn, json!({ "uri": "memo://one" }), &nobody).await.unwrap();
    assert_eq!(read["contents"][0]["text"], "hello");
    assert_eq!(rig.upstreams.list_prompts(&home, name, &home).await.unwrap()[0]["name"], "greet");
    assert_eq!(rig.upstreams.list_resource_templates(&home, name, &home).await.unwrap(), Vec::<Value>::new());
    let refused = rig.upstreams.get_prompt(&home, name, turn, json!({ "name": "x" }), &nobody).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3010, "it does not know the method");
    rig.upstreams.shut_down().await;
}
