//! What of a result reaches the caller: the three profiles of `output_policy`, with one tool under each.

use serde_json::{Value, json};

use crate::support::{Gantry, Start};

const HIDDEN: &str = "[REDACTED]";

/// What the tool answers, whatever it is asked.
fn answer() -> Value {
    json!({
        "patient": "Ada Lovelace", "password": "hunter2", "accessToken": "abc123def", "next_page_token": "page-2",
        "open_token": "shown", "notes": ["seen by ada@example.org", null], "codes": ["x1", "x2"],
        "nested": { "client_secret": { "value": "s3cr3t" }, "tokensUsed": 17 },
        "raw": "{\"api_key\":\"k3y\",\"n\":1}", "long": "y".repeat(10_001),
    })
}

/// One tool for each profile, and one that says none.
fn write_tools(folder: &std::path::Path) {
    let schema = json!({ "type": "object", "properties": {
        "patient": { "x-sensitivity": "pii" }, "open_token": { "x-sensitivity": "none" },
        "codes": { "type": "array", "items": { "x-sensitivity": "secret" } } } });
    for policy in [None, Some("raw"), Some("standard"), Some("strict")] {
        let name = policy.unwrap_or("unsaid");
        let tool = folder.join(name);
        std::fs::create_dir_all(&tool).unwrap();
        let mut manifest = json!({
            "tool_id": name, "namespace": "out", "version": "1.0.0", "name": name,
            "description": "Says what it knows.", "provider": "Test", "protocol": "native",
            "side_effect_policy": "pure", "timeout_class": "standard",
            "parameters": { "type": "object" }, "result_schema": schema,
            "execution": { "type": "process", "command": ["cat", "answer.json"] },
        });
        if let Some(policy) = policy {
            manifest["output_policy"] = json!(policy);
        }
        std::fs::write(tool.join("answer.json"), answer().to_string()).unwrap();
        std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
    }
}

async fn result(server: &Gantry, tool: &str) -> (Value, Value) {
    let called = server.invoke(&format!("out.{tool}"), json!({})).await;
    assert_eq!(called.status, 200, "{}", called.text);
    (called.body["result"].clone(), called.body["execution_metadata"]["truncation"].clone())
}

#[tokio::test]
async fn a_result_is_shown_as_its_profile_says_and_standard_is_what_is_not_said() {
    let home = tempfile::tempdir().unwrap();
    let tools = home.path().join("tools");
    write_tools(&tools);
    let start = Start::new().data(&home.path().join("data")).arg("--tools").arg(tools.to_str().unwrap());
    let server = start.arg("--unsandboxed-processes").run().await;
    let (raw, cut) = result(&server, "raw").await;
    assert_eq!((&raw, &cut), (&answer(), &Value::Null), "raw is as the tool said it");

    let (standard, cut) = result(&server, "standard").await;
    assert_eq!(cut, Value::Null);
    assert_eq!(result(&server, "unsaid").await.0, standard, "it is the default");
    for hidden in ["patient", "password", "accessToken"] {
        assert_eq!(standard[hidden], HIDDEN, "{hidden}: {standard}");
    }
    assert_eq!(standard["codes"], json!([HIDDEN, HIDDEN]));
    assert_eq!(standard["nested"], json!({ "client_secret": HIDDEN, "tokensUsed": 17 }));
    let inner: Value = serde_json::from_str(standard["raw"].as_str().unwrap()).unwrap();
    assert_eq!(inner, json!({ "api_key": HIDDEN, "n": 1 }));
    for same in ["next_page_token", "open_token", "notes", "long"] {
        assert_eq!(standard[same], answer()[same], "{same} is no sensitive field");
    }

    let (strict, cut) = result(&server, "strict").await;
    for hidden in ["patient", "password", "accessToken"] {
        assert_eq!(strict[hidden], HIDDEN, "{hidden}: {strict}");
    }
    assert_eq!(strict["notes"], json!(["seen by [EMAIL_REDACTED]", null]), "personal data in texts goes too");
    assert!(strict["long"].as_str().unwrap().ends_with("...[truncated]") && cut["strings_cut"] == 1, "{cut}");
}
