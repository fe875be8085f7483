//! Calls that last: a caller says how long one may take, and a tool that says how far it is gets its time anew, up to the most it
//! may have.

use super::*;

impl McpHarness {
    /// A call of a tool that works for so many tenths of a second.
    async fn worked(&self, tool: &str, steps: u32, meta: Value) -> Value {
        let asked = json!({ "name": format!("large__{tool}"), "arguments": { "steps": steps }, "_meta": meta });
        self.new_client().request("tools/call", asked).await.unwrap().result().unwrap()
    }
}

fn said(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[tokio::test]
async fn progress_gives_a_call_its_time_anew_and_silence_does_not() {
    let harness =
        McpHarness::with_large(&[], json!({ "call_timeout_seconds": 2, "call_timeout_max_seconds": 200 })).await;
    let silent = harness.worked("silent", 50, json!({})).await;
    assert!(said(&silent).starts_with("E3413") && said(&silent).contains("took longer than its 2000 ms"), "{silent}");
    let lasted = harness.worked("steps", 50, json!({})).await;
    assert_eq!(said(&lasted), "50 steps", "five seconds of work, in a time of two: {lasted}");
}

#[tokio::test]
async fn progress_does_not_lengthen_a_call_beyond_the_most_it_may_have() {
    let harness =
        McpHarness::with_large(&[], json!({ "call_timeout_seconds": 2, "call_timeout_max_seconds": 4 })).await;
    let ended = harness.worked("steps", 600, json!({ "progressToken": "p" })).await;
    assert!(said(&ended).starts_with("E3413") && said(&ended).contains("took longer than its 4000 ms"), "{ended}");
}

#[tokio::test]
async fn a_caller_says_how_long_its_call_may_take() {
    let harness =
        McpHarness::with_large(&[], json!({ "call_timeout_seconds": 2, "call_timeout_max_seconds": 60 })).await;
    // Its word is the last one, whatever the tool says about its progress.
    let ended = harness.worked("steps", 600, json!({ "dev.gantry/timeout_seconds": 1 })).await;
    assert!(said(&ended).starts_with("E3413") && said(&ended).contains("took longer than its 1000 ms"), "{ended}");
    let lasted = harness.worked("silent", 40, json!({ "dev.gantry/timeout_seconds": 60 })).await;
    assert_eq!(said(&lasted), "40 steps", "{lasted}");
    let wrong = harness.worked("silent", 1, json!({ "dev.gantry/timeout_seconds": "soon" })).await;
    assert!(said(&wrong).starts_with("E3004"), "{wrong}");
}

#[tokio::test]
async fn a_client_without_tasks_that_says_how_long_it_waits_asks_for_the_result_later() {
    let harness = McpHarness::with_large(&[], json!({})).await;
    for client in [harness.old_client("2025-06-18").await, harness.new_client()] {
        let asked =
            json!({ "name": "large__silent", "arguments": { "steps": 30 }, "_meta": { "dev.gantry/wait_seconds": 1 } });
        let told = client.request("tools/call", asked).await.unwrap().result().unwrap();
        let id = told["_meta"]["dev.gantry/invocation_id"].as_str().unwrap_or_else(|| panic!("{told}"));
        assert!(said(&told).contains(&format!("It goes on in the background as {id}")), "{told}");
        let uri = told["content"][1]["uri"].clone();
        assert_eq!(uri, format!("gantry://calls/{id}"), "{told}");
        let ended = until("the end of the call", async || {
            let read = client.request("resources/read", json!({ "uri": uri })).await.unwrap().result().unwrap();
            let status: Value = serde_json::from_str(read["contents"][0]["text"].as_str().unwrap()).unwrap();
            (status["status"] != "working").then_some(status)
        })
        .await;
        assert_eq!((&ended["status"], said(&ended["result"])), (&json!("completed"), "30 steps"), "{ended}");
        let other = harness.gantry.mint(json!({ "tenant": "local", "sub": "somebody-else" })).await;
        let other = RawClient::new(&harness.door(), &other, raw_client::agreeable);
        assert!(other.request("resources/read", json!({ "uri": uri })).await.unwrap().result().is_err());
        let fast =
            json!({ "name": "large__silent", "arguments": { "steps": 1 }, "_meta": { "dev.gantry/wait_seconds": 60 } });
        let fast = client.request("tools/call", fast).await.unwrap().result().unwrap();
        assert_eq!(said(&fast), "1 steps", "{fast}");
    }
}
