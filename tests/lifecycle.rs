//! Versions on their way out, over REST.

use serde_json::{Value, json};

use crate::support::{Answer, Gantry, Start, manifest};

async fn call(gantry: &Gantry, version: &str) -> Answer {
    let body = json!({ "tool_id": "demo.echo_sum", "tool_version": version, "parameters": { "expression": "1" } });
    gantry.post("/v1/tools/invoke", body).await
}

#[tokio::test]
async fn a_version_is_deprecated_restored_sunset_and_removed() {
    let gantry = Gantry::start().await;
    for version in ["1.0.0", "1.1.0"] {
        gantry.register(manifest(json!({ "version": version }))).await;
    }
    let change = async |verb: &str, body: Value| gantry.post(&format!("/v1/tools/demo.echo_sum/{verb}"), body).await;

    let body = json!({ "version": "1.1.0", "migration_guide_url": "https://example.com/guide", "replacement_tool_id": "calculator" });
    assert_eq!(change("deprecate", body).await.status, 200);
    let answer = call(&gantry, "1.1.0").await;
    let notice = &answer.body["execution_metadata"]["deprecation"];
    assert_eq!(notice["successor"], "calculator", "{}", answer.text);
    assert_eq!(notice["migration_guide"], "https://example.com/guide");
    assert_eq!(call(&gantry, "LATEST").await.body["tool_version"], "1.0.0");
    assert_eq!(call(&gantry, "^1").await.body["tool_version"], "1.1.0");

    assert_eq!(change("restore", json!({ "version": "1.1.0" })).await.status, 200);
    assert_eq!(call(&gantry, "LATEST").await.body["tool_version"], "1.1.0");

    assert_eq!(change("sunset", json!({ "version": "1.1.0" })).await.status, 200);
    assert_eq!(call(&gantry, "^1").await.body["tool_version"], "1.0.0");
    assert_eq!(call(&gantry, "1.1.0").await.status, 200, "exact pins are served");

    assert_eq!(change("remove", json!({ "version": "1.1.0" })).await.status, 200);
    assert_eq!(call(&gantry, "1.1.0").await.refusal(), (410, "E3104"));
    let history = gantry.get("/v1/tools/demo.echo_sum/versions/1.1.0").await;
    assert_eq!((history.status, &history.body["lifecycle_state"]), (200, &json!("removed")), "{}", history.text);
    assert_eq!(change("restore", json!({ "version": "1.1.0" })).await.refusal(), (412, "E3408"));
    let again =
        gantry.register(manifest(json!({ "version": "1.1.0", "description": "The number is taken for ever." }))).await;
    assert_eq!(again.refusal(), (409, "E3103"));
    let same = gantry.register(manifest(json!({ "version": "1.1.0" }))).await;
    assert_eq!(same.refusal(), (409, "E3103"), "the same content does not bring it back either");
    assert_eq!(change("deprecate", json!({ "version": "7.0.0" })).await.refusal(), (404, "E3102"));
}

#[tokio::test]
async fn a_whole_tool_leaves_lists_and_search_when_it_is_removed_and_stays_so_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).run().await;
    gantry.register(manifest(json!({}))).await;
    assert_eq!(gantry.post("/v1/tools/demo.echo_sum/remove", json!({})).await.status, 200);
    gantry.kill();
    let gantry = Start::new().data(&data).run().await;
    assert!(!gantry.get("/v1/tools").await.text.contains("echo_sum"));
    assert!(!gantry.get("/v1/tools/search?q=arithmetic%20demonstrations").await.text.contains("echo_sum"));
    assert!(gantry.get("/v1/tools?lifecycle=removed").await.text.contains("echo_sum"));
    assert_eq!(call(&gantry, "1.0.0").await.refusal(), (410, "E3104"));
}
