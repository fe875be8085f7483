//! A probe outside any sandbox: the proof that it would have worked.
//!
//! It runs as we do, in the folder it has as a tool, with the same parameters on stdin, below a shell that leaves a
//! descriptor open as a careless parent would. What it writes goes to a file instead of a pipe, because a daemon that
//! keeps the pipe open would make us wait for it. Whatever it leaves behind is ended here.

use std::fs::File;
use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::canary::{EscapeCanary, MARKER_VARIABLE, PATH, PYTHON};
use super::traces;

/// A harmless probe that takes longer is ended.
const TIME_MAX: Duration = Duration::from_secs(30);
/// How often is looked whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The probe stays a child of the shell, so that its parent is one that may be tried.
const CARELESS: &str = r#"exec 9<"$0"; "$@"; exit $?"#;

/// What a run outside showed.
pub(crate) struct BareRun {
    pub(crate) written: Vec<u8>,
    /// Whether it left a process behind.
    pub(crate) left: bool,
}

/// Runs a harmless probe once.
pub(crate) fn run(
    folder: &Path,
    command: &[String],
    tag: &str,
    parameters: &Value,
    canary: &EscapeCanary,
) -> Result<BareRun> {
    let mut input = tempfile::tempfile()?;
    input.write_all(parameters.to_string().as_bytes())?;
    input.rewind()?;
    let output = tempfile::NamedTempFile::new()?;
    let program = command.iter().map(|word| if word == "python3" { PYTHON } else { word });
    let mut child = Command::new("/bin/sh")
        .args(["-c", CARELESS, canary.file()])
        .args(program)
        .current_dir(folder)
        .env_clear()
        .env("PATH", PATH)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(MARKER_VARIABLE, canary.marker())
        .stdin(input)
        .stdout(File::create(output.path())?)
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the probe")?;
    wait(&mut child)?;
    let left = traces::carrying(tag);
    traces::end(&left);
    Ok(BareRun { written: std::fs::read(output.path())?, left: !left.is_empty() })
}

fn wait(child: &mut Child) -> Result<()> {
    let start = Instant::now();
    loop {
        if child.try_wait().context("cannot look at the probe")?.is_some() {
            return Ok(());
        }
        if start.elapsed() > TIME_MAX {
            child.kill().context("cannot end the probe")?;
            child.wait().context("cannot look at the probe")?;
            return Ok(());
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}
