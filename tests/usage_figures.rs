//! What a call used is told, also of a server that many calls share and of a call that was ended at its deadline. (EXEC-017)

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, Start, manifest, open_to_all};

/// An MCP server that works for as long and holds as much as it is told to.
const WORKER: &str = r#"
import json, sys, time
for line in sys.stdin:
    message = json.loads(line)
    method, wish = message["method"], message.get("params", {}).get("arguments", {})
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if method == "initialize":
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
            "serverInfo": {"name": "worker", "version": "1"}}
    elif method == "tools/list":
        answer["result"] = {"tools": [{"name": "work", "description": "Works.", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        held = bytearray(wish.get("megabytes", 0) << 20)
        end = time.process_time() + wish.get("seconds", 0)
        while time.process_time() < end:
            pass
        del held
        answer["result"] = {"content": [], "structuredContent": {}}
    elif method == "ping":
        answer["result"] = {}
    else:
        answer["error"] = {"code": -32601, "message": "what?"}
    print(json.dumps(answer), flush=True)
"#;

/// Programs that never end by themselves.
const SPINS: &str = "held = bytearray(32 << 20)\nwhile True:\n    pass\n";

fn figure(answer: &Answer, member: &str) -> u64 {
    answer.body["execution_metadata"][member].as_u64().unwrap_or_else(|| panic!("{member}: {}", answer.text))
}

fn cpu(answer: &Answer) -> u64 {
    figure(answer, "cpu_used_millicore_seconds")
}

async fn call(gantry: &Gantry, tool: &str, parameters: Value, seconds: u32) -> Answer {
    let call = json!({ "tool_id": tool, "parameters": parameters, "resource_limits": { "timeout_seconds": seconds } });
    gantry.post("/v1/tools/invoke", call).await
}

#[tokio::test]
async fn a_call_is_told_what_it_used_of_a_server_that_was_started_for_it() {
    let gantry = Gantry::start().await;
    let spec = json!({ "reach": { "type": "stdio", "command": "python3", "args": ["-c", WORKER], "permissions": [] } });
    let put = gantry.request(Method::PUT, "/v1/servers/worker", Some(&gantry.token), Some(spec)).await;
    assert_eq!(put.status, 200, "{}\n{}", put.text, gantry.log());
    let idle = call(&gantry, "worker.work", json!({}), 60).await;
    assert_eq!(idle.status, 200, "{}", idle.text);
    let busy = call(&gantry, "worker.work", json!({ "seconds": 0.4, "megabytes": 64 }), 60).await;
    assert_eq!(busy.status, 200, "{}", busy.text);
    // What was used before the call is not its own: starting the program took longer than the call without work.
    assert!(cpu(&busy) >= 350 && cpu(&busy) > cpu(&idle) + 200, "{}\n{}", idle.text, busy.text);
    assert!(figure(&busy, "memory_peak_mb") >= 64, "{}", busy.text);
    assert!(figure(&idle, "memory_peak_mb") > 0, "{}", idle.text);
    // Ended at its deadline, it has used something all the same; the server goes on.
    let late = call(&gantry, "worker.work", json!({ "seconds": 600 }), 3).await;
    assert_eq!(late.refusal().1, "E3413", "{}", late.text);
    assert!(cpu(&late) > 0, "{}", late.text);
    assert!(figure(&late, "network_bytes_sent") > 100, "{}", late.text);
}

fn spinning(home: &Path, id: &str, protocol: &str) {
    let folder = home.join("tools").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("main.py"), SPINS).unwrap();
    let execution = json!({ "type": "process", "command": ["python3", "main.py"], "protocol": protocol });
    let manifest = manifest(json!({ "tool_id": id, "parameters": { "type": "object" },
        "result_schema": { "type": "object" }, "execution": execution }));
    std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
}

#[tokio::test]
async fn a_program_that_is_ended_at_its_deadline_has_used_what_it_used() {
    let home = tempfile::tempdir().unwrap();
    open_to_all(home.path());
    spinning(home.path(), "simple", "simple");
    spinning(home.path(), "session", "gantry/1");
    let start = Start::new().data(&home.path().join("data")).arg("--tools");
    let gantry = start.arg(home.path().join("tools").to_str().unwrap()).run().await;
    for tool in ["demo.simple", "demo.session"] {
        let late = call(&gantry, tool, json!({}), 8).await;
        assert_eq!(late.refusal().1, "E3402", "{tool}: {}", late.text);
        assert!(cpu(&late) > 0, "{tool}: {}", late.text);
        assert!(figure(&late, "memory_peak_mb") >= 32, "{tool}: {}", late.text);
    }
}
