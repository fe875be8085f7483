//! Assembly of a server, bottom up: which adapter stands behind which port. Everything is made whole, once, from what stands
//! above it in this list; nothing is filled in later.
//!
//! ```text
//! build      data directory ─▶ store ─▶ keys ─▶ metrics (and traces)
//! jobs       queue ─▶ webhooks, call-outs, inbound jobs                   (jobs.rs, callbacks.rs)
//! open       audit log ─▶ sinks ─▶ recorder ─▶ registry ─▶ executors ─▶ shared state ─▶ access ─▶ insights ─▶ kernel
//! jobs       handlers, workers                                            (jobs.rs)
//! door       everything that is asked through it                          (serve.rs, alone.rs)
//! ```
//!
//! Not here: in which order a start goes through them, and how it ends (`serve.rs`).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use contract::error::ErrorCode;
use contract::ids::TenantId;
use executors::{
    BuiltinExecutor, ModelClient, OciExecutor, ProcessExecutor, ProcessIsolation, RuntimePrograms, SandboxProvider,
    ToolConfinement, ToolDirectories, WasmConfig, WasmExecutor,
};
use insights::InsightQueries;
use jobs::webhooks::Webhooks;
use kernel::registry::Registry;
use kernel::resilience::Resilience;
use kernel::{
    AccessControl, AccessParts, AccessSettings, CheckpointRetention, Checkpoints, ExternalIssuer, Identity,
    IdentitySettings, Kernel, KernelOptions, KernelParts, LedgerService, Recorder, ResourceEnvelope, TokenIssuer,
};
use policy::{BearerSecret, SigningKey, VerifyingKey};
use ports::actor::Actor;
use ports::change_bus::ChangeBus;
use ports::clock::Clock;
use ports::entropy::{Entropy, new_trace_id};
use ports::executor::Executor;
use ports::key_vault::KeyVault;
use ports::observer::Observer;
use ports::redactor::Redactor;
use ports::registry_store::RegistryStore;
use ports::shared_state::SharedState;
use ports::upstream_store::UpstreamStore;
use ports::webhook_store::WebhookStore;
use ports::workflow_runs::WorkflowRuns;
use sandbox::egress::SystemResolver;
use sandbox::{LauncherCommand, Sandbox};
use server::{MetricsText, SessionKey, TlsState};
use shared_state::MemoryBus;
use telemetry::{Metrics, TraceRedaction, TracerHandle};
use tokio::task::JoinHandle;
use upstreams::{UpstreamExecutor, UpstreamServers};

use super::audit_sinks::AuditSinks;
use super::installation::{self, Installation};
use super::jobs::SealedQueue;
use crate::audit_log::{self, LogKeeping};
use crate::config::GantryConfig;
use crate::context::CommandContext;
use crate::data_dir::DataDir;
use crate::draft_registry::DraftRegistry;
use crate::failure::CommandFailure;
use crate::key_vault::{self, DataDirVault};
use crate::machine::{OsEntropy, SystemClock};
use crate::open_store::OpenStore;
use crate::outside::OutsideAuthorities;
use crate::policy_files::follower::PolicyFollower;
use crate::reach::{masks, reach};
use crate::redactor::ConfiguredRedactor;
use crate::sealed_checkpoints::SealedCheckpoints;
use crate::sealed_deliveries::SealedDeliveries;
use crate::sealed_jobs::SealedJobs;
use crate::sealed_runs::SealedRuns;
use crate::sealed_servers::SealedServers;
use crate::secrets_folder::SecretsFolder;
use crate::store_keys::StoreKeys;
use crate::store_seal::StoreSeals;
use crate::tool_folders::{self, loader::FolderLoader};

/// What the kernel is built from.
pub(super) struct KernelAssembly {
    pub(super) store: Arc<OpenStore>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) clock: Arc<SystemClock>,
    entropy: Arc<OsEntropy>,
    admin_token: String,
    /// Of the user this server runs as.
    home: Option<PathBuf>,
    data_dir: DataDir,
    /// Where the signing key is read again, because it is not `Clone`.
    signing_pem: String,
    /// The public halves of the signing key and of those it followed, the present one first.
    own_keys: Vec<VerifyingKey>,
    audit_dir: PathBuf,
    redacting: ConfiguredRedactor,
    /// What this instance has in common with the others on its store.
    installation: Option<Installation>,
    store_keys: StoreKeys,
    versions: VersionKind,
}

/// What versions of tools are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VersionKind {
    /// Their content never changes.
    Published,
    /// Their content can be replaced: for the development of a tool.
    Draft,
}

/// The kernel, and what works for it.
pub(super) struct RunningKernel {
    pub(super) kernel: Arc<Kernel>,
    /// What is learned from its calls.
    pub(super) insights: Arc<InsightQueries>,
    pub(super) recorder: LogKeeping,
    /// Of the shared catalogue first, then of each tenant that may run tools of its own.
    pub(super) loaders: Vec<FolderLoader>,
    /// Whose warm processes have to be kept in order.
    pub(super) processes: Arc<ProcessExecutor>,
    /// There if policies come from files.
    pub(super) policies: Option<PolicyFollower>,
    /// The MCP servers behind this one.
    pub(super) upstreams: Arc<UpstreamServers>,
    /// What carries the audit log elsewhere.
    pub(super) sinks: AuditSinks,
    /// What replicas share.
    pub(super) shared: Arc<dyn SharedState>,
    /// What tells of changes that others make in the same store; none if there can be no others.
    pub(super) changes: Option<Arc<dyn ChangeBus>>,
}

/// What takes out of everything that is written what must not be seen. It is there before the log is.
pub(super) fn redacting(context: &CommandContext, config: &GantryConfig) -> Result<ConfiguredRedactor, CommandFailure> {
    let secrets = SecretsFolder::new(config.secrets.dir(context.data_dir().path()));
    let redacting = ConfiguredRedactor::new(&config.redaction, Arc::new(secrets));
    redacting.map_err(|error| CommandFailure::new(error.to_string()).hint("mend `[[redaction.rules]]`"))
}

/// Opens everything on disk, or says what is wrong. Makes keys at the first start. Answers also what sends traces to the
/// collector, if one is configured.
pub(super) async fn build(
    context: &CommandContext,
    config: &GantryConfig,
    redacting: ConfiguredRedactor,
    versions: VersionKind,
) -> Result<(KernelAssembly, Option<TracerHandle>), CommandFailure> {
    let data_dir = context.data_dir();
    data_dir.create()?;
    let entropy = Arc::new(OsEntropy::open()?);
    let store = OpenStore::open(&config.store, data_dir.path()).await?;
    let shared = store.installation();
    let any_entropy = Arc::clone(&entropy) as Arc<dyn Entropy>;
    let store_keys = StoreKeys::of(&config.store, shared.as_deref(), &data_dir, &any_entropy).await?;
    let installation = installation::agree(shared, store_keys.key.as_ref(), &data_dir, &entropy).await?;
    let admin = data_dir.admin_token_or_new(&*entropy)?;
    let key = data_dir.signing_key_or_new(&*entropy)?;
    for warning in [admin.warning, key.warning].into_iter().flatten() {
        tracing::warn!("{warning}");
    }
    let own_keys = match &installation {
        Some(installation) => installation.own_keys(),
        None => key_vault::own_keys(&data_dir, &key.value)?,
    };
    let clock = Arc::new(SystemClock::start());
    let (metrics, traces) = measured(config, &redacting, &clock)?;
    let assembly = KernelAssembly {
        store: Arc::new(store),
        metrics: Arc::new(metrics),
        clock,
        entropy,
        admin_token: admin.value,
        home: context.home(),
        signing_pem: key.value.to_pem().map_err(|error| CommandFailure::new(error.to_string()))?,
        own_keys,
        audit_dir: config.audit.dir(data_dir.path()),
        data_dir,
        redacting,
        installation,
        store_keys,
        versions,
    };
    Ok((assembly, traces))
}

/// What counts, and sends traces if a collector is configured.
fn measured(
    config: &GantryConfig,
    redacting: &ConfiguredRedactor,
    clock: &Arc<SystemClock>,
) -> Result<(Metrics, Option<TracerHandle>), CommandFailure> {
    let Some(traces) = &config.traces else { return Ok((Metrics::new(), None)) };
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let started = Metrics::with_traces(traces, TraceRedaction::new(redacting.of_all()), clock);
    started
        .map(|(metrics, handle)| (metrics, Some(handle)))
        .map_err(|error| CommandFailure::new(error.to_string()).hint("mend `[traces]`"))
}

impl KernelAssembly {
    fn registry(&self) -> Arc<dyn RegistryStore> {
        let store = Arc::clone(&self.store.registry);
        match self.versions {
            VersionKind::Published => store,
            VersionKind::Draft => Arc::new(DraftRegistry::before(store)),
        }
    }

    /// The secret of whoever administers this installation.
    pub(super) fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// Takes over the keys that other instances make. None if there can be no others.
    pub(super) fn follow_keys(&self, kernel: &Arc<Kernel>) -> Option<JoinHandle<()>> {
        Some(self.installation.as_ref()?.follow(Arc::clone(kernel), Arc::clone(&self.clock) as Arc<dyn Clock>))
    }

    pub(super) fn data_dir(&self) -> &DataDir {
        &self.data_dir
    }

    pub(super) fn entropy(&self) -> Arc<dyn Entropy> {
        Arc::clone(&self.entropy) as _
    }

    /// The queue, with seals on what goes into it.
    pub(super) fn jobs(&self) -> Result<Arc<SealedJobs>, CommandFailure> {
        let (seal, former) = self.store_keys.seals(&self.entropy())?;
        Ok(Arc::new(SealedJobs::new(Arc::clone(&self.store.jobs), seal, former)))
    }

    /// What seals the other contents of the store, for one user of it.
    pub(super) fn seals(&self) -> Result<StoreSeals, CommandFailure> {
        self.store_keys.seals(&self.entropy()).map(StoreSeals::new)
    }

    /// Webhooks, with seals on what they are told.
    pub(super) fn webhooks(&self) -> Result<Arc<dyn WebhookStore>, CommandFailure> {
        Ok(Arc::new(SealedDeliveries::new(Arc::clone(&self.store.webhooks), self.seals()?)))
    }

    /// Runs of workflows, with seals on what goes in and comes out.
    pub(super) fn runs(&self) -> Result<Arc<dyn WorkflowRuns>, CommandFailure> {
        Ok(Arc::new(SealedRuns::new(Arc::clone(&self.store.runs), self.seals()?)))
    }

    /// MCP servers, with seals on how they are reached.
    pub(super) fn servers(&self) -> Result<Arc<dyn UpstreamStore>, CommandFailure> {
        Ok(Arc::new(SealedServers::new(Arc::clone(&self.store.upstreams), self.seals()?)))
    }

    pub(super) fn redactor(&self) -> Arc<dyn Redactor> {
        Arc::new(self.redacting.clone())
    }

    /// Builds the kernel on it, and what loads tools and policies into the kernel.
    pub(super) async fn open(
        &self,
        config: &GantryConfig,
        queue: &SealedQueue,
        webhooks: Arc<Webhooks>,
    ) -> Result<RunningKernel, CommandFailure> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let observer = watching(Arc::clone(&self.metrics) as Arc<dyn Observer>);
        let outside = OutsideAuthorities::from_config(config, &clock)?;

        let log = self.audit_log(config)?;
        let sinks = super::audit_sinks::start(self, config, &self.audit_dir, &log).await?;
        let (recorder, writer) = self.recorder(config, &log, &observer);

        let registry =
            Registry::open(self.registry(), Arc::clone(&self.store.search), Arc::clone(&clock), Arc::clone(&observer))
                .await
                .map_err(|error| unreadable(error.to_string()))?;
        let tools = self.tool_executors(config)?;

        let shared = super::shared_state::open(&config.shared_state, &clock, &*self.entropy, &observer).await?;
        let changes = self.store.changes().await?;
        let bus = shared.bus.or_else(|| changes.clone()).unwrap_or_else(|| Arc::new(MemoryBus::default()));
        let OutsideAuthorities { issuer, did_resolver, engine } = outside;
        let access = AccessControl::open(AccessParts {
            store: Arc::clone(&self.store.access),
            bus,
            engine,
            did_resolver,
            clock: Arc::clone(&clock),
            observer: Arc::clone(&observer),
            settings: access_settings(config),
        })
        .await
        .map_err(|error| unreadable(error.to_string()))?;

        let insights = super::call_insights::open(self, config, webhooks).await?;
        let options = KernelOptions {
            bounds: config.server.limits.call_bounds(config.sandbox.sandboxes),
            checkpoints: Some(self.checkpoints()?),
            insights: Some(Arc::clone(&insights) as _),
            audit_log: Some(log),
            archive: self.store.archive(),
            resilience: Some(self.resilience(config, &shared.state, &observer)),
            jobs: Some(Arc::clone(queue.queue.store())),
        };
        let parts = KernelParts {
            registry,
            identity: self.identity(config, issuer)?,
            access,
            mint: self.mint(config)?,
            recorder,
            books: LedgerService::new(
                Arc::clone(&self.store.ledger),
                Arc::clone(&clock),
                &*self.entropy,
                Arc::clone(&observer),
            ),
            executors: tools.all(config, &clock)?,
            isolation: config.isolation.policy(),
            envelope: ResourceEnvelope {
                concurrent_calls_per_agent: config.limits.concurrent_calls_per_agent,
                result_bytes: config.limits.result_bytes_max,
                result_bytes_ceiling: config.limits.result_bytes_ceiling,
                ..config.sandbox.envelope
            },
            offerings: Arc::clone(&tools.upstreams) as _,
            clock,
            entropy: self.entropy(),
            observer,
            redactor: self.redactor(),
        };
        let kernel = Arc::new(Kernel::new(parts, options));
        let insights = Arc::new(InsightQueries::new(Arc::clone(&kernel), insights));

        let loaders = self.loaders(config, &kernel, &tools)?;
        let policies = config.policy.file.clone().map(|path| PolicyFollower {
            kernel: Arc::clone(&kernel),
            admin_token: self.admin_token.clone(),
            path,
            last: None,
        });
        let ToolExecutors { processes, upstreams, .. } = tools;
        let shared = shared.state;
        Ok(RunningKernel {
            kernel,
            insights,
            recorder: writer,
            loaders,
            processes,
            policies,
            upstreams,
            sinks,
            shared,
            changes,
        })
    }

    fn audit_log(&self, config: &GantryConfig) -> Result<Arc<audit::FileLog>, CommandFailure> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let options = audit_log::served_options(config, self.data_dir.path(), clock, self.entropy())?;
        let log = audit::FileLog::open(&self.audit_dir, &options);
        log.map(Arc::new).map_err(|error| CommandFailure::new(error.to_string()))
    }

    /// What calls are recorded with, and what writes it down.
    fn recorder(
        &self,
        config: &GantryConfig,
        log: &Arc<audit::FileLog>,
        observer: &Arc<dyn Observer>,
    ) -> (Recorder, LogKeeping) {
        // Calls hold their room from beginning to end: as many as the doors and the workers let in have some.
        let calls = config.server.limits.calls_let_in();
        let calls = calls.saturating_add(config.jobs.concurrency).saturating_add(config.jobs.promoted_max);
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let (recorder, handle) = Recorder::start_for(Arc::clone(log) as _, clock, Arc::clone(observer), calls);
        (recorder, LogKeeping::begin(handle, Arc::clone(log), Arc::clone(&self.metrics) as Arc<dyn Observer>))
    }

    /// What runs tools on this machine and behind it.
    fn tool_executors(&self, config: &GantryConfig) -> Result<ToolExecutors, CommandFailure> {
        let clock = Arc::clone(&self.clock) as Arc<dyn Clock>;
        let directories = ToolDirectories::default();
        let confinement = self.confinement(config);
        let sandbox = Sandbox::new(LauncherCommand::own_executable(crate::LAUNCHER_ARGUMENT), config.sandbox.sandboxes);
        let walls = SandboxProvider::new(sandbox, RuntimePrograms::default());
        let isolation = if config.process.unsandboxed {
            ProcessIsolation::Unsandboxed
        } else {
            ProcessIsolation::Sandboxed(walls.clone())
        };
        let processes =
            Arc::new(ProcessExecutor::new(isolation, directories.clone(), confinement.clone(), Arc::clone(&clock)));
        let images = self.data_dir.path().join("images");
        let containers = Arc::new(OciExecutor::new(walls, directories.clone(), confinement.clone(), images));
        let wasm = self.wasm(directories.clone(), confinement.clone());
        let upstreams = super::upstreams::keep(self, config, confinement, &clock)?;
        Ok(ToolExecutors { directories, processes, containers, wasm, upstreams })
    }

    fn checkpoints(&self) -> Result<Checkpoints, CommandFailure> {
        let (seal, former) = self.store_keys.seals(&self.entropy())?;
        let store = Arc::new(SealedCheckpoints::new(Arc::clone(&self.store.checkpoints), seal, former));
        Ok(Checkpoints::new(store, CheckpointRetention::default()).shared(self.store.is_shared()))
    }

    fn resilience(
        &self,
        config: &GantryConfig,
        shared: &Arc<dyn SharedState>,
        observer: &Arc<dyn Observer>,
    ) -> Arc<Resilience> {
        let resilience = Resilience::new(Arc::clone(shared), config.resilience.clone(), Arc::clone(observer));
        let history = Arc::clone(&self.store.breaker_history);
        Arc::new(resilience.kept_in(history, Arc::clone(&self.clock) as Arc<dyn Clock>))
    }

    /// What loads tools from folders: of the shared catalogue first, then of each tenant that may run tools of its own.
    fn loaders(
        &self,
        config: &GantryConfig,
        kernel: &Arc<Kernel>,
        tools: &ToolExecutors,
    ) -> Result<Vec<FolderLoader>, CommandFailure> {
        let loader = |tenant: &TenantId, dirs: &[PathBuf]| FolderLoader {
            kernel: Arc::clone(kernel),
            tool_homes: tools.directories.for_tenant(tenant.clone()),
            wasm: tools.wasm.clone(),
            processes: Some(Arc::clone(&tools.processes)),
            admin_token: self.admin_token.clone(),
            dirs: dirs.to_vec(),
            tenant: tenant.clone(),
            homes: HashMap::new(),
            stamps: HashMap::new(),
            kept: None,
            intact: HashMap::new(),
            said: HashMap::new(),
        };
        let kept = tool_folders::kept_copy::folder(&self.data_dir)?;
        let shared_dirs: Vec<PathBuf> = config.tools.dirs.iter().cloned().chain([kept.clone()]).collect();
        let shared_tools = FolderLoader { kept: Some(kept), ..loader(&TenantId::home(), &shared_dirs) };
        let of_tenants = config.tools.tenants.iter().map(|(tenant, dirs)| loader(tenant, dirs));
        Ok(std::iter::once(shared_tools).chain(of_tenants).collect())
    }

    /// What seals ids of MCP sessions, so that they go on at every instance. None if there can be no others.
    pub(super) fn session_key(&self) -> Option<SessionKey> {
        self.installation.as_ref().map(|installation| SessionKey::new(*installation.seal_key()))
    }

    /// Renders what is counted, with what is counted beside what the kernel counts.
    pub(super) fn metrics_text(&self, tls: Option<Arc<TlsState>>) -> MetricsText {
        let (metrics, store) = (Arc::clone(&self.metrics), Arc::clone(&self.store));
        MetricsText::new(move || {
            if let Some(connections) = store.connections() {
                metrics.store().connections(connections.used, connections.idle, connections.max);
            }
            if let Some(tls) = &tls {
                super::tls::count_handshakes(&metrics, tls);
            }
            metrics.render()
        })
    }

    /// What tools may be given: what they declare, as far as the operator allows, and never what is the server's own.
    fn confinement(&self, config: &GantryConfig) -> ToolConfinement {
        let data_dir = self.data_dir.path();
        let secrets = SecretsFolder::new(config.secrets.dir(data_dir));
        let mut reach = reach(config, data_dir, self.home.as_deref());
        reach.masks = masks(config, data_dir)
            .inspect_err(
                |error| tracing::warn!(%error, "folders that hold the data directory cannot be given to MCP servers"),
            )
            .ok();
        ToolConfinement::new(reach, Arc::new(secrets), Arc::new(SystemResolver))
    }

    /// A machine without room for the engine still runs every other kind of tool.
    fn wasm(&self, homes: ToolDirectories, confinement: ToolConfinement) -> Option<Arc<WasmExecutor>> {
        let settings = WasmConfig { cache_dir: Some(self.data_dir.path().join("wasm")), ..WasmConfig::default() };
        WasmExecutor::open(settings, homes, confinement)
            .inspect_err(|error| tracing::warn!(%error, "WASM tools cannot run on this machine"))
            .ok()
            .map(Arc::new)
    }

    fn identity(&self, config: &GantryConfig, external: Option<ExternalIssuer>) -> Result<Identity, CommandFailure> {
        let section = &config.identity;
        let settings = IdentitySettings {
            issuer: section.issuer.clone(),
            audience: section.audience.clone(),
            leeway_seconds: section.clock_skew_seconds,
            delegation_depth_max: section.delegation_depth,
            external,
            failures_per_minute: section.failures_per_minute,
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
        };
        let observer = Arc::clone(&self.metrics) as Arc<dyn Observer>;
        Identity::new(&self.admin_token, self.own_keys.clone(), settings, observer)
            .map_err(|error| CommandFailure::new(error.to_string()))
    }

    fn mint(&self, config: &GantryConfig) -> Result<TokenIssuer, CommandFailure> {
        let key = SigningKey::from_pem(&self.signing_pem).map_err(|error| CommandFailure::new(error.to_string()))?;
        let vault: Arc<dyn KeyVault> = match &self.installation {
            Some(installation) => installation.vault(),
            None => Arc::new(DataDirVault::new(self.data_dir.clone())),
        };
        Ok(TokenIssuer::new(key, config.identity.minter(), vault))
    }
}

fn access_settings(config: &GantryConfig) -> AccessSettings {
    AccessSettings {
        visibility: config.visibility,
        environment: config.policy.environment.clone(),
        decision_ttl: config.policy.decision_ttl,
        require_did: config.identity.require_did,
    }
}

fn unreadable(error: String) -> CommandFailure {
    CommandFailure::new(error).hint("`gantry doctor` looks at the data directory")
}

/// What runs tools.
struct ToolExecutors {
    /// Where tools that were loaded from folders have their files.
    directories: ToolDirectories,
    processes: Arc<ProcessExecutor>,
    containers: Arc<OciExecutor>,
    wasm: Option<Arc<WasmExecutor>>,
    upstreams: Arc<UpstreamServers>,
}

impl ToolExecutors {
    /// All of them, and the built-in one.
    fn all(&self, config: &GantryConfig, clock: &Arc<dyn Clock>) -> Result<Vec<Arc<dyn Executor>>, CommandFailure> {
        let model = match &config.model {
            Some(model) => ModelClient::from_config(model).map_err(|error| CommandFailure::new(error.to_string()))?,
            None => None,
        };
        let mut executors: Vec<Arc<dyn Executor>> = vec![
            Arc::new(BuiltinExecutor::new(Arc::clone(clock), model)),
            Arc::clone(&self.processes) as _,
            Arc::clone(&self.containers) as _,
            Arc::new(UpstreamExecutor::new(Arc::clone(&self.upstreams))),
        ];
        executors.extend(self.wasm.clone().map(|wasm| wasm as Arc<dyn Executor>));
        Ok(executors)
    }
}

/// Publishes the built-in tools that are not there yet; answers how many there are.
pub(super) async fn register_builtins(kernel: &Kernel, assembly: &KernelAssembly) -> Result<usize, CommandFailure> {
    let manifests =
        executors::builtin::manifests().map_err(|error| CommandFailure::new(format!("built-in tools: {error}")))?;
    for manifest in &manifests {
        let known = manifest.id().ok().and_then(|id| {
            let snapshot = kernel.registry().snapshot();
            snapshot.tool(&TenantId::home(), &id)?.version(&manifest.version).map(|version| version.digest)
        });
        if known == Some(manifest.digest()) {
            continue;
        }
        let actor = Actor {
            credential: Some(BearerSecret(&assembly.admin_token)),
            source: None,
            trace_id: new_trace_id(kernel.entropy()),
        };
        let document = serde_json::to_value(manifest).unwrap_or_default();
        match kernel.publish(actor, document).await {
            Ok(_) => {}
            // After an upgrade that forgot to raise a version: published versions never change, so the old one stays.
            Err(refusal) if refusal.code == ErrorCode::E3103 => tracing::warn!(
                tool = manifest.tool_id,
                version = %manifest.version,
                "this release has other content for a built-in tool that is already published under the same version; \
                 the published one stays in force",
            ),
            Err(refusal) => {
                return Err(CommandFailure::from(refusal)
                    .hint("the built-in tools could not be registered; see `gantry doctor`"));
            }
        }
    }
    Ok(manifests.len())
}

/// Who watches the kernel. In debug builds a test may put a fault point before it.
#[cfg(debug_assertions)]
fn watching(observer: Arc<dyn Observer>) -> Arc<dyn Observer> {
    crate::fault_points::before(observer)
}

#[cfg(not(debug_assertions))]
fn watching(observer: Arc<dyn Observer>) -> Arc<dyn Observer> {
    observer
}
