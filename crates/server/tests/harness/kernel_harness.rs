//! The harness behind a door under test: a real kernel over the in-memory store, whose clock and tools the test holds in its
//! hand, and the accept loop on port 0. Both test programs of this crate build their stage on it.
//!
//! Not here: what differs from door to door: the configuration, the client, and who calls what (the `stage` of each).

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::manifest::Execution;
use contract::schema::PartMarks;
use gantry_server::{Door, DrainOutcome, serve};
use insights::health::HealthSettings;
use insights::{InsightParts, InsightQueries, Insights};
use jobs::webhooks::Webhooks;
use jobs::{JobQueue, JobQueueParts, Jobs, JobsParts, JobsSettings};
use kernel::registry::Registry;
use kernel::{
    AccessControl, AccessParts, AccessSettings, CallBounds, CheckpointRetention, Checkpoints, Identity,
    IdentitySettings, IsolationPolicy, Kernel, KernelOptions, KernelParts, LedgerService, Recorder, ResourceEnvelope,
    TokenIssuer,
};
use policy::{MintRequest, SigningKey, TokenMinter};
use ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::executor::{Executor, ExecutorError, ToolCall, ToolOutput};
use ports::key_vault::{KeyVault, KeyVaultError};
use ports::observer::NoObserver;
use ports::offerings::{NothingOffered, Offerings};
use ports::redactor::{RedactError, Redactor, WithholdingRedactor};
use ports::tool_companion::{LogLevel, QuestionKind, ToolProgress, ToolQuestion, ToolSnapshot};
use serde_json::{Value, json};
use shared_state::MemoryBus;
use store::memory::MemoryStore;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

pub(crate) const ADMIN: &str = "the-admin-secret";
/// The moment at which everything begins.
pub(crate) const START: i64 = 1_800_000_000_000;
/// Longest wait for the end of a server.
const END_WITHIN: Duration = Duration::from_secs(20);

// ------------------------------------------------------------------------------------------------------------ fakes

/// Has nothing to hide, as calls of these tests have nothing that must not be seen, and cannot redact what says so.
#[derive(Debug)]
struct Outspoken;

impl Redactor for Outspoken {
    fn value(&self, value: &Value, _: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        if value.to_string().contains("unredactable") {
            return Err(RedactError("this cannot be redacted".into()));
        }
        Ok(value.clone())
    }
    fn fields(&self, _: &Value, _: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        Ok(None)
    }
    fn text<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        text.into()
    }
    fn members(&self, value: &mut Value, names: &[Box<str>]) {
        WithholdingRedactor.members(value, names);
    }
}

/// Wall time that stands still until it is moved; sleeping is real, because deadlines are not under test here.
#[derive(Debug)]
pub(crate) struct HeldClock(AtomicI64);

impl Default for HeldClock {
    fn default() -> Self {
        Self(AtomicI64::new(START))
    }
}

impl HeldClock {
    /// Moves the wall clock on.
    pub(crate) fn step(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1000, Ordering::SeqCst);
    }
}

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

/// Tools of the harness, by handler: `echo` gives its parameters back, `gate` waits until the test opens it, `paced` says
/// first how far it is, `fail` and `panic` do what they say, `chatty` says how far it is, `curious` asks its caller, `large` gives a lot.
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
    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        let Some(Execution::Builtin { handler }) = &call.tool.manifest.execution else { panic!("not a built-in") };
        match handler.as_str() {
            "gate" | "paced" => {
                if handler == "paced" {
                    let progress =
                        ToolProgress { percent: Some(40.0), phase: Some("work".into()), ..ToolProgress::default() };
                    call.companion.progress(progress);
                }
                self.running.send_modify(|running| *running += 1);
                self.gate.acquire().await.unwrap().forget();
                self.finished.fetch_add(1, Ordering::SeqCst);
            }
            "fail" => return Err(ExecutorError::answered(Refusal::new(ErrorCode::E3401, "the tool fell over"))),
            "panic" => panic!("the tool panics"),
            "chatty" => {
                for percent in [10.0, 60.0] {
                    call.companion.progress(ToolProgress {
                        percent: Some(percent),
                        phase: Some("work".into()),
                        ..ToolProgress::default()
                    });
                }
                call.companion.log(LogLevel::Warn, "nearly done");
            }
            "curious" => {
                let form = json!({
                    "mode": "form", "message": "Which colour?",
                    "requestedSchema": { "type": "object", "properties": { "colour": { "type": "string" } } },
                });
                let question = ToolQuestion { key: "colour".into(), kind: QuestionKind::Elicitation, parameters: form };
                let answers = call.companion.ask(vec![question]).await.map_err(ExecutorError::answered)?;
                return Ok(ToolOutput::of(json!({ "text": answers[0].value["content"]["colour"] })));
            }
            // As a server says it that is told what its caller can be asked.
            "needy" if !call.companion.can_be_asked().iter().any(|(kind, _)| *kind == QuestionKind::Sampling) => {
                let refusal = Refusal::new(ErrorCode::E3502, "the server could not do it")
                    .details(json!({
                        "upstream_code": -32021, "upstream_data": { "requiredCapabilities": { "sampling": {} } },
                    }))
                    .because(RefusalReason::UpstreamError { code: -32021 });
                return Err(ExecutorError::refused(refusal));
            }
            // Saves what it is given, says what it goes on from, and fails if it is told to.
            "save" => {
                let text = call.parameters["text"].as_str().unwrap().to_owned();
                let name = text.strip_prefix("named ");
                let state = json!({ "text": text });
                call.companion
                    .checkpoint(ToolSnapshot::of(name.or(Some("event")), state))
                    .await
                    .map_err(ExecutorError::answered)?;
                if text.starts_with("fail") {
                    return Err(ExecutorError::answered(Refusal::new(ErrorCode::E3401, "the tool fell over")));
                }
                let before = call.resume.as_ref().map_or(Value::Null, |point| point.saved.custom_state["text"].clone());
                return Ok(ToolOutput::of(json!({ "text": text, "before": before })));
            }
            "large" => return Ok(ToolOutput::of(json!({ "text": "x".repeat(5_000) }))),
            _ => {}
        }
        Ok(ToolOutput::of(Value::clone(&call.parameters)))
    }
}

/// What was recorded, in memory. Nothing is written while somebody holds the second lock.
#[derive(Debug, Default)]
pub(crate) struct Paper(pub(crate) Mutex<Vec<AuditRecord>>, pub(crate) tokio::sync::RwLock<()>);

#[async_trait::async_trait]
impl AuditSink for Paper {
    async fn write(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        let _open = self.1.read().await;
        self.0.lock().unwrap().extend_from_slice(&records);
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

// ------------------------------------------------------------------------------------------------------------ harness

/// A kernel, and what the test moves it by.
pub(crate) struct KernelHarness {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) insights: Arc<InsightQueries>,
    pub(crate) clock: Arc<HeldClock>,
    pub(crate) tools: Arc<Tools>,
    pub(crate) paper: Arc<Paper>,
    pub(crate) jobs: Option<Arc<Jobs>>,
}

/// What differs from the usual harness.
#[derive(Default)]
pub(crate) struct Additions {
    /// The limit on failed authentications.
    pub(crate) failures_per_minute: Option<u32>,
    /// Ways to run a tool, besides the harness's own.
    pub(crate) executors: Vec<Arc<dyn Executor>>,
    pub(crate) offerings: Option<Arc<dyn Offerings>>,
    /// A clock that others have, too.
    pub(crate) clock: Option<Arc<HeldClock>>,
    /// How many calls run and wait.
    pub(crate) bounds: CallBounds,
    /// Tells of alerts.
    pub(crate) webhooks: Option<Arc<Webhooks>>,
    /// How and where calls that last are kept as jobs, if they are.
    pub(crate) jobs: Option<(JobsSettings, Arc<MemoryStore>)>,
}

impl KernelHarness {
    /// As usual, but for the additions.
    pub(crate) async fn raise(additions: Additions) -> Self {
        let Additions { failures_per_minute, executors, offerings, clock, bounds, webhooks, jobs } = additions;
        let clock = clock.unwrap_or_default();
        let entropy = Arc::new(CountingEntropy::default());
        let tools =
            Arc::new(Tools { gate: Semaphore::new(0), running: watch::Sender::new(0), finished: AtomicUsize::new(0) });
        let paper = Arc::new(Paper::default());
        let store = Arc::new(MemoryStore::new());
        let registry = Registry::open(
            Arc::clone(&store) as _,
            Arc::clone(&store) as _,
            Arc::clone(&clock) as _,
            Arc::new(NoObserver),
        )
        .await
        .unwrap();
        let books = LedgerService::new(
            Arc::clone(&store) as _,
            Arc::clone(&clock) as _,
            &CountingEntropy::default(),
            Arc::new(NoObserver),
        );
        let checkpoints = Checkpoints::new(Arc::clone(&store) as _, CheckpointRetention::default());
        let insights = Insights::open(InsightParts {
            usage: Arc::clone(&store) as _,
            health: Arc::clone(&store) as _,
            version_use: Arc::clone(&store) as _,
            clock: Arc::clone(&clock) as _,
            entropy: Arc::new(CountingEntropy::default()),
            thresholds: HealthSettings::default(),
            prices: contract::cost::Prices::default(),
            retention_days: 30,
            announcer: webhooks.map(|webhooks| webhooks as _),
        })
        .await
        .map(Arc::new)
        .unwrap();
        let access = AccessControl::open(AccessParts {
            store,
            bus: Arc::new(MemoryBus::default()),
            engine: None,
            did_resolver: None,
            clock: Arc::clone(&clock) as _,
            observer: Arc::new(NoObserver),
            settings: AccessSettings::default(),
        })
        .await
        .unwrap();
        let key = signing_key();
        let mut settings = IdentitySettings::local(Arc::clone(&clock) as _);
        settings.failures_per_minute = failures_per_minute.unwrap_or(settings.failures_per_minute);
        let identity = Identity::new(ADMIN, vec![key.verifying_key()], settings, Arc::new(NoObserver)).unwrap();
        let (recorder, _) = Recorder::start(Arc::clone(&paper) as _, Arc::clone(&clock) as _, Arc::new(NoObserver));
        let queue = jobs.map(|(settings, store)| {
            let (clock, entropy) = (Arc::clone(&clock) as _, Arc::clone(&entropy) as _);
            JobQueue::new(JobQueueParts { store, clock, entropy, settings })
        });
        let parts = KernelParts {
            registry,
            identity,
            access,
            mint: TokenIssuer::new(key, TokenMinter::default(), Arc::new(Drawer)),
            recorder,
            books,
            executors: std::iter::once(Arc::clone(&tools) as Arc<dyn Executor>).chain(executors).collect(),
            isolation: IsolationPolicy::default(),
            envelope: ResourceEnvelope::default(),
            offerings: offerings.unwrap_or_else(|| Arc::new(NothingOffered)),
            clock: Arc::clone(&clock) as _,
            entropy,
            observer: Arc::new(NoObserver),
            redactor: Arc::new(Outspoken),
        };
        let options = KernelOptions {
            bounds,
            checkpoints: Some(checkpoints),
            insights: Some(Arc::clone(&insights) as _),
            jobs: queue.as_ref().map(|queue| Arc::clone(queue.store())),
            ..KernelOptions::default()
        };
        let kernel = Arc::new(Kernel::new(parts, options));
        let insights = Arc::new(InsightQueries::new(Arc::clone(&kernel), insights));
        let jobs = match queue {
            Some(queue) => {
                let parts = JobsParts { kernel: Arc::clone(&kernel), queue, handlers: Vec::new(), webhooks: None };
                Some(Jobs::open(parts).await.unwrap())
            }
            None => None,
        };
        Self { kernel, insights, clock, tools, paper, jobs }
    }
}

/// A door that is served.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<DrainOutcome>,
}

impl Served {
    pub(crate) async fn open(door: Arc<Door>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, door, async move {
            // A stage that is dropped stops its server too.
            let _ = stopped.await;
        }));
        Self { address, stop: Some(stop), served }
    }

    /// Begins the shutdown.
    pub(crate) fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    pub(crate) async fn drained(self) -> DrainOutcome {
        tokio::time::timeout(END_WITHIN, self.served).await.expect("the server ends").unwrap()
    }
}

/// The key of this installation.
fn signing_key() -> SigningKey {
    SigningKey::from_seed(&[5; 32])
}

/// A token for an hour, minted at this moment.
pub(crate) fn token(jti: &str, sub: &str, tools: &[&str], minted_at: i64) -> String {
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
    policy::mint(&request, &signing_key(), jti.to_owned(), minted_at).unwrap().0
}

/// A manifest for `demo.<handler>_tool`, changed as the test wants; `null` takes a member away.
pub(crate) fn manifest_of(handler: &str, version: &str, parameters: &Value, change: &Value) -> Value {
    let mut manifest = json!({
        "tool_id": format!("{handler}_tool"), "namespace": "demo", "version": version,
        "name": format!("The {handler} tool"), "description": format!("Does {handler} with whatever text it is given."),
        "provider": "Demo", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": parameters,
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
