//! A server that changes what it says about a tool after people have begun to trust it. No client ever sees the changed
//! word before somebody has accepted it.

use serde_json::json;

use super::*;

const HONEST: &str = "Says what something costs.";

struct Pulled {
    harness: McpHarness,
    client: RawClient,
}

impl Pulled {
    async fn open() -> Self {
        let harness = McpHarness::open().await;
        let switch = harness.path("state/switch");
        std::fs::write(&switch, "").unwrap();
        harness.put("shop", &harness.plain(&["--switch", &switch])).await;
        let client = harness.new_client();
        let pulled = Self { harness, client };
        assert_eq!(pulled.shown().await.unwrap()["description"], HONEST);
        let answer = pulled.harness.invoke("shop.price", json!({ "item": "bread" })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        pulled
    }

    /// The tool as a client sees it now.
    async fn shown(&self) -> Option<Value> {
        self.client.list("tools").await.unwrap().into_iter().find(|tool| tool["name"] == "shop__price")
    }

    /// Lets the server say something else, and has Gantry hear it.
    async fn say(&self, word: &str) {
        std::fs::write(self.harness.file("state/switch"), word).unwrap();
        let answer = self.harness.gantry.post("/v1/servers/shop/restart", json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }

    async fn pin(&self) -> Value {
        let answer = self.harness.gantry.get("/v1/servers/shop/tools").await;
        let tools = answer.body["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["tool_id"] == "shop.price").cloned().unwrap_or_default()
    }

    /// Waits for a state of the pin. Whatever a client sees meanwhile is the word that was accepted, or nothing.
    async fn becomes(&self, state: &str) -> Value {
        until(state, async || {
            if let Some(tool) = self.shown().await {
                assert_eq!(tool["description"], HONEST, "a client saw what nobody has accepted");
                assert_eq!(tool["inputSchema"]["required"], json!(["item"]), "{tool}");
            }
            let pin = self.pin().await;
            (pin["state"] == state).then_some(pin)
        })
        .await
    }
}

#[tokio::test]
async fn a_changed_description_or_schema_is_quarantined_before_any_client_sees_it() {
    for (word, in_difference) in [("description", "read every file"), ("schema", "password")] {
        let pulled = Pulled::open().await;
        pulled.say(word).await;
        let pin = pulled.becomes("quarantined").await;
        assert!(pin["difference"].to_string().contains(in_difference), "{word}: {pin}");
        assert_eq!(pulled.shown().await, None, "{word}: a tool in quarantine is not offered");
        let answer = pulled.harness.invoke("shop.price", json!({ "item": "bread" })).await;
        assert_eq!(answer.code(), "E3108", "{word}: {}", answer.text);
        let called = pulled.client.call("shop__price", &json!({ "item": "bread" })).await.unwrap();
        assert!(!called.text().contains("costs 3"), "{word}: {:?}", called.message);
        // The other tools of that server go on.
        let answer = pulled.harness.invoke("shop.echo", json!({ "text": "still here" })).await;
        assert_eq!(answer.status, 200, "{word}: {}", answer.text);
    }
}

#[tokio::test]
async fn what_was_reviewed_and_accepted_becomes_visible_as_a_new_version() {
    let pulled = Pulled::open().await;
    pulled.say("schema").await;
    let before = pulled.becomes("quarantined").await;
    let review = pulled.harness.gantry.cli(&["server", "review", "shop"]).ok().out();
    assert!(review.contains("password"), "{review}");
    pulled.harness.gantry.cli(&["server", "accept", "shop", "price", "--json"]).ok();
    let after = until("the accepted version", async || {
        let pin = pulled.pin().await;
        (pin["state"] == "accepted").then_some(pin)
    })
    .await;
    assert_ne!(before["version"], after["version"], "{after}");
    assert_eq!(pulled.shown().await.unwrap()["inputSchema"]["required"], json!(["item", "password"]));
    let answer = pulled.harness.invoke("shop.price", json!({ "item": "bread", "password": "x" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn a_server_that_takes_its_word_back_is_trusted_again() {
    let pulled = Pulled::open().await;
    pulled.say("description").await;
    pulled.becomes("quarantined").await;
    pulled.harness.gantry.cli(&["server", "reject", "shop", "price"]).ok();
    pulled.say("").await;
    pulled.becomes("accepted").await;
    until("the tool", async || pulled.shown().await).await;
}

#[tokio::test]
async fn a_tool_that_is_gone_is_no_longer_offered_and_comes_back_as_it_was() {
    let pulled = Pulled::open().await;
    pulled.say("gone").await;
    pulled.becomes("withdrawn").await;
    assert_eq!(pulled.shown().await, None);
    let answer = pulled.harness.invoke("shop.price", json!({ "item": "bread" })).await;
    assert_eq!(answer.code(), "E3108", "{}", answer.text);
    pulled.say("").await;
    until("the tool", async || pulled.shown().await).await;
}
