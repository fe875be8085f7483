//! The four pairings: old and new clients with old and new servers. Lists, calls, errors and questions work in all.

use serde_json::json;

use super::*;

/// Both clients, named.
async fn clients(harness: &McpHarness) -> [(&'static str, RawClient); 2] {
    [("old", harness.old_client("2025-06-18").await), ("new", harness.new_client())]
}

async fn harness() -> McpHarness {
    let harness = McpHarness::open().await;
    for era in ["old", "new"] {
        harness.put(era, &harness.plain(&["--era", era])).await;
    }
    harness
}

#[tokio::test]
async fn every_client_lists_and_calls_every_server() {
    let harness = harness().await;
    for (client_era, client) in clients(&harness).await {
        let listed = names(&client).await;
        for server in ["old", "new"] {
            let tool = format!("{server}__echo");
            assert!(listed.contains(&tool), "{client_era}: {listed:?}");
            let said = format!("from {client_era} to {server}");
            let reply = client.call(&tool, &json!({ "text": said })).await.unwrap();
            assert_eq!(reply.text(), said);
        }
    }
}

#[tokio::test]
async fn a_question_of_every_server_reaches_every_client_and_its_answer_comes_back() {
    let harness = harness().await;
    for (client_era, client) in clients(&harness).await {
        for server in ["old", "new"] {
            let before = client.asked().len();
            let reply = client.call(&format!("{server}__ask_name"), &json!({})).await.unwrap();
            // What the agreeable client writes into a form without defaults.
            assert_eq!(reply.text(), "Hello, some name!", "{client_era} client, {server} server: {:?}", reply.message);
            let asked = client.asked();
            assert_eq!(asked.len(), before + 1, "{client_era} client, {server} server: {asked:?}");
            let question = asked.last().unwrap();
            assert_eq!(question["method"], "elicitation/create");
            assert_eq!(question["params"]["message"], "What is your name?");
            assert_eq!(question["params"]["requestedSchema"]["required"], json!(["name"]));
        }
    }
}

#[tokio::test]
async fn a_person_who_declines_is_believed_in_every_pairing() {
    let harness = harness().await;
    let decline: raw_client::Answerer = |_, _| json!({ "action": "decline" });
    let old = RawClient::old(&harness.door(), &harness.agent, "2025-11-25", decline).await.unwrap();
    for client in [old, RawClient::new(&harness.door(), &harness.agent, decline)] {
        for server in ["old", "new"] {
            let reply = client.call(&format!("{server}__ask_name"), &json!({})).await.unwrap();
            assert_eq!(reply.text(), "nobody told me", "{server}: {:?}", reply.message);
        }
    }
}

#[tokio::test]
async fn wrong_arguments_are_an_error_a_model_can_act_on_in_every_pairing() {
    let harness = harness().await;
    for (client_era, client) in clients(&harness).await {
        for server in ["old", "new"] {
            let reply = client.call(&format!("{server}__echo"), &json!({ "txt": "x" })).await.unwrap();
            let result = &reply.message["result"];
            assert_eq!(result["isError"], true, "{client_era} {server}: {}", reply.message);
            assert!(reply.text().contains("text"), "{client_era} {server}: {}", reply.text());
        }
    }
}

#[tokio::test]
async fn a_client_with_a_session_is_told_when_there_are_other_tools() {
    let harness = McpHarness::open().await;
    let client = harness.old_client("2025-11-25").await;
    assert!(!names(&client).await.contains(&"late__echo".to_owned()));
    // The session's stream opens after the handshake, so a change may come too early to be heard: there is always another.
    let mut number = 0;
    until("the word about other tools", async || {
        number += 1;
        harness.put(&format!("late{number}"), &harness.plain(&[])).await;
        client.told().iter().any(|told| told["method"] == "notifications/tools/list_changed").then_some(())
    })
    .await;
    assert!(names(&client).await.contains(&"late1__echo".to_owned()));
}
