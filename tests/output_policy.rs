//! What of a result reaches the caller: the three profiles of `output_policy`, with one tool under each; and what of the words
//! of tools and servers is written down.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gantry, Start, open_to_all, wait_for};

const HIDDEN: &str = "[REDACTED]";

/// What the tool answers, whatever it is asked.
fn answer() -> Value {
    json!({
        "patient": "Ada Lovelace", "password": "hunter2", "accessToken": "abc123def", "next_page_token": "page-2",
        "open_token": "shown", "notes": ["seen by ada@example.org", null], "codes": ["x1", "x2"],
        "nested": { "client_secret": { "value": "s3cr3t" }, "tokensUsed": 17 },
        "raw": "{\"api_key\":\"k3y\",\"n\":1}",
        "twice": json!(json!({ "api_key": "k3y" }).to_string()).to_string(),
        "lines": "{\"api_key\":\"k3y\"}\nread {2}\n{\"n\":2}\n", "marked": "\u{feff}{\"api_key\":\"k3y\"}", "long": "y".repeat(10_001),
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
    for embedded in ["twice", "lines", "marked"] {
        let text = standard[embedded].as_str().unwrap();
        assert!(text.contains(HIDDEN) && !text.contains("k3y"), "{embedded}: {text}");
    }
    assert!(standard["lines"].as_str().unwrap().ends_with("\nread {2}\n{\"n\":2}\n"), "{standard}");
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

const CLINIC: &str = include_str!("mcp/servers/clinic.py");
/// What must not be seen at the end of long secrets.
const PLANTED: &str = "q7RtailX2vB";

/// A Gantry with the server behind it that says everything twice.
pub(crate) async fn clinic(home: &Path) -> Gantry {
    std::fs::create_dir(home.join("servers")).unwrap();
    std::fs::write(home.join("servers/clinic.py"), CLINIC).unwrap();
    open_to_all(home);
    let folder = home.canonicalize().unwrap().join("servers");
    let server = Start::new().data(&home.join("data")).run().await;
    let reach = json!({ "type": "stdio", "command": "python3", "args": [folder.join("clinic.py"), PLANTED.chars().rev().collect::<String>()],
        "permissions": [format!("filesystem:read:{}", folder.display())] });
    let token = Some(server.token.as_str());
    let put = server.request(Method::PUT, "/v1/servers/clinic", token, Some(json!({ "reach": reach }))).await;
    assert_eq!(put.status, 200, "{}\n{}", put.text, server.log());
    server
}

/// So many letters and digits that look like nothing.
fn noise(length: usize) -> String {
    let step = |seed: &u32| Some(seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    let letters = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789";
    let seeds = std::iter::successors(Some(7_u32), step).skip(1);
    seeds.take(length).map(|seed| char::from(letters[(seed >> 16) as usize % letters.len()])).collect()
}

/// Does the word stand in a file of this folder?
fn is_below(folder: &Path, word: &str) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_below(&path, word);
        }
        String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).contains(word)
    })
}

#[tokio::test]
async fn what_a_schema_marks_is_hidden_in_every_place_of_an_answer_and_in_failures() {
    let home = tempfile::tempdir().unwrap();
    let server = clinic(home.path()).await;
    let called = server.invoke("clinic.record", json!({})).await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert_eq!(called.body["result"]["structuredContent"], json!({ "patient": HIDDEN, "ward": "east" }));
    let text = |at: usize| called.body["result"]["content"][at]["text"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&text(0)).unwrap(), json!({ "patient": HIDDEN, "ward": "east" }));
    assert_eq!(text(1), format!("{HIDDEN} is well"), "and where nothing names it");

    let failed = server.invoke("clinic.broken", json!({})).await;
    assert_ne!(failed.status, 200, "{}", failed.text);
    assert!(failed.text.contains("east"), "what it says is told: {}", failed.text);
    assert!(!failed.text.contains("Lovelace") && !failed.text.contains("hunter2"), "{}", failed.text);
}

/// Marks that are reached in every way in which a schema can refer to one, and values that they describe.
fn referring() -> (Value, Value) {
    let secret = json!({ "x-sensitivity": "secret" });
    let mut definitions = json!({ "p": { "$anchor": "p", "x-sensitivity": "secret" }, "a b": secret,
        "d": { "$dynamicAnchor": "d", "x-sensitivity": "secret" }, "c40": secret });
    for step in 0..40 {
        definitions[format!("c{step}")] = json!({ "$ref": format!("#/$defs/c{}", step + 1) });
    }
    let many: Vec<Value> = (0..200).map(|number| json!({ "const": number })).chain([secret.clone()]).collect();
    let schema = json!({ "type": "object", "$defs": definitions,
        "properties": {
            "anchored": { "$ref": "#p" }, "escaped": { "$ref": "#/$defs/a%20b" }, "dynamic": { "$dynamicRef": "#d" },
            "chained": { "$ref": "#/$defs/c0" }, "of_many": { "anyOf": many }, "x-both": { "type": "string" },
            "rows": { "type": "array", "contains": { "x-sensitivity": "secret" } },
            "plain": { "type": "string" } },
        "patternProperties": { "^x-": secret },
        "dependentSchemas": { "plain": { "properties": { "dependent": secret } } },
        "unevaluatedProperties": secret });
    let value = json!({ "anchored": "apple-1", "escaped": "apple-2", "dynamic": "apple-3", "chained": "apple-4",
        "of_many": "apple-5", "x-both": "apple-6", "rows": ["apple-7"], "dependent": "apple-8", "undeclared": "apple-9",
        "plain": "pear" });
    (schema, value)
}

#[tokio::test]
async fn what_a_schema_marks_is_hidden_however_the_mark_is_referred_to() {
    let home = tempfile::tempdir().unwrap();
    let tool = home.path().join("tools/referring");
    std::fs::create_dir_all(&tool).unwrap();
    let (schema, value) = referring();
    let manifest = json!({
        "tool_id": "referring", "namespace": "out", "version": "1.0.0", "name": "referring",
        "description": "Says what it knows.", "provider": "Test", "protocol": "native",
        "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object", "properties": { "pin": { "$ref": "#p" } },
            "$defs": { "p": { "$anchor": "p", "x-sensitivity": "secret" } } },
        "result_schema": schema, "execution": { "type": "process", "command": ["cat", "answer.json"] },
    });
    std::fs::write(tool.join("answer.json"), value.to_string()).unwrap();
    std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
    let data = home.path().join("data");
    let start = Start::new().data(&data).arg("--tools").arg(home.path().join("tools").to_str().unwrap());
    let server = start.arg("--unsandboxed-processes").run().await;
    let called = server.invoke("out.referring", json!({ "pin": PLANTED })).await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert!(!called.text.contains("apple"), "{}", called.text);
    assert_eq!(called.body["result"]["plain"], "pear", "{}", called.text);
    server.shut_down();
    assert!(is_below(&data.join("audit"), HIDDEN) && !is_below(&data, PLANTED), "it stands in the data directory");
}

#[tokio::test]
async fn what_the_schema_of_a_server_marks_is_hidden_however_the_mark_is_referred_to() {
    let home = tempfile::tempdir().unwrap();
    let server = clinic(home.path()).await;
    let called = server.invoke("clinic.visits", json!({})).await;
    assert_eq!(called.status, 200, "{}", called.text);
    for hidden in ["Babbage", "Somerville", "Boole"] {
        assert!(!called.text.contains(hidden), "{hidden}: {}", called.text);
    }
    let shown =
        json!({ "guest": HIDDEN, "friend": HIDDEN, "ward": "west", "next": { "guest": HIDDEN, "ward": "north" } });
    assert_eq!(called.body["result"]["structuredContent"], shown);
}

#[tokio::test]
async fn what_a_policy_masks_is_hidden_in_json_inside_of_texts_too() {
    let home = tempfile::tempdir().unwrap();
    let server = clinic(home.path()).await;
    let policy = r#"@id("masked") @obligations("redact=ward") permit (principal, action, resource);"#;
    let body = json!({ "policies": policy });
    let put = server.request(Method::PUT, "/v1/policies", Some(&server.token), Some(body)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let body = json!({ "tool_id": "clinic.record", "parameters": {} });
    let called = server.request(Method::POST, "/v1/tools/invoke", Some(&agent), Some(body)).await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert!(!called.text.contains("east"), "{}", called.text);
}

#[tokio::test]
async fn of_a_secret_that_is_long_or_has_many_lines_no_end_is_in_the_log_of_a_server() {
    let home = tempfile::tempdir().unwrap();
    let server = clinic(home.path()).await;
    assert_eq!(server.invoke("clinic.record", json!({})).await.status, 200);
    let data = home.path().join("data");
    wait_for("the log", || is_below(&data, "the log is open").then_some(()));
    assert!(!is_below(&data, PLANTED), "it stands in the data directory");
    server.stop();
}

#[tokio::test]
async fn of_a_secret_that_is_long_or_has_many_lines_no_end_is_in_records_or_the_log() {
    let home = tempfile::tempdir().unwrap();
    let (data, tool) = (home.path().join("data"), home.path().join("tools/fails"));
    std::fs::create_dir_all(&tool).unwrap();
    let body = format!("MIIEow{PLANTED}{}\n", noise(44)).repeat(28);
    let key = format!("-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n");
    std::fs::write(tool.join("said"), format!("{key}password={}{PLANTED}\nthe last word\n", noise(1200))).unwrap();
    let manifest = json!({
        "tool_id": "fails", "namespace": "out", "version": "1.0.0", "name": "fails",
        "description": "Says too much.", "provider": "Test", "protocol": "native",
        "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object" }, "result_schema": {},
        "execution": { "type": "process", "command": ["sh", "-c", "cat said >&2; exit 3"] },
    });
    std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
    let start = Start::new().data(&data).arg("--tools").arg(home.path().join("tools").to_str().unwrap());
    let server = start.arg("--unsandboxed-processes").run().await;
    for long in [format!("password={}{PLANTED}", noise(360)), format!("api_key: \"{}{PLANTED}\"", noise(2400))] {
        assert_ne!(server.invoke("out.fails", json!({ "note": long })).await.status, 200);
    }
    let log = server.shut_down();
    assert!(log.contains("the last word") && log.contains(HIDDEN), "{log}");
    assert!(!log.contains(PLANTED), "{log}");
    assert!(is_below(&data.join("audit"), HIDDEN) && !is_below(&data, PLANTED), "it stands in the data directory");
}
