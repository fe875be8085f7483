//! A whole kernel on real files, for tests of what feeds it.

use std::path::Path;
use std::sync::Arc;

use kernel::registry::Registry;
use kernel::{
    AccessControl, AccessParts, AccessSettings, Identity, IdentitySettings, IsolationPolicy, Kernel, KernelOptions,
    KernelParts, LedgerService, Recorder, ResourceEnvelope, TokenIssuer,
};
use policy::{SigningKey, TokenMinter};
use ports::executor::{Executor, ExecutorError, ToolCall, ToolOutput, no_executor};
use ports::offerings::NothingOffered;
use shared_state::MemoryBus;
use store::sqlite::{SqliteOptions, SqliteStore};
use telemetry::Metrics;

use crate::data_dir::DataDir;
use crate::key_vault::DataDirVault;
use crate::machine::{OsEntropy, SystemClock};

/// The bootstrap secret of such a kernel.
pub(crate) const ADMIN: &str = "admin";

/// What process tools are bound to: a tool that nothing could run would not be admitted.
#[derive(Debug)]
struct Idle;

#[async_trait::async_trait]
impl Executor for Idle {
    fn kind(&self) -> &'static str {
        "process"
    }
    async fn execute(&self, _: ToolCall) -> Result<ToolOutput, ExecutorError> {
        Err(ExecutorError::not_sent(no_executor("process")))
    }
}

/// Opens one on a data directory.
pub(crate) async fn kernel(data: &Path) -> Arc<Kernel> {
    let store = Arc::new(SqliteStore::open(&data.join("gantry.db"), &SqliteOptions::default()).unwrap());
    let (clock, metrics) = (Arc::new(SystemClock::start()), Arc::new(Metrics::new()));
    let entropy = Arc::new(OsEntropy::open().unwrap());
    let options = audit::LogOptions::new(data.join("audit.key"), clock.clone(), entropy.clone());
    let log = Arc::new(audit::FileLog::open(&data.join("audit"), &options).unwrap());
    let (recorder, _) = Recorder::start(log, clock.clone(), metrics.clone());
    let key = SigningKey::from_seed(&[1; 32]);
    let settings = IdentitySettings::local(clock.clone());
    let access = AccessControl::open(AccessParts {
        store: store.clone(),
        bus: Arc::new(MemoryBus::default()),
        engine: None,
        did_resolver: None,
        clock: clock.clone(),
        observer: metrics.clone(),
        settings: AccessSettings::default(),
    });
    let parts = KernelParts {
        books: LedgerService::new(store.clone(), clock.clone(), &*entropy, metrics.clone()),
        registry: Registry::open(store.clone(), store, clock.clone(), metrics.clone()).await.unwrap(),
        identity: Identity::new(ADMIN, vec![key.verifying_key()], settings, metrics.clone()).unwrap(),
        access: access.await.unwrap(),
        mint: TokenIssuer::new(key, TokenMinter::default(), Arc::new(DataDirVault::new(DataDir::at(data)))),
        recorder,
        executors: vec![Arc::new(Idle)],
        isolation: IsolationPolicy::default(),
        envelope: ResourceEnvelope::default(),
        offerings: Arc::new(NothingOffered),
        clock,
        entropy,
        observer: metrics,
        redactor: Arc::new(ports::redactor::WithholdingRedactor),
    };
    Arc::new(Kernel::new(parts, KernelOptions::default()))
}
