//! Those we compare ourselves with: `bwrap`, and `runc` and `runsc` without anything of ours around them.
//!
//! Each gets the system's `/usr` read-only and no network, as our sandbox does. `bwrap` is given neither a seccomp filter
//! nor limits here, and `runsc` no control group, so they do less than ours; that is in their favour.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::oci::{GvisorPlatform, OciRuntime, RUNTIME_DIRS, RuntimeKind};
use serde_json::{Value, json};

/// The program that does nothing.
pub(super) const NOTHING: &str = "/bin/true";

/// `bwrap` with the system's own files.
const BWRAP_ARGUMENTS: &str = "--unshare-all --die-with-parent --new-session --ro-bind /usr /usr --symlink usr/lib /lib \
    --symlink usr/lib64 /lib64 --symlink usr/bin /bin --proc /proc --dev /dev --tmpfs /tmp";

/// A program to be started, with an empty environment and three pipes.
#[derive(Debug)]
pub(super) struct Program {
    program: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    pub(super) fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self { program: program.into(), arguments: arguments.iter().map(OsString::from).collect() }
    }

    /// Starts it and waits until it has ended well.
    pub(super) fn once(&self) -> Result<Duration> {
        let start = Instant::now();
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("it cannot be started")?;
        let status = child.wait().context("it cannot be waited for")?;
        let taken = start.elapsed();
        if !status.success() {
            let said = child.wait_with_output().map(|output| output.stderr).unwrap_or_default();
            let said: String = String::from_utf8_lossy(&said).trim().chars().take(200).collect();
            ensure!(status.success(), "it ended with {status}: {said}");
        }
        Ok(taken)
    }
}

/// Finds a program where the system keeps such programs.
pub(super) fn installed(name: &str) -> Option<PathBuf> {
    RUNTIME_DIRS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// Bubblewrap around the program that does nothing.
pub(super) fn bwrap() -> Option<Program> {
    let arguments: Vec<&str> = BWRAP_ARGUMENTS.split_whitespace().chain([NOTHING]).collect();
    installed("bwrap").map(|program| Program::new(program, &arguments))
}

/// A container runtime by itself, on a bundle that is made here.
pub(super) fn runtime(runtime: &OciRuntime, platform: GvisorPlatform, folder: &Path) -> Result<Program> {
    let name = runtime.kind().name();
    let bundle = folder.join(name);
    std::fs::create_dir_all(&bundle)?;
    let said =
        Command::new(runtime.program()).arg("spec").current_dir(&bundle).output().context("no default bundle")?;
    ensure!(said.status.success(), "it makes no default bundle: {}", String::from_utf8_lossy(&said.stderr).trim());
    let config = bundle.join("config.json");
    let text = std::fs::read(&config).context("it made no configuration")?;
    let own = configured(serde_json::from_slice(&text)?).context("its configuration is not understood")?;
    std::fs::write(&config, own.to_string())?;
    let root = bundle.join("rootfs");
    for place in ["usr", "proc", "dev", "sys", "tmp"] {
        std::fs::create_dir_all(root.join(place))?;
    }
    for (target, link) in [("usr/bin", "bin"), ("usr/lib", "lib"), ("usr/lib64", "lib64")] {
        symlink(target, root.join(link))?;
    }
    let mut arguments: Vec<OsString> = vec!["--root".into(), folder.join(format!("{name}-state")).into()];
    if runtime.kind() == RuntimeKind::Runsc {
        let platform = match platform {
            GvisorPlatform::Systrap => "--platform=systrap",
            GvisorPlatform::Ptrace => "--platform=ptrace",
        };
        arguments.extend(["--network=none", "--ignore-cgroups", platform].map(OsString::from));
    }
    arguments.extend(["run".into(), "--bundle".into(), bundle.into()]);
    // One after the other, so that one name will do; not that of another run.
    arguments.push(format!("gantry-bench-{}", std::process::id()).into());
    Ok(Program { program: runtime.program().to_owned(), arguments })
}

/// The runtime's own default configuration, for the program that does nothing on the system's `/usr`.
fn configured(mut config: Value) -> Option<Value> {
    let process = config.get_mut("process")?.as_object_mut()?;
    process.insert("terminal".into(), json!(false));
    process.insert("args".into(), json!([NOTHING]));
    config.as_object_mut()?.insert("root".into(), json!({ "path": "rootfs", "readonly": true }));
    let system = json!({ "destination": "/usr", "type": "bind", "source": "/usr", "options": ["rbind", "ro"] });
    config.get_mut("mounts")?.as_array_mut()?.push(system);
    Some(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_configuration_is_made_ours_or_not_used() {
        let config = json!({ "process": { "args": ["sh"], "terminal": true }, "mounts": [] });
        let own = configured(config).unwrap();
        assert_eq!(own.pointer("/process/args/0"), Some(&json!(NOTHING)));
        assert_eq!(own.pointer("/process/terminal"), Some(&json!(false)));
        assert_eq!(own.pointer("/mounts/0/source"), Some(&json!("/usr")));
        assert_eq!(configured(json!({})), None);
    }

    #[test]
    fn a_program_that_fails_is_not_a_measurement() {
        assert!(Program::new(NOTHING, &[]).once().is_ok());
        let failed = Program::new("/bin/sh", &["-c", "echo why >&2; exit 3"]).once().unwrap_err();
        assert!(failed.to_string().contains("why"), "{failed}");
        assert!(Program::new("/no/such/program", &[]).once().is_err());
    }
}
