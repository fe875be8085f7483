//! The server with its sink, and the tenants that call it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base::MutexExt as _;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A start or an end that takes longer has failed.
const TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Who calls.
const TENANTS: [&str; 4] = ["acme", "globex", "initech", "umbrella"];
/// A tenant waits that long between two calls, so that two cores are not all theirs.
const PAUSE: Duration = Duration::from_millis(10);

/// A running server; ended when it is dropped.
pub(super) struct Gateway {
    child: Child,
    home: PathBuf,
    sinks: String,
    pub(super) url: String,
    admin: String,
}

impl Gateway {
    /// With a sink to this topic. Waits until it is ready.
    pub(super) async fn start(binary: &Path, home: &Path, broker: &str, topic: &str) -> Result<Self> {
        let sinks = json!([{ "name": "stream", "kind": "kafka", "brokers": [broker], "topic": topic,
            "batch_records": 50, "timeout_ms": 5_000 }])
        .to_string();
        let sink = File::options().create(true).append(true).open(home.join("gantry.log"));
        let sink = sink.context("cannot make the log file")?;
        let child = command(binary, home, &sinks)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .stdout(sink.try_clone()?)
            .stderr(sink)
            .spawn()
            .context("cannot start gantry")?;
        let mut gateway = Self { child, home: home.to_owned(), sinks, url: String::new(), admin: String::new() };
        let (start, http) = (Instant::now(), reqwest::Client::builder().no_proxy().build().context("no client")?);
        loop {
            if gateway.announced().is_some() {
                let ready = http.get(format!("{}/health/ready", gateway.url)).send().await;
                if ready.is_ok_and(|answer| answer.status().is_success()) {
                    return Ok(gateway);
                }
            }
            let ended = gateway.child.try_wait().context("cannot look at gantry")?;
            if ended.is_some() || start.elapsed() > TIME_MAX {
                bail!("gantry did not become ready; it said:\n{}", gateway.log());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Reads address and token, once this very process has written them.
    fn announced(&mut self) -> Option<()> {
        let data = self.home.join("data");
        let announced: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).ok()?).ok()?;
        if announced.get("pid")?.as_u64()? != u64::from(self.child.id()) {
            return None;
        }
        announced.get("url")?.as_str()?.trim_end_matches('/').clone_into(&mut self.url);
        self.admin = std::fs::read_to_string(data.join("admin.token")).ok()?.trim().to_owned();
        Some(())
    }

    /// Stopped in good order and started again.
    pub(super) async fn again(self, binary: &Path, home: &Path, broker: &str, topic: &str) -> Result<Self> {
        self.stop().await?;
        Self::start(binary, home, broker, topic).await
    }

    pub(super) async fn stop(mut self) -> Result<()> {
        super::ask_to_end(self.child.id())?;
        let start = Instant::now();
        while self.child.try_wait().context("cannot look at gantry")?.is_none() {
            ensure!(start.elapsed() < TIME_MAX, "gantry did not end; it said:\n{}", self.log());
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Is there nothing left to be carried?
    pub(super) fn has_delivered_everything(&self, binary: &Path) -> Result<bool> {
        let shown = shown(binary, &self.home, &self.sinks)?;
        Ok(shown.pointer("/sinks/0/lag").and_then(Value::as_u64) == Some(0))
    }

    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.home.join("gantry.log")).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(binary: &Path, home: &Path, sinks: &str) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(home).env("NO_COLOR", "1").env("GANTRY_DATA_DIR", home.join("data"));
    command.env("GANTRY_AUDIT__SINKS", sinks).env("GANTRY_LOG__LEVEL", "warn").stdin(Stdio::null());
    command
}

fn shown(binary: &Path, home: &Path, sinks: &str) -> Result<Value> {
    let output =
        command(binary, home, sinks).args(["audit", "sinks", "--json"]).output().context("cannot run gantry")?;
    ensure!(output.status.success(), "`gantry audit sinks` failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("`gantry audit sinks` gave no JSON")
}

/// How many records there are in the log of a server that has ended, by its own verification.
pub(super) fn records(binary: &Path, home: &Path) -> Result<u64> {
    let output =
        command(binary, home, "[]").args(["--json", "audit", "verify"]).output().context("cannot run gantry")?;
    let report: Value = serde_json::from_slice(&output.stdout).context("`gantry audit verify` gave no JSON")?;
    ensure!(report.get("whole") == Some(&Value::Bool(true)), "the audit log is not whole: {report}");
    report.get("records").and_then(Value::as_u64).context("the report has no number of records")
}

/// Tenants that call, each one call after the other.
pub(super) struct Load {
    tasks: JoinSet<()>,
    target: Arc<Mutex<String>>,
    over: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
}

impl Load {
    pub(super) async fn begin(gateway: &Gateway) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(TIME_MAX).build().context("no client")?;
        let target = Arc::new(Mutex::new(gateway.url.clone()));
        let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for tenant in TENANTS {
            let wish = json!({ "sub": format!("agent-of-{tenant}"), "tenant": tenant, "roles": ["agent"],
                "ttl_seconds": 3600, "tools": [{ "tool_id": "*" }], "scopes": ["*"] });
            let request = http.post(format!("{}/v1/tokens", gateway.url)).bearer_auth(&gateway.admin);
            let answer = request.header("content-type", "application/json").body(wish.to_string()).send().await?;
            let minted: Value = serde_json::from_slice(&answer.bytes().await?).context("no token was minted")?;
            let token = minted.get("token").and_then(Value::as_str).context("no token was minted")?.to_owned();
            let (http, target) = (http.clone(), Arc::clone(&target));
            let (over, answered) = (Arc::clone(&over), Arc::clone(&answered));
            tasks.spawn(async move {
                let mut number = 0_u64;
                while !over.load(Ordering::SeqCst) {
                    number += 1;
                    let url = target.lock_unpoisoned().clone();
                    let call =
                        json!({ "tool_id": "calculator", "parameters": { "expression": format!("{number} + 1") } });
                    let request = http.post(format!("{url}/v1/tools/invoke")).bearer_auth(&token);
                    let request = request.header("content-type", "application/json").body(call.to_string());
                    // While the server is away there is no answer, and nothing is counted.
                    if request.send().await.is_ok_and(|answer| answer.status().is_success()) {
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            });
        }
        Ok(Self { tasks, target, over, answered })
    }

    /// The server has come back at another address.
    pub(super) fn go_on_with(&self, gateway: &Gateway) {
        gateway.url.clone_into(&mut self.target.lock_unpoisoned());
    }

    /// How many calls were answered.
    pub(super) async fn end(mut self) -> Result<u64> {
        self.over.store(true, Ordering::SeqCst);
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a caller died")?;
        }
        let answered = self.answered.load(Ordering::SeqCst);
        ensure!(answered > 0, "no call was answered");
        Ok(answered)
    }
}
