//! What confined tools can and cannot do, seen from outside: tools are written into folders, the real server runs them,
//! and the machine is looked at afterwards.
//!
//! Temporary directories are readable by everybody here, because tools run as nobody. A tool that is to be found again
//! carries a *marker* in its command line ([`traces`]): the machine's list of processes says whether any is left.
//!
//! Not here: hostile tools one by one (`escape`), the unsandboxed way (`tool_folders`).

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Gantry, Start, open_to_all};

mod codes;
mod crowd;
mod leaks;
mod limits;
mod loopback;
mod ordinary_user;
mod permissions;
mod resource_usage;
mod sessions;
mod survivors;
pub(crate) mod traces;
mod wasm;

/// A temporary directory with tools in it, and with places for them to read and write.
struct Workshop {
    home: TempDir,
}

impl Workshop {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        open_to_all(home.path());
        std::fs::create_dir(home.path().join("tools")).unwrap();
        Self { home }
    }

    fn with(tools: impl IntoIterator<Item = Tool>) -> Self {
        let workshop = Self::new();
        tools.into_iter().for_each(|tool| workshop.add(&tool));
        workshop
    }

    fn add(&self, tool: &Tool) {
        let folder = self.home.path().join("tools").join(tool.manifest["tool_id"].as_str().unwrap());
        std::fs::create_dir(&folder).unwrap();
        for (name, contents, mode) in &tool.files {
            write(&folder.join(name), contents, *mode);
        }
        write(&folder.join("tool.json"), tool.manifest.to_string().as_bytes(), 0o644);
    }

    /// A path in the workshop.
    fn path(&self, name: &str) -> String {
        self.home.path().canonicalize().unwrap().join(name).to_str().unwrap().to_owned()
    }

    /// A directory for tools, with these files.
    fn place(&self, name: &str, files: &[(&str, &str)]) -> PathBuf {
        let place = PathBuf::from(self.path(name));
        std::fs::create_dir_all(&place).unwrap();
        for (file, text) in files {
            write(&place.join(file), text.as_bytes(), 0o644);
        }
        place
    }

    /// A server for these tools, started so.
    async fn open_with(&self, start: Start) -> Gantry {
        start.arg("--tools").arg(self.path("tools")).run().await
    }

    async fn open(&self) -> Gantry {
        self.open_with(Start::new()).await
    }
}

fn write(path: &Path, contents: &[u8], mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, contents).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A tool to be written.
struct Tool {
    manifest: Value,
    files: Vec<(String, Vec<u8>, u32)>,
}

impl Tool {
    /// With this command, and with nothing that it may touch. There is time enough on a busy machine; who wants to see
    /// its end says so in the call.
    fn new(id: &str, command: &[&str]) -> Self {
        let manifest = json!({ "tool_id": id, "namespace": "t", "version": "1.0.0", "name": id,
            "description": "A tool of a test, which says what it finds.", "provider": "Test", "protocol": "native",
            "side_effect_policy": "pure", "timeout_class": "long_running",
            "parameters": { "type": "object" }, "result_schema": {},
            "execution": { "type": "process", "command": command } });
        Self { manifest, files: Vec::new() }
    }

    /// A Python program. `parameters` holds what it was called with, and what it leaves in `result` is its result.
    fn python(id: &str, program: &str) -> Self {
        let around = format!(
            "import json, os, sys, time\nparameters = json.load(sys.stdin)\nresult = None\n{program}\njson.dump(result, sys.stdout)\n"
        );
        Self::new(id, &["python3", "main.py"]).file("main.py", around)
    }

    /// A line for a shell.
    fn shell(id: &str, script: &str) -> Self {
        Self::new(id, &["sh", "-c", script])
    }

    /// The same, to be found again by its marker in the list of processes.
    fn marked(mut self, marker: &str) -> Self {
        self.manifest["execution"]["command"].as_array_mut().unwrap().push(json!(marker));
        self
    }

    fn file(mut self, name: &str, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.to_owned(), contents.into(), 0o644));
        self
    }

    /// What it declares; a tool that may write is not pure.
    fn may(mut self, permissions: &[String]) -> Self {
        if permissions.iter().any(|permission| permission.starts_with("filesystem:write:")) {
            self = self
                .with("side_effect_policy", json!("idempotent"))
                .with("side_effects", json!([{ "resource": "file", "op": "UPDATE", "scope": "one" }]))
                .with("idempotency", json!({}));
        }
        self.with("required_permissions", json!(permissions))
    }

    fn with(mut self, member: &str, value: Value) -> Self {
        self.manifest[member] = value;
        self
    }

    /// Changes how it is run.
    fn run(mut self, member: &str, value: Value) -> Self {
        self.manifest["execution"][member] = value;
        self
    }
}

/// Calls a tool of the workshop with limits of the caller's.
async fn bounded(gantry: &Gantry, id: &str, parameters: Value, limits: Value) -> Answer {
    let body = json!({ "tool_id": format!("t.{id}"), "parameters": parameters, "resource_limits": limits });
    gantry.post("/v1/tools/invoke", body).await
}

async fn call(gantry: &Gantry, id: &str, parameters: Value) -> Answer {
    gantry.invoke_to_the_end(&format!("t.{id}"), parameters).await
}

/// The result of a call that went well.
async fn result(gantry: &Gantry, id: &str, parameters: Value) -> Value {
    let answer = call(gantry, id, parameters).await;
    assert_eq!(answer.status, 200, "{id}: {}\n{}", answer.text, gantry.log());
    answer.body["result"].clone()
}
