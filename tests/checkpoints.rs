//! Work that survives: a call whose server is killed three times comes to its end from its checkpoints, and no step of it is
//! done twice.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Gantry, PATIENCE, Start, client, manifest, open_to_all};

const MANIFEST: &str = r#"
tool_id = "stairs"
namespace = "demo"
version = "1.0.0"
name = "Stairs"
description = "Climbs stairs one by one, saves after each, and stands still on one of them."
provider = "Demo"
protocol = "native"
side_effect_policy = "pure"
timeout_class = "long_running"
parameters = { type = "object" }
result_schema = { type = "object" }
[checkpoint_config]
enabled = true
macro_events = ["step"]
[execution]
type = "process"
command = ["python3", "main.py"]
protocol = "gantry/1"
isolation = "process"
"#;

const PROGRAM: &str = r#"
import json, sys, time

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

call = json.loads(sys.stdin.readline())
params = call["params"]
wish = params["parameters"]
state = (params.get("resume") or {}).get("state") or {"steps": []}
while len(state["steps"]) < wish["stairs"]:
    if len(state["steps"]) == wish.get("stand_still"):
        time.sleep(600)
    state["steps"].append(wish["attempt"])
    send(id="c", method="checkpoint", params={"name": "step", "state": state})
    saved = json.loads(sys.stdin.readline())
    if "error" in saved:
        send(id=call["id"], error={"code": 1, "message": saved["error"]["message"]})
        sys.exit()
send(id=call["id"], result=state)
"#;

fn tools(home: &Path) -> String {
    let folder = home.join("tools/stairs");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tool.toml"), MANIFEST).unwrap();
    std::fs::write(folder.join("main.py"), PROGRAM).unwrap();
    open_to_all(home);
    home.join("tools").to_str().unwrap().to_owned()
}

/// The `n`th attempt's own invocation.
fn invocation(attempt: usize) -> String {
    format!("019b0000-0000-7000-8000-{attempt:012}")
}

fn request(attempt: usize, stand_still: Option<usize>, from: Option<&str>) -> Value {
    json!({
        "tool_id": "demo.stairs", "invocation_id": invocation(attempt),
        "parameters": { "stairs": 8, "attempt": attempt, "stand_still": stand_still },
        "checkpoint_config": { "resume_from_checkpoint_id": from },
    })
}

/// Waits until an attempt has saved this many states, and names the newest.
async fn climbed(gantry: &Gantry, attempt: usize, saves: usize) -> String {
    let began = std::time::Instant::now();
    loop {
        let listed = gantry.get(&format!("/v1/invocations/{}/checkpoints", invocation(attempt))).await;
        let listed = listed.body["checkpoints"].as_array().unwrap().clone();
        if listed.len() == saves {
            return listed[0]["checkpoint_id"].as_str().unwrap().to_owned();
        }
        assert!(began.elapsed() < PATIENCE, "attempt {attempt} saved {} of {saves}", listed.len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_killed_three_times_finishes_from_its_checkpoints_and_repeats_no_step() {
    let home = tempfile::tempdir().unwrap();
    let (data, tools) = (home.path().join("data"), tools(home.path()));
    let mut from: Option<String> = None;
    for attempt in 0..3 {
        let gantry = Start::new().data(&data).arg("--tools").arg(&tools).run().await;
        let body = request(attempt, Some((attempt + 1) * 2), from.as_deref()).to_string();
        let (url, token) = (format!("{}/v1/tools/invoke", gantry.url), gantry.token.clone());
        let running = tokio::spawn(async move {
            client().post(url).bearer_auth(token).header("content-type", "application/json").body(body).send().await
        });
        from = Some(climbed(&gantry, attempt, 2).await);
        gantry.kill();
        assert!(running.await.unwrap().is_err(), "nobody answers for the dead");
    }
    // Nobody reads the state in the store.
    let database = rusqlite::Connection::open(data.join("gantry.db")).unwrap();
    let sealed = "SELECT count(*), count(*) FILTER (WHERE substr(payload, 1, 14) = CAST('gantry-sealed:' AS BLOB)) FROM checkpoints";
    let counts: (i64, i64) = database.query_row(sealed, [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    assert!(counts.0 > 0 && counts.0 == counts.1, "{counts:?}");
    drop(database);
    let gantry = Start::new().data(&data).arg("--tools").arg(&tools).run().await;
    let answer = gantry.post("/v1/tools/invoke", request(3, None, from.as_deref())).await;
    assert_eq!(answer.body["result"]["steps"], json!([0, 0, 1, 1, 2, 2, 3, 3]), "{}", answer.text);
    assert_eq!(answer.body["execution_metadata"]["checkpoints_created"].as_array().unwrap().len(), 2);
    // By the other door, from the last but one.
    let again = json!({ "parameters": { "stairs": 8, "attempt": 9 } });
    let answer = gantry.post(&format!("/v1/tools/resume/{}", invocation(1)), again).await;
    assert_eq!(answer.body["result"]["steps"], json!([0, 0, 1, 1, 9, 9, 9, 9]), "{}", answer.text);
    let answer = gantry.post("/v1/tools/invoke", request(4, None, Some(&invocation(0)))).await;
    assert_eq!(answer.refusal(), (404, "E3903"));
}

#[tokio::test]
async fn only_tools_that_can_save_are_said_to() {
    let home = tempfile::tempdir().unwrap();
    open_to_all(home.path());
    let probe = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/wasm/probe.wasm")).unwrap();
    let process =
        |protocol: &str| json!({ "type": "process", "command": ["python3", "main.py"], "protocol": protocol });
    for (id, execution, config) in [
        ("simple", process("simple"), json!({ "enabled": true })),
        ("simple_off", process("simple"), json!({ "enabled": false })),
        ("simple_events", process("simple"), json!({ "macro_events": ["step"] })),
        ("session", process("gantry/1"), json!({ "enabled": true })),
        ("session_off", process("gantry/1"), json!({ "macro_events": ["step"] })),
        ("command", json!({ "type": "wasm", "component": "probe.wasm" }), json!({ "enabled": true })),
    ] {
        let folder = home.path().join("tools").join(id);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("main.py"), PROGRAM).unwrap();
        std::fs::write(folder.join("probe.wasm"), &probe).unwrap();
        let manifest = manifest(json!({ "tool_id": id, "parameters": { "type": "object" },
            "result_schema": { "type": "object" }, "checkpoint_config": config, "execution": execution }));
        std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
    }
    let start = Start::new().data(&home.path().join("data")).arg("--tools");
    let gantry = start.arg(home.path().join("tools").to_str().unwrap()).run().await;
    for id in ["simple", "simple_off", "simple_events"] {
        assert_eq!(gantry.get(&format!("/v1/tools/demo.{id}")).await.refusal().1, "E3101", "{id}: {}", gantry.log());
    }
    assert_eq!(gantry.get("/v1/tools/demo.session_off").await.status, 200, "a caller may want it to save");
    assert!(gantry.log().contains("checkpoint_config"), "the operator is told why: {}", gantry.log());
    assert_eq!(gantry.invoke("demo.session", json!({ "stairs": 1, "attempt": 1 })).await.status, 200);
    // What is a command is known when it is loaded.
    let command = gantry.invoke("demo.command", json!({ "do": ["raw", "1"] })).await;
    assert_eq!(command.refusal().1, "E3010", "{}", command.text);
}
