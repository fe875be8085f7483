//! A running gateway with the tools that are measured: a shell script, and a Python greeting cold and warm.
//!
//! The greeting does the same in all its forms, the bare one included, so that what differs is what is around it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::load::{self, Traffic};
use crate::product::{self, Product};

/// Reads its parameters, greets, ends.
pub(super) const GREETING: &str = "\
import json, sys
parameters = json.load(sys.stdin)
json.dump({'greeting': 'hello ' + parameters['name']}, sys.stdout)
";
/// The same for one call after another; it can be made to wait, so that several are in use at once.
pub(super) const GREETINGS: &str = "\
import json, sys, time
for line in sys.stdin:
    call = json.loads(line)
    if call.get('method') == 'invoke':
        parameters = call['params']['parameters']
        time.sleep(parameters.get('wait_ms', 0) / 1000)
        result = {'greeting': 'hello ' + parameters['name']}
        print(json.dumps({'jsonrpc': '2.0', 'id': call['id'], 'result': result}), flush=True)
";
const SHELL: &str = "echo '{\"greeting\": \"hello shell\"}'\n";
/// What every answer contains.
const ANSWER: &str = "hello ";

/// Tools that keep their interpreter. Several, because the server keeps only so many of one tool.
pub(super) const WARM_TOOLS: [&str; 2] = ["bench.warm_a", "bench.warm_b"];
pub(super) const COLD_TOOL: &str = "bench.cold";
pub(super) const SHELL_TOOL: &str = "bench.shell";

/// A server with the tools, and an agent that may call them.
pub(super) struct ToolServer {
    pub(super) server: Product,
    agent: String,
    folder: TempDir,
}

impl ToolServer {
    pub(super) async fn open(gantry: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("gantry-bench-").tempdir().context("no temporary folder")?;
        // Tools run as nobody, who has to be able to come here.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let (tools, data) = (folder.path().join("tools"), folder.path().join("data"));
        let simple = |command: [&str; 2]| json!({ "type": "process", "command": command, "isolation": "process" });
        write(&tools, COLD_TOOL, ("main.py", GREETING), &simple(["python3", "main.py"]))?;
        write(&tools, SHELL_TOOL, ("main.sh", SHELL), &simple(["/bin/sh", "main.sh"]))?;
        for tool in WARM_TOOLS {
            let mut execution = simple(["python3", "main.py"]);
            if let Value::Object(members) = &mut execution {
                members.insert("protocol".into(), json!("gantry/1"));
                members.insert("warm".into(), json!(true));
            }
            write(&tools, tool, ("main.py", GREETINGS), &execution)?;
        }
        let server = Product::start_with(gantry, &data, Some(&tools)).await?;
        let agent = server.agent_token(&product::admin_token(&data)?).await?;
        Ok(Self { server, agent, folder })
    }

    /// Calls of one tool.
    pub(super) fn traffic(&self, tool: &str, parameters: &Value) -> Traffic {
        let body = json!({ "tool_id": tool, "parameters": parameters }).to_string();
        let request = load::request("POST", "/v1/tools/invoke", Some(&self.agent), Some(&body));
        Traffic { requests: Arc::from(vec![request]), status: 200, contains: ANSWER }
    }

    /// The script of a tool, for those who run it without us.
    pub(super) fn script(&self, tool: &str, file: &str) -> PathBuf {
        folder_of(&self.folder.path().join("tools"), tool).join(file)
    }

    pub(super) async fn close(self) -> Result<()> {
        self.server.stop().await
    }
}

fn folder_of(tools: &Path, tool: &str) -> PathBuf {
    tools.join(tool.trim_start_matches("bench."))
}

fn write(tools: &Path, tool: &str, (file, text): (&str, &str), execution: &Value) -> Result<()> {
    let folder = folder_of(tools, tool);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(file), text)?;
    let manifest = json!({
        "tool_id": tool.trim_start_matches("bench."), "namespace": "bench", "version": "1.0.0", "name": "Greeting",
        "description": "Greets whoever is named.", "provider": "Bench", "protocol": "native", "side_effect_policy": "pure",
        "timeout_class": "standard", "execution": execution, "required_permissions": [],
        "parameters": { "type": "object", "properties": {
            "name": { "type": "string", "description": "who is greeted" },
            "wait_ms": { "type": "integer", "minimum": 0, "maximum": 5000, "description": "how long it thinks" } } },
        "result_schema": { "type": "object", "properties": { "greeting": { "type": "string" } } },
        // A whole core, so that an interpreter is not throttled while it starts.
        "resource_limits": { "cpu": "1", "memory": "128Mi", "ephemeral_storage": "8Mi" },
    });
    Ok(fs::write(folder.join("tool.json"), manifest.to_string())?)
}
