//! A log that does not keep up: calls that cannot be recorded are turned away, and taken again when it does.

use serde_json::{Value, json};

use crate::stage::Stage;

/// More batches than there is room for in the queue of records.
const BATCHES_MAX: usize = 2_000;

#[tokio::test]
async fn calls_wait_for_room_in_the_log_and_are_turned_away_without() {
    let stage = Stage::new().await;
    let held = stage.paper.1.write().await;
    let call = json!({ "tool_id": "demo.echo_tool", "parameters": { "text": "x" } });
    let ten = json!({ "calls": vec![call; 10] });
    let mut refused = Value::Null;
    for _ in 0..BATCHES_MAX {
        let reply = stage.admin("POST", "/v1/tools/invoke/batch", Some(ten.clone())).await.json();
        if reply.to_string().contains("E3803") {
            refused = reply;
            break;
        }
    }
    assert!(refused.to_string().contains("wait to be recorded"), "no call was turned away: {refused}");
    let reply = stage.invoke("demo.echo_tool", json!({ "text": "x" })).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &json!("E3803")));
    assert_eq!(reply.json()["error"]["retryable"], true);
    drop(held);
    // There is room as soon as the first records are written.
    let reply = stage.invoke("demo.echo_tool", json!({ "text": "x" })).await;
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
}
