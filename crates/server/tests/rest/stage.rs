//! The stage: the REST door on port 0 before a harness whose clock and tools the test holds in its hand.

use std::net::SocketAddr;
use std::sync::Arc;

use gantry_server::{Door, DoorParts, DrainOutcome, FreeSpace, MetricsText, ServerConfig};
use kernel::CallBounds;
use serde_json::{Value, json};

use crate::client::{Client, Reply, request};
use crate::post_office::PostOffice;

#[path = "../harness/kernel_harness.rs"]
mod harness;

use harness::{Additions, KernelHarness, Paper, Served, Tools, manifest_of, token};

pub(crate) use harness::{ADMIN, CountingEntropy, HeldClock, START};

/// The subject of [`Stage::agent`].
pub(crate) const AGENT: &str = "agent-1";

impl Paper {
    pub(crate) fn records(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    pub(crate) tools: Arc<Tools>,
    pub(crate) paper: Arc<Paper>,
    pub(crate) agent: String,
    pub(crate) expired: String,
    pub(crate) post: PostOffice,
    pub(crate) clock: Arc<HeldClock>,
    pub(crate) insights: Arc<insights::Insights>,
    served: Served,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(ServerConfig::default()).await
    }

    pub(crate) async fn with(config: ServerConfig) -> Self {
        Self::with_failures(config, 600).await
    }

    /// With a limit on failed authentications per minute.
    pub(crate) async fn with_failures(config: ServerConfig, failures_per_minute: u32) -> Self {
        // The names that these tests call the server by.
        let allowed_hosts = ["g", "gantry", "tools.example.com"].map(str::to_owned).to_vec();
        let config = ServerConfig { allowed_hosts, ..config };
        config.validate().unwrap();
        let clock = Arc::new(HeldClock::default());
        let post = PostOffice::new(&clock);
        let additions = Additions {
            failures_per_minute: Some(failures_per_minute),
            clock: Some(Arc::clone(&clock)),
            bounds: config.call_bounds(CallBounds::default().sandboxed_max),
            webhooks: Some(Arc::clone(&post.webhooks)),
            ..Additions::default()
        };
        let KernelHarness { kernel, insights, clock, tools, paper, jobs } = KernelHarness::raise(additions).await;
        let door = Door::new(DoorParts {
            config,
            webhooks: Some(Arc::clone(&post.webhooks)),
            insights: Some(Arc::clone(&insights)),
            inbound_jobs: Some(Arc::clone(&post.inbound)),
            jobs,
            // A disk on which nothing is left.
            free_space: Some(FreeSpace::new(1, || Some(0))),
            ..DoorParts::of_kernel(kernel, MetricsText::new(|| "gantry_up 1\n".to_owned()))
        });
        let served = Served::open(door).await;
        let stage = Self {
            address: served.address,
            tools,
            paper,
            agent: token("jti-1", AGENT, &["demo.*"], START),
            expired: token("jti-1", AGENT, &["*"], START - 7_200_000),
            post,
            clock,
            insights: Arc::clone(insights.source()),
            served,
        };
        for handler in ["echo", "gate", "fail", "panic"] {
            let reply = stage.admin("POST", "/v1/tools/register", Some(manifest(handler, "1.0.0", &json!({})))).await;
            assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
        }
        stage
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, method: &str, path: &str, token: Option<&str>, body: Option<Value>) -> Reply {
        let body = body.map(|body| body.to_string());
        self.raw(request(method, path, token, body.as_deref()).as_bytes(), method == "HEAD").await
    }

    /// A token that the administrator mints.
    pub(crate) async fn mint(&self, wish: Value) -> String {
        let reply = self.admin("POST", "/v1/tokens", Some(wish)).await;
        assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
        reply.json()["token"].as_str().unwrap().to_owned()
    }

    /// Moves the wall clock on.
    pub(crate) fn step(&self, seconds: i64) {
        self.clock.step(seconds);
    }

    /// The same, as the administrator.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: Option<Value>) -> Reply {
        self.ask(method, path, Some(ADMIN), body).await
    }

    pub(crate) async fn raw(&self, bytes: &[u8], to_head: bool) -> Reply {
        let mut client = Client::connect(self.address).await;
        client.send(bytes).await;
        client.reply_if_any(to_head).await.expect("the server answers before it closes")
    }

    /// Calls a tool as the administrator.
    pub(crate) async fn invoke(&self, tool: &str, parameters: Value) -> Reply {
        self.admin("POST", "/v1/tools/invoke", Some(json!({ "tool_id": tool, "parameters": parameters }))).await
    }

    /// Starts a call that waits at the gate, and returns once it does.
    pub(crate) async fn start_gated(&self) -> Client {
        let before = *self.tools.running.borrow();
        let body = json!({ "tool_id": "demo.gate_tool", "parameters": { "text": "late" } }).to_string();
        let mut client = Client::connect(self.address).await;
        client.send(request("POST", "/v1/tools/invoke", Some(ADMIN), Some(&body)).as_bytes()).await;
        self.tools.running.subscribe().wait_for(|running| *running > before).await.unwrap();
        client
    }

    /// Begins the shutdown.
    pub(crate) fn stop(&mut self) {
        self.served.stop();
    }

    pub(crate) async fn drained(self) -> DrainOutcome {
        self.served.drained().await
    }
}

/// A manifest for `demo.<handler>_tool`, changed as the test wants.
pub(crate) fn manifest(handler: &str, version: &str, change: &Value) -> Value {
    let text = json!({ "text": { "type": "string" } });
    let parameters = json!({ "type": "object", "properties": text, "required": ["text"] });
    manifest_of(handler, version, &parameters, change)
}
