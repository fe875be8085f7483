//! The stage: a whole kernel over the in-memory store, servers that say what the test wants, an inspector that finds one word.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{TenantId, TraceId};
use kernel::registry::{ListFilter, Registry};
use kernel::{
    AccessControl, AccessParts, AccessSettings, Identity, IdentitySettings, IsolationPolicy, Kernel, KernelOptions,
    KernelParts, LedgerService, Recorder, RecorderHandle, ResourceEnvelope, TokenIssuer, VisibilityTier,
    WhyUnavailable,
};
use policy::{BearerSecret, SigningKey, TokenMinter};
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditError, AuditRecord, AuditSink};
use ports::change_bus::ChangeBus;
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::key_vault::{KeyVault, KeyVaultError};
use ports::observer::NoObserver;
use ports::server_administration::{PinReport, ServerAdministration, ServerDecision};
use sandbox::egress::{EgressBounds, HostResolver, SystemResolver};
use serde_json::{Value, json};
use shared_state::MemoryBus;
use store::memory::MemoryStore;

use crate::admission::{ServerAdmission, TenantLists};

use crate::catalogue::{
    CatalogueParts, ChangesSettled, DefinitionInspection, DefinitionInspector, IntakeReport, ServerCatalogue,
    ServerSupervision, ToolSource, WantedServer,
};

pub(super) const ADMIN: &str = "the-admin-secret";

#[derive(Debug, Default)]
pub(super) struct HeldClock(pub(super) AtomicI64);

impl Clock for HeldClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_800_000_000_000 + self.0.fetch_add(1, Ordering::SeqCst))
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    /// Pauses are over at once. What bounds somebody's work is not: that work is done on threads of this machine.
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        if duration < Duration::from_secs(30) {
            Box::pin(tokio::task::yield_now())
        } else {
            Box::pin(std::future::pending())
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct CountingEntropy(pub(super) AtomicU64);

impl Entropy for CountingEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        bytes.iter_mut().zip(n.to_be_bytes().into_iter().cycle()).for_each(|(byte, source)| *byte = source);
    }
}

#[derive(Debug, Default)]
pub(super) struct Paper(pub(super) Mutex<Vec<AuditRecord>>);

#[async_trait]
impl AuditSink for Paper {
    async fn write(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        self.0.lock().unwrap().extend_from_slice(&records);
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Drawer;

#[async_trait]
impl KeyVault for Drawer {
    async fn replace(&self, _: &SigningKey) -> Result<(), KeyVaultError> {
        Ok(())
    }
}

/// Servers as the test wants them.
#[derive(Debug, Default)]
pub(super) struct Puppets {
    pub(super) lists: Mutex<BTreeMap<String, Vec<Value>>>,
    pub(super) applied: Mutex<Vec<String>>,
    pub(super) looks: AtomicUsize,
    pub(super) stopped: AtomicBool,
}

#[async_trait]
impl ToolSource for Puppets {
    async fn list_tools(&self, _: &TenantId, server: &str) -> Result<Vec<Value>, Refusal> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let list = self.lists.lock().unwrap().get(server).cloned();
        list.ok_or_else(|| Refusal::new(ErrorCode::E3502, "the server does not start"))
    }
}

#[async_trait]
impl ServerSupervision for Puppets {
    fn apply(&self, servers: Vec<WantedServer>) -> ChangesSettled {
        *self.applied.lock().unwrap() = servers.into_iter().map(|server| server.name).collect();
        Box::pin(std::future::ready(()))
    }
    fn status(&self, _: &TenantId, _: &str) -> Value {
        json!({ "state": if self.stopped.load(Ordering::SeqCst) { "stopped" } else { "ready" } })
    }
    async fn restart(&self, _: &TenantId, _: &str) -> Result<(), Refusal> {
        Ok(())
    }
    async fn log_tail(&self, _: &TenantId, _: &str, lines: usize) -> Result<Vec<String>, Refusal> {
        Ok(vec!["a line".to_owned(); lines.min(3)])
    }
}

/// Tenants have no list.
pub(super) fn admission() -> ServerAdmission {
    let resolver: Arc<dyn HostResolver> = Arc::new(SystemResolver);
    ServerAdmission::new(&EgressBounds::default(), &[], TenantLists::default(), &resolver)
}

/// Finds the word "evil".
#[derive(Debug, Default)]
pub(super) struct Sniffer {
    pub(super) blocks: AtomicBool,
    /// Whom the next look tells that it has come this far, and whom it waits for then.
    pub(super) pause: Mutex<Option<(std::sync::mpsc::Sender<()>, std::sync::mpsc::Receiver<()>)>>,
}

impl DefinitionInspector for Sniffer {
    fn inspect(&self, definitions: &[Value], _: &[String], _: &[String]) -> Vec<DefinitionInspection> {
        if let Some((here, go_on)) = self.pause.lock().unwrap().take() {
            here.send(()).unwrap();
            go_on.recv().unwrap();
        }
        let look = |definition: &Value| {
            let found = definition.to_string().contains("evil");
            let findings = if found { vec![json!({ "kind": "instruction_to_model" })] } else { Vec::new() };
            DefinitionInspection { findings, blocks: found && self.blocks.load(Ordering::SeqCst) }
        };
        definitions.iter().map(look).collect()
    }
}

pub(super) struct Stage {
    pub(super) kernel: Arc<Kernel>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) puppets: Arc<Puppets>,
    pub(super) sniffer: Arc<Sniffer>,
    pub(super) paper: Arc<Paper>,
    pub(super) catalogue: Arc<ServerCatalogue>,
    _recorder: RecorderHandle,
}

pub(super) fn admin() -> Actor<'static> {
    Actor { credential: Some(BearerSecret(ADMIN)), source: None, trace_id: TraceId::from_bytes([7; 16]) }
}

pub(super) fn home() -> TenantId {
    TenantId::home()
}

pub(super) fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": {
        "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] } })
}

pub(super) fn spec() -> Value {
    json!({ "reach": { "type": "stdio", "command": "node", "args": ["server.js"] } })
}

pub(super) async fn kernel(store: &Arc<MemoryStore>, paper: &Arc<Paper>) -> (Arc<Kernel>, RecorderHandle) {
    let (clock, observer) = (Arc::new(HeldClock::default()), Arc::new(NoObserver));
    let (recorder, handle) = Recorder::start(paper.clone(), clock.clone(), observer.clone());
    let key = SigningKey::from_seed(&[1; 32]);
    let access = AccessControl::open(AccessParts {
        store: store.clone(),
        bus: Arc::new(MemoryBus::default()),
        engine: None,
        did_resolver: None,
        clock: clock.clone(),
        observer: observer.clone(),
        settings: AccessSettings::default(),
    });
    let settings = IdentitySettings::local(clock.clone());
    let books = LedgerService::new(store.clone(), clock.clone(), &CountingEntropy::default(), observer.clone());
    let parts = KernelParts {
        registry: Registry::open(store.clone(), store.clone(), clock.clone(), observer.clone()).await.unwrap(),
        identity: Identity::new(ADMIN, vec![key.verifying_key()], settings, observer.clone()).unwrap(),
        access: access.await.unwrap(),
        mint: TokenIssuer::new(key, TokenMinter::default(), Arc::new(Drawer)),
        recorder,
        books,
        executors: Vec::new(),
        isolation: IsolationPolicy::default(),
        envelope: ResourceEnvelope::default(),
        offerings: Arc::new(ports::offerings::NothingOffered),
        clock,
        entropy: Arc::new(CountingEntropy::default()),
        observer,
        redactor: Arc::new(ports::redactor::WithholdingRedactor),
    };
    (Arc::new(Kernel::new(parts, KernelOptions::default())), handle)
}

impl Stage {
    pub(super) async fn new() -> Self {
        Self::on(Arc::default(), Arc::default(), None).await
    }

    pub(super) async fn on(store: Arc<MemoryStore>, puppets: Arc<Puppets>, bus: Option<Arc<dyn ChangeBus>>) -> Self {
        let paper = Arc::new(Paper::default());
        let (kernel, recorder) = kernel(&store, &paper).await;
        let sniffer = Arc::new(Sniffer::default());
        let parts = CatalogueParts {
            kernel: Arc::clone(&kernel),
            store: store.clone(),
            supervision: puppets.clone(),
            inspector: sniffer.clone(),
            admission: Arc::new(admission()),
            bus,
            reread: Duration::from_secs(30),
        };
        let catalogue = ServerCatalogue::open(parts).await.unwrap();
        Self { kernel, store, puppets, sniffer, paper, catalogue, _recorder: recorder }
    }

    /// The process ends and another begins on the same store.
    pub(super) async fn restarted(self) -> Self {
        Self::on(self.store, self.puppets, None).await
    }

    pub(super) fn says(&self, server: &str, tools: Vec<Value>) {
        self.puppets.lists.lock().unwrap().insert(server.to_owned(), tools);
    }

    pub(super) async fn with_files(tools: Vec<Value>) -> Self {
        let stage = Self::new().await;
        stage.says("files", tools);
        stage.catalogue.put_server(admin(), None, "files", spec(), true).await.unwrap();
        stage
    }

    pub(super) async fn look(&self) -> IntakeReport {
        self.catalogue.refresh(&home(), "files").await.unwrap()
    }

    pub(super) async fn pin(&self, tool: &str) -> PinReport {
        let pins = self.catalogue.server_tools(admin(), None, "files").await.unwrap();
        pins.into_iter().find(|report| report.pin.upstream_tool == tool).unwrap()
    }

    pub(super) async fn decide(&self, tool: &str, decision: ServerDecision) -> Result<PinReport, Refusal> {
        self.catalogue.decide(admin(), None, "files", tool, decision).await
    }

    pub(super) fn why(&self, tool: &str) -> Option<WhyUnavailable> {
        self.kernel.availability().why_not(&home(), &tool.parse().unwrap())
    }

    /// What somebody who may use everything is shown: descriptions by tool.
    pub(super) async fn visible(&self) -> Vec<(String, String, String)> {
        let filter = ListFilter { page: 1, page_size: 200, ..ListFilter::default() };
        let page = self.kernel.list_tools(admin(), &filter, Some(VisibilityTier::Agent)).await.unwrap();
        let line = |listed: &kernel::registry::ListingEntry| {
            let manifest = &listed.current.manifest;
            (listed.tool.id.to_string(), listed.current.version.to_string(), manifest.description.clone())
        };
        page.tools.iter().map(line).collect()
    }

    /// What a list has for whoever sees everything, and what a search finds.
    pub(super) async fn listed(&self) -> Vec<String> {
        let filter = ListFilter { page: 1, page_size: 200, ..ListFilter::default() };
        let mut all = Vec::new();
        for tier in [None, Some(VisibilityTier::Catalogue), Some(VisibilityTier::Tenant), Some(VisibilityTier::Agent)] {
            all.extend(self.kernel.list_tools(admin(), &filter, tier).await.unwrap().tools);
        }
        all.extend(self.kernel.search_tools(admin(), "reads a file", 10).await.unwrap());
        all.iter().map(|listed| listed.tool.id.to_string()).collect()
    }

    pub(super) async fn notes(&self, action: AuditAction, count: usize) -> Vec<String> {
        // Records are written by a task of their own; wait for as many as there must be.
        for _ in 0..10_000 {
            let records = self.paper.0.lock().unwrap().clone();
            let notes: Vec<String> =
                records.into_iter().filter(|r| r.action == action).filter_map(|record| record.note).collect();
            if notes.len() >= count {
                return notes;
            }
            tokio::task::yield_now().await;
        }
        panic!("fewer than {count} records of {action:?}");
    }
}

pub(super) fn line(tool: &str, version: &str, description: &str) -> (String, String, String) {
    (tool.to_owned(), version.to_owned(), description.to_owned())
}
