//! What a model should be shown, over the wire: within the budget, within what the caller may know, in the right version.

use serde_json::{Value, json};

use crate::client::Reply;
use crate::stage::{ADMIN, Stage, manifest};

impl Stage {
    async fn affordances(&self, token: &str, body: Value) -> Reply {
        self.ask("POST", "/v1/affordances", Some(token), Some(body)).await
    }
}

/// Id, version and detail of what is shown.
fn shown(answer: &Value) -> Vec<(&str, &str, &str)> {
    fn text<'a>(entry: &'a Value, name: &str) -> &'a str {
        entry[name].as_str().unwrap()
    }
    let entries = answer["schemas"].as_array().unwrap();
    entries.iter().map(|entry| (text(entry, "tool_id"), text(entry, "version"), text(entry, "detail"))).collect()
}

/// What `estimate` says: four characters a token, and others one each.
fn estimated(text: &str) -> usize {
    let plain = text.chars().filter(char::is_ascii).count();
    plain.div_ceil(4) + text.chars().count() - plain
}

#[tokio::test]
async fn with_room_for_all_the_index_is_whole_and_the_best_hit_comes_first() {
    let stage = Stage::new().await;
    let reply = stage.affordances(ADMIN, json!({ "objective": "echo some text", "token_budget": 2000 })).await;
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let answer = reply.json();
    let lines = ["echo", "fail", "gate", "panic"]
        .map(|name| format!("demo.{name}_tool — Does {name} with whatever text it is given [read-only]"));
    assert_eq!(answer["index"], json!(lines));
    assert_eq!(shown(&answer)[0], ("demo.echo_tool", "1.0.0", "standard"));
    assert_eq!(answer["schemas"][0]["parameters"]["required"], json!(["text"]));
    assert_eq!(
        (&answer["index_form"], &answer["omitted"], &answer["counter"]),
        (&json!("sentences"), &json!(0), &json!("o200k_base"))
    );
    let (used, left) = (answer["tokens_used"].as_u64().unwrap(), answer["tokens_left"].as_u64().unwrap());
    assert!(used > 100 && used + left == 2000, "{used} {left}");
}

#[tokio::test]
async fn with_less_room_there_is_less_and_never_more_than_the_budget() {
    let stage = Stage::new().await;
    let ask = async |budget: usize| {
        let body = json!({ "objective": "text", "token_budget": budget, "counter": "estimate" });
        stage.affordances(ADMIN, body).await.json()
    };
    for (budget, form) in [(600, "sentences"), (100, "names"), (33, "none"), (1, "none")] {
        let answer = ask(budget).await;
        assert_eq!(
            (answer["index_form"].as_str().unwrap(), answer["counter"].as_str().unwrap()),
            (form, "estimate"),
            "{budget}"
        );
        // What is counted is what is there, written without spaces.
        let mut text = format!("{{\"index\":{},\"schemas\":{}}}", answer["index"], answer["schemas"]);
        if let Some(note) = answer.get("note") {
            text = text.replacen('{', &format!("{{\"note\":{note},"), 1);
        }
        let tokens = usize::try_from(answer["tokens_used"].as_u64().unwrap()).unwrap();
        assert!(tokens <= budget, "{tokens}");
        assert_eq!(tokens, if budget == 1 { 0 } else { estimated(&text) }, "{text}");
    }
    assert_eq!(
        ask(33).await["note"],
        "The index of 4 tools does not fit; find tools with search_tools or GET /v1/tools/search."
    );
    assert_eq!(ask(1).await["tokens_left"], 1);
    let minimal =
        json!({ "objective": "echo", "token_budget": 2000, "detail": "minimal", "limit": 1, "counter": "estimate" });
    let minimal = stage.affordances(ADMIN, minimal).await.json();
    assert_eq!(shown(&minimal), [("demo.echo_tool", "1.0.0", "minimal")]);
    assert_eq!(minimal["schemas"][0]["more"], "whole schema: GET /v1/tools/demo.echo_tool/versions/1.0.0");
}

#[tokio::test]
async fn the_newest_version_in_use_is_shown_unless_one_is_pinned() {
    let stage = Stage::new().await;
    for version in ["1.1.0", "1.2.0"] {
        let reply = stage.admin("POST", "/v1/tools/register", Some(manifest("echo", version, &json!({})))).await;
        assert_eq!(reply.status, 201);
    }
    let deprecated =
        stage.admin("POST", "/v1/tools/demo.echo_tool/deprecate", Some(json!({ "version": "1.2.0" }))).await;
    assert_eq!(deprecated.status, 200, "{}", String::from_utf8_lossy(&deprecated.body));
    for (pins, expected) in [
        (json!([]), "1.1.0"),
        (json!(["demo.echo_tool"]), "1.1.0"),
        (json!([{ "tool_id": "demo.echo_tool", "version": "1.0.0" }]), "1.0.0"),
        (json!([{ "tool_id": "demo.echo_tool", "version": "^1.0" }]), "1.2.0"),
    ] {
        let body = json!({ "objective": "echo", "token_budget": 900, "tools": pins, "counter": "estimate" });
        let answer = stage.affordances(ADMIN, body).await.json();
        assert_eq!(shown(&answer)[0], ("demo.echo_tool", expected, "standard"), "{pins}");
        assert_eq!(shown(&answer).iter().filter(|(id, _, _)| *id == "demo.echo_tool").count(), 1);
    }
    // A pin outranks whatever search prefers.
    let body = json!({ "objective": "echo", "token_budget": 900, "tools": ["demo.gate_tool"], "counter": "estimate" });
    assert_eq!(shown(&stage.affordances(ADMIN, body).await.json())[0].0, "demo.gate_tool");
}

#[tokio::test]
async fn what_the_caller_may_not_know_is_nowhere() {
    let stage = Stage::new().await;
    let hidden = manifest("hidden", "1.0.0", &json!({ "namespace": "secret" }));
    assert_eq!(stage.admin("POST", "/v1/tools/register", Some(hidden)).await.status, 201);
    let ask =
        |pins: Value| json!({ "objective": "hidden text", "token_budget": 2000, "tools": pins, "counter": "estimate" });
    let seen = stage.affordances(ADMIN, ask(json!([]))).await;
    assert!(String::from_utf8_lossy(&seen.body).contains("secret.hidden_tool"));
    let unseen = stage.affordances(&stage.agent, ask(json!([]))).await;
    assert_eq!((unseen.status, unseen.json()["index"].as_array().unwrap().len()), (200, 4));
    assert!(!String::from_utf8_lossy(&unseen.body).contains("secret"));
    let pinned = stage.affordances(&stage.agent, ask(json!(["secret.hidden_tool"]))).await;
    let absent = stage.affordances(&stage.agent, ask(json!(["secret.absent_tool"]))).await;
    assert_eq!((pinned.status, pinned.code()), (404, "E3101".to_owned()));
    assert_eq!((absent.status, absent.code()), (404, "E3101".to_owned()));
}

#[tokio::test]
async fn wrong_wishes_are_refused_with_a_reason() {
    let stage = Stage::new().await;
    assert_eq!(stage.admin("POST", "/v1/tools/demo.fail_tool/remove", None).await.status, 200);
    let with = |name: &str, value: Value| {
        let mut body = json!({ "objective": "echo", "token_budget": 500, "counter": "estimate" });
        body[name] = value;
        body
    };
    for (body, code, message) in [
        (json!({ "token_budget": 5 }), "E3004", "`objective` is missing"),
        (json!({ "objective": "x" }), "E3004", "`token_budget` is missing"),
        (with("objective", json!("  ")), "E3004", "`objective` is empty"),
        (with("objective", json!("x".repeat(1001))), "E3004", "`objective` is too long"),
        (with("token_budget", json!(0)), "E3004", "`token_budget` must be 1 to 1000000"),
        (with("token_budget", json!(1_000_001)), "E3004", "`token_budget` must be 1 to 1000000"),
        (with("token_budget", json!(-1)), "E3004", "`token_budget` must be a whole number"),
        (with("limit", json!(101)), "E3004", "`limit` must be 1 to 100"),
        (with("detail", json!("standrad")), "E3004", "did you mean `standard`?"),
        (with("counter", json!("words")), "E3004", "`counter` has an unknown value"),
        (with("tools", json!([7])), "E3004", "a tool id, or an object with `tool_id` and `version`"),
        (with("tools", json!(vec!["demo.echo_tool"; 65])), "E3004", "`tools` is too long"),
        (with("tools", json!([{ "tool_id": "demo.echo_tool", "version": "9.9.9" }])), "E3102", "9.9.9"),
        (with("tools", json!([{ "tool_id": "demo.echo_tool", "version": "^9" }])), "E3103", ">=9.0.0"),
        (with("tools", json!([{ "tool_id": "demo.fail_tool", "version": "1.0.0" }])), "E3104", "has been removed"),
        (with("budget", json!(5)), "E3004", "there is no member `budget`"),
    ] {
        let reply = stage.affordances(ADMIN, body.clone()).await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.code(), code, "{body}: {text}");
        assert!(text.contains(message), "{body}: {text}");
    }
}
