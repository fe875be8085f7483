//! The product under measurement: the release binary on a free port, with a data directory of its own.
//!
//! Everything is done as a user would do it: the address is read from `server.json`, the admin token from its file, the
//! capability token is minted at `POST /v1/tokens`. The process is stopped by its handle, also when something fails.

use std::ffi::OsStr;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::load;

/// A start that takes longer has failed.
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// A stop that takes longer is forced.
const STOP_TIME_MAX: Duration = Duration::from_secs(15);
/// How often the start is looked at: the resolution of start-up times.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Everything is called by one agent, more often at once than an agent may out of the box.
const CALLS_AT_ONCE_MAX: &str = "256";

/// The agent that calls.
pub(super) const AGENT: &str = "bench-agent";

/// A running server.
pub(super) struct Product {
    child: Child,
    pub(super) address: SocketAddr,
    /// From the start of the process to the first 200 of `/health/ready`.
    pub(super) started_in: Duration,
}

impl Product {
    /// Starts the server and waits until it is ready.
    pub(super) async fn start(binary: &Path, data: &Path) -> Result<Self> {
        Self::start_with(binary, data, None).await
    }

    /// The same with a folder of tools.
    pub(super) async fn start_with(binary: &Path, data: &Path, tools: Option<&Path>) -> Result<Self> {
        Self::start_set(binary, data, tools, &[]).await
    }

    /// The same with settings, each a variable of the environment and its value.
    pub(super) async fn start_set(
        binary: &Path,
        data: &Path,
        tools: Option<&Path>,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let log = File::create(data.with_extension("log")).context("cannot make the log file")?;
        let start = Instant::now();
        let child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(data)
            .args(tools.into_iter().flat_map(|folder| [OsStr::new("--tools"), folder.as_os_str()]))
            .env("GANTRY_LIMITS__CONCURRENT_CALLS_PER_AGENT", CALLS_AT_ONCE_MAX)
            .current_dir(data.parent().unwrap_or(data))
            // Long lists are measured as lists, not as what a model is shown in their place.
            .env("GANTRY_TOOLS__EXPOSURE", "all")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start gantry")?;
        // From here on the handle owns the process, so that no way out leaves it running.
        let mut product = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)), started_in: Duration::ZERO };
        loop {
            if let Some(address) = product.announced(data)
                && product.is_ready(address).await
            {
                product.started_in = start.elapsed();
                product.address = address;
                return Ok(product);
            }
            let ended = product.child.try_wait().context("cannot look at gantry")?;
            if ended.is_some() || start.elapsed() > START_TIME_MAX {
                let said = std::fs::read_to_string(data.with_extension("log")).unwrap_or_default();
                bail!("gantry did not become ready; it said:\n{said}");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The address in `server.json`, once this very process has written it.
    fn announced(&self, data: &Path) -> Option<SocketAddr> {
        let announced: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).ok()?).ok()?;
        if announced.get("pid")?.as_u64()? != u64::from(self.child.id()) {
            return None;
        }
        announced.get("url")?.as_str()?.trim_start_matches("http://").trim_end_matches('/').parse().ok()
    }

    async fn is_ready(&self, address: SocketAddr) -> bool {
        let answer = load::ask_once(address, &load::request("GET", "/health/ready", None, None)).await;
        answer.is_ok_and(|(status, _)| status == 200)
    }

    /// The process id.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A token for an agent that may call everything and administer nothing.
    pub(super) async fn agent_token(&self, admin: &str) -> Result<String> {
        let wish = json!({
            "sub": AGENT, "tenant": "local", "roles": ["agent"],
            "tools": [{ "tool_id": "*" }], "scopes": ["tool:*"], "ttl_seconds": 7200,
        });
        let request = load::request("POST", "/v1/tokens", Some(admin), Some(&wish.to_string()));
        let (status, body) = load::ask_once(self.address, &request).await?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        ensure!((200..300).contains(&status), "no token was minted: status {status}, {answer}");
        answer
            .get("token")
            .and_then(Value::as_str)
            .map(str::to_owned)
            .context("the answer of POST /v1/tokens has no token")
    }

    /// Puts a setting.
    pub(super) async fn put(&self, admin: &str, path: &str, body: &Value) -> Result<()> {
        self.ask("PUT", admin, path, body).await
    }

    /// The same with POST.
    pub(super) async fn post(&self, admin: &str, path: &str, body: &Value) -> Result<()> {
        self.ask("POST", admin, path, body).await
    }

    async fn ask(&self, verb: &str, admin: &str, path: &str, body: &Value) -> Result<()> {
        let request = load::request(verb, path, Some(admin), Some(&body.to_string()));
        let (status, answer) = load::ask_once(self.address, &request).await?;
        ensure!(status == 200, "{verb} {path} answered {status}: {}", String::from_utf8_lossy(&answer));
        Ok(())
    }

    /// Asks the server to stop, and waits until it has.
    pub(super) async fn stop(mut self) -> Result<()> {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        ensure!(asked.context("cannot ask gantry to stop")?.success(), "gantry could not be asked to stop");
        let since = Instant::now();
        while self.child.try_wait().context("cannot look at gantry")?.is_none() {
            ensure!(since.elapsed() < STOP_TIME_MAX, "gantry did not stop within {STOP_TIME_MAX:?}");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }
}

impl Drop for Product {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The admin token of a data directory.
pub(super) fn admin_token(data: &Path) -> Result<String> {
    let text =
        std::fs::read_to_string(data.join("admin.token")).context("there is no admin token in the data directory")?;
    Ok(text.trim().to_owned())
}
