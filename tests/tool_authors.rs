//! What the author of a tool has: the logs of its calls, a server for the time of writing, packages, templates.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Drain, Gantry, Start, gantry, manifest, open_to_all, run, wait_for};

/// A folder with a program in Python.
fn tool(home: &Path, id: &str, change: Value, program: &str) -> PathBuf {
    let folder = home.join("tools").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    let mut written = manifest(json!({ "tool_id": id, "parameters": { "type": "object" },
        "result_schema": { "type": "object" }, "execution": { "type": "process", "command": ["python3", "main.py"] } }));
    written.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    std::fs::write(folder.join("tool.json"), written.to_string()).unwrap();
    std::fs::write(folder.join("main.py"), program).unwrap();
    open_to_all(home);
    folder
}

async fn serve(home: &Path) -> Gantry {
    Start::new().arg("--tools").arg(home.join("tools").to_str().unwrap()).run().await
}

#[tokio::test]
async fn what_a_tool_wrote_is_read_by_its_administrators_without_its_secrets() {
    let home = tempfile::tempdir().unwrap();
    tool(
        home.path(),
        "talker",
        json!({}),
        "import json, sys\n\
         given = json.load(sys.stdin)\n\
         print('looking at', given.get('what'), file=sys.stderr)\n\
         print('password=Zq81-kd93-hunter', file=sys.stderr)\n\
         sys.exit(3) if given.get('fail') else print('{}')\n",
    );
    let started = serve(home.path()).await;
    assert_eq!(started.invoke("demo.talker", json!({ "what": "first" })).await.status, 200);
    let failed = started.invoke("demo.talker", json!({ "what": "second", "fail": true })).await;
    assert_eq!(failed.refusal().1, "E3401", "{}", failed.text);
    assert!(failed.text.contains("gantry tool logs"), "{}", failed.text);

    let answer = started.get("/v1/tools/demo.talker/logs").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let calls = answer.body["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{}", answer.text);
    assert_eq!((&calls[0]["exit_code"], &calls[0]["code"]), (&json!(0), &Value::Null));
    assert_eq!((&calls[1]["exit_code"], &calls[1]["code"]), (&json!(3), &json!("E3401")));
    assert!(calls[0]["stderr"].as_str().unwrap().starts_with("looking at first\n"), "{}", answer.text);
    assert!(!answer.text.contains("Zq81-kd93"), "{}", answer.text);
    let last = started.get("/v1/tools/demo.talker/logs?limit=1").await;
    assert!(last.body["calls"].as_array().unwrap().len() == 1 && last.text.contains("second"), "{}", last.text);
    assert_eq!(started.get("/v1/tools/demo.talker/logs?limit=51").await.refusal(), (400, "E3004"));
    assert_eq!(started.get("/v1/tools/demo.nothing/logs").await.refusal(), (404, "E3101"));

    let shown = started.cli(&["tool", "logs", "demo.talker"]).ok().out();
    assert!(shown.contains("│ looking at first") && shown.contains("E3401  exit code 3"), "{shown}");
    let document = started.cli(&["tool", "logs", "demo.talker", "--limit", "1", "--json"]).ok().json();
    assert_eq!(document["calls"][0]["stderr"], calls[1]["stderr"]);
}

#[tokio::test]
async fn no_other_tenant_reads_what_a_call_wrote_and_no_agent_does() {
    let home = tempfile::tempdir().unwrap();
    let program = "import json, sys\nprint('of', json.load(sys.stdin).get('who'), file=sys.stderr)\nprint('{}')\n";
    tool(home.path(), "shared", json!({}), program);
    let started = serve(home.path()).await;
    let agent = started.mint(json!({})).await;
    let call = json!({ "tool_id": "demo.shared", "parameters": { "who": "acme" } });
    let called = started.request(Method::POST, "/v1/tools/invoke", Some(&agent), Some(call)).await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert_eq!(started.invoke("demo.shared", json!({ "who": "home" })).await.status, 200);

    let path = "/v1/tools/demo.shared/logs";
    let own = started.get(path).await;
    assert!(own.text.contains("of home") && !own.text.contains("of acme"), "{}", own.text);
    let foreign = started.mint(json!({ "roles": ["admin"] })).await;
    let foreign = started.request(Method::GET, path, Some(&foreign), None).await;
    assert!(foreign.status == 200 && foreign.body["calls"] == json!([]), "{}", foreign.text);
    for role in ["agent", "tool_author", "auditor"] {
        let token = started.mint(json!({ "roles": [role], "tenant": "local" })).await;
        let answer = started.request(Method::GET, path, Some(&token), None).await;
        assert_eq!(answer.refusal(), (403, "E3206"), "{role}");
    }
}

#[tokio::test]
async fn a_tool_that_runs_out_of_time_leaves_its_last_words() {
    let home = tempfile::tempdir().unwrap();
    let program = "import sys, time\nprint('waiting for ever', file=sys.stderr, flush=True)\ntime.sleep(600)\n";
    tool(home.path(), "slow", json!({}), program);
    let started = serve(home.path()).await;
    let call = json!({ "tool_id": "demo.slow", "parameters": {}, "resource_limits": { "timeout_seconds": 2 } });
    assert_eq!(started.post("/v1/tools/invoke", call).await.refusal(), (504, "E3402"));
    let answer = started.get("/v1/tools/demo.slow/logs").await;
    assert_eq!(answer.body["calls"][0]["code"], "E3402", "{}", answer.text);
    assert_eq!(answer.body["calls"][0]["stderr"], "waiting for ever\n", "{}", answer.text);
}

#[tokio::test]
async fn a_stray_print_is_told_by_its_line_to_everybody_and_shown_to_those_who_may_see_it() {
    let home = tempfile::tempdir().unwrap();
    tool(home.path(), "chatty", json!({}), "print('loading the private model')\nprint('{}')\n");
    let session =
        json!({ "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": "gantry/1" } });
    tool(home.path(), "session", session, "print('hello from a session', flush=True)\nimport sys\nsys.stdin.read()\n");
    let started = serve(home.path()).await;
    let failed = started.invoke("demo.chatty", json!({})).await;
    assert_eq!(failed.refusal().1, "E3401");
    assert!(failed.body["error"]["resolution"].as_str().unwrap().contains("line 1 of stdout"), "{}", failed.text);
    assert!(
        failed.body["output"].as_str().unwrap().contains("line 1, not part of the result] loading the private"),
        "{}",
        failed.text
    );
    let agent = started.mint(json!({ "tenant": "local" })).await;
    let call = json!({ "tool_id": "demo.chatty", "parameters": {} });
    let told = started.request(Method::POST, "/v1/tools/invoke", Some(&agent), Some(call)).await;
    assert!(told.text.contains("line 1 of stdout") && !told.text.contains("private model"), "{}", told.text);
    let logs = started.get("/v1/tools/demo.chatty/logs").await;
    assert!(logs.text.contains("loading the private model"), "{}", logs.text);
    assert_eq!(started.invoke("demo.session", json!({})).await.refusal().1, "E3401");
    let logs = started.get("/v1/tools/demo.session/logs").await;
    assert!(logs.text.contains("not part of the result] hello from a session"), "{}", logs.text);
}
