//! Whoever is answered is recorded: `kill -9` right after answers takes no record of theirs, nor the record that a tool with
//! effects was begun.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Start, client, gantry, run};

/// Connections, and answers of each before the server is killed.
const CALLERS: usize = 8;
const ANSWERS: usize = 125;
/// How often, because the old way to lose a record is a matter of milliseconds.
const KILLS: usize = 3;

/// Every record of the log, as it lies on the disk.
fn records(data: &Path) -> Vec<Value> {
    let mut files: Vec<_> = std::fs::read_dir(data.join("audit"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
        .collect();
    files.sort();
    let lines = files.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect::<String>();
    // The last line may be torn.
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The calls of which the log has a record of this action.
fn recorded(data: &Path, action: &str) -> BTreeSet<String> {
    let of_action = records(data).into_iter().filter(|record| record["action"] == action);
    of_action.filter_map(|record| record["invocation_id"].as_str().map(str::to_owned)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answered_call_has_its_record_although_the_server_is_killed_at_once() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let (mut finished, mut accepted) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..KILLS {
        let server = Start::new().data(&data).run().await;
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (url, token) = (server.url.clone(), server.token.clone());
                tokio::spawn(async move {
                    let http = client();
                    let (mut finished, mut accepted) = (Vec::new(), Vec::new());
                    for number in 0..ANSWERS {
                        let in_background = caller == 0 && number % 25 == 0;
                        let body = json!({ "tool_id": "calculator",
                            "parameters": { "expression": format!("{caller} + {number}") },
                            "execution_options": { "async_mode": in_background } });
                        let sent = http.post(format!("{url}/v1/tools/invoke")).bearer_auth(&token).json(&body).send();
                        let response = sent.await.unwrap();
                        let status = response.status().as_u16();
                        let answer: Value = response.json().await.unwrap();
                        assert_eq!(status, if in_background { 202 } else { 200 }, "{answer}");
                        let id = answer["invocation_id"].as_str().unwrap().to_owned();
                        if in_background { accepted.push(id) } else { finished.push(id) }
                    }
                    (finished, accepted)
                })
            })
            .collect();
        for caller in callers {
            let (done, begun) = caller.await.unwrap();
            finished.extend(done);
            accepted.extend(begun);
        }
        server.kill();
        let (of_ends, of_beginnings) = (recorded(&data, "invocation_finished"), recorded(&data, "invocation_accepted"));
        let lost: Vec<_> = finished.difference(&of_ends).chain(accepted.difference(&of_beginnings)).collect();
        assert!(lost.is_empty(), "{} of {} answered calls have no record", lost.len(), finished.len() + accepted.len());
    }
    // What was killed in the middle of writing is mended, and whole.
    let server = Start::new().data(&data).run().await;
    server.invoke("calculator", json!({ "expression": "1 + 1" })).await;
    server.stop();
    run(gantry(&data).args(["audit", "verify"])).ok();
}

/// A tool with effects.
fn write_tool(folder: &Path) {
    let tool = folder.join("touch");
    std::fs::create_dir_all(&tool).unwrap();
    for open in [folder, &tool] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let manifest = json!({
        "tool_id": "touch", "namespace": "t", "version": "1.0.0", "name": "touch",
        "description": "Changes something outside.", "provider": "Test", "protocol": "native",
        "side_effect_policy": "idempotent", "timeout_class": "standard", "idempotency": {},
        "side_effects": [{ "resource": "thing", "op": "UPDATE", "scope": "one" }],
        "parameters": { "type": "object", "properties": { "number": { "type": "integer" } } },
        "result_schema": { "type": "object" },
        "execution": { "type": "process", "command": ["sh", "-c", "cat > /dev/null; echo '{}'"] },
    });
    std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_with_effects_is_begun_after_the_record_of_its_beginning_is_in_the_log() {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (data, tools) = (home.path().join("data"), home.path().join("tools"));
    write_tool(&tools);
    for round in 1..=5 {
        // The server ends itself at the moment at which the tool would be started, for the third time.
        let start = Start::new().data(&data).arg("--tools").arg(tools.to_str().unwrap());
        let server = start.arg("--unsandboxed-processes").env("GANTRY_FAULT_POINT", "starting:3").run().await;
        let http = client();
        let mut ids = BTreeSet::new();
        for number in 1..=3 {
            let id = format!("0190f3c2-7b1a-7c3d-9e4f-{round:04}0000{number:04}");
            let body = json!({ "tool_id": "t.touch", "invocation_id": id, "parameters": { "number": number } });
            let sent = http.post(format!("{}/v1/tools/invoke", server.url)).bearer_auth(&server.token).json(&body);
            let answered = sent.send().await.is_ok();
            assert_eq!(answered, number < 3, "the third call is not answered");
            ids.insert(id);
        }
        server.kill();
        let begun = recorded(&data, "invocation_started");
        assert!(ids.is_subset(&begun), "of {ids:?} only {begun:?} have a record of their beginning");
    }
    let ended = recorded(&data, "invocation_finished");
    assert!(ended.len() >= 10, "the first two of each round were answered: {ended:?}");
}
