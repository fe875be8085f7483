//! The stage: the MCP door on port 0 before a harness whose clock and tools the test holds in its hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use contract::error::ErrorCode;
use gantry_server::{Door, DoorParts, DrainOutcome, McpConfig, MetricsText, ToolExposure};
use jobs::JobsSettings;
use kernel::Kernel;
use policy::BearerSecret;
use ports::actor::Actor;
use ports::entropy::new_trace_id;
use ports::executor::{Executor, ExecutorError, ToolCall, ToolOutput};
use serde_json::{Value, json};
use store::memory::MemoryStore;

use crate::client::{Ask, PATIENCE, Reply};
use crate::shelf::Shelf;

#[path = "../harness/kernel_harness.rs"]
mod harness;

use harness::{Additions, HeldClock, KernelHarness, Paper, START, Served, Tools, manifest_of, token};

pub(crate) use harness::ADMIN;

/// A tool of a server, which names resources.
#[derive(Debug)]
struct Linking;

#[async_trait::async_trait]
impl Executor for Linking {
    fn kind(&self) -> &'static str {
        "mcp"
    }
    async fn execute(&self, _: ToolCall) -> Result<ToolOutput, ExecutorError> {
        Ok(ToolOutput::of(json!({ "content": [
            { "type": "resource_link", "uri": "note://1", "name": "one" },
            { "type": "resource", "resource": { "uri": "note://2", "text": "two" } },
            { "type": "text", "text": "note://3" },
        ] })))
    }
}

impl Paper {
    /// How calls have ended so far.
    pub(crate) fn ends(&self) -> Vec<Option<ErrorCode>> {
        let records = self.0.lock().unwrap();
        records.iter().filter(|record| record.status.is_some()).map(|record| record.code).collect()
    }
}

pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    pub(crate) tools: Arc<Tools>,
    pub(crate) paper: Arc<Paper>,
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) door: Arc<Door>,
    /// May use `demo.*`.
    pub(crate) agent: String,
    /// May use `demo.echo_tool` alone.
    pub(crate) narrow: String,
    pub(crate) expired: String,
    /// May use `demo.*`, and what servers offer besides tools.
    pub(crate) reader: String,
    pub(crate) shelf: Arc<Shelf>,
    clock: Arc<HeldClock>,
    served: Served,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(McpConfig { exposure: ToolExposure::All, ..McpConfig::default() }).await
    }

    pub(crate) async fn with(mcp: McpConfig) -> Self {
        Self::raised(mcp, Additions::default()).await
    }

    /// Where calls that last are kept as jobs, and the store of those.
    pub(crate) async fn with_jobs(mcp: McpConfig, settings: JobsSettings) -> (Self, Arc<MemoryStore>) {
        let clock = Arc::new(HeldClock::default());
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as _));
        let jobs = Some((settings, Arc::clone(&store)));
        let stage = Self::raised(mcp, Additions { clock: Some(clock), jobs, ..Additions::default() }).await;
        (stage, store)
    }

    async fn raised(mcp: McpConfig, additions: Additions) -> Self {
        mcp.validate().unwrap();
        let shelf = Arc::new(Shelf::default());
        let additions =
            Additions { executors: vec![Arc::new(Linking)], offerings: Some(Arc::clone(&shelf) as _), ..additions };
        let KernelHarness { kernel, insights, clock, tools, paper, jobs } = KernelHarness::raise(additions).await;
        let metrics = MetricsText::new(|| "gantry_up 1\n".to_owned());
        let door = Door::new(DoorParts {
            mcp,
            jobs,
            insights: Some(insights),
            ..DoorParts::of_kernel(Arc::clone(&kernel), metrics)
        });
        let served = Served::open(Arc::clone(&door)).await;
        let stage = Self {
            address: served.address,
            tools,
            paper,
            kernel,
            door,
            agent: token("jti-agent", "agent-1", &["demo.*"], START),
            narrow: token("jti-narrow", "agent-2", &["demo.echo_tool"], START),
            expired: token("jti-expired", "agent-1", &["*"], START - 7_200_000),
            reader: token("jti-reader", "agent-3", &["demo.*", "notes.*", "resources", "prompts"], START),
            shelf,
            clock,
            served,
        };
        for handler in ["echo", "gate", "fail", "chatty", "curious", "large"] {
            stage.publish(manifest(handler, &json!({}))).await;
        }
        stage.publish(manifest("echo", &json!({ "namespace": "other" }))).await;
        stage
    }

    pub(crate) async fn publish(&self, manifest: Value) {
        let trace_id = new_trace_id(self.kernel.entropy());
        let actor = Actor { credential: Some(BearerSecret(ADMIN)), source: None, trace_id };
        self.kernel.publish(actor, manifest).await.unwrap();
    }

    /// Publishes a tool as those of servers are.
    pub(crate) async fn take_in(&self, manifest: Value) {
        let by = "catalogue".parse().unwrap();
        self.kernel.take_in(&"local".parse().unwrap(), manifest, &by).await.unwrap();
    }

    /// Moves the wall clock on.
    pub(crate) fn step(&self, seconds: i64) {
        self.clock.step(seconds);
    }

    pub(crate) fn ask(&self) -> Ask {
        Ask::new(self.address, "/mcp")
    }

    pub(crate) fn at(&self, path: &str) -> Ask {
        Ask::new(self.address, path)
    }

    /// One request of the present revision by the agent.
    pub(crate) async fn new_style(&self, method: &str, params: Value) -> Value {
        self.ask().token(&self.agent).new_style(1, method, params, &json!({})).message().await
    }

    /// A call by the agent, in the present revision.
    pub(crate) async fn call(&self, name: &str, arguments: Value) -> Value {
        self.new_style("tools/call", json!({ "name": name, "arguments": arguments })).await
    }

    /// Begins a session and answers its id.
    pub(crate) async fn session(&self, token: &str, version: &str, capabilities: &Value) -> String {
        let mut reply = self.initialize(token, version, capabilities).await;
        let answer = reply.last().await;
        assert_eq!(answer["result"]["protocolVersion"], version, "{answer}");
        let id = reply.header("mcp-session-id").unwrap().to_owned();
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let noted = self.in_session(token, &id, version).body(&note.to_string()).send().await;
        assert_eq!(noted.status, 202);
        id
    }

    pub(crate) async fn initialize(&self, token: &str, version: &str, capabilities: &Value) -> Reply {
        let params = json!({
            "protocolVersion": version, "capabilities": capabilities, "clientInfo": { "name": "old", "version": "1" },
        });
        self.ask().token(token).old(1, "initialize", &params).send().await
    }

    pub(crate) fn in_session(&self, token: &str, id: &str, version: &str) -> Ask {
        self.ask().token(token).header("mcp-session-id", id).header("mcp-protocol-version", version)
    }

    /// Waits until so many calls wait at the gate.
    pub(crate) async fn gated(&self, calls: usize) {
        self.tools.running.subscribe().wait_for(|running| *running >= calls).await.unwrap();
    }

    /// Waits until something is true.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let waiting = async {
            while !holds() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what}"));
    }

    pub(crate) fn stop(&mut self) {
        self.served.stop();
    }

    pub(crate) async fn drained(self) -> DrainOutcome {
        self.served.drained().await
    }
}

/// A manifest for `demo.<handler>_tool`, changed as the test wants.
pub(crate) fn manifest(handler: &str, change: &Value) -> Value {
    let text = json!({ "text": { "type": "string" } });
    let parameters = json!({ "type": "object", "properties": text, "additionalProperties": false });
    manifest_of(handler, "1.0.0", &parameters, change)
}
