//! Answers that are whole: a failed call says when it ran, what it used and what can be gone on from, whatever the door; a
//! result says what computed it; a tool hears on whose behalf it is called; and what a failed tool wrote is read by those who
//! look after it, and by nobody else. (LIFE-009, LIFE-014, LIFE-023, EXEC-010)

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Gantry, PATIENCE, Start, client, open_to_all};

/// Works a while, saves, writes to its log, and fails.
const FAILS: &str = r#"
import json, sys, time
call = json.loads(sys.stdin.readline())
until = time.process_time() + 0.05
while time.process_time() < until:
    pass
print(json.dumps({"jsonrpc": "2.0", "id": "c", "method": "checkpoint", "params": {"name": "step", "state": {"n": 1}}}), flush=True)
sys.stdin.readline()
print("the disk of the tool is full", file=sys.stderr, flush=True)
sys.exit(7)
"#;

/// Writes to its log, and fails.
const BREAKS: &str =
    "import sys\nsys.stdin.read()\nprint('mail ann@example.org: the table is missing', file=sys.stderr)\nsys.exit(3)\n";

/// Says who it works for.
const ASKS_ENVIRONMENT: &str = "import json, os\nprint(json.dumps({'user': os.environ.get('GANTRY_USER')}))\n";
const ASKS_CALL: &str = "import json, sys\ncall = json.loads(sys.stdin.readline())\nprint(json.dumps({'jsonrpc': '2.0', 'id': call['id'], 'result': {'user': call['params'].get('user')}}), flush=True)\n";
/// The same as a component: `gantry:tool/invocation.user`, put between what stands around it as JSON.
const ASKS_HOST: &str = r#"(component
  (core module $libc (memory (export "memory") 1)
    (global $top (mut i32) (i32.const 8192))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
      (global.set $top (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $libc (instantiate $libc))
  (import "gantry:tool/invocation@1.0.0" (instance $invocation (export "user" (func (result (option string))))))
  (core func $user (canon lower (func $invocation "user") (memory $libc "memory") (realloc (func $libc "cabi_realloc"))))
  (core module $m
    (import "libc" "memory" (memory 0))
    (import "invocation" "user" (func $user (param i32)))
    (data (i32.const 1024) "{\22user\22:null}")
    (data (i32.const 2048) "{\22user\22:\22")
    (func $answer (param $ptr i32) (param $len i32) (result i32)
      (i32.store8 (i32.const 16) (i32.const 0))
      (i32.store (i32.const 20) (local.get $ptr)) (i32.store (i32.const 24) (local.get $len))
      (i32.const 16))
    (func (export "invoke") (param i32 i32) (result i32) (local $len i32)
      (call $user (i32.const 64))
      (if (result i32) (i32.load8_u (i32.const 64))
        (then
          (local.set $len (i32.load (i32.const 72)))
          (memory.copy (i32.const 2057) (i32.load (i32.const 68)) (local.get $len))
          (i32.store16 (i32.add (i32.const 2057) (local.get $len)) (i32.const 0x7d22))
          (call $answer (i32.const 2048) (i32.add (local.get $len) (i32.const 11))))
        (else (call $answer (i32.const 1024) (i32.const 13))))))
  (core instance $i (instantiate $m (with "libc" (instance $libc))
    (with "invocation" (instance (export "user" (func $user))))))
  (type $kind' (enum "invalid-parameters" "failed" "unavailable"))
  (export $kind "error-kind" (type $kind'))
  (type $error' (record (field "kind" $kind) (field "message" string)))
  (export $error "tool-error" (type $error'))
  (func $invoke (param "parameters-json" string) (result (result string (error $error)))
    (canon lift (core func $i "invoke") (memory $libc "memory") (realloc (func $libc "cabi_realloc"))))
  (export "invoke" (func $invoke)))"#;

fn tool(home: &Path, id: &str, program: &str, protocol: &str) {
    let execution = json!({ "type": "process", "command": ["python3", "main.py"], "protocol": protocol });
    folder_tool(home, id, ("main.py", program.as_bytes()), &execution, protocol != "simple");
}

fn folder_tool(home: &Path, id: &str, (file, content): (&str, &[u8]), execution: &Value, saves: bool) {
    let folder = home.join("tools").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(file), content).unwrap();
    let mut manifest = json!({ "tool_id": id, "namespace": "demo", "version": "1.0.0", "name": id,
        "description": "A tool of a test, which ends as it was made to end.", "provider": "Demo", "protocol": "native",
        "side_effect_policy": "pure", "timeout_class": "long_running",
        "parameters": { "type": "object" }, "result_schema": { "type": "object" }, "execution": execution });
    if saves {
        manifest["checkpoint_config"] = json!({ "enabled": true, "macro_events": ["step"] });
    }
    std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
}

async fn open() -> (TempDir, Gantry) {
    let home = tempfile::tempdir().unwrap();
    open_to_all(home.path());
    tool(home.path(), "fails", FAILS, "gantry/1");
    tool(home.path(), "breaks", BREAKS, "simple");
    tool(home.path(), "asks_environment", ASKS_ENVIRONMENT, "simple");
    tool(home.path(), "asks_call", ASKS_CALL, "gantry/1");
    let component = wat::parse_str(ASKS_HOST).unwrap();
    let execution = json!({ "type": "wasm", "component": "tool.wasm" });
    folder_tool(home.path(), "asks_host", ("tool.wasm", &component), &execution, true);
    let start =
        Start::new().data(&home.path().join("data")).arg("--tools").arg(home.path().join("tools").to_str().unwrap());
    let gantry = start.run().await;
    (home, gantry)
}

async fn invoke_as(gantry: &Gantry, token: &str, tool: &str) -> Answer {
    let body = json!({ "tool_id": tool, "parameters": {} });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

/// Calls a tool by MCP, and gives the `_meta` of what comes back.
async fn meta_by_mcp(gantry: &Gantry, token: &str, tool: &str, arguments: Value) -> Value {
    let tool = &tool.replace('.', "__");
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" } });
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": tool, "arguments": arguments, "_meta": meta } });
    let request = client().post(format!("{}/mcp", gantry.url)).bearer_auth(token);
    let request = request
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool);
    let text = request.body(ask.to_string()).send().await.unwrap().text().await.unwrap();
    let messages: Vec<Value> = match serde_json::from_str(&text) {
        Ok(message) => vec![message],
        Err(_) => {
            let lines = text.lines().filter_map(|line| line.strip_prefix("data:"));
            lines.filter_map(|line| serde_json::from_str(line.trim()).ok()).collect()
        }
    };
    let answer = messages.into_iter().find(|message| message.get("result").is_some());
    answer.unwrap_or_else(|| panic!("{text}"))["result"]["_meta"].clone()
}

/// The members every failed call has, with what was used.
fn is_whole(metadata: &Value, said: &str) {
    for member in
        ["duration_ms", "cpu_used_millicore_seconds", "memory_peak_mb", "network_bytes_sent", "network_bytes_received"]
    {
        assert!(metadata[member].is_u64(), "{member}: {said}");
    }
    for member in ["started_at", "completed_at"] {
        assert!(metadata[member].as_str().is_some_and(|at| at.ends_with('Z')), "{member}: {said}");
    }
}

#[tokio::test]
async fn a_failed_answer_says_what_the_call_used_and_what_can_be_gone_on_from() {
    let (_home, gantry) = open().await;
    let failed = gantry.invoke_to_the_end("demo.fails", json!({})).await;
    assert_eq!(failed.refusal(), (500, "E3401"), "{}", failed.text);
    is_whole(&failed.body["execution_metadata"], &failed.text);
    assert_eq!(failed.body["execution_metadata"]["exit_code"], 7, "{}", failed.text);
    let used = failed.body["execution_metadata"]["cpu_used_millicore_seconds"].as_u64().unwrap();
    assert!(used >= 40, "the tool worked for 50 ms: {}", failed.text);
    let checkpoint = failed.body["checkpoint_ref"].as_str().unwrap_or_else(|| panic!("{}", failed.text)).to_owned();
    assert_eq!(failed.body["execution_metadata"]["checkpoints_created"][0]["checkpoint_id"], checkpoint.as_str());
    let resumed = json!({ "tool_id": "demo.asks_call", "parameters": {},
        "checkpoint_config": { "resume_from_checkpoint_id": checkpoint } });
    let other_tool = gantry.post("/v1/tools/invoke", resumed).await;
    assert!(other_tool.status >= 400, "the reference is one of this tool: {}", other_tool.text);

    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tool.invoke", "params": { "tool_id": "demo.breaks", "parameters": {} } });
    let rpc = gantry.post("/rpc", message).await;
    is_whole(&rpc.body["error"]["data"]["execution_metadata"], &rpc.text);
    assert_eq!(rpc.body["error"]["data"]["execution_metadata"]["exit_code"], 3, "{}", rpc.text);

    let meta = meta_by_mcp(&gantry, &gantry.token, "demo.fails", json!({})).await;
    is_whole(&meta["dev.gantry/execution_metadata"], &meta.to_string());
    assert!(meta["dev.gantry/checkpoint_ref"].is_string(), "{meta}");
}

#[tokio::test]
async fn a_refused_call_says_when_it_was_refused_and_strangers_hear_nothing() {
    let (_home, gantry) = open().await;
    let refused = gantry.invoke("calculator", json!({})).await;
    assert_eq!(refused.refusal(), (400, "E3301"));
    is_whole(&refused.body["execution_metadata"], &refused.text);
    let stranger = invoke_as(&gantry, "nobody", "calculator").await;
    assert_eq!(stranger.refusal(), (401, "E3203"));
    assert!(stranger.body.get("execution_metadata").is_none(), "{}", stranger.text);
}

#[tokio::test]
async fn the_status_of_a_failed_job_says_what_it_used_and_what_can_be_gone_on_from() {
    let (_home, gantry) = open().await;
    let call = json!({ "tool_id": "demo.fails", "parameters": {}, "execution_options": { "async_mode": true } });
    let accepted = gantry.post("/v1/tools/invoke", call).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let path = format!("/v1/invocations/{}", accepted.body["invocation_id"].as_str().unwrap());
    let began = std::time::Instant::now();
    let ended = loop {
        let status = gantry.get(&path).await;
        if !["pending", "running"].contains(&status.body["status"].as_str().unwrap()) {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "{}", status.text);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(ended.body["error"]["code"], "E3401", "{}", ended.text);
    is_whole(&ended.body["execution_metadata"], &ended.text);
    assert!(ended.body["checkpoint_ref"].is_string(), "{}", ended.text);
    let error = ended.body["error"].as_object().unwrap();
    assert!(!error.contains_key("execution_metadata"), "the envelope is as it is everywhere: {}", ended.text);
    assert!(!ended.text.contains("the disk of the tool"), "what a tool wrote is not kept with its job: {}", ended.text);
}

#[tokio::test]
async fn a_result_says_what_computed_it_and_whether_it_was_computed_for_this_call() {
    let (_home, gantry) = open().await;
    let call = json!({ "tool_id": "calculator", "parameters": { "expression": "6*7" },
        "execution_options": { "idempotency_key": "once" } });
    let first = gantry.post("/v1/tools/invoke", call.clone()).await;
    assert_eq!((first.status, &first.body["source"]), (200, &json!("compute")), "{}", first.text);
    let provenance = &first.body["provenance"];
    assert_eq!(
        json!([provenance["source"], provenance["version"]]),
        json!([first.body["tool_id"], first.body["tool_version"]])
    );
    assert_eq!(provenance["executed_at"], first.body["execution_metadata"]["completed_at"], "{}", first.text);
    let again = gantry.post("/v1/tools/invoke", call).await;
    assert_eq!((&again.body["cached"], &again.body["source"]), (&json!(true), &json!("cache")), "{}", again.text);
    assert_eq!(again.body["provenance"], *provenance, "it was computed then: {}", again.text);

    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": "tool.invoke",
        "params": { "tool_id": "calculator", "parameters": { "expression": "1" } } });
    let rpc = gantry.post("/rpc", message).await;
    assert_eq!(rpc.body["result"]["source"], "compute", "{}", rpc.text);
    let meta = meta_by_mcp(&gantry, &gantry.token, "calculator", json!({ "expression": "1" })).await;
    assert_eq!(meta["dev.gantry/source"], "compute", "{meta}");
    assert_eq!(meta["dev.gantry/provenance"]["source"], "calculator", "{meta}");
}

#[tokio::test]
async fn a_program_and_a_component_are_told_on_whose_behalf_it_is_called_if_the_token_says_so() {
    let (_home, gantry) = open().await;
    let with = async |user: Value| gantry.mint(json!({ "tenant": "local", "user_did": user })).await;
    let (for_ann, for_nobody) = (with(json!("did:example:ann")).await, with(Value::Null).await);
    for tool in ["demo.asks_environment", "demo.asks_call", "demo.asks_host"] {
        let told = invoke_as(&gantry, &for_ann, tool).await;
        assert_eq!(told.body["result"]["user"], "did:example:ann", "{tool}: {}", told.text);
        let told = invoke_as(&gantry, &for_nobody, tool).await;
        assert_eq!(told.body["result"], json!({ "user": null }), "{tool}: {}", told.text);
    }
    // What only the request says is not believed.
    let claimed =
        json!({ "tool_id": "demo.asks_call", "parameters": {}, "agent_context": { "user_did": "did:example:eve" } });
    let refused = gantry.request(Method::POST, "/v1/tools/invoke", Some(&for_ann), Some(claimed)).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
}

#[tokio::test]
async fn what_a_failed_tool_wrote_is_read_by_those_who_look_after_it_and_by_no_agent() {
    let (_home, gantry) = open().await;
    for role in ["admin", "operator", "tool_author"] {
        let token = gantry.mint(json!({ "tenant": "local", "sub": format!("the-{role}"), "roles": [role] })).await;
        let failed = invoke_as(&gantry, &token, "demo.breaks").await;
        assert_eq!(failed.refusal(), (500, "E3401"), "{role}: {}", failed.text);
        let output = failed.body["output"].as_str().unwrap_or_else(|| panic!("{role}: {}", failed.text));
        assert!(output.contains("the table is missing"), "{role}: {output}");
        assert!(!output.contains("ann@example.org"), "it is redacted: {output}");
        let meta = meta_by_mcp(&gantry, &token, "demo.breaks", json!({})).await;
        assert!(meta["dev.gantry/output"].as_str().is_some_and(|said| said.contains("the table")), "{role}: {meta}");
    }
    // An agent, and an operator of another tenant, who does not look after this tool.
    for (tenant, role) in [("local", "agent"), ("local", "auditor"), ("acme", "operator")] {
        let token = gantry.mint(json!({ "tenant": tenant, "sub": format!("the-{role}"), "roles": [role] })).await;
        let failed = invoke_as(&gantry, &token, "demo.breaks").await;
        assert_eq!(failed.code(), "E3401", "{tenant} {role}: {}", failed.text);
        assert_eq!(failed.body["execution_metadata"]["exit_code"], 3, "{tenant} {role}: {}", failed.text);
        assert!(!failed.text.contains("the table is missing"), "{tenant} {role}: {}", failed.text);
        let meta = meta_by_mcp(&gantry, &token, "demo.breaks", json!({})).await.to_string();
        assert!(!meta.contains("the table is missing"), "{tenant} {role}: {meta}");
    }
}
