//! What an official server offers besides tools reaches official clients through Gantry: resources, templates, prompts,
//! completions, and news of a resource that is watched.

use serde_json::json;

use super::peers::{kit, node, python_sdk, server};
use super::*;

/// `server-everything` with its resources and prompts passed on.
async fn harness() -> McpHarness {
    let harness = McpHarness::open().await;
    let permissions = ["node-24", "servers"].map(|part| format!("filesystem:read:{}", kit(part).display()));
    let reach =
        json!({ "type": "stdio", "command": node(), "args": [server("everything")], "permissions": permissions });
    harness.put("everything", &json!({ "reach": reach, "resources": true, "prompts": true })).await;
    harness
}

#[tokio::test]
async fn the_python_sdks_read_complete_and_watch_what_an_official_server_offers() {
    const PAGE: &str = "gantry://servers/everything/~/demo://resource/dynamic/text/1";
    let harness = harness().await;
    let mut plan = json!({ "http": harness.door(), "token": harness.agent, "calls": [], "offerings": {
        "read": [PAGE],
        "prompt": ["everything__resource-prompt", { "resourceType": "Text", "resourceId": "1" }],
        "complete": ["everything__completable-prompt", "department", "E"],
        "watch": PAGE,
        "stir": "everything__toggle_subscriber_updates",
    } });
    for (sdk, revision) in [("python-old", "2025-11-25"), ("python", "2026-07-28")] {
        let seen = python_sdk(sdk, &plan);
        assert_eq!(seen["revision"], revision, "{seen}");
        let seen = &seen["offerings"];
        let resources = seen["resources"].as_array().unwrap();
        let own = |uri: &Value| uri.as_str().unwrap().starts_with("gantry://servers/everything/demo:%2F%2Fresource");
        assert!(resources.iter().filter(|uri| own(uri)).count() > 3, "{seen}");
        let template = json!("gantry://servers/everything/~/demo://resource/dynamic/text/{resourceId}");
        assert!(seen["templates"].as_array().unwrap().contains(&template), "{seen}");
        assert!(seen["prompts"].as_array().unwrap().contains(&json!("everything__simple-prompt")), "{seen}");
        assert_eq!(seen["read"][0]["uri"], PAGE, "{seen}");
        assert!(seen["read"][0]["text"].as_str().unwrap().contains("Resource 1"), "{seen}");
        let embedded = seen["prompt"][1].as_str().unwrap();
        assert_eq!(embedded, "gantry://servers/everything/demo:%2F%2Fresource%2Fdynamic%2Ftext%2F1", "{seen}");
        assert_eq!(seen["completed"], json!(["Engineering"]), "{seen}");
        assert_eq!(seen["updated"], PAGE, "{seen}");
        // Once stirred, the server changes by itself; asked again it would stop.
        plan["offerings"].as_object_mut().unwrap().remove("stir");
    }
}
