//! A catalogue that is too large to be listed: what clients find then, and what the operator is told. (LAZY-001)

use serde_json::json;

use super::{names, until};
use crate::mcp::raw_client::{RawClient, agreeable};
use crate::support::Start;

#[tokio::test]
async fn an_operator_is_told_once_that_clients_find_three_tools_and_how_to_change_it() {
    let gantry = Start::new().env("GANTRY_MCP__AUTO_TOOLS_MAX", "2").run().await;
    let door = format!("{}/mcp", gantry.url);
    let told = || gantry.log().lines().filter(|line| line.contains("search_tools")).map(str::to_owned).collect();
    for agent in ["first", "second"] {
        let token = gantry.mint(json!({ "sub": agent })).await;
        let listed = names(&RawClient::new(&door, &token, agreeable)).await;
        assert_eq!(listed, ["search_tools", "describe_tool", "call_tool"]);
    }
    let lines: Vec<String> =
        until("the log has a line", async || Some(told()).filter(|lines: &Vec<String>| !lines.is_empty())).await;
    assert_eq!(lines.len(), 1, "once: {lines:?}");
    for word in ["exposure", "mcp.auto_tools_max", "\"auto_tools_max\":2"] {
        assert!(lines.iter().any(|line| line.contains(word)), "{word}: {lines:?}");
    }

    // Who chose it is told nothing.
    let chosen = Start::new().env("GANTRY_TOOLS__EXPOSURE", "lazy").run().await;
    let client = RawClient::new(&format!("{}/mcp", chosen.url), &chosen.token, agreeable);
    assert_eq!(names(&client).await.len(), 3);
    let log = chosen.shut_down();
    assert!(!log.contains("search_tools"), "{log}");
}
