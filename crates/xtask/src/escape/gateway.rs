//! The real `gantry` under attack: started as an operator would, called as an agent would.
//!
//! It is started with two faults that operators have: a descriptor that somebody forgot to close, and a secret in its
//! environment. Neither may reach a tool. The client is a few lines over a plain socket, one connection for each call.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::canary::{EscapeCanary, MARKER_VARIABLE, PATH};
use super::stage::EscapeStage;

/// A start that takes longer has failed.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// A call that takes longer than any deadline of a probe has been lost.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);
/// Answers are cut here; what a probe says is far shorter.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How often is looked whether it has started.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Opens a file on descriptor 9 and lets it leak into the program.
const LEAKING: &str = r#"exec 9<"$0"; exec "$@""#;

/// A running server; ended when it is dropped.
pub(crate) struct EscapeGateway {
    child: Child,
    address: SocketAddr,
    token: String,
    log: PathBuf,
}

impl EscapeGateway {
    /// Starts it on the folders of the stage and waits until it is ready.
    pub(crate) fn start(
        binary: &Path,
        stage: &EscapeStage,
        tools: &[PathBuf],
        canary: &EscapeCanary,
        more: &[&str],
    ) -> Result<Self> {
        let (data, log) = (stage.data(), stage.file("gantry.log"));
        let sink = File::create(&log).context("cannot make the log file")?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", LEAKING, canary.file()]).arg(binary).args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--data-dir",
        ]);
        command.arg(&data).args(more);
        for folder in tools {
            command.arg("--tools").arg(folder);
        }
        command.env_clear().env("PATH", PATH).env("NO_COLOR", "1").env(MARKER_VARIABLE, canary.marker());
        // A probe is waited for to its end, also one that takes its time.
        command.env("GANTRY_JOBS__PROMOTE_AFTER_SECONDS", "900");
        command.current_dir(data.parent().unwrap_or(&data));
        let child = command.stdin(Stdio::null()).stdout(sink.try_clone()?).stderr(sink).spawn();
        let child = child.context("cannot start gantry")?;
        let mut gateway = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), token: String::new(), log };
        let start = Instant::now();
        loop {
            if gateway.announced(&data).is_some()
                && gateway.ask("GET", "/health/ready", None).is_ok_and(|it| it.0 == 200)
            {
                return Ok(gateway);
            }
            if !gateway.is_alive() || start.elapsed() > START_TIME_MAX {
                let said = std::fs::read_to_string(&gateway.log).unwrap_or_default();
                bail!("gantry did not become ready; it said:\n{said}");
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Takes address and token over, once this very process has written them.
    fn announced(&mut self, data: &Path) -> Option<()> {
        let announced: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).ok()?).ok()?;
        if announced.get("pid")?.as_u64()? != u64::from(self.child.id()) {
            return None;
        }
        self.address =
            announced.get("url")?.as_str()?.trim_start_matches("http://").trim_end_matches('/').parse().ok()?;
        self.token = std::fs::read_to_string(data.join("admin.token")).ok()?.trim().to_owned();
        Some(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Calls a tool; the answer is the whole envelope, of success or of refusal.
    pub(crate) fn invoke(&self, tool: &str, parameters: &Value) -> Result<Value> {
        let body = json!({ "tool_id": tool, "parameters": parameters }).to_string();
        let (_, answer) = self.ask("POST", "/v1/tools/invoke", Some(&body))?;
        serde_json::from_slice(&answer).context("the gateway did not answer in JSON")
    }

    fn ask(&self, method: &str, path: &str, body: Option<&str>) -> Result<(u16, Vec<u8>)> {
        let mut stream = TcpStream::connect(self.address).context("the gateway cannot be reached")?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        let body = body.unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).context("the gateway did not answer in time")?;
        parted(&answer).context("the gateway's answer is not HTTP")
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Bytes it has written to its log.
    pub(crate) fn log_bytes(&self) -> u64 {
        std::fs::metadata(&self.log).map_or(0, |log| log.len())
    }

    /// Memory it holds, in KiB.
    pub(crate) fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        line.and_then(|rest| rest.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}

impl Drop for EscapeGateway {
    fn drop(&mut self) {
        // It may be gone already; that is told elsewhere.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Status and body of an answer whose end is the end of the connection.
fn parted(answer: &[u8]) -> Option<(u16, Vec<u8>)> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let (head, body) = answer.split_at_checked(end + 4)?;
    let status = std::str::from_utf8(head).ok()?.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_parted_into_status_and_body() {
        assert_eq!(parted(b"HTTP/1.1 504 X\r\na: b\r\n\r\n{}\r\n\r\n"), Some((504, b"{}\r\n\r\n".to_vec())));
        for broken in [&b""[..], b"HTTP/1.1 200 OK\r\n", b"nonsense\r\n\r\n"] {
            assert_eq!(parted(broken), None);
        }
    }
}
