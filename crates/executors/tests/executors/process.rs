//! Process tools without a sandbox: real programs in real folders, as plain children.
//!
//! Not here: the sandbox, which needs the real binary as its launcher (`/tests/sandbox`).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::manifest::{Execution, Isolation, Manifest, ManifestFormat, SideEffectPolicy};
use gantry_executors::{OperatorReach, ProcessExecutor, ProcessIsolation, ToolConfinement, ToolDirectories};
use ports::executor::{Executor, ToolOutput};
use ports::secret_source::NoSecrets;
use ports::tool_version::ToolVersion;
use sandbox::egress::SystemResolver;
use serde_json::{Value, json};

use crate::calls::{StillClock, call, version_of, version_of_tenant};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tools/word_stats");

fn example() -> Manifest {
    let text = std::fs::read_to_string(Path::new(EXAMPLE).join("tool.toml")).unwrap();
    Manifest::read(&text, ManifestFormat::Toml).unwrap_or_else(|error| panic!("{error}"))
}

/// The example with another command.
fn tool(command: &[&str], more: &Value) -> Arc<ToolVersion> {
    let mut binding = json!({ "type": "process", "command": command });
    binding.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let mut manifest = example();
    manifest.execution = Some(serde_json::from_value::<Execution>(binding).unwrap());
    version_of(manifest)
}

fn unsandboxed(homes: ToolDirectories) -> ProcessExecutor {
    let confinement = ToolConfinement::new(OperatorReach::default(), Arc::new(NoSecrets), Arc::new(SystemResolver));
    ProcessExecutor::new(ProcessIsolation::Unsandboxed, homes, confinement, Arc::new(StillClock))
}

fn at_home(tool: &ToolVersion, home: &Path) -> ProcessExecutor {
    let homes = ToolDirectories::default();
    homes.set(&tool.id, &tool.version, tool.digest, home.to_owned());
    unsandboxed(homes)
}

async fn shell(script: &str) -> Result<ToolOutput, Refusal> {
    let home = tempfile::tempdir().unwrap();
    let tool = tool(&["sh", "-c", script], &json!({ "env": { "EXTRA": "given" } }));
    at_home(&tool, home.path()).execute(call(&tool, json!({ "text": "a b" }))).await.map_err(|error| error.refusal)
}

#[tokio::test]
async fn the_example_tool_counts_words() {
    let tool = version_of(example());
    let executor = at_home(&tool, Path::new(EXAMPLE));
    executor.ready(&tool, tool.manifest.execution.as_ref().unwrap(), Isolation::Process).unwrap();
    let output = executor.execute(call(&tool, json!({ "text": "a b" }))).await.unwrap();
    assert_eq!(output.value, json!({ "words": 2, "characters": 3 }));
    let failed = executor.execute(call(&tool, json!({ "wrong": 1 }))).await.unwrap_err().refusal;
    assert_eq!(failed.code, ErrorCode::E3401);
    assert!(!failed.message.contains("KeyError") && !failed.message.contains("main.py"), "{failed}");
}

#[tokio::test]
async fn another_tenants_tool_of_the_same_name_does_not_run_in_the_folder() {
    let (ours, theirs) = (version_of(example()), version_of_tenant("acme".parse().unwrap(), example()));
    let executor = at_home(&ours, Path::new(EXAMPLE));
    assert_eq!((&ours.id, &ours.version), (&theirs.id, &theirs.version));
    let refused = executor.execute(call(&theirs, json!({ "text": "a b" }))).await.unwrap_err().refusal;
    assert_eq!(refused.code, ErrorCode::E3108);
}

#[tokio::test]
async fn each_end_of_a_process_has_its_code() {
    for (script, code, message) in [
        ("echo oops >&2; exit 3", ErrorCode::E3401, "exit code 3"),
        ("kill -SEGV $$", ErrorCode::E3404, "signal 11"),
        ("echo not json", ErrorCode::E3401, "not acceptable JSON"),
        ("exit 0", ErrorCode::E3401, "no result"),
        ("head -c 2000000 /dev/zero; sleep 60", ErrorCode::E3414, "larger than 1048576 bytes"),
    ] {
        let refusal = shell(script).await.unwrap_err();
        assert_eq!(refusal.code, code, "{script}: {refusal}");
        assert!(refusal.message.contains(message), "{script}: {}", refusal.message);
        assert!(!format!("{refusal:?}").contains("oops"), "what a tool says on stderr is not for callers");
    }
}

#[tokio::test]
async fn a_tool_gets_a_clean_environment_and_its_own_folder() {
    let output =
        shell(r#"printf '{"env": "%s", "here": "%s"}' "$(env | sort | tr '\n' ' ')" "$(ls -A)""#).await.unwrap();
    let env = output.value["env"].as_str().unwrap();
    for name in env.split_whitespace().filter_map(|entry| entry.split_once('=')).map(|(name, _)| name) {
        assert!(
            ["PATH", "LANG", "EXTRA", "PWD", "OLDPWD", "SHLVL", "_"].contains(&name),
            "{name} was inherited: {env}"
        );
    }
    assert!(env.contains("EXTRA=given") && env.contains("LANG=C.UTF-8"), "{env}");
    assert_eq!(output.value["here"], "");
}

#[tokio::test]
async fn arguments_are_not_read_by_a_shell() {
    let home = tempfile::tempdir().unwrap();
    let tool = tool(&["printf", "%s", "\"$(id) `id` ; * && |\""], &json!({}));
    let output = at_home(&tool, home.path()).execute(call(&tool, json!({}))).await.unwrap();
    assert_eq!(output.value, "$(id) `id` ; * && |");
}

#[tokio::test]
async fn a_tool_that_ignores_its_input_or_writes_first_does_not_hang() {
    let home = tempfile::tempdir().unwrap();
    let tool = tool(&["sh", "-c", "head -c 300000 /dev/zero | tr '\\0' ' '; echo 1"], &json!({}));
    let large = json!({ "text": "x".repeat(500_000) });
    assert_eq!(at_home(&tool, home.path()).execute(call(&tool, large)).await.unwrap().value, 1);
}

#[tokio::test]
async fn helpers_left_behind_neither_hold_the_call_nor_survive_it() {
    // The helper inherits stdout, which would keep the pipe open for a minute.
    let output = shell("sleep 60 & echo $!").await.unwrap();
    assert_gone(output.value.as_i64().unwrap()).await;
}

#[tokio::test]
async fn dropping_the_call_kills_the_whole_group() {
    let home = tempfile::tempdir().unwrap();
    let tool = tool(&["sh", "-c", "sleep 60 & echo $! > helper; wait"], &json!({}));
    let executor = at_home(&tool, home.path());
    let running = executor.execute(call(&tool, json!({})));
    let written = async {
        loop {
            let text = std::fs::read_to_string(home.path().join("helper")).unwrap_or_default();
            if let Ok(pid) = text.trim().parse::<i64>() {
                return pid;
            }
            tokio::task::yield_now().await;
        }
    };
    let pid = tokio::select! {
        ended = running => panic!("ended by itself: {ended:?}"),
        pid = tokio::time::timeout(Duration::from_secs(10), written) => pid.unwrap(),
    };
    assert_gone(pid).await;
}

/// Waits until a process is gone or only waits to be buried.
async fn assert_gone(pid: i64) {
    let gone = async {
        loop {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let state = stat.rsplit(')').next().unwrap_or_default().trim().chars().next();
            if matches!(state, None | Some('Z' | 'X')) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone)
        .await
        .unwrap_or_else(|_| panic!("process {pid} is still there"));
}

#[tokio::test]
async fn what_cannot_be_had_without_a_sandbox_is_refused() {
    let plain = tool(&["true"], &json!({}));
    let gvisor = tool(&["true"], &json!({ "isolation": "gvisor" }));
    let microvm = tool(&["true"], &json!({ "isolation": "microvm" }));
    let session = tool(&["true"], &json!({ "protocol": "gantry/1" }));
    for (tool, code, hint) in [
        (&gvisor, ErrorCode::E3405, "never given"),
        (&microvm, ErrorCode::E3405, "never given"),
        (&session, ErrorCode::E3108, "without `--unsandboxed-processes`"),
        (&plain, ErrorCode::E3108, "--tools DIR"),
    ] {
        let executor = unsandboxed(ToolDirectories::default());
        let binding = tool.manifest.execution.as_ref().unwrap();
        let refusals = [
            executor.ready(tool, binding, binding.isolation_asked()).unwrap_err(),
            executor.execute(call(tool, json!({}))).await.unwrap_err().refusal,
        ];
        for refusal in refusals {
            assert_eq!((refusal.code, refusal.retryable), (code, Some(false)), "{refusal}");
            assert!(refusal.resolution().contains(hint), "{}", refusal.resolution());
        }
    }
    // What the operator demands counts as much as what the manifest asks for.
    let mut demanded = call(&plain, json!({}));
    demanded.isolation = Isolation::Gvisor;
    assert_eq!(
        unsandboxed(ToolDirectories::default()).execute(demanded).await.unwrap_err().refusal.code,
        ErrorCode::E3405
    );
}

#[tokio::test]
async fn what_nothing_would_confine_is_not_given_without_a_sandbox() {
    for permission in ["network:http://127.0.0.1:80", "credentials:api_key"] {
        let mut manifest = example();
        manifest.required_permissions = vec![permission.to_owned()];
        let tool = version_of(manifest);
        let refusal = at_home(&tool, Path::new(EXAMPLE))
            .execute(call(&tool, json!({ "text": "a b" })))
            .await
            .unwrap_err()
            .refusal;
        assert_eq!((refusal.code, refusal.retryable), (ErrorCode::E3405, Some(false)), "{permission}: {refusal}");
        assert!(refusal.message.contains("without the sandbox"), "{permission}: {}", refusal.message);
    }
}

#[tokio::test]
async fn limits_that_nothing_would_enforce_are_refused() {
    let tool = version_of(example());
    let mut bounded = call(&tool, json!({ "text": "a b" }));
    bounded.limits.asked_by_caller = true;
    let refusal = at_home(&tool, Path::new(EXAMPLE)).execute(bounded).await.unwrap_err().refusal;
    assert_eq!(refusal.code, ErrorCode::E3405);
    let unasked = call(&tool, json!({ "text": "a b" }));
    assert_eq!(at_home(&tool, Path::new(EXAMPLE)).execute(unasked).await.unwrap().value["words"], 2);
}

#[tokio::test]
async fn a_forgotten_home_and_a_missing_program_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let tool = tool(&["no-such-program-anywhere"], &json!({}));
    let homes = ToolDirectories::default();
    homes.set(&tool.id, &tool.version, tool.digest, home.path().to_owned());
    let executor = unsandboxed(homes.clone());
    assert_eq!(executor.execute(call(&tool, json!({}))).await.unwrap_err().refusal.code, ErrorCode::E3401);
    homes.forget(&tool.id, &tool.version);
    assert_eq!(executor.execute(call(&tool, json!({}))).await.unwrap_err().refusal.code, ErrorCode::E3108);
}

#[tokio::test]
async fn each_end_of_a_program_says_how_far_the_call_came() {
    use ports::executor::ExecutionReach::{Answered, MayHaveRun, NotSent};
    let home = tempfile::tempdir().unwrap();
    for (command, reach) in [
        (&["sh", "-c", "exit 3"][..], Answered),
        (&["sh", "-c", "echo not json"], Answered),
        (&["sh", "-c", "true"], Answered),
        (&["sh", "-c", "kill -9 $$"], MayHaveRun),
        (&["sh", "-c", "head -c 2000000 /dev/zero"], MayHaveRun),
        (&["no-such-program-anywhere"], NotSent),
    ] {
        let tool = tool(command, &json!({}));
        let error = at_home(&tool, home.path()).execute(call(&tool, json!({}))).await.unwrap_err();
        assert_eq!(error.reach, reach, "{command:?}: {error}");
    }
    let tool = tool(&["sh", "-c", "true"], &json!({}));
    assert_eq!(
        unsandboxed(ToolDirectories::default()).execute(call(&tool, json!({}))).await.unwrap_err().reach,
        NotSent
    );
}

#[tokio::test]
async fn a_program_with_effects_finds_the_key_of_its_act_in_its_environment() {
    let script = "printf '\"%s\"' \"$IDEMPOTENCY_KEY\"";
    assert_eq!(shell(script).await.unwrap().value, json!(""), "a pure tool is told nothing");
    let mut manifest = example();
    manifest.side_effect_policy = SideEffectPolicy::Idempotent;
    let command = ["sh", "-c", script];
    manifest.execution =
        Some(serde_json::from_value::<Execution>(json!({ "type": "process", "command": command })).unwrap());
    let tool = version_of(manifest);
    let home = tempfile::tempdir().unwrap();
    let output = at_home(&tool, home.path()).execute(call(&tool, json!({ "text": "a b" }))).await.unwrap();
    assert_eq!(output.value, json!("key-of-the-act"));
}
