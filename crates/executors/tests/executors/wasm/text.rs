//! Components of the world `gantry:tool/tool`, written as text: each is a body of `invoke`, good or hostile.

use std::time::Duration;

use tokio::time::Instant;

use super::*;

/// A component around the body of `invoke`, which has its parameters at `$ptr` and `$len`, and three functions: `$ok` and
/// `$err` make the answer, `$grow` asks for pages of memory.
pub(super) fn component(imports: &str, body: &str) -> Vec<u8> {
    component_with(imports, "(memory (export \"memory\") 1)", body)
}

fn component_with(imports: &str, memory: &str, body: &str) -> Vec<u8> {
    let (instances, with, core_imports) = match imports {
        "host" => (
            HOST,
            "(with \"host\" (instance (export \"log\" (func $log)) (export \"progress\" (func $progress))))",
            HOST_CORE,
        ),
        "invocation" => (INVOCATION, "(with \"invocation\" (instance (export \"key\" (func $key))))", INVOCATION_CORE),
        "secrets" => (SECRETS, "(with \"secrets\" (instance (export \"get\" (func $get))))", SECRETS_CORE),
        "checkpoints" => (
            CHECKPOINTS,
            "(with \"checkpoints\" (instance (export \"resume-state\" (func $resume)) (export \"save\" (func $save))))",
            CHECKPOINTS_CORE,
        ),
        _ => ("", "", ""),
    };
    let text = format!(
        r#"(component
  (core module $libc {memory}
    (global $top (mut i32) (i32.const 8192))
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
      (global.set $top (i32.add (local.get $at) (local.get 3)))
      (local.get $at)))
  (core instance $libc (instantiate $libc))
  {instances}
  (core module $m
    (import "libc" "memory" (memory 0))
    {core_imports}
    (data (i32.const 1024) "\"text\" not json api_key \"other\"")
    (table $table 1 funcref)
    (func $ok (param $ptr i32) (param $len i32) (result i32)
      (i32.store8 (i32.const 16) (i32.const 0))
      (i32.store (i32.const 20) (local.get $ptr)) (i32.store (i32.const 24) (local.get $len))
      (i32.const 16))
    (func $err (param $kind i32) (param $ptr i32) (param $len i32) (result i32)
      (i32.store8 (i32.const 16) (i32.const 1)) (i32.store8 (i32.const 20) (local.get $kind))
      (i32.store (i32.const 24) (local.get $ptr)) (i32.store (i32.const 28) (local.get $len))
      (i32.const 16))
    (func $deeper (param i32) (result i32)
      (i32.add (call $deeper (i32.add (local.get 0) (i32.const 1))) (i32.const 1)))
    (func (export "invoke") (param $ptr i32) (param $len i32) (result i32) (local $n i32)
      {body}))
  (core instance $i (instantiate $m (with "libc" (instance $libc)) {with}))
  (type $kind' (enum "invalid-parameters" "failed" "unavailable"))
  (export $kind "error-kind" (type $kind'))
  (type $error' (record (field "kind" $kind) (field "message" string)))
  (export $error "tool-error" (type $error'))
  (func $invoke (param "parameters-json" string) (result (result string (error $error)))
    (canon lift (core func $i "invoke") (memory $libc "memory") (realloc (func $libc "cabi_realloc"))))
  (export "invoke" (func $invoke)))"#
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

const HOST: &str = r#"
  (import "gantry:tool/host@1.0.0" (instance $host
    (type $level' (enum "debug" "info" "warn" "error"))
    (export "level" (type $level (eq $level')))
    (export "log" (func (param "level" $level) (param "message" string)))
    (export "progress" (func (param "percent" (option f64)) (param "message" string)))))
  (core func $log (canon lower (func $host "log") (memory $libc "memory")))
  (core func $progress (canon lower (func $host "progress") (memory $libc "memory")))"#;
const HOST_CORE: &str = r#"
    (import "host" "log" (func $log (param i32 i32 i32)))
    (import "host" "progress" (func $progress (param i32 f64 i32 i32)))"#;
const INVOCATION: &str = r#"
  (import "gantry:tool/invocation@1.0.0" (instance $invocation (export "idempotency-key" (func (result string)))))
  (core func $key (canon lower (func $invocation "idempotency-key") (memory $libc "memory") (realloc (func $libc "cabi_realloc"))))"#;
const INVOCATION_CORE: &str = r#"(import "invocation" "key" (func $key (param i32)))"#;
const SECRETS: &str = r#"
  (import "gantry:tool/secrets@1.0.0" (instance $secrets
    (export "get" (func (param "name" string) (result (result string (error string)))))))
  (core func $get (canon lower (func $secrets "get") (memory $libc "memory") (realloc (func $libc "cabi_realloc"))))"#;
const CHECKPOINTS: &str = r#"
  (import "gantry:tool/checkpoints@1.0.0" (instance $checkpoints
    (export "resume-state" (func (result (option string))))
    (export "save" (func (param "name" (option string)) (param "state-json" string) (result (result string (error string)))))))
  (core func $resume (canon lower (func $checkpoints "resume-state") (memory $libc "memory") (realloc (func $libc "cabi_realloc"))))
  (core func $save (canon lower (func $checkpoints "save") (memory $libc "memory") (realloc (func $libc "cabi_realloc"))))"#;
const CHECKPOINTS_CORE: &str = r#"
    (import "checkpoints" "resume-state" (func $resume (param i32)))
    (import "checkpoints" "save" (func $save (param i32 i32 i32 i32 i32 i32)))"#;
const SECRETS_CORE: &str = r#"(import "secrets" "get" (func $get (param i32 i32 i32)))"#;

/// A tool in a folder of its own, which stays as long as the first part of the answer.
fn tool(component: &[u8], permissions: &[&str]) -> (tempfile::TempDir, Arc<ToolVersion>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tool.wasm"), component).unwrap();
    let permissions: Vec<String> = permissions.iter().map(ToString::to_string).collect();
    let tool = HARNESS.tool(folder.path(), "tool.wasm", &permissions);
    (folder, tool)
}

async fn outcome(component: &[u8]) -> Result<ToolOutput, Refusal> {
    let (_folder, tool) = tool(component, &[]);
    HARNESS.call(&tool, json!({ "text": "a b" })).await
}

#[tokio::test]
async fn parameters_go_in_and_a_result_comes_out_as_json() {
    let (folder, tool) = tool(&component("", "(call $ok (local.get $ptr) (local.get $len))"), &[]);
    let parameters = json!({ "text": "ä \u{1F980} \"quoted\"", "list": [1, 2.5, null] });
    let output = HARNESS.call(&tool, parameters.clone()).await.unwrap();
    assert_eq!(output.value, parameters);
    assert_eq!(output.usage.memory_peak_mb, 1, "64 KiB, rounded up");
    assert_eq!(HARNESS.executor.load(folder.path(), "tool.wasm").await.unwrap().world(), "gantry:tool/tool");
}

#[tokio::test]
async fn each_end_of_a_guest_has_its_code() {
    let bomb = "(block $full (loop $more (br_if $full (i32.eq (memory.grow (i32.const 16)) (i32.const -1))) (br $more))) (unreachable)";
    let table = "(block $full (loop $more (br_if $full (i32.eq (table.grow $table (ref.null func) (i32.const 1000)) (i32.const -1))) (br $more))) (unreachable)";
    let large = "(drop (memory.grow (i32.const 64))) (call $ok (i32.const 65536) (i32.const 2000000))";
    for (body, code, message) in [
        ("(call $err (i32.const 0) (i32.const 1025) (i32.const 4))", ErrorCode::E3301, "text"),
        ("(call $err (i32.const 1) (i32.const 1025) (i32.const 4))", ErrorCode::E3401, "text"),
        ("(call $err (i32.const 2) (i32.const 1025) (i32.const 4))", ErrorCode::E3502, "text"),
        ("(call $err (i32.const 1) (i32.const 0) (i32.const 0))", ErrorCode::E3401, "without saying why"),
        ("(call $ok (i32.const 1031) (i32.const 8))", ErrorCode::E3401, "not acceptable JSON"),
        ("(call $ok (i32.const 0) (i32.const 0))", ErrorCode::E3401, "no result"),
        (large, ErrorCode::E3414, "larger than 1048576 bytes"),
        ("(unreachable)", ErrorCode::E3404, "`unreachable`"),
        ("(i32.div_u (i32.const 1) (local.get $n))", ErrorCode::E3404, "divide by zero"),
        ("(i32.load (i32.const -8))", ErrorCode::E3404, "out of bounds memory access"),
        ("(call $deeper (i32.const 0))", ErrorCode::E3404, "call stack exhausted"),
        // A text that is not in memory, and one that is not UTF-8.
        ("(call $ok (i32.const 65530) (i32.const 100))", ErrorCode::E3404, "broke the rules"),
        (
            "(i32.store8 (i32.const 512) (i32.const 255)) (call $ok (i32.const 512) (i32.const 1))",
            ErrorCode::E3404,
            "broke the rules",
        ),
        (bomb, ErrorCode::E3403, "ran out of the memory"),
        (table, ErrorCode::E3407, "larger table"),
    ] {
        let refusal = outcome(&component("", body)).await.unwrap_err();
        assert_eq!(refusal.code, code, "{body}: {refusal}");
        assert!(refusal.message.contains(message), "{body}: {}", refusal.message);
    }
}

#[tokio::test]
async fn each_end_of_a_guest_says_how_far_the_call_came() {
    use ports::executor::ExecutionReach::{Answered, MayHaveRun, NotSent};
    let ok = "(call $ok (local.get $ptr) (local.get $len))";
    let huge = component_with("", "(memory (export \"memory\") 1024)", ok);
    let large = "(drop (memory.grow (i32.const 64))) (call $ok (i32.const 65536) (i32.const 2000000))";
    for (component, reach) in [
        (component("", "(call $err (i32.const 0) (i32.const 1025) (i32.const 4))"), Answered),
        (component("", "(call $err (i32.const 1) (i32.const 1025) (i32.const 4))"), Answered),
        // It does not say whether the service behind it was asked.
        (component("", "(call $err (i32.const 2) (i32.const 1025) (i32.const 4))"), MayHaveRun),
        (component("", "(call $ok (i32.const 1031) (i32.const 8))"), Answered),
        (component("", large), Answered),
        (component("", "(unreachable)"), MayHaveRun),
        // Others of its modules may have run already.
        (huge, MayHaveRun),
        (b"no component".to_vec(), NotSent),
    ] {
        let (_folder, tool) = tool(&component, &[]);
        let error = HARNESS.executor.execute(call(&tool, json!({ "text": "a b" }))).await.unwrap_err();
        assert_eq!(error.reach, reach, "{error}");
    }
    // A credential that is not there, and a deadline: before the guest began, and after.
    let (_folder, missing) = tool(&component("", ok), &["credentials:other"]);
    assert_eq!(HARNESS.executor.execute(call(&missing, json!({}))).await.unwrap_err().reach, NotSent);
    let (_folder, endless) = tool(&component("", "(loop $forever (br $forever)) (unreachable)"), &[]);
    let mut late = call(&endless, json!({}));
    late.time_left = Duration::from_millis(300);
    let reach = HARNESS.executor.execute(late.clone()).await.unwrap_err().reach;
    assert_eq!(reach, late.dispatch.reach(), "whichever it was, on a machine that may still be compiling");
}

#[tokio::test]
async fn a_guest_is_told_the_key_of_its_act() {
    let body = "(call $key (i32.const 100)) (call $ok (i32.load (i32.const 100)) (i32.load (i32.const 104)))";
    let (_folder, tool) = tool(&component("invocation", body), &[]);
    let mut call = call(&tool, json!({}));
    call.idempotency_key = "\"act-1\"".into();
    assert_eq!(HARNESS.executor.execute(call).await.unwrap().value, json!("act-1"));
}

#[tokio::test]
async fn a_guest_that_would_start_with_too_much_memory_is_out_of_memory() {
    let huge = component_with("", "(memory (export \"memory\") 1024)", "(call $ok (local.get $ptr) (local.get $len))");
    assert_eq!(outcome(&huge).await.unwrap_err().code, ErrorCode::E3403, "64 MiB of 32");
}

#[tokio::test]
async fn a_guest_that_copes_with_less_memory_succeeds() {
    let body = "(loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) (call $ok (i32.const 1024) (i32.const 6))";
    let output = outcome(&component("", body)).await.unwrap();
    assert_eq!((output.value, output.usage.memory_peak_mb), (json!("text"), 32));
}

#[tokio::test]
async fn a_guest_that_never_ends_is_stopped_at_its_deadline() {
    let (_folder, tool) = tool(&component("", "(loop $forever (br $forever)) (unreachable)"), &[]);
    let mut call = call(&tool, json!({}));
    call.time_left = Duration::from_millis(300);
    let start = Instant::now();
    let refusal = HARNESS.executor.execute(call).await.unwrap_err().refusal;
    assert_eq!(refusal.code, ErrorCode::E3402);
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn dropping_a_call_stops_its_guest_and_gives_its_place_free() {
    let harness = WasmHarness::new(WasmConfig { calls_max: 1, threads: Some(1), ..WasmConfig::default() });
    let folder = tempfile::tempdir().unwrap();
    let forever = component("", "(loop $forever (br $forever)) (unreachable)");
    std::fs::write(folder.path().join("forever.wasm"), forever).unwrap();
    std::fs::write(folder.path().join("echo.wasm"), component("", "(call $ok (local.get $ptr) (local.get $len))"))
        .unwrap();
    let forever = harness.tool(folder.path(), "forever.wasm", &[]);
    let echo = harness.tool(folder.path(), "echo.wasm", &[]);
    harness.executor.load(folder.path(), "forever.wasm").await.unwrap();
    for _ in 0..3 {
        let dropped = tokio::time::timeout(Duration::from_millis(50), harness.call(&forever, json!({}))).await;
        assert!(dropped.is_err());
        // There is one place and one thread: this waits for as long as the other guest still runs.
        assert_eq!(harness.call(&echo, json!({ "a": 1 })).await.unwrap().value, json!({ "a": 1 }));
    }
}

#[tokio::test]
async fn guests_share_their_threads_with_one_that_never_ends() {
    let harness = WasmHarness::new(WasmConfig { threads: Some(1), ..WasmConfig::default() });
    let folder = tempfile::tempdir().unwrap();
    let forever = component("", "(loop $forever (br $forever)) (unreachable)");
    std::fs::write(folder.path().join("forever.wasm"), forever).unwrap();
    std::fs::write(folder.path().join("echo.wasm"), component("", "(call $ok (local.get $ptr) (local.get $len))"))
        .unwrap();
    let forever = harness.tool(folder.path(), "forever.wasm", &[]);
    let echo = harness.tool(folder.path(), "echo.wasm", &[]);
    let others = async {
        for _ in 0..10 {
            harness.call(&echo, json!({})).await.unwrap();
        }
    };
    tokio::select! {
        ended = harness.call(&forever, json!({})) => panic!("{ended:?}"),
        () = others => {}
    }
}

#[tokio::test]
async fn a_secret_is_given_under_its_declared_name_and_no_other() {
    let get = |ptr: u32, len: u32| {
        let body = format!(
            "(call $get (i32.const {ptr}) (i32.const {len}) (i32.const 64))
             (if (result i32) (i32.load8_u (i32.const 64))
               (then (call $err (i32.const 1) (i32.load (i32.const 68)) (i32.load (i32.const 72))))
               (else (call $ok (i32.load (i32.const 68)) (i32.load (i32.const 72)))))"
        );
        component("secrets", &body)
    };
    let (_folder, declared) = tool(&get(1040, 7), &["credentials:api_key"]);
    assert_eq!(HARNESS.call(&declared, json!({})).await.unwrap().value, json!("hunter2"));
    let (_folder, undeclared) = tool(&get(1040, 7), &[]);
    let refusal = HARNESS.call(&undeclared, json!({})).await.unwrap_err();
    assert!(refusal.message.contains("no such credential"), "{refusal}");
    let (_folder, missing) = tool(&get(1040, 7), &["credentials:api_key", "credentials:other"]);
    assert_eq!(HARNESS.call(&missing, json!({})).await.unwrap_err().code, ErrorCode::E3602, "it is not even started");
    let mut theirs = call(&declared, json!({}));
    theirs.tenant = "acme".parse().unwrap();
    assert_eq!(
        HARNESS.executor.execute(theirs).await.unwrap_err().refusal.code,
        ErrorCode::E3602,
        "secrets belong to the caller's tenant"
    );
    let (_folder, part) = tool(&get(1040, 3), &["credentials:api_key"]);
    assert_eq!(HARNESS.call(&part, json!({})).await.unwrap_err().message, refusal.message, "`api` is not `api_key`");
}

#[tokio::test]
async fn progress_and_log_never_stop_a_guest_however_much_it_says() {
    let body = "(loop $more
        (call $log (i32.const 1) (i32.const 1024) (i32.const 6))
        (call $progress (i32.const 1) (f64.const nan) (i32.const 1024) (i32.const 6))
        (br_if $more (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 20000))))
      (call $ok (i32.const 1024) (i32.const 6))";
    assert_eq!(outcome(&component("host", body)).await.unwrap().value, json!("text"));
    let wrong_level =
        "(call $log (i32.const 99) (i32.const 1024) (i32.const 6)) (call $ok (i32.const 1024) (i32.const 6))";
    assert_eq!(outcome(&component("host", wrong_level)).await.unwrap_err().code, ErrorCode::E3404);
}

#[tokio::test]
async fn nothing_of_a_call_is_left_for_the_next() {
    // Counts calls in its memory; every call finds it zero.
    let body = "(i32.store (i32.const 4096) (i32.add (i32.load (i32.const 4096)) (i32.const 1)))
        (i32.store8 (i32.const 512) (i32.add (i32.load (i32.const 4096)) (i32.const 48)))
        (call $ok (i32.const 512) (i32.const 1))";
    let (_folder, tool) = tool(&component("", body), &[]);
    for _ in 0..20 {
        assert_eq!(HARNESS.call(&tool, json!({})).await.unwrap().value, json!(1));
    }
}

#[tokio::test]
async fn what_cannot_be_a_tool_is_refused_by_name() {
    let text = |text: &str| wat::parse_str(text).unwrap();
    for (component, message) in [
        (
            text(r#"(component (import "acme:db/store@1.0.0" (instance (export "get" (func)))))"#),
            "`acme:db/store@1.0.0`",
        ),
        (
            text(r#"(component (import "wasi:nn/graph@0.2.0" (instance (export "load" (func)))))"#),
            "`wasi:nn/graph@0.2.0`",
        ),
        (text(r#"(component (import "gantry:tool/host@1.0.0" (instance (export "launch" (func)))))"#), "another form"),
        (text("(component)"), "neither `invoke` nor `wasi:cli/run`"),
        (
            text(
                r#"(component (core module $m (func (export "f"))) (core instance $i (instantiate $m))
                (func $f (canon lift (core func $i "f"))) (export "invoke" (func $f)))"#,
            ),
            "not the function of `gantry:tool/tool`",
        ),
        (text("(module)"), "a core module"),
        (b"\0asm\x0d\0\x01\0 and then nothing of use".to_vec(), "not a WASM component that can run here"),
        (b"#!/bin/sh\necho".to_vec(), "not a WASM component that can run here"),
        (Vec::new(), "not a WASM component that can run here"),
    ] {
        let refusal = outcome(&component).await.unwrap_err();
        assert_eq!((refusal.code, refusal.retryable), (ErrorCode::E3108, Some(false)), "{refusal}");
        assert!(refusal.message.contains(message), "{message}: {}", refusal.message);
    }
    let refusal = outcome(&text("(module)")).await.unwrap_err();
    assert!(refusal.resolution().contains("jco new"), "{}", refusal.resolution());
}
