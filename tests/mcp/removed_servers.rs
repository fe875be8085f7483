//! Tools of a server that was removed are gone for everybody, whoever asks and by whatever way; the records know them still.

use serde_json::json;

use super::*;

/// What a list and a search have of the server's tools, for whoever sees everything.
async fn listed(gantry: &Gantry) -> Vec<String> {
    let mut all = Vec::new();
    for (path, member) in [
        ("/v1/tools?page_size=200", "tools"),
        ("/v1/tools?tier=catalog&page_size=200", "tools"),
        ("/v1/tools/search?q=echo", "results"),
    ] {
        let answer = gantry.get(path).await;
        let tools = answer.body[member].as_array().unwrap_or_else(|| panic!("{path}: {}", answer.text)).clone();
        all.extend(tools.iter().map(|tool| tool["tool_id"].as_str().unwrap().to_owned()));
    }
    all.retain(|id| id.starts_with("shop."));
    all
}

#[tokio::test]
async fn tools_of_a_removed_server_are_in_no_list_and_a_call_says_why_also_after_a_restart() {
    let harness = McpHarness::open().await;
    harness.put("shop", &harness.plain(&[])).await;
    assert!(listed(&harness.gantry).await.contains(&"shop.echo".to_owned()));
    harness.gantry.cli(&["server", "remove", "shop", "--yes"]).ok();
    let McpHarness { home, gantry, .. } = harness;
    assert_gone(&gantry).await;
    gantry.shut_down();
    let data = home.path().join("data");
    // The command reads the data directory itself where no server runs.
    let offline = crate::support::run(crate::support::gantry(&data).args(["tool", "list", "--json"])).ok().json();
    assert!(!offline["tools"].to_string().contains("shop.echo"), "{offline}");
    let gantry = Start::new().data(&data).run().await;
    assert_gone(&gantry).await;
}

async fn assert_gone(gantry: &Gantry) {
    assert_eq!(listed(gantry).await, Vec::<String>::new());
    let answer = gantry.invoke("shop.echo", json!({ "text": "x" })).await;
    assert_eq!(answer.refusal(), (404, "E3101"), "{}", answer.text);
    assert!(answer.text.contains("was removed"), "{}", answer.text);
    let history = gantry.get("/v1/tools/shop.echo").await;
    assert_eq!(history.body["why_unavailable"], "server_removed", "{}", history.text);
    let shown = gantry.cli(&["tool", "show", "shop.echo"]).ok().out();
    assert!(shown.contains("cannot be called"), "{shown}");
}
