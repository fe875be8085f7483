//! Changes of servers that are there: one that does not start is taken back, a new credential is used at once, and the audit log
//! says what was changed.

use serde_json::json;

use super::*;

#[tokio::test]
async fn a_change_that_does_not_start_is_taken_back_and_recorded_with_what_it_was() {
    let harness = McpHarness::open().await;
    harness.put("shop", &harness.plain(&[])).await;
    let before = harness.gantry.get("/v1/servers").await.body["servers"][0]["spec"].clone();
    let gone = harness.path("not/there");
    let ran = harness.gantry.cli(&["server", "grant", "shop", "--allow-read", &gone, "--json"]);
    let document = ran.json();
    assert_eq!((ran.code(), &document["servers"][0]["trial"]["result"]), (1, &json!("taken_back")), "{document}");
    assert!(document.to_string().contains("the server is as it was"), "{document}");
    assert_eq!(harness.gantry.get("/v1/servers").await.body["servers"][0]["spec"], before);
    let answer = harness.invoke("shop.echo", json!({ "text": "hello" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let records = harness.gantry.get("/v1/audit?action=servers_changed").await.text;
    for sign in ['+', '-'] {
        assert!(records.contains(&format!("changed `shop`: {sign}filesystem:read:{gone}")), "{sign}: {records}");
    }
}

#[tokio::test]
async fn a_credential_that_is_given_again_is_used_at_once() {
    let harness = McpHarness::open().await;
    // It only starts with the second value.
    let script =
        format!("[ \"$API_TOKEN\" = right-value-1 ] || exit 3; exec python3 {}", harness.path("servers/plain.py"));
    let (readable, writable) = (harness.path("servers"), harness.path("state"));
    let added = harness.gantry.cli(&[
        "server",
        "add",
        "keyed",
        "--env",
        "API_TOKEN=wrong-value-1",
        "--allow-read",
        &readable,
        "--allow-write",
        &writable,
        "--json",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    let document = added.json();
    assert_eq!(document["servers"][0]["trial"]["result"], "fails", "{document}");
    let edited = harness.gantry.cli(&["server", "edit", "keyed", "--env", "API_TOKEN=right-value-1", "--json"]);
    let document = edited.json();
    assert_eq!((edited.code(), &document["servers"][0]["trial"]["result"]), (0, &json!("works")), "{document}");
    let removed = harness.gantry.cli(&["server", "remove", "keyed", "--yes"]).ok();
    assert!(removed.err().contains("keyed_api_token"), "{}", removed.err());
}
