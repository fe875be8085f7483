//! What the tools of a server do to the world is said for many at once: the server's own hints are a proposal, and nothing
//! follows from them before a person has accepted it.

use serde_json::json;

use super::*;

async fn class_of(harness: &McpHarness, tool: &str) -> Value {
    harness.gantry.get(&format!("/v1/tools/{tool}")).await.body["manifest"]["side_effect_policy"].clone()
}

#[tokio::test]
async fn hints_are_a_proposal_that_is_accepted_once_and_names_say_the_rest() {
    let harness = McpHarness::open().await;
    harness.put("hinted", &harness.plain(&["--hints"])).await;

    // A look changes nothing.
    let shown = harness.gantry.cli(&["server", "classify", "hinted"]).ok().out();
    assert!(shown.contains("accept the 2 proposed: gantry server classify hinted --trust-hints"), "{shown}");
    let planned =
        harness.gantry.cli(&["server", "classify", "hinted", "--trust-hints", "--dry-run", "--json"]).ok().json();
    assert_eq!(planned["classified"].as_array().unwrap().len(), 2, "{planned}");
    let call_of = |said: &Value, tool: &str| {
        let all = said["classified"].as_array().unwrap();
        all.iter().find(|one| one["tool_id"] == tool).unwrap()["call"]["outcome"].clone()
    };
    assert_eq!(
        (call_of(&planned, "hinted.echo"), call_of(&planned, "hinted.count")),
        (json!("runs"), json!("refused"))
    );
    let planned = harness.gantry.cli(&["server", "classify", "hinted", "--trust-hints", "--dry-run"]).ok().out();
    assert!(planned.contains("E3208"), "{planned}");
    assert!(shown.contains("E3208"), "a look says what the proposal would mean: {shown}");
    assert_eq!(class_of(&harness, "hinted.echo").await, "unclassified");

    let ran = harness.gantry.cli(&["server", "classify", "hinted", "--trust-hints", "--json"]).ok();
    assert!(ran.err().contains("`hinted.count` becomes irreversible") && ran.err().contains("E3208"), "{}", ran.err());
    let said = ran.json();
    assert_eq!(said["classified"].as_array().unwrap().len(), 2, "{said}");
    assert_eq!(call_of(&said, "hinted.count"), "refused", "{said}");
    assert_eq!(class_of(&harness, "hinted.echo").await, "pure");
    assert_eq!(class_of(&harness, "hinted.count").await, "irreversible");
    assert_eq!(class_of(&harness, "hinted.ask_name").await, "unclassified");

    // What a person says goes before hints, and stays when the hints are asked for again.
    harness.gantry.cli(&["server", "classify", "hinted", "--idempotent", "c*", "--pure", "ask_*"]).ok();
    let again = harness.gantry.cli(&["server", "classify", "hinted", "--trust-hints", "--json"]).ok().json();
    assert_eq!(again["classified"], json!([]));
    assert_eq!(class_of(&harness, "hinted.count").await, "idempotent");
    assert_eq!(class_of(&harness, "hinted.ask_name").await, "pure");
}

#[tokio::test]
async fn a_mistake_in_one_pattern_classifies_nothing() {
    let harness = McpHarness::open().await;
    harness.put("hinted", &harness.plain(&["--hints"])).await;
    for (patterns, word) in [
        (["--pure", "*", "--irreversible", "count"], "hinted.count"),
        (["--pure", "echo", "--irreversible", "cuont"], "did you mean `count`?"),
    ] {
        let ran = harness.gantry.cli(&[&["server", "classify", "hinted"], patterns.as_slice()].concat());
        assert_eq!(ran.code(), 2, "{}", ran.err());
        assert!(ran.err().contains(word) && ran.err().contains("nothing was classified"), "{}", ran.err());
    }
    for tool in ["echo", "count", "ask_name"] {
        assert_eq!(class_of(&harness, &format!("hinted.{tool}")).await, "unclassified", "{tool}");
    }
    // Nobody sits there who could be asked.
    let ran = harness.gantry.cli(&["server", "classify", "hinted", "--interactive"]);
    assert_eq!(ran.code(), 2, "{}", ran.err());

    // What was looked at is no longer what the server says.
    let stale = json!({ "side_effect_policy": "pure", "digest": format!("sha256:{}", "0".repeat(64)) });
    let answer = harness.gantry.post("/v1/servers/hinted/tools/echo/classify", stale).await;
    assert_eq!(answer.body["error"]["code"], "E3408", "{}", answer.text);
    assert_eq!(class_of(&harness, "hinted.echo").await, "unclassified");
}
