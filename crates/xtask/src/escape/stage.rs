//! The stage: a temporary folder with one tool folder for each probe and isolation, made from the list of probes.
//!
//! A component can reach files only from a directory it was given, and a host that gives none refuses everything alike.
//! So each component is given one to get out of, with links in it that lead out: `given/`.
//!
//! Beside the hostile ones stands a bystander, an honest tool with a secret in its folder: another tool's files are what
//! a hostile one must not reach, and calling it shows whether an isolation can be had at all.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::canary::EscapeCanary;
use super::registry::{EscapeProbe, ProbeIsolation};
use super::suite::SuitePlan;

/// Name of the honest tool.
pub(crate) const BYSTANDER: &str = "bystander";
/// Memory a probe may have: enough for an interpreter, far less than a bomb takes.
const MEMORY: &str = "192Mi";
/// Scratch space a probe may have.
const SCRATCH: &str = "16Mi";
/// The component that makes no attempt unless it is told to.
const HONEST_COMPONENT: &str = "hostile.wasm";

/// The folders, gone when this is dropped.
pub(crate) struct EscapeStage {
    home: TempDir,
    /// Eight letters that are part of all tags of this run.
    run: String,
    /// Programs run without a sandbox, where nothing could keep a limit: then a manifest that has some is refused.
    rehearse: bool,
}

impl EscapeStage {
    /// Makes a folder for every probe and isolation that belong together.
    pub(crate) fn set(
        plan: &SuitePlan,
        run: &str,
        probes: &[EscapeProbe],
        isolations: &[ProbeIsolation],
        canary: &EscapeCanary,
    ) -> Result<Self> {
        let scripts = plan.folder.join("probes");
        let home = tempfile::Builder::new().prefix("gantry-escape-").tempdir().context("no temporary folder")?;
        // Whoever the tools run as must be able to come here, or nothing would be shown by their not coming out.
        fs::set_permissions(home.path(), Permissions::from_mode(0o755))?;
        let stage = Self { home, run: run.to_owned(), rehearse: plan.rehearse };
        for &isolation in isolations {
            stage.bystander(&scripts, isolation, canary)?;
            for (number, probe) in probes.iter().enumerate() {
                if probe.not_under(isolation).is_none() {
                    let made = match &probe.wasm {
                        Some(component) if isolation == ProbeIsolation::Wasm => {
                            stage.component(&scripts.join(component), probe, canary)
                        }
                        _ => stage.program(&scripts, probe, number, isolation, canary),
                    };
                    made.with_context(|| format!("cannot make `{}`", stage.folder(isolation, &probe.id).display()))?;
                }
            }
        }
        Ok(stage)
    }

    /// What `--tools` is given, once for each isolation.
    pub(crate) fn tools(&self, isolation: ProbeIsolation) -> PathBuf {
        self.home.path().join(isolation.as_str())
    }

    /// Where the server keeps its things.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The server's log, and other files of the runner.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The folder of a tool. Tools of one isolation are neighbours.
    pub(crate) fn folder(&self, isolation: ProbeIsolation, tool: &str) -> PathBuf {
        self.tools(isolation).join(tool)
    }

    /// What marks the processes of a probe; it fits into the kernel's 15 bytes for a process's name.
    pub(crate) fn tag(&self, number: usize) -> String {
        format!("gx{}{number:05}", self.run)
    }

    /// The command of a probe.
    pub(crate) fn command(&self, probe: &EscapeProbe, number: usize) -> Vec<String> {
        let usual = || vec!["python3".into(), "main.py".into(), probe.id.clone(), self.tag(number)];
        probe.command.clone().unwrap_or_else(usual)
    }

    fn program(
        &self,
        scripts: &Path,
        probe: &EscapeProbe,
        number: usize,
        isolation: ProbeIsolation,
        canary: &EscapeCanary,
    ) -> Result<()> {
        let folder = self.folder(isolation, &probe.id);
        fs::create_dir_all(&folder)?;
        fs::copy(scripts.join(&probe.file), folder.join("main.py"))?;
        fs::copy(scripts.join("hostile.py"), folder.join("hostile.py"))?;
        if probe.links {
            links(&folder, canary)?;
        }
        let execution = process(isolation, &self.command(probe, number));
        self.hostile(&folder, isolation, probe, &execution, &probe.permissions)
    }

    /// A rehearsal gives it the canary's own directory: then it must get at the canary.
    fn component(&self, component: &Path, probe: &EscapeProbe, canary: &EscapeCanary) -> Result<()> {
        let folder = self.folder(ProbeIsolation::Wasm, &probe.id);
        fs::create_dir_all(&folder)?;
        fs::copy(component, folder.join("main.wasm"))?;
        let mut given = self.home.path().join("given").join(&probe.id);
        if self.rehearse {
            given = Path::new(canary.file()).parent().context("the canary has no home")?.to_owned();
        } else {
            fs::create_dir_all(given.join("below"))?;
            links(&given, canary)?;
            symlink("/", given.join("shipped_root"))?;
        }
        let mut permissions = probe.permissions.clone();
        permissions.push(format!("filesystem:write:{}", given.display()));
        self.hostile(&folder, ProbeIsolation::Wasm, probe, &wasm(), &permissions)
    }

    fn bystander(&self, scripts: &Path, isolation: ProbeIsolation, canary: &EscapeCanary) -> Result<()> {
        let folder = self.folder(isolation, BYSTANDER);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("secret.txt"), canary.marker())?;
        let program = folder.join("run.sh");
        fs::write(&program, "#!/bin/sh\necho '{\"escaped\": true, \"how\": \"the program was run\"}'\n")?;
        fs::set_permissions(&program, Permissions::from_mode(0o755))?;
        let execution = if isolation == ProbeIsolation::Wasm {
            fs::copy(scripts.join(HONEST_COMPONENT), folder.join("main.wasm"))?;
            wasm()
        } else {
            process(isolation, &["/bin/sh".into(), "run.sh".into()])
        };
        let manifest = self.manifest(isolation, BYSTANDER, "An honest tool that has a secret of its own.", &execution);
        Ok(fs::write(folder.join("tool.json"), manifest.to_string())?)
    }

    fn hostile(
        &self,
        folder: &Path,
        isolation: ProbeIsolation,
        probe: &EscapeProbe,
        execution: &Value,
        permissions: &[String],
    ) -> Result<()> {
        let mut manifest =
            self.manifest(isolation, &probe.id, &format!("A hostile tool that {}.", probe.title), execution);
        if let Value::Object(members) = &mut manifest {
            members.insert("timeout_default".into(), json!(probe.timeout));
            members.insert("required_permissions".into(), json!(permissions));
            // A tool that may write is not pure.
            if permissions.iter().any(|permission| permission.starts_with("filesystem:write:")) {
                members.insert("side_effect_policy".into(), json!("idempotent"));
                members.insert("side_effects".into(), json!([{ "resource": "file", "op": "UPDATE", "scope": "one" }]));
                members.insert("idempotency".into(), json!({}));
            }
        }
        Ok(fs::write(folder.join("tool.json"), manifest.to_string())?)
    }

    fn manifest(&self, isolation: ProbeIsolation, id: &str, description: &str, execution: &Value) -> Value {
        let mut manifest = json!({
            "tool_id": id, "namespace": format!("escape_{}", isolation.as_str()), "version": "1.0.0", "name": id,
            "description": description, "provider": "Escape suite", "protocol": "native",
            "parameters": { "type": "object", "additionalProperties": true }, "result_schema": { "type": "object" },
            "input_guard": "off", "output_policy": "raw", "side_effect_policy": "pure", "timeout_class": "long_running",
            "retry_policy": { "max_attempts": 1 }, "execution": execution,
        });
        if let Value::Object(members) = &mut manifest
            && (!self.rehearse || isolation == ProbeIsolation::Wasm)
        {
            // A component has no scratch space.
            let limits = match isolation {
                ProbeIsolation::Wasm => json!({ "cpu": "1", "memory": MEMORY }),
                _ => json!({ "cpu": "1", "memory": MEMORY, "ephemeral_storage": SCRATCH }),
            };
            members.insert("resource_limits".into(), limits);
        }
        manifest
    }
}

/// The id by which a tool is called.
pub(crate) fn tool_id(isolation: ProbeIsolation, tool: &str) -> String {
    format!("escape_{}.{tool}", isolation.as_str())
}

/// Links to the canary, as they may come with a folder.
fn links(folder: &Path, canary: &EscapeCanary) -> Result<()> {
    let file = Path::new(canary.file());
    symlink(file, folder.join("shipped_link"))?;
    Ok(symlink(file.parent().unwrap_or(file), folder.join("shipped_dir"))?)
}

fn wasm() -> Value {
    json!({ "type": "wasm", "component": "main.wasm" })
}

fn process(isolation: ProbeIsolation, command: &[String]) -> Value {
    // Python would write compiled files into the tool's folder wherever that can be written.
    json!({ "type": "process", "command": command, "isolation": isolation.as_str(),
        "env": { "PYTHONDONTWRITEBYTECODE": "1" } })
}
