//! Process tools in their sandbox: how far a call came, by each of its ends.
//!
//! Not here: what the walls keep in and out, which is seen with the real binary (`/tests/sandbox`).

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use contract::manifest::{Execution, Manifest, ManifestFormat};
use gantry_executors::{
    OperatorReach, ProcessExecutor, ProcessIsolation, RuntimePrograms, SandboxProvider, ToolConfinement,
    ToolDirectories,
};
use ports::executor::ExecutionReach::{self, Answered, MayHaveRun, NotSent, Refused};
use ports::executor::Executor;
use ports::secret_source::NoSecrets;
use ports::tool_version::ToolVersion;
use sandbox::egress::SystemResolver;
use sandbox::{LauncherCommand, Sandbox};
use serde_json::{Value, json};

use crate::calls::{StillClock, call, version_of};

const LAUNCHER: &str = env!("CARGO_BIN_EXE_gantry-executors-test-launcher");
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tools/word_stats/tool.toml");

fn tool(binding: &Value, permissions: &[&str]) -> Arc<ToolVersion> {
    let text = std::fs::read_to_string(MANIFEST).unwrap();
    let mut manifest = Manifest::read(&text, ManifestFormat::Toml).unwrap_or_else(|error| panic!("{error}"));
    manifest.execution = Some(serde_json::from_value::<Execution>(binding.clone()).unwrap());
    manifest.required_permissions = permissions.iter().map(ToString::to_string).collect();
    let limits = json!({ "cpu": "2", "memory": "64Mi", "ephemeral_storage": "1Mi" });
    manifest.resource_limits = Some(serde_json::from_value(limits).unwrap());
    version_of(manifest)
}

/// How far a call of this program came that did not succeed.
async fn reach(command: &[&str], protocol: &str, permissions: &[&str]) -> ExecutionReach {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let tool = tool(&json!({ "type": "process", "command": command, "protocol": protocol }), permissions);
    let homes = ToolDirectories::default();
    homes.set(&tool.id, &tool.version, tool.digest, home.path().to_owned());
    let sandbox = Sandbox::new(LauncherCommand { program: LAUNCHER.into(), arguments: Vec::new() }, 8);
    let walls = SandboxProvider::new(sandbox, RuntimePrograms::default());
    let confinement = ToolConfinement::new(OperatorReach::default(), Arc::new(NoSecrets), Arc::new(SystemResolver));
    let executor = ProcessExecutor::new(ProcessIsolation::Sandboxed(walls), homes, confinement, Arc::new(StillClock));
    match executor.execute(call(&tool, json!({ "text": "a b" }))).await {
        Ok(output) => panic!("{command:?}: {output:?}"),
        Err(error) => error.reach,
    }
}

#[tokio::test]
async fn each_end_of_a_program_in_its_sandbox_says_how_far_the_call_came() {
    for (script, expected) in [
        ("exit 3", Answered),
        ("echo not json", Answered),
        ("true", Answered),
        // The service behind it failed, or wants to be asked later (`docs/process-tools.md`).
        ("exit 69", MayHaveRun),
        ("exit 75", Refused),
        ("kill -9 $$", MayHaveRun),
        ("head -c 2000000 /dev/zero", MayHaveRun),
        // Memory runs out in a child, and the first process still says how it went.
        ("head -c 300M /dev/zero | tail -c 300M >/dev/null; exit 3", MayHaveRun),
    ] {
        assert_eq!(reach(&["sh", "-c", script], "simple", &[]).await, expected, "{script}");
    }
    assert_eq!(reach(&["no-such-program-anywhere"], "simple", &[]).await, NotSent);
    let nowhere = ["filesystem:read:/no/such/place"];
    assert_eq!(reach(&["sh", "-c", "true"], "simple", &nowhere).await, NotSent, "a path that cannot be given");
}

#[tokio::test]
async fn each_end_of_a_session_in_its_sandbox_says_how_far_the_call_came() {
    let heard = "import json, subprocess, sys, time\ncall = json.loads(sys.stdin.readline())\n";
    let says = "error = {'code': -32000, 'message': 'no'}\nprint(json.dumps({'jsonrpc': '2.0', 'id': call['id'], 'error': error}), flush=True)\ntime.sleep(60)\n";
    let without_memory = "subprocess.run([sys.executable, '-c', 'b\"x\" * (300 << 20)'])\n";
    for (program, expected) in [
        (format!("{heard}{says}"), Answered),
        // Memory runs out in a child, and the first process still says how it went.
        (format!("{heard}{without_memory}{says}"), MayHaveRun),
        (format!("{heard}sys.exit(3)\n"), MayHaveRun),
        (format!("{heard}print('nonsense', flush=True)\ntime.sleep(60)\n"), MayHaveRun),
    ] {
        assert_eq!(reach(&["python3", "-c", &program], "gantry/1", &[]).await, expected, "{program}");
    }
    assert_eq!(reach(&["no-such-program-anywhere"], "gantry/1", &[]).await, NotSent);
}
