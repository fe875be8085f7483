//! The stage: a door on port 0 with a kernel whose clock and tools the test holds in its hand.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::manifest::Execution;
use gantry_server::{Door, Drained, MetricsText, ServerConfig, serve};
use kernel::ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use kernel::ports::clock::{Clock, UnixMillis};
use kernel::ports::entropy::Entropy;
use kernel::ports::executor::{Executor, ToolCall, ToolOutput};
use kernel::ports::key_vault::{KeyVault, KeyVaultError};
use kernel::ports::observer::Unwatched;
use kernel::ports::offerings::NothingOffered;
use kernel::registry::Registry;
use kernel::{
    Access, AccessParts, AccessSettings, Identity, IdentitySettings, IsolationPolicy, Kernel, KernelParts, Mint,
    Recorder, ResourceEnvelope,
};
use policy::{MintRequest, Minter, SigningKey};
use serde_json::{Value, json};
use shared_state::MemoryBus;
use store::memory::MemoryStore;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

use crate::client::{Client, Reply, request};
use crate::post_office::PostOffice;

pub(crate) const ADMIN: &str = "the-admin-secret";
/// The subject of [`Stage::agent`].
pub(crate) const AGENT: &str = "agent-1";
pub(crate) const START: i64 = 1_800_000_000_000;

/// Wall time that stands still; sleeping is real, because deadlines are not under test here.
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
pub(crate) struct CountingEntropy(AtomicU64);

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        for (byte, source) in bytes.iter_mut().zip(n.to_be_bytes().into_iter().cycle()) {
            *byte = source;
        }
    }
}

/// Tools of the stage, by handler: `echo` gives its parameters back, `gate` waits until the test opens it, `fail` and
/// `panic` do what they say.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) gate: Semaphore,
    pub(crate) running: watch::Sender<usize>,
    pub(crate) finished: AtomicUsize,
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
                self.finished.fetch_add(1, Ordering::SeqCst);
            }
            "fail" => return Err(Refusal::new(ErrorCode::E3401, "the tool fell over")),
            "panic" => panic!("the tool panics"),
            _ => {}
        }
        Ok(ToolOutput::of(Value::clone(&call.parameters)))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Paper(Mutex<Vec<AuditRecord>>);

impl Paper {
    pub(crate) fn records(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

#[async_trait::async_trait]
impl AuditSink for Paper {
    async fn append(&self, records: &[AuditRecord]) -> Result<(), AuditError> {
        self.0.lock().unwrap().extend_from_slice(records);
        Ok(())
    }
}

/// Keeps nothing.
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
    pub(crate) agent: String,
    pub(crate) expired: String,
    pub(crate) post: PostOffice,
    pub(crate) clock: Arc<HeldClock>,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Drained>,
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
        config.validate().unwrap();
        let clock = Arc::new(HeldClock(AtomicI64::new(START)));
        let tools =
            Arc::new(Tools { gate: Semaphore::new(0), running: watch::Sender::new(0), finished: AtomicUsize::new(0) });
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
        let agent = token(&key, &["demo.*"], START);
        let expired = token(&key, &["*"], START - 7_200_000);
        let settings = IdentitySettings { failures_per_minute, ..IdentitySettings::local(Arc::clone(&clock) as _) };
        let identity = Identity::new(ADMIN, vec![key.verifying_key()], settings, Arc::new(Unwatched)).unwrap();
        let (recorder, _) = Recorder::start(Arc::clone(&paper) as _, Arc::clone(&clock) as _, Arc::new(Unwatched));
        let kernel = Kernel::new(KernelParts {
            registry,
            identity,
            access,
            mint: Mint::new(key, Minter::default(), Arc::new(Drawer)),
            recorder,
            executors: vec![Arc::clone(&tools) as _],
            isolation: IsolationPolicy::default(),
            envelope: ResourceEnvelope::default(),
            availability: Arc::default(),
            offerings: Arc::new(NothingOffered),
            clock: Arc::clone(&clock) as _,
            entropy: Arc::new(CountingEntropy::default()),
            observer: Arc::new(Unwatched),
        });
        let door = Door::new(Arc::new(kernel), MetricsText::new(|| "gantry_up 1\n".to_owned()), config);
        let post = PostOffice::new(&clock);
        door.tell_through(Arc::clone(&post.webhooks));
        door.take_jobs_for(Arc::clone(&post.inbound));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, door, async move {
            let _ = stopped.await;
        }));
        let stage = Self { address, tools, paper, agent, expired, post, clock, stop: Some(stop), served };
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
        self.clock.0.fetch_add(seconds * 1000, Ordering::SeqCst);
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
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn drained(self) -> Drained {
        tokio::time::timeout(Duration::from_secs(20), self.served).await.expect("the server ends").unwrap()
    }
}

fn token(key: &SigningKey, tools: &[&str], minted_at: i64) -> String {
    let grants = tools.iter().map(|tool| json!({ "tool_id": tool }));
    let request = MintRequest {
        sub: AGENT.parse().unwrap(),
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
    policy::mint(&request, key, "jti-1".into(), minted_at).unwrap().0
}

/// A manifest for `demo.<handler>_tool`, changed as the test wants.
pub(crate) fn manifest(handler: &str, version: &str, change: &Value) -> Value {
    let mut manifest = json!({
        "tool_id": format!("{handler}_tool"), "namespace": "demo", "version": version,
        "name": format!("The {handler} tool"), "description": format!("Does {handler} with whatever text it is given."),
        "provider": "Demo", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
        "result_schema": { "type": "object", "properties": { "text": { "type": "string" } } },
        "tags": ["test", handler], "categories": ["demo"],
        "execution": { "type": "builtin", "handler": handler },
    });
    for (name, value) in change.as_object().unwrap() {
        if value.is_null() {
            manifest.as_object_mut().unwrap().remove(name);
        } else {
            manifest[name] = value.clone();
        }
    }
    manifest
}
