//! How long a server takes to its first answer: started directly with a warm cache, and behind Gantry after an idle stop.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::gateway::{Place, search_path};

/// Behind Gantry it may take so many times as long.
pub(super) const GOAL: f64 = 1.2;
/// Starts of each kind, by turns.
const TURNS: usize = 5;
/// An idle stop that takes longer does not happen.
const STOP_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A server, how it is started directly, and a call of it.
const MEASURED: [(&str, &[&str], &str, &str); 2] = [
    (
        "everything",
        &["npx", "-y", "@modelcontextprotocol/server-everything@2026.8.31"],
        "echo",
        r#"{"message":"hello"}"#,
    ),
    ("time", &["uvx", "mcp-server-time"], "get_current_time", r#"{"timezone":"UTC"}"#),
];

/// The medians of one server.
#[derive(Debug)]
pub(super) struct StartTimes {
    pub(super) name: &'static str,
    pub(super) direct: Duration,
    pub(super) behind: Duration,
}

impl StartTimes {
    pub(super) fn ratio(&self) -> f64 {
        self.behind.as_secs_f64() / self.direct.as_secs_f64().max(f64::EPSILON)
    }
}

/// Measures each.
pub(super) fn measure(place: &Place) -> Result<Vec<StartTimes>> {
    MEASURED.iter().map(|(name, direct, tool, with)| one(place, name, direct, tool, with)).collect()
}

fn one(place: &Place, name: &'static str, command: &[&str], tool: &str, with: &str) -> Result<StartTimes> {
    let edited = place.cli(&["server", "edit", name, "--idle-stop", "1"])?;
    ensure!(edited.status.success(), "`{name}` cannot be edited: {}", String::from_utf8_lossy(&edited.stderr));
    let (mut direct, mut behind) = (Vec::new(), Vec::new());
    // The first of each fills caches.
    for turn in 0..=TURNS {
        let times = (directly(command, tool, with)?, after_idle_stop(place, name, tool, with)?);
        if turn > 0 {
            direct.push(times.0);
            behind.push(times.1);
        }
    }
    Ok(StartTimes { name, direct: median(direct), behind: median(behind) })
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// From the start of the process to the answer of a call, as a client does it that has nothing in between.
fn directly(command: &[&str], tool: &str, with: &str) -> Result<Duration> {
    let (program, args) = command.split_first().context("no command")?;
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .env("PATH", search_path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start `{program}`"))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let spoken = stdin.zip(stdout).context("no streams").and_then(|(mut stdin, stdout)| {
        let mut lines = BufReader::new(stdout).lines();
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18",
            "capabilities": {}, "clientInfo": { "name": "first-day", "version": "1" } } });
        let arguments: Value = serde_json::from_str(with)?;
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": { "name": tool.replace('_', separator(program)), "arguments": arguments } });
        writeln!(stdin, "{hello}")?;
        answer(&mut lines, 1)?;
        writeln!(stdin, "{}", json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        writeln!(stdin, "{call}")?;
        answer(&mut lines, 2)?;
        Ok(start.elapsed())
    });
    // Its own children end when their input is closed.
    let _ = child.kill();
    let _ = child.wait();
    spoken
}

/// Tools of npm's servers have dashes, those of PyPI's have underscores.
fn separator(program: &str) -> &'static str {
    if program == "npx" { "-" } else { "_" }
}

fn answer(lines: &mut impl Iterator<Item = std::io::Result<String>>, id: u64) -> Result<()> {
    for line in lines {
        let message: Value = serde_json::from_str(&line?).unwrap_or_default();
        if message.get("id").and_then(Value::as_u64) == Some(id) {
            ensure!(message.get("result").is_some(), "the server answered {message}");
            return Ok(());
        }
    }
    bail!("the server ended without an answer")
}

/// From the call to its answer, when the server was stopped because nobody used it.
fn after_idle_stop(place: &Place, name: &str, tool: &str, with: &str) -> Result<Duration> {
    let waited = Instant::now();
    loop {
        let shown = place.json(&["--json", "server", "show", name])?;
        let status = shown.pointer("/status").cloned().unwrap_or_default();
        if status.get("state").and_then(Value::as_str) == Some("stopped") {
            break;
        }
        ensure!(waited.elapsed() < STOP_TIME_MAX, "`{name}` is not stopped although nobody uses it: {status}");
        thread::sleep(LOOK_EVERY);
    }
    let tool = format!("{name}.{tool}");
    let start = Instant::now();
    // The command line is part of it, as `npx` is part of the other.
    let output = place.cli(&["--json", "call", &tool, "--params", with])?;
    let time = start.elapsed();
    ensure!(output.status.success(), "{tool} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(time)
}
