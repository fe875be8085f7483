//! Versions that end and tools that people take out of use: known and counted by all replicas together.

use serde_json::json;

use super::site::{NAMES, Site, until};
use crate::support::manifest;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_of_a_deprecated_version_are_counted_together_and_a_quarantine_holds_everywhere() {
    let site = Site::new();
    let one = site.replica(NAMES[0]).await;
    let two = site.replica(NAMES[1]).await;
    assert_eq!(one.register(manifest(json!({ "lifecycle_state": "deprecated" }))).await.status, 201);
    let call = json!({ "tool_id": "demo.echo_sum", "parameters": { "expression": "1+1" } });
    until("the tool is everywhere", async || two.get("/v1/tools/demo.echo_sum").await.status == 200).await;
    for gantry in [&one, &two, &two] {
        let answer = gantry.post("/v1/tools/invoke", call.clone()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    for gantry in [&one, &two] {
        until("the calls of both are counted by each", async || {
            let counted = gantry.get("/v1/tools/demo.echo_sum/deprecation").await;
            counted.body["versions"][0]["calls_last_7_days"] == 3
        })
        .await;
    }

    let held = two.post("/v1/tools/demo.echo_sum/quarantine", json!({ "reason": "it is looked at" })).await;
    assert_eq!(held.status, 200, "{}", held.text);
    assert_eq!(two.post("/v1/tools/invoke", call.clone()).await.refusal(), (423, "E3107"), "at once where it was said");
    until("the quarantine holds at the other", async || {
        one.post("/v1/tools/invoke", call.clone()).await.code() == "E3107"
    })
    .await;
    let released = one.post("/v1/tools/demo.echo_sum/release", json!({ "reason": "it is well" })).await;
    assert_eq!(released.status, 200, "{}", released.text);
    until("it is released at the other", async || two.post("/v1/tools/invoke", call.clone()).await.status == 200).await;
}
