//! Clients that do not read what they are sent: they cost a bounded amount and hold nobody up.

use ports::offerings::OfferingChange;
use serde_json::{Value, json};

use crate::client::Reply;
use crate::stage::Stage;

/// Updates that are told, each of about [`ADDRESS_BYTES`]: far more than sockets and queues hold.
const UPDATES: usize = 20_000;
const ADDRESS_BYTES: usize = 2_000;
/// How many of them may be on their way to one who does not read: what two sockets hold (some megabytes), and queues.
const ON_THEIR_WAY_MAX: usize = UPDATES / 2;

async fn listening(stage: &Stage, uri: &str) -> Reply {
    let filter = json!({ "notifications": { "resourceSubscriptions": [uri] } });
    let ask = stage.ask().token(&stage.reader).new_style(7, "subscriptions/listen", filter, &json!({}));
    let mut reply = ask.send().await;
    let accepted = reply.event().await.unwrap();
    assert_eq!(accepted["params"]["notifications"]["resourceSubscriptions"][0], uri, "{accepted}");
    reply
}

#[tokio::test]
async fn whoever_does_not_read_is_told_less_and_holds_nobody_up() {
    let stage = Stage::new().await;
    let own = format!("note://{}", "x".repeat(ADDRESS_BYTES));
    let shown = format!("gantry://servers/notes/note:%2F%2F{}", "x".repeat(ADDRESS_BYTES));
    let mut deaf = listening(&stage, &shown).await;
    let session = stage.session(&stage.reader, "2025-11-25", &json!({})).await;
    let old = || stage.in_session(&stage.reader, &session, "2025-11-25");
    let subscribed = old().old(2, "resources/subscribe", &json!({ "uri": shown })).message().await;
    assert_eq!(subscribed["result"], json!({}), "{subscribed}");
    let deaf_session = old().method("GET").header("accept", "text/event-stream").send().await;
    let mut attentive = listening(&stage, "gantry://servers/notes/note:%2F%2F1").await;
    stage.until("all watch", || stage.shelf.watched() == 3).await;
    for n in 0..UPDATES {
        stage.shelf.tell(None, "notes", OfferingChange::Resource(own.clone()));
        if n % 50 == 0 {
            tokio::task::yield_now().await;
        }
    }
    stage.shelf.tell(None, "notes", OfferingChange::Resource("note://1".into()));
    let told = attentive.event().await.unwrap();
    assert_eq!(told["params"]["uri"], "gantry://servers/notes/note:%2F%2F1", "{told}");
    let called = stage.call("demo__echo_tool", json!({ "text": "still here" })).await;
    assert_eq!(called["result"]["structuredContent"]["text"], "still here", "{called}");
    assert_eq!(stage.door.mcp_state().await.listeners, 3);
    // What was kept for it was bounded; the rest came together in one word.
    drop(deaf_session);
    let mut taken = 0;
    while taken <= ON_THEIR_WAY_MAX
        && let Ok(Some(event)) = tokio::time::timeout(std::time::Duration::from_millis(500), deaf.event())
            .await
            .map(|event: Option<Value>| event)
    {
        assert_eq!(event["params"]["uri"], shown.as_str(), "{event}");
        taken += 1;
    }
    assert!((1..=ON_THEIR_WAY_MAX).contains(&taken), "{taken} words were kept for a client that does not read");
}
