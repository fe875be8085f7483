//! The stage: a door on port 0 with a kernel whose clock and tools the test holds in its hand.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::manifest::Execution;
use gantry_server::{Door, Drained, Exposure, McpConfig, MetricsText, ServerConfig, serve};
use kernel::ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use kernel::ports::clock::{Clock, UnixMillis};
use kernel::ports::companion::{LogLevel, Progress, Question, QuestionKind};
use kernel::ports::entropy::{Entropy, new_trace_id};
use kernel::ports::executor::{Executor, ToolCall, ToolOutput};
use kernel::ports::key_vault::{KeyVault, KeyVaultError};
use kernel::ports::observer::Unwatched;
use kernel::registry::Registry;
use kernel::{
    Access, AccessParts, AccessSettings, Actor, Identity, IdentitySettings, IsolationPolicy, Kernel, KernelParts, Mint,
    Recorder, ResourceEnvelope,
};
use policy::{BearerSecret, MintRequest, Minter, SigningKey};
use serde_json::{Value, json};
use shared_state::MemoryBus;
use store::memory::MemoryStore;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

use crate::client::{Ask, PATIENCE, Reply};
use crate::shelf::Shelf;

pub(crate) const ADMIN: &str = "the-admin-secret";
const START: i64 = 1_800_000_000_000;

/// Wall time that stands still until it is moved.
#[derive(Debug)]
pub(crate) struct HeldClock(AtomicI64);

impl Clock for HeldClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.0.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.load(Ordering::SeqCst)).unwrap())
    }
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(span))
    }
}

#[derive(Debug, Default)]
struct CountingEntropy(AtomicU64);

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        for (byte, source) in bytes.iter_mut().zip(n.to_be_bytes().into_iter().cycle()) {
            *byte = source;
        }
    }
}

/// Tools of the stage, by handler: `echo` gives its parameters back, `gate` waits until the test opens it, `fail` fails,
/// `chatty` says how far it is, `curious` asks its caller, `large` gives a lot.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) gate: Semaphore,
    pub(crate) running: watch::Sender<usize>,
}

#[async_trait::async_trait]
impl Executor for Tools {
    fn kind(&self) -> &'static str {
        "builtin"
    }
    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, Refusal> {
        let Some(Execution::Builtin { handler }) = &call.tool.manifest.execution else { panic!("not a built-in") };
        match handler.as_str() {
            "gate" => {
                self.running.send_modify(|running| *running += 1);
                self.gate.acquire().await.unwrap().forget();
            }
            "fail" => return Err(Refusal::new(ErrorCode::E3401, "the tool fell over")),
            "chatty" => {
                for percent in [10.0, 60.0] {
                    call.companion.progress(Progress {
                        percent: Some(percent),
                        phase: Some("work".into()),
                        message: None,
                    });
                }
                call.companion.log(LogLevel::Warn, "nearly done");
            }
            "curious" => {
                let form = json!({
                    "mode": "form", "message": "Which colour?",
                    "requestedSchema": { "type": "object", "properties": { "colour": { "type": "string" } } },
                });
                let question = Question { key: "colour".into(), kind: QuestionKind::Elicitation, parameters: form };
                let answers = call.companion.ask(vec![question]).await?;
                return Ok(ToolOutput::of(json!({ "text": answers[0].value["content"]["colour"] })));
            }
            // As a server says it that is told what its caller can be asked.
            "needy" if !call.companion.can_be_asked().iter().any(|(kind, _)| *kind == QuestionKind::Sampling) => {
                return Err(Refusal::new(ErrorCode::E3502, "the server could not do it").details(json!({
                    "upstream_code": -32021, "upstream_data": { "requiredCapabilities": { "sampling": {} } },
                })));
            }
            "large" => return Ok(ToolOutput::of(json!({ "text": "x".repeat(5_000) }))),
            _ => {}
        }
        Ok(ToolOutput::of(Value::clone(&call.parameters)))
    }
}

/// A tool of a server, which names resources.
#[derive(Debug)]
struct Linking;

#[async_trait::async_trait]
impl Executor for Linking {
    fn kind(&self) -> &'static str {
        "mcp"
    }
    async fn execute(&self, _: ToolCall) -> Result<ToolOutput, Refusal> {
        Ok(ToolOutput::of(json!({ "content": [
            { "type": "resource_link", "uri": "note://1", "name": "one" },
            { "type": "resource", "resource": { "uri": "note://2", "text": "two" } },
            { "type": "text", "text": "note://3" },
        ] })))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Paper(Mutex<Vec<AuditRecord>>);

impl Paper {
    /// How calls have ended so far.
    pub(crate) fn ends(&self) -> Vec<Option<ErrorCode>> {
        let records = self.0.lock().unwrap();
        records.iter().filter(|record| record.status.is_some()).map(|record| record.code).collect()
    }
}

#[async_trait::async_trait]
impl AuditSink for Paper {
    async fn append(&self, records: &[AuditRecord]) -> Result<(), AuditError> {
        self.0.lock().unwrap().extend_from_slice(records);
        Ok(())
    }
}

#[derive(Debug)]
struct Drawer;

#[async_trait::async_trait]
impl KeyVault for Drawer {
    async fn replace(&self, _: &SigningKey) -> Result<(), KeyVaultError> {
        Ok(())
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
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Drained>,
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(McpConfig { exposure: Exposure::All, ..McpConfig::default() }).await
    }

    pub(crate) async fn with(mcp: McpConfig) -> Self {
        mcp.validate().unwrap();
        let clock = Arc::new(HeldClock(AtomicI64::new(START)));
        let tools = Arc::new(Tools { gate: Semaphore::new(0), running: watch::Sender::new(0) });
        let paper = Arc::new(Paper::default());
        let store = Arc::new(MemoryStore::new());
        let registry = Registry::open(
            Arc::clone(&store) as _,
            Arc::clone(&store) as _,
            Arc::clone(&clock) as _,
            Arc::new(Unwatched),
        )
        .await
        .unwrap();
        let access = Access::open(AccessParts {
            store,
            bus: Arc::new(MemoryBus::default()),
            engine: None,
            did_resolver: None,
            clock: Arc::clone(&clock) as _,
            observer: Arc::new(Unwatched),
            settings: AccessSettings::default(),
        })
        .await
        .unwrap();
        let key = SigningKey::from_seed(&[5; 32]);
        let agent = token(&key, "agent-1", &["demo.*"], START);
        let narrow = token(&key, "agent-2", &["demo.echo_tool"], START);
        let reader = token(&key, "agent-3", &["demo.*", "notes.*", "resources", "prompts"], START);
        let shelf = Arc::new(Shelf::default());
        let expired = token(&key, "agent-1", &["*"], START - 7_200_000);
        let settings = IdentitySettings::local(Arc::clone(&clock) as _);
        let identity = Identity::new(ADMIN, vec![key.verifying_key()], settings, Arc::new(Unwatched)).unwrap();
        let (recorder, _) = Recorder::start(Arc::clone(&paper) as _, Arc::clone(&clock) as _, Arc::new(Unwatched));
        let kernel = Arc::new(Kernel::new(KernelParts {
            registry,
            identity,
            access,
            mint: Mint::new(key, Minter::default(), Arc::new(Drawer)),
            recorder,
            executors: vec![Arc::clone(&tools) as _, Arc::new(Linking)],
            isolation: IsolationPolicy::default(),
            envelope: ResourceEnvelope::default(),
            availability: Arc::default(),
            offerings: Arc::clone(&shelf) as _,
            clock: Arc::clone(&clock) as _,
            entropy: Arc::new(CountingEntropy::default()),
            observer: Arc::new(Unwatched),
        }));
        let metrics = MetricsText::new(|| "gantry_up 1\n".to_owned());
        let door = Door::with_mcp(Arc::clone(&kernel), metrics, ServerConfig::default(), mcp);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, Arc::clone(&door), async move {
            let _ = stopped.await;
        }));
        let stage = Self {
            address,
            tools,
            paper,
            kernel,
            door,
            agent,
            narrow,
            expired,
            reader,
            shelf,
            clock,
            stop: Some(stop),
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
        self.clock.0.fetch_add(seconds * 1000, Ordering::SeqCst);
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
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn drained(self) -> Drained {
        tokio::time::timeout(PATIENCE, self.served).await.expect("the server ends").unwrap()
    }
}

fn token(key: &SigningKey, sub: &str, tools: &[&str], minted_at: i64) -> String {
    let grants = tools.iter().map(|tool| json!({ "tool_id": tool }));
    let request = MintRequest {
        sub: sub.parse().unwrap(),
        tenant: "local".parse().unwrap(),
        roles: vec![policy::Role::Agent],
        tools: grants.map(|grant| serde_json::from_value(grant).unwrap()).collect(),
        scopes: vec![],
        limits: vec![],
        budget: None,
        user_did: None,
        session_id: None,
        ttl_seconds: 3600,
        act: None,
    };
    policy::mint(&request, key, format!("jti-{sub}-{minted_at}"), minted_at).unwrap().0
}

/// A manifest for `demo.<handler>_tool`, changed as the test wants.
pub(crate) fn manifest(handler: &str, change: &Value) -> Value {
    let mut manifest = json!({
        "tool_id": format!("{handler}_tool"), "namespace": "demo", "version": "1.0.0",
        "name": format!("The {handler} tool"), "description": format!("Does {handler} with whatever text it is given."),
        "provider": "Demo", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object", "properties": { "text": { "type": "string" } }, "additionalProperties": false },
        "result_schema": { "type": "object", "properties": { "text": { "type": "string" } } },
        "tags": ["test", handler], "categories": ["demo"],
        "execution": { "type": "builtin", "handler": handler },
    });
    for (name, value) in change.as_object().unwrap() {
        manifest[name] = value.clone();
    }
    manifest
}
