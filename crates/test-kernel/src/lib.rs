//! Test kernel: a kernel for tests, with time, randomness, tools, outside authorities and the audit log held in the test's hand.
//! Never in the binary.
//!
//! Not here: the stories (tests of `kernel` and `jobs`), real servers (`test-servers`).

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "for tests")]
#![expect(clippy::needless_pass_by_value, reason = "`json!` at the call reads better without an ampersand")]

mod outside;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use contract::envelope::{InvocationStatus, InvokeRequest, InvokeResponse};
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, Subject, TenantId};
use contract::manifest::Isolation;
use contract::schema::{PartMarks, Sensitivity};
use kernel::registry::Registry;
use kernel::resilience::{Resilience, ResilienceSettings};
use kernel::{
    AccessControl, AccessParts, AccessSettings, CallBounds, CheckpointRetention, Checkpoints, ExternalIssuer,
    FailedCall, Identity, IdentitySettings, IncomingCall, IsolationPolicy, Kernel, KernelOptions, KernelParts,
    LedgerService, Recorder, RecorderHandle, ResourceEnvelope, TokenIssuer,
};
use policy::{BearerSecret, MintRequest, PolicyQuestion, PolicyVerdict, SigningKey, TokenMinter};
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditError, AuditRecord, AuditSink};
use ports::call_insights::CallInsights;
use ports::checkpoint_store::CheckpointStore;
use ports::clock::{Clock, UnixMillis};
use ports::did_resolver::{DidError, DidResolver};
use ports::entropy::Entropy;
use ports::executor::{ExecutionReach, Executor, ExecutorError, ResumePoint, ToolCall, ToolOutput};
use ports::key_source::{KeySource, KeySourceError};
use ports::key_vault::{KeyVault, KeyVaultError};
use ports::ledger::{
    BeginOutcome, EntryFilter, FencingToken, Intent, Ledger, LedgerEntry, OwnerId, ResolveOutcome, SettleOutcome,
    Settlement,
};
use ports::observer::{FinishedCall, Observer, ToolSpeech};
use ports::offerings::{NothingOffered, Offerings};
use ports::policy_engine::{EngineError, PolicyEngine};
use ports::redactor::{RedactError, Redactor};
use ports::registry_store::StoreError;
use ports::resolved_limits::ResolvedLimits;
use ports::tool_companion::{self, LogLevel, ToolProgress};
use ports::tool_version::ToolVersion;
use redaction::{RedactionAdditions, RedactionEngine, ValueDescription, ValuePart};
use serde_json::{Value, json};
use shared_state::{MemoryBus, MemoryState};
use store::memory::MemoryStore;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

pub use outside::{MemoryEntrance, ScriptedReceiver, SentRequest};

pub const ADMIN: &str = "the-admin-secret";
pub const START: i64 = 1_800_000_000_000;

// ------------------------------------------------------------------------------------------------------------ fakes

/// Wall time stands still until it is stepped; sleeping past the end of a call's time is decided by the test.
#[derive(Debug)]
pub struct HeldClock {
    pub now: AtomicI64,
}

impl Default for HeldClock {
    fn default() -> Self {
        Self { now: AtomicI64::new(START) }
    }
}

impl Clock for HeldClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(self.now.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.now.load(Ordering::SeqCst)).unwrap())
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        // Never by itself: only when the test says that time is up.
        Box::pin(std::future::pending())
    }
}

/// A clock whose sleeps end as soon as everybody else has had a turn.
#[derive(Debug)]
pub struct ImpatientClock(Arc<HeldClock>);

impl Clock for ImpatientClock {
    fn now(&self) -> UnixMillis {
        self.0.now()
    }
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::task::yield_now())
    }
}

/// A clock whose sleeps end when the test has stepped past their end.
#[derive(Debug)]
pub struct SteppableClock(Arc<HeldClock>);

impl Clock for SteppableClock {
    fn now(&self) -> UnixMillis {
        self.0.now()
    }
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let (clock, until) = (Arc::clone(&self.0), self.0.monotonic() + span);
        Box::pin(async move {
            while clock.monotonic() < until {
                tokio::task::yield_now().await;
            }
        })
    }
}

#[derive(Debug, Default)]
pub struct CountingEntropy(AtomicUsize);

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let n = self.0.fetch_add(1, Ordering::SeqCst);
        for (byte, source) in bytes.iter_mut().zip(n.to_be_bytes().into_iter().cycle()) {
            *byte = source;
        }
    }
}

/// What the tool does next.
#[derive(Debug, Clone)]
pub enum ToolScript {
    Answer(Value),
    /// Fails as executors usually do with this code.
    Fail(Refusal),
    /// Fails and says how far the call came.
    FailAs(ExecutorError),
    /// Never gets as far as sending anything.
    HangUnsent,
    /// Tells and asks all it can, and answers with what it was answered.
    Chat,
    /// Asks the caller, and answers with the answers.
    Ask(Vec<tool_companion::ToolQuestion>),
    Hang,
    /// Answers once it is told to.
    Wait(Arc<Notify>, Value),
    /// One after the other, the last one for good.
    InTurn(Vec<Self>),
    /// At each address of the service its own.
    At(Vec<Self>),
    /// Saves and lets time pass, then does something else.
    Keep(Vec<ToolMove>, Box<Self>),
}

/// What a tool does while it works.
#[derive(Debug, Clone)]
pub enum ToolMove {
    Save(tool_companion::ToolSnapshot),
    Progress(f64, &'static str),
    /// Seconds pass.
    Work(i64),
}

#[derive(Debug)]
pub struct ScriptedTool {
    pub act: Mutex<ToolScript>,
    pub calls: Mutex<Vec<Value>>,
    /// The idempotency keys they came with.
    pub keys: Mutex<Vec<Arc<str>>>,
    /// The addresses of the service, if it has several, and which were asked.
    pub endpoints: Mutex<Vec<String>>,
    pub asked: Mutex<Vec<usize>>,
    /// What the last call had to be kept to.
    pub kept: Mutex<Option<(Isolation, ResolvedLimits)>>,
    /// What the last call was told to go on from.
    pub resumed: Mutex<Option<Arc<ResumePoint>>>,
    /// What it was answered when it saved: an id, or the code of a refusal.
    pub saved: Mutex<Vec<Result<String, ErrorCode>>>,
    clock: Arc<HeldClock>,
}

/// How far a call came that fails with this code, if nothing else is said.
pub fn usual_reach(code: ErrorCode) -> ExecutionReach {
    use ErrorCode as E;
    match code {
        E::E3108 | E::E3405 | E::E3502 | E::E3601 | E::E3602 => ExecutionReach::NotSent,
        E::E3504 | E::E3603 => ExecutionReach::Refused,
        E::E3301 | E::E3401 | E::E3406 | E::E3407 | E::E3414 => ExecutionReach::Answered,
        _ => ExecutionReach::MayHaveRun,
    }
}

#[async_trait::async_trait]
impl Executor for ScriptedTool {
    fn kind(&self) -> &'static str {
        "builtin"
    }
    fn endpoints(&self, _: &ToolVersion) -> Vec<String> {
        self.endpoints.lock().unwrap().clone()
    }
    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        self.asked.lock().unwrap().push(call.endpoint);
        self.calls.lock().unwrap().push((*call.parameters).clone());
        self.keys.lock().unwrap().push(Arc::clone(&call.idempotency_key));
        *self.kept.lock().unwrap() = Some((call.isolation, call.limits));
        self.resumed.lock().unwrap().clone_from(&call.resume);
        let mut act = match &mut *self.act.lock().unwrap() {
            ToolScript::InTurn(acts) if acts.len() > 1 => acts.remove(0),
            ToolScript::InTurn(acts) => acts[0].clone(),
            ToolScript::At(acts) => acts[call.endpoint].clone(),
            act => act.clone(),
        };
        if let ToolScript::Keep(moves, then) = act {
            self.keep(&*call.companion, moves).await;
            act = *then;
        }
        match act {
            ToolScript::Answer(value) => Ok(ToolOutput::of(value)),
            ToolScript::Fail(refusal) => Err(ExecutorError::new(refusal.clone(), usual_reach(refusal.code))),
            ToolScript::FailAs(error) => Err(error),
            ToolScript::HangUnsent => {
                call.dispatch.hold();
                std::future::pending().await
            }
            ToolScript::Chat => {
                let companion = call.companion;
                for percent in 0..1_000 {
                    companion.progress(ToolProgress { percent: Some(f64::from(percent)), ..ToolProgress::default() });
                }
                companion.log(LogLevel::Warn, "this one is too much");
                let checkpoint =
                    companion.checkpoint(tool_companion::ToolSnapshot::of(None, json!({}))).await.unwrap_err();
                let document = companion.document("spec").await.unwrap_err();
                Ok(ToolOutput::of(json!({ "text": format!("{} {}", checkpoint.code, document.code) })))
            }
            ToolScript::Ask(questions) => {
                let answers = call.companion.ask(questions).await.map_err(ExecutorError::answered)?;
                let text: Vec<String> = answers.into_iter().map(|a| format!("{}={}", a.key, a.value)).collect();
                Ok(ToolOutput::of(json!({ "text": text.join(" ") })))
            }
            ToolScript::Keep(..) | ToolScript::InTurn(_) | ToolScript::At(_) | ToolScript::Hang => {
                std::future::pending().await
            }
            ToolScript::Wait(go, value) => {
                go.notified().await;
                Ok(ToolOutput::of(value))
            }
        }
    }
}

impl ScriptedTool {
    async fn keep(&self, companion: &dyn tool_companion::ToolCompanion, moves: Vec<ToolMove>) {
        for one in moves {
            match one {
                ToolMove::Save(snapshot) => {
                    let saved = companion.checkpoint(snapshot).await.map_err(|refusal| refusal.code);
                    self.saved.lock().unwrap().push(saved);
                }
                ToolMove::Progress(percent, phase) => companion.progress(ToolProgress {
                    percent: Some(percent),
                    phase: Some(phase.into()),
                    ..ToolProgress::default()
                }),
                ToolMove::Work(seconds) => {
                    self.clock.now.fetch_add(seconds * 1000, Ordering::SeqCst);
                }
            }
        }
    }
}

/// The same tool where calls run in a sandbox.
#[derive(Debug)]
struct Boxed(Arc<ScriptedTool>);

#[async_trait::async_trait]
impl Executor for Boxed {
    fn kind(&self) -> &'static str {
        "process"
    }
    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        self.0.execute(call).await
    }
}

#[derive(Debug, Default)]
pub struct MemoryAudit {
    pub records: Mutex<Vec<AuditRecord>>,
    pub broken: AtomicBool,
    pub tried: Notify,
}

#[async_trait::async_trait]
impl AuditSink for MemoryAudit {
    async fn write(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        self.tried.notify_one();
        if self.broken.load(Ordering::SeqCst) {
            return Err(AuditError("the disk is full".into()));
        }
        self.records.lock().unwrap().extend_from_slice(&records);
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct CountingObserver(pub Mutex<Vec<CallEnd>>, pub Mutex<Vec<bool>>, pub Mutex<Vec<String>>);

/// How a call ended: its tool, status and code.
pub type CallEnd = (Option<String>, InvocationStatus, Option<ErrorCode>);

impl Observer for CountingObserver {
    fn invocation_finished(&self, event: &FinishedCall<'_>) {
        self.0.lock().unwrap().push((event.tool.map(ToString::to_string), event.status, event.code));
    }
    fn registry_swapped(&self, _: usize, _: usize) {}
    fn audit_queue(&self, _: usize) {}
    fn audit_append_failed(&self) {}
    fn decision(&self, remembered: bool) {
        self.1.lock().unwrap().push(remembered);
    }
    fn authentication_failed(&self, _: ErrorCode) {}
    fn keys_fetched(&self, _: bool) {}
    fn tool_spoke(&self, event: &ToolSpeech<'_>) {
        self.2.lock().unwrap().push(format!("{:?}", event.words));
    }
}

/// Keeps nothing, or refuses to.
#[derive(Debug, Default)]
pub struct MemoryVault {
    pub stuck: AtomicBool,
}

#[async_trait::async_trait]
impl KeyVault for MemoryVault {
    async fn replace(&self, _: &SigningKey) -> Result<(), KeyVaultError> {
        if self.stuck.load(Ordering::SeqCst) { Err(KeyVaultError("stuck".into())) } else { Ok(()) }
    }
}

/// A key set that the test changes, and counts the looks at.
#[derive(Debug, Default)]
pub struct ScriptedKeys {
    pub text: Mutex<Option<String>>,
    pub looks: AtomicUsize,
}

#[async_trait::async_trait]
impl KeySource for ScriptedKeys {
    async fn fetch(&self) -> Result<Vec<u8>, KeySourceError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let text = self.text.lock().unwrap().clone();
        text.map(String::into_bytes).ok_or_else(|| KeySourceError("it is down".into()))
    }
}

/// An outside engine that says what the test wants.
#[derive(Debug)]
pub struct ScriptedEngine(pub Mutex<Result<PolicyVerdict, ()>>, pub AtomicUsize);

#[async_trait::async_trait]
impl PolicyEngine for ScriptedEngine {
    async fn decide(&self, _: &PolicyQuestion<'_>) -> Result<PolicyVerdict, EngineError> {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.lock().unwrap().clone().map_err(|()| EngineError("it is down".into()))
    }
}

/// Knows the DIDs that the test has written down.
#[derive(Debug, Default)]
pub struct KnownDids(pub Mutex<Vec<String>>);

#[async_trait::async_trait]
impl DidResolver for KnownDids {
    async fn resolve(&self, did: &Subject) -> Result<(), DidError> {
        if self.0.lock().unwrap().iter().any(|known| known == did.as_str()) { Ok(()) } else { Err(DidError::Unknown) }
    }
}

/// A ledger whose pen fails when the test says so.
#[derive(Debug, Default)]
pub struct FailingLedger {
    ledger: OnceLock<Arc<dyn Ledger>>,
    pub cannot_begin: AtomicBool,
    /// What is begun is written, and told only when the test lets it be told.
    pub tells_late: Option<tokio::sync::Semaphore>,
    pub cannot_settle: AtomicBool,
    pub cannot_renew: AtomicBool,
}

impl FailingLedger {
    /// One that tells of what was begun when it is given permits.
    pub fn telling_late() -> Self {
        Self { tells_late: Some(tokio::sync::Semaphore::new(0)), ..Self::default() }
    }

    fn ledger(&self) -> &dyn Ledger {
        &**self.ledger.get().unwrap()
    }
}

fn pen_works(broken: &AtomicBool) -> Result<(), StoreError> {
    if broken.load(Ordering::SeqCst) { Err(StoreError::Unavailable("the disk is full".into())) } else { Ok(()) }
}

#[async_trait::async_trait]
impl Ledger for FailingLedger {
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<(), StoreError> {
        pen_works(&self.cannot_renew)?;
        self.ledger().renew(owner, lease).await
    }
    async fn retire(&self, owner: OwnerId) -> Result<(), StoreError> {
        self.ledger().retire(owner).await
    }
    async fn begin(&self, intent: Intent) -> Result<BeginOutcome, StoreError> {
        pen_works(&self.cannot_begin)?;
        let begun = self.ledger().begin(intent).await;
        if let Some(told) = &self.tells_late {
            told.acquire().await.unwrap().forget();
        }
        begun
    }
    async fn settle(
        &self,
        id: InvocationId,
        fence: FencingToken,
        end: Settlement,
    ) -> Result<SettleOutcome, StoreError> {
        pen_works(&self.cannot_settle)?;
        self.ledger().settle(id, fence, end).await
    }
    async fn lapsed(&self, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.ledger().lapsed(most).await
    }
    async fn find(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<LedgerEntry>, StoreError> {
        self.ledger().find(tenant, id).await
    }
    async fn list(&self, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, StoreError> {
        self.ledger().list(filter, most).await
    }
    async fn resolve(
        &self,
        tenant: &TenantId,
        id: InvocationId,
        end: Settlement,
    ) -> Result<ResolveOutcome, StoreError> {
        self.ledger().resolve(tenant, id, end).await
    }
    async fn release(&self, tenant: &TenantId, id: InvocationId) -> Result<(), StoreError> {
        self.ledger().release(tenant, id).await
    }
    async fn prune(&self, most: usize) -> Result<usize, StoreError> {
        self.ledger().prune(most).await
    }
}

// ----------------------------------------------------------------------------------------------------------- kernel

/// The kernel, and what the test holds of its surroundings.
#[derive(Debug)]
pub struct TestKernel {
    pub kernel: Kernel,
    pub clock: Arc<HeldClock>,
    pub tool: Arc<ScriptedTool>,
    pub audit: Arc<MemoryAudit>,
    pub observer: Arc<CountingObserver>,
    pub recorder: RecorderHandle,
    pub store: Arc<MemoryStore>,
    /// Of the kernel, for what shares its ids.
    pub entropy: Arc<CountingEntropy>,
    /// Where the jobs of this kernel are kept, if it has any.
    pub jobs: Arc<MemoryStore>,
}

/// What differs from the zero-configuration profile.
#[derive(Debug, Default)]
pub struct TestKernelOptions {
    pub impatient: bool,
    /// Do sleeps end when the test steps past their end? Else they never do.
    pub stepped: bool,
    pub settings: AccessSettings,
    pub engine: Option<Arc<ScriptedEngine>>,
    /// What other replicas say.
    pub bus: Option<Arc<MemoryBus>>,
    pub dids: Option<Arc<KnownDids>>,
    pub external: Option<ExternalIssuer>,
    pub leeway_seconds: u32,
    pub failures_per_minute: Option<u32>,
    pub drawer: Arc<MemoryVault>,
    pub isolation: IsolationPolicy,
    pub envelope: ResourceEnvelope,
    pub offerings: Option<Arc<dyn Offerings>>,
    /// What stands between the kernel and its ledger.
    pub ledger: Option<Arc<FailingLedger>>,
    pub checkpoints: Option<Arc<dyn CheckpointStore>>,
    /// Learns from calls, if somebody is to.
    pub insights: Option<Arc<dyn CallInsights>>,
    /// A clock that others have, too.
    pub clock: Option<Arc<HeldClock>>,
    /// How many calls run and wait.
    pub bounds: CallBounds,
    /// Breakers, limits and retries, if there are to be any.
    pub resilience: Option<ResilienceSettings>,
}

impl TestKernel {
    pub async fn new() -> Self {
        Self::with(TestKernelOptions::default()).await
    }

    pub async fn with(props: TestKernelOptions) -> Self {
        let held = props.clock.unwrap_or_default();
        let clock: Arc<dyn Clock> = match (props.impatient, props.stepped) {
            (true, _) => Arc::new(ImpatientClock(Arc::clone(&held))),
            (false, true) => Arc::new(SteppableClock(Arc::clone(&held))),
            (false, false) => Arc::clone(&held) as _,
        };
        let tool = Arc::new(ScriptedTool {
            act: Mutex::new(ToolScript::Answer(json!({ "text": "hi" }))),
            calls: Mutex::default(),
            keys: Mutex::default(),
            endpoints: Mutex::default(),
            asked: Mutex::default(),
            kept: Mutex::default(),
            resumed: Mutex::default(),
            saved: Mutex::default(),
            clock: Arc::clone(&held),
        });
        let audit = Arc::new(MemoryAudit::default());
        let observer = Arc::new(CountingObserver::default());
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock)));
        let ledger: Arc<dyn Ledger> = match props.ledger {
            Some(failing) => {
                assert!(failing.ledger.set(Arc::clone(&store) as _).is_ok(), "a ledger is of one kernel");
                failing
            }
            None => Arc::clone(&store) as _,
        };
        let books =
            LedgerService::new(ledger, Arc::clone(&clock), &CountingEntropy::default(), Arc::clone(&observer) as _);
        let registry = Registry::open(
            Arc::clone(&store) as _,
            Arc::clone(&store) as _,
            Arc::clone(&clock),
            Arc::clone(&observer) as _,
        )
        .await
        .unwrap();
        let access = AccessControl::open(AccessParts {
            store: Arc::clone(&store) as _,
            bus: props.bus.unwrap_or_default() as _,
            engine: props.engine.map(|engine| engine as _),
            did_resolver: props.dids.map(|dids| dids as _),
            clock: Arc::clone(&clock),
            observer: Arc::clone(&observer) as _,
            settings: props.settings,
        })
        .await
        .unwrap();
        let key = SigningKey::from_seed(&[5; 32]);
        let mut settings = IdentitySettings::local(Arc::clone(&clock));
        settings.external = props.external;
        settings.leeway_seconds = props.leeway_seconds;
        settings.failures_per_minute = props.failures_per_minute.unwrap_or(settings.failures_per_minute);
        let identity = Identity::new(ADMIN, vec![key.verifying_key()], settings, Arc::clone(&observer) as _).unwrap();
        let (slots, recorder) = Recorder::start(
            Arc::clone(&audit) as _,
            Arc::new(ImpatientClock(Arc::clone(&held))),
            Arc::clone(&observer) as _,
        );
        let entropy = Arc::new(CountingEntropy::default());
        let jobs = Arc::new(MemoryStore::with_clock(Arc::clone(&held) as _));
        let resilience = props.resilience.map(|settings| {
            let state = Arc::new(MemoryState::new(Arc::clone(&held) as _));
            let resilience = Resilience::new(state, settings, Arc::clone(&observer) as _);
            Arc::new(resilience.kept_in(Arc::clone(&store) as _, Arc::clone(&held) as _))
        });
        let options = KernelOptions {
            bounds: props.bounds,
            checkpoints: props.checkpoints.map(|store| Checkpoints::new(store, CheckpointRetention::default())),
            insights: props.insights,
            resilience,
            jobs: Some(Arc::clone(&jobs) as _),
            ..KernelOptions::default()
        };
        let parts = KernelParts {
            registry,
            identity,
            access,
            mint: TokenIssuer::new(key, TokenMinter::default(), props.drawer),
            recorder: slots,
            books,
            executors: vec![Arc::clone(&tool) as _, Arc::new(Boxed(Arc::clone(&tool)))],
            isolation: props.isolation,
            envelope: props.envelope,
            offerings: props.offerings.unwrap_or_else(|| Arc::new(NothingOffered)),
            clock,
            entropy: Arc::clone(&entropy) as _,
            observer: Arc::clone(&observer) as _,
            redactor: Arc::new(Redacting(RedactionEngine::new(&RedactionAdditions::default()).unwrap())),
        };
        let kernel = Kernel::new(parts, options);
        Self { kernel, clock: held, tool, audit, observer, recorder, store, entropy, jobs }
    }

    pub async fn publish(&self, change: Value) {
        self.kernel.publish(admin(), manifest(change)).await.unwrap();
    }

    pub async fn token(&self, tools: Value, scopes: Value, ttl_seconds: u64) -> String {
        let request = MintRequest { ttl_seconds, ..mint_request(json!({ "tools": tools, "scopes": scopes })) };
        self.kernel.mint_token(admin(), &request).await.unwrap().token
    }

    /// A token with what `wish` says and otherwise what [`mint_request`] does.
    pub async fn mint(&self, wish: Value) -> String {
        self.kernel.mint_token(admin(), &mint_request(wish)).await.unwrap().token
    }

    pub async fn call_as(&self, secret: Option<&str>, request: Value) -> Result<InvokeResponse, Box<FailedCall>> {
        self.kernel.invoke(arrival(secret, request)).await.map(kernel::phases::Returned::into_response)
    }

    /// The code with which a call of `tool` by the holder of `token` is refused; `None` if it is not.
    pub async fn code(&self, token: &str, tool: &str) -> Option<ErrorCode> {
        let call = json!({ "tool_id": tool, "parameters": { "name": "Ada" } });
        self.call_as(Some(token), call).await.err().map(|failed| failed.refusal.code)
    }

    pub fn step(&self, seconds: i64) {
        self.clock.now.fetch_add(seconds * 1000, Ordering::SeqCst);
    }

    pub async fn call(&self, request: Value) -> Result<InvokeResponse, Box<FailedCall>> {
        self.call_as(Some(ADMIN), request).await
    }

    pub async fn refusal(&self, request: Value) -> ErrorCode {
        self.call(request).await.unwrap_err().refusal.code
    }

    pub fn runs(&self) -> usize {
        self.tool.calls.lock().unwrap().len()
    }

    /// Ends the recorder and gives what was recorded.
    pub async fn all_records(self) -> Vec<AuditRecord> {
        self.recorder.close().await;
        self.audit.records.lock().unwrap().clone()
    }

    /// Ends the recorder and gives what was recorded about calls.
    pub async fn records(self) -> Vec<AuditRecord> {
        let records = self.all_records().await;
        records
            .into_iter()
            .filter(|r| matches!(r.action, AuditAction::InvocationFinished | AuditAction::InvocationStarted))
            .collect()
    }
}

/// A call by whoever holds this token, from nowhere and with nobody listening.
pub fn arrival(secret: Option<&str>, request: Value) -> IncomingCall<'_> {
    let request: InvokeRequest = serde_json::from_value(request).unwrap();
    IncomingCall {
        credential: secret.map(BearerSecret),
        source: None,
        request,
        trace: None,
        parent_left: None,
        audience: None,
        cancellation: CancellationToken::new(),
    }
}

pub fn admin() -> Actor<'static> {
    as_holder(ADMIN)
}

/// Whoever holds this token.
pub fn as_holder(token: &str) -> Actor<'_> {
    let trace_id = contract::ids::TraceId::from_bytes([1; 16]);
    Actor { credential: Some(BearerSecret(token)), source: None, trace_id }
}

/// A wish for a token: an agent of `acme` that may call everything for a minute, unless `change` says otherwise.
pub fn mint_request(change: Value) -> MintRequest {
    fn member<T: serde::de::DeserializeOwned>(change: &Value, name: &str) -> Option<T> {
        change.get(name).map(|value| serde_json::from_value(value.clone()).unwrap())
    }
    MintRequest {
        sub: member(&change, "sub").unwrap_or_else(|| "agent-1".parse().unwrap()),
        tenant: member(&change, "tenant").unwrap_or_else(|| "acme".parse().unwrap()),
        roles: member(&change, "roles").unwrap_or_else(|| vec![policy::Role::Agent]),
        tools: member(&change, "tools").unwrap_or_else(|| serde_json::from_value(json!([{ "tool_id": "*" }])).unwrap()),
        scopes: member(&change, "scopes").unwrap_or_default(),
        user_did: member(&change, "user_did"),
        session_id: Some("s-1".into()),
        ttl_seconds: member(&change, "ttl_seconds").unwrap_or(60),
        limits: member(&change, "limits").unwrap_or_default(),
        budget: member(&change, "budget"),
        act: None,
    }
}

pub fn manifest(change: Value) -> Value {
    let mut manifest = json!({
        "tool_id": "greet", "version": "1.0.0", "name": "Greeter", "description": "Greets somebody by name.",
        "provider": "Test", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": {
            "type": "object",
            "properties": { "name": { "type": "string" }, "times": { "type": "integer", "default": 1, "minimum": 1 } },
            "required": ["name"],
        },
        "result_schema": { "type": "object", "properties": { "text": { "type": "string" } }, "required": ["text"] },
        "execution": { "type": "builtin", "handler": "greet" },
    });
    for (member, value) in change.as_object().unwrap() {
        if value.is_null() {
            manifest.as_object_mut().unwrap().remove(member);
        } else {
            manifest[member] = value.clone();
        }
    }
    manifest
}

pub fn greet() -> Value {
    json!({ "tool_id": "greet", "parameters": { "name": "Ada" } })
}

/// The real engine, as `gantry serve` puts it behind the port.
#[derive(Debug)]
struct Redacting(RedactionEngine);

/// The marks of a schema, as the engine asks for them.
struct Described<'m>(PartMarks<'m>);

impl ValueDescription for Described<'_> {
    fn is_sensitive(&self) -> Option<bool> {
        match self.0.says() {
            Sensitivity::Unsaid => None,
            Sensitivity::Open => Some(false),
            Sensitivity::Sensitive => Some(true),
        }
    }

    fn part(&self, part: ValuePart<'_>) -> Option<Box<dyn ValueDescription + '_>> {
        let part = match part {
            ValuePart::Member(name) => self.0.member(name),
            ValuePart::Item(index) => self.0.item(index),
            ValuePart::Content => self.0.content(),
            ValuePart::Names => self.0.names(),
        };
        (!part.is_silent()).then(|| Box::new(Self(part)) as _)
    }
}

impl Redactor for Redacting {
    fn value(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        let described = marks.cloned().map(Described);
        self.0.value(value, described.as_ref().map(|it| it as _)).map_err(|error| RedactError(Box::new(error)))
    }

    fn fields(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        let described = marks.cloned().map(Described);
        self.0.fields(value, described.as_ref().map(|it| it as _)).map_err(|error| RedactError(Box::new(error)))
    }

    fn text<'a>(&self, text: &'a str) -> std::borrow::Cow<'a, str> {
        self.0.text(text)
    }

    fn members(&self, value: &mut Value, names: &[Box<str>]) {
        self.0.members(value, names);
    }
}
