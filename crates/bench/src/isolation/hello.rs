//! A greeting in Python: a bare interpreter, a tool that starts one for every call, a tool that keeps its own.
//!
//! The two tools are called over REST and pass all phases of a call. They take turns with the bare interpreter.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;

use super::Times;
use super::tools::{COLD_TOOL, GREETING, ToolServer, WARM_TOOLS};
use crate::load::Connection;

/// What the bare one is asked, and the tools too.
const NAME: &str = "python";
/// Rounds before anything is counted.
const WARM_UP: usize = 2;

/// The same greeting in three ways.
#[derive(Serialize)]
pub(super) struct Hello {
    /// `python3 -c`, parameters on its stdin.
    pub(super) bare: Times,
    /// A sandbox and an interpreter for every call.
    pub(super) cold: Times,
    /// An interpreter that waits in its sandbox.
    pub(super) warm: Times,
}

/// All rounds.
pub(super) async fn measure(tool_server: &ToolServer, rounds: usize) -> Result<Hello> {
    let python = interpreter()?;
    let parameters = json!({ "name": NAME });
    let (cold, warm) = (tool_server.traffic(COLD_TOOL, &parameters), tool_server.traffic(WARM_TOOLS[0], &parameters));
    let mut connection = Connection::open(tool_server.server.address).await?;
    let mut times = [const { Vec::new() }; 3];
    for number in 0..WARM_UP + rounds {
        let round = [greeted(&python)?, connection.timed(&cold).await?, connection.timed(&warm).await?];
        if number >= WARM_UP {
            times.iter_mut().zip(round).for_each(|(times, time)| times.push(time));
        }
    }
    let [bare, cold, warm] = &times;
    Ok(Hello { bare: Times::of(bare)?, cold: Times::of(cold)?, warm: Times::of(warm)? })
}

/// The interpreter that a tool would find.
pub(super) fn interpreter() -> Result<PathBuf> {
    let found = sandbox::PATH.split(':').map(|folder| Path::new(folder).join("python3")).find(|path| path.is_file());
    found.context("python3 is not installed where tools look for it")
}

/// One bare greeting, until the interpreter has ended.
fn greeted(python: &Path) -> Result<Duration> {
    let start = Instant::now();
    let mut child = Command::new(python)
        .args(["-c", GREETING])
        .env_clear()
        .env("LANG", "C.UTF-8")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("python3 cannot be started")?;
    child.stdin.take().context("no stdin")?.write_all(json!({ "name": NAME }).to_string().as_bytes())?;
    let mut said = String::new();
    child.stdout.take().context("no stdout")?.read_to_string(&mut said)?;
    let status = child.wait()?;
    let taken = start.elapsed();
    ensure!(status.success() && said.contains(NAME), "python3 ended with {status} and said `{said}`");
    Ok(taken)
}
