//! Gantry as it stands between the suites and what is behind it: started on a free port, spoken to by REST.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A start that takes longer has failed.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a request of ours may take; adding a server starts it and lists its tools.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(60);

/// How the driver, which the suite starts, finds the gateway.
pub(super) const URL_VARIABLE: &str = "GANTRY_CONFORMANCE_URL";
pub(super) const ADMIN_VARIABLE: &str = "GANTRY_CONFORMANCE_ADMIN";
pub(super) const AGENT_VARIABLE: &str = "GANTRY_CONFORMANCE_AGENT";

/// Which of the fixture's tools are tasks from the beginning, which of them are nothing else, and when the others become one.
const TASKS: [(&str, &str); 3] = [
    ("GANTRY_JOBS__PROMOTE_AFTER_SECONDS", "1"),
    ("GANTRY_MCP__TASKS_AT_ONCE", "slow_compute,protocol_error_job,confirm_delete,multi_input"),
    ("GANTRY_MCP__TASKS_REQUIRED", "failing_job"),
];

/// A running server; ended when it is dropped.
pub(crate) struct GatewayServer {
    child: Child,
    home: TempDir,
    pub(super) address: SocketAddr,
    /// The token of an agent that may use everything.
    pub(crate) agent: String,
    pub(super) rest: Rest,
}

/// The administrator's way in.
pub(super) struct Rest {
    http: reqwest::Client,
    pub(super) url: String,
    pub(super) admin: String,
}

impl GatewayServer {
    /// Starts it and waits until it is ready.
    pub(crate) async fn start(binary: &Path) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("gantry-conformance-").tempdir().context("no temporary folder")?;
        let (data, log) = (home.path().join("data"), home.path().join("gantry.log"));
        let sink = File::create(&log).context("cannot make the log file")?;
        let child = Command::new(binary)
            .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
            .arg(&data)
            .current_dir(home.path())
            .env("NO_COLOR", "1")
            .envs(TASKS)
            .stdin(Stdio::null())
            .stdout(sink.try_clone()?)
            .stderr(sink)
            .spawn()
            .context("cannot start gantry")?;
        let rest = Rest::new(String::new(), String::new())?;
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut gateway = Self { child, home, address, agent: String::new(), rest };
        let start = Instant::now();
        loop {
            if gateway.announced(&data).is_some() && gateway.rest.get("/health/ready").await.is_ok() {
                break;
            }
            let ended = gateway.child.try_wait().context("cannot look at gantry")?;
            if ended.is_some() || start.elapsed() > START_TIME_MAX {
                bail!("gantry did not become ready; it said:\n{}", std::fs::read_to_string(&log).unwrap_or_default());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let wish = json!({ "sub": "conformance", "tenant": "local", "roles": ["agent"], "ttl_seconds": 7200,
            "tools": [{ "tool_id": "*" }], "scopes": ["*"] });
        let minted = gateway.rest.send(reqwest::Method::POST, "/v1/tokens", Some(&wish)).await?;
        gateway.agent = minted.get("token").and_then(Value::as_str).context("no token was minted")?.to_owned();
        Ok(gateway)
    }

    /// Reads address and token, once this very process has written them.
    fn announced(&mut self, data: &Path) -> Option<()> {
        let announced: Value = serde_json::from_slice(&std::fs::read(data.join("server.json")).ok()?).ok()?;
        if announced.get("pid")?.as_u64()? != u64::from(self.child.id()) {
            return None;
        }
        let url = announced.get("url")?.as_str()?.trim_end_matches('/').to_owned();
        self.address = url.strip_prefix("http://")?.parse().ok()?;
        let admin = std::fs::read_to_string(data.join("admin.token")).ok()?.trim().to_owned();
        self.rest = Rest { http: self.rest.http.clone(), url, admin };
        Some(())
    }

    /// Puts the fixture behind it, without a namespace, with everything passed on.
    pub(super) async fn add_fixture(&self) -> Result<()> {
        let program = std::env::current_exe().context("this program does not know where it is")?;
        let folder = program.parent().context("this program lies nowhere")?;
        let reach = json!({ "type": "stdio", "command": program, "args": ["conformance-fixture"],
            "permissions": [readable(folder)] });
        self.rest.add_server("fixture", "", &reach).await
    }

    /// Puts a server behind it, with its tools taken in and everything passed on.
    pub(crate) async fn add_server(&self, name: &str, namespace: &str, reach: &Value) -> Result<()> {
        self.rest.add_server(name, namespace, reach).await
    }

    /// Where it keeps its data, and a command line finds it.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    pub(crate) fn url(&self) -> &str {
        &self.rest.url
    }

    pub(super) fn stop(self) {
        drop(self);
    }
}

impl Drop for GatewayServer {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing to stop.
        let _ = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(LOOK_EVERY);
        }
        // For one that did not end by itself; the other has nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The permission to read a folder, which is where a server's program lies.
fn readable(folder: &Path) -> String {
    format!("filesystem:read:{}", folder.display())
}

impl Rest {
    pub(super) fn new(url: String, admin: String) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(REQUEST_TIME_MAX).build().context("no client")?;
        Ok(Self { http, url, admin })
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        self.send(reqwest::Method::GET, path, None).await
    }

    /// A server behind the gateway, with its tools taken in.
    pub(super) async fn add_server(&self, name: &str, namespace: &str, reach: &Value) -> Result<()> {
        let spec = json!({ "reach": reach, "namespace": namespace, "resources": true, "prompts": true,
            "relay": { "elicitation": true, "sampling": true, "roots": true } });
        self.send(reqwest::Method::PUT, &format!("/v1/servers/{name}"), Some(&spec)).await?;
        Ok(())
    }

    pub(super) async fn remove_server(&self, name: &str) -> Result<()> {
        self.send(reqwest::Method::DELETE, &format!("/v1/servers/{name}"), None).await?;
        Ok(())
    }

    async fn send(&self, method: reqwest::Method, path: &str, body: Option<&Value>) -> Result<Value> {
        let mut request = self.http.request(method.clone(), format!("{}{path}", self.url)).bearer_auth(&self.admin);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let response = request.send().await.with_context(|| format!("cannot ask {method} {path}"))?;
        let status = response.status();
        let text = response.text().await.unwrap_or_default();
        ensure!(status.is_success(), "{method} {path} answered {status}: {text}");
        Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}
