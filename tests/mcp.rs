//! MCP both ways, with programs that others have written on either side: official servers behind Gantry, official
//! clients in front of it, old and new ones in every combination.
//!
//! The programs are installed by `cargo xtask services start` ([`peers`]); a test that needs one fails without it.
//! Servers are put behind Gantry as an operator would, by REST or by `gantry import mcp`, and run in the sandbox.
//!
//! Not here: rules of the door one by one (`crates/server/tests/mcp`), faults of servers one by one
//! (`crates/upstreams/tests`), the official suites (`cargo xtask conformance`).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Gantry, PATIENCE, Start, open_to_all};

mod classes;
mod client_files;
mod clients;
mod eras;
mod exposure;
mod fidelity;
mod first_day;
mod grants;
mod import;
mod large_results;
mod long_calls;
mod marks;
mod packages;
mod pairs;
mod peers;
pub(crate) mod raw_client;
mod relay;
mod removed_servers;
mod rug_pull;
mod server_changes;
mod soak;

use raw_client::RawClient;

/// A server of the tests with nothing but the standard library of Python.
const PLAIN: &str = include_str!("mcp/servers/plain.py");
/// One as people write them with FastMCP.
const FAST: &str = include_str!("mcp/servers/fast.py");

/// A running Gantry, and a folder where servers find their programs and leave what they write.
struct McpHarness {
    home: TempDir,
    gantry: Gantry,
    /// The token of an agent that may use everything.
    agent: String,
}

impl McpHarness {
    async fn open() -> Self {
        Self::open_with(&[]).await
    }

    /// With these settings.
    async fn open_with(settings: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        open_to_all(home.path());
        for folder in ["servers", "state"] {
            std::fs::create_dir(home.path().join(folder)).unwrap();
        }
        // Servers run as nobody, and some of them write.
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(home.path().join("state"), everybody).unwrap();
        for (name, text) in [("plain.py", PLAIN), ("fast.py", FAST)] {
            std::fs::write(home.path().join("servers").join(name), text).unwrap();
        }
        let start = Start::new().data(&home.path().join("data"));
        let gantry = settings.iter().fold(start, |start, (key, value)| start.env(key, *value)).run().await;
        let agent = gantry.mint(json!({ "tenant": "local", "sub": "mcp-agent" })).await;
        Self { home, gantry, agent }
    }

    fn path(&self, name: &str) -> String {
        self.file(name).to_str().unwrap().to_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().canonicalize().unwrap().join(name)
    }

    /// The MCP door.
    fn door(&self) -> String {
        format!("{}/mcp", self.gantry.url)
    }

    /// The small server, started with these arguments.
    fn plain(&self, arguments: &[&str]) -> Value {
        let mut args = vec![self.path("servers/plain.py")];
        args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let permissions =
            [format!("filesystem:read:{}", self.path("servers")), format!("filesystem:write:{}", self.path("state"))];
        json!({ "reach": { "type": "stdio", "command": "python3", "args": args, "permissions": permissions } })
    }

    /// Puts a server behind Gantry.
    async fn put(&self, name: &str, spec: &Value) {
        let path = format!("/v1/servers/{name}");
        let answer = self.gantry.request(Method::PUT, &path, Some(&self.gantry.token), Some(spec.clone())).await;
        assert_eq!(answer.status, 200, "{}\n{}", answer.text, self.gantry.log());
        assert_eq!(answer.body["problems"], json!([]), "{}", answer.text);
    }

    async fn invoke(&self, tool: &str, parameters: Value) -> Answer {
        let body = json!({ "tool_id": tool, "parameters": parameters });
        self.gantry.request(Method::POST, "/v1/tools/invoke", Some(&self.agent), Some(body)).await
    }

    fn new_client(&self) -> RawClient {
        RawClient::new(&self.door(), &self.agent, raw_client::agreeable)
    }

    async fn old_client(&self, revision: &'static str) -> RawClient {
        RawClient::old(&self.door(), &self.agent, revision, raw_client::agreeable).await.unwrap()
    }
}

/// The names of tools.
async fn names(client: &RawClient) -> Vec<String> {
    let tools = client.list("tools").await.unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Asks until the answer is there.
async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not happen in time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
