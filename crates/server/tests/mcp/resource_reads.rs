//! Resources: who has which tools, and results that were too large.

use gantry_server::{McpConfig, ToolExposure};
use serde_json::{Value, json};

use crate::stage::{ADMIN, Stage};

async fn read(stage: &Stage, token: &str, uri: &str) -> Value {
    stage.ask().token(token).new_style(1, "resources/read", json!({ "uri": uri }), &json!({})).message().await
}

fn document(read: &Value) -> Value {
    let text = read["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{read}"));
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn a_caller_reads_what_it_and_its_tenant_have() {
    let stage = Stage::new().await;
    let listed = stage.new_style("resources/list", json!({})).await;
    let uris: Vec<&str> =
        listed["result"]["resources"].as_array().unwrap().iter().map(|r| r["uri"].as_str().unwrap()).collect();
    assert_eq!(
        uris,
        [
            "gantry://tools/tenant/local/available",
            "gantry://tools/agent/agent-1/enabled",
            "gantry://tools/agent/agent-1/unavailable"
        ]
    );
    for scheme in ["gantry", "focal"] {
        let tenant = read(&stage, &stage.agent, &format!("{scheme}://tools/tenant/local/available")).await;
        assert_eq!(document(&tenant)["tools"].as_array().unwrap().len(), 7, "{tenant}");
        let own = read(&stage, &stage.agent, &format!("{scheme}://tools/agent/agent-1/enabled")).await;
        assert!(document(&own)["tools"].as_array().unwrap().iter().any(|tool| tool["mcp_name"] == "demo__echo_tool"));
        let rest = read(&stage, &stage.agent, &format!("{scheme}://tools/agent/agent-1/unavailable")).await;
        assert_eq!(document(&rest)["agent_did"], "agent-1");
    }
    for uri in [
        "gantry://tools/agent/agent-2/enabled",
        "gantry://tools/tenant/acme/available",
        "gantry://nothing",
        "file:///etc/passwd",
    ] {
        let nothing = read(&stage, &stage.agent, uri).await;
        assert_eq!(nothing["error"]["code"], -32602, "{uri}: {nothing}");
    }
    let version = "2025-06-18";
    let session = stage.session(&stage.agent, version, &json!({})).await;
    let old = stage.in_session(&stage.agent, &session, version);
    let nothing = old.old(3, "resources/read", &json!({ "uri": "gantry://nothing" })).message().await;
    assert_eq!(nothing["error"]["code"], -32002, "as older revisions have it");
    let templates = stage.new_style("resources/templates/list", json!({})).await;
    assert_eq!(templates["result"]["resourceTemplates"].as_array().unwrap().len(), 5);
}

#[tokio::test]
async fn a_result_that_is_too_large_is_fetched_by_its_link() {
    let stage =
        Stage::with(McpConfig { exposure: ToolExposure::All, result_bytes_max: 1024, ..McpConfig::default() }).await;
    let called = stage.call("demo__large_tool", json!({ "text": "x" })).await;
    let result = &called["result"];
    assert!(result.get("structuredContent").is_none(), "{called}");
    assert!(
        result["content"][0]["text"].as_str().unwrap().contains("has 5011 bytes, more than are given at once"),
        "{called}"
    );
    let uri = result["content"][1]["uri"].as_str().unwrap().to_owned();
    let whole = read(&stage, &stage.agent, &uri).await;
    assert_eq!(document(&whole)["text"].as_str().unwrap().len(), 5_000);
    let rest = read(&stage, &stage.agent, &format!("{uri}?offset=5000")).await;
    assert_eq!(rest["result"]["contents"][0]["text"].as_str().unwrap().len(), 11);
    for token in [stage.narrow.as_str(), ADMIN] {
        assert_eq!(read(&stage, token, &uri).await["error"]["code"], -32602);
    }
    assert_eq!(stage.door.mcp_state().await.parked_results, 1);
    stage.step(901);
    assert_eq!(read(&stage, &stage.agent, &uri).await["error"]["code"], -32602);
}
