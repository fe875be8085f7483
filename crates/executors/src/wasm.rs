//! A WASM component in the tool's own folder (`type = "wasm"`), on WASI 0.2 (DESIGN §3, EXEC-001, EXEC-012, EXEC-017).
//!
//! Two kinds of components are tools: those of the world `gantry:tool/tool` (`wit/gantry-tool`), which export one function
//! with JSON in and out, and plain `wasi:cli/command` programs, which speak the simple protocol of processes: parameters
//! on stdin, result on stdout, stderr the log, a failing exit is an error.
//!
//! The words of the manifest mean here what they mean for processes: `filesystem:` gives directories, `network:` opens
//! outgoing HTTP through the gate, `credentials:` lets `gantry:tool/secrets` answer. Nothing else is reachable.
//!
//! Invariants
//! - WASM-1: a fresh instance for every call, on threads of their own; nothing is shared between two calls but code.
//! - WASM-2: dropping a call, or its deadline, stops its guest within a tick.
//! - WASM-3: nothing is compiled twice for the same content, and nobody's request waits for somebody else's compilation.
//! - WASM-4: however many guests one tenant wants, and however long they run, one of another tenant finds room.
//!
//! Not here: the gate itself, where secrets and documents come from, retries.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::{Execution, Isolation, Manifest, ManifestError};
use fair_places::{FairPermit, FairPlaces, PlaceUsage};
use ports::executor::{Executor, ExecutorError, ResourceUsage, ToolCall, ToolOutput};
use ports::permissions::DeclaredPermissions;
use ports::tool_version::ToolVersion;
use tokio::task::JoinHandle;
use wasmtime::component::Linker;

use self::compiled_cache::CompiledCache;
use self::engine::GuestEngine;
use self::gated::Gated;
use self::grants::Streams;
use self::guest::{Ended, Guest};
use self::host::{Host, Secrets};
use self::library::Library;
use self::limits::{Bounds, Limiter};
use self::loaded::Entry;
use self::metered::{CpuTime, Metered};
use self::outbound::{Outbound, Sender};
use self::state::State;
use self::streams::{LogStream, ResultStream};
use crate::call_time::time_nears_its_end;
use crate::confinement::ToolConfinement;
use crate::log_hint;
use crate::process::scrub::SecretScrubber;
use crate::process::session::ScrubbedCompanion;
use crate::tool_directories::ToolDirectories;

mod compiled_cache;
mod config;
mod engine;
mod gated;
mod grants;
mod guest;
mod host;
mod library;
mod limits;
mod loaded;
mod metered;
mod nobody;
mod outbound;
mod state;
mod streams;
mod verdict;

pub use compiled_cache::CacheError;
pub use config::{WasmConfig, WasmConfigError};
pub use engine::WasmEngineError;
pub use loaded::LoadedComponent;

/// Runs tools of type `wasm`.
#[derive(Debug)]
pub struct WasmExecutor {
    config: WasmConfig,
    homes: ToolDirectories,
    confinement: ToolConfinement,
    library: Library,
    /// Never more calls than the pool has room for, shared fairly by tenants and agents (WASM-4).
    places: Arc<FairPlaces>,
    engine: GuestEngine,
}

/// Why there is no executor.
#[derive(Debug, thiserror::Error)]
pub enum WasmError {
    /// A setting out of its range.
    #[error(transparent)]
    Config(#[from] WasmConfigError),
    /// No engine.
    #[error(transparent)]
    Engine(#[from] WasmEngineError),
    /// The host's functions could not be given to guests.
    #[error("the interfaces for WASM guests could not be put together")]
    Linker(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl WasmExecutor {
    /// With an engine of its own, for the tools that live in these folders. A cache that cannot be used is said in the log
    /// and left out: it makes the start faster, not the calls right.
    ///
    /// # Errors
    /// A setting out of range, or no room for the engine on this machine.
    pub fn open(config: WasmConfig, homes: ToolDirectories, confinement: ToolConfinement) -> Result<Self, WasmError> {
        config.validate()?;
        let engine = GuestEngine::start(&config)?;
        let linker = linker(&engine).map_err(|error| WasmError::Linker(error.into()))?;
        let cache = config.cache_dir.as_deref().and_then(|dir| {
            CompiledCache::open(dir, config.cache_files_max, engine.engine())
                .inspect_err(|error| tracing::warn!(%error, "compiled components are not kept"))
                .ok()
        });
        let library =
            Library::new(engine.engine().clone(), linker, cache, config.component_bytes_max, config.loaded_max);
        let places = FairPlaces::new(config.places());
        Ok(Self { config, homes, confinement, library, places, engine })
    }

    /// Compiles a component of a folder in the background, so that the first call finds it ready. What is wrong with it is
    /// said when it is called.
    pub fn prepare(&self, folder: &Path, binding: &Execution) {
        if let (Execution::Wasm { component, .. }, Some(threads)) = (binding, self.engine.compiling_threads())
            && let Err(error) = self.library.ask(threads, folder, component)
        {
            tracing::warn!(%error, "a component cannot be made ready");
        }
    }

    /// A component ready to be instantiated: from memory, else from the compiled cache, else compiled.
    ///
    /// # Errors
    /// E3108 if it is not a component that can run here, E3405 if it cannot be read.
    pub async fn load(&self, folder: &Path, component: &str) -> Result<Arc<LoadedComponent>, Refusal> {
        let threads = self.engine.compiling_threads().ok_or_else(going)?;
        self.library.get(threads, folder, component).await.map_err(|error| error.refusal())
    }

    /// Instantiates a component with nothing granted, and lets it go again; for measuring what that costs.
    ///
    /// # Errors
    /// E3405 if it does not come to life.
    pub async fn instantiate(&self, loaded: &LoadedComponent) -> Result<(), Refusal> {
        let nobody = TenantId::home();
        let place = self.places.wait(&nobody, "").await.map_err(|_| too_many_wait())?;
        let _ticking = self.engine.ticking();
        let bounds = Bounds {
            memory_bytes: self.config.memory_mb_max << 20,
            cpu_millicores: 1000,
            table_elements: self.config.table_elements_max,
        };
        let gate = Arc::new(Gated(self.confinement.closed_gate()));
        let host = Host::of_nobody();
        let streams = Streams { stdin: Vec::new(), stdout: None, log: LogStream::default() };
        let wasi = grants::wasi(&DeclaredPermissions::default(), &self.confinement, &BTreeMap::new(), streams)?;
        let state = State::new(wasi, Sender::new(gate), Limiter::new(bounds), host);
        let mut store = guest::store(self.engine.engine(), state);
        let made = match &loaded.entry {
            Entry::Tool { pre, .. } => pre.instantiate_async(&mut store).await.map(drop),
            Entry::Command(pre) => pre.instantiate_async(&mut store).await.map(drop),
        };
        drop(store);
        drop(place);
        made.map_err(|error| {
            tracing::warn!(error = %format!("{error:#}"), "a component could not be instantiated");
            Refusal::new(ErrorCode::E3405, "the component could not be instantiated")
        })
    }

    async fn run(
        &self,
        call: &ToolCall,
        component: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<ToolOutput, ExecutorError> {
        call.dispatch.hold();
        call.program_log.leave(String::new);
        let Ready { place, guest, scrubber, cpu_millicores } =
            self.prepared(call, component, env).await.map_err(ExecutorError::not_sent)?;
        let threads = self.engine.guest_threads().ok_or_else(|| ExecutorError::not_sent(going()))?;
        let ticking = self.engine.ticking();
        let cpu = CpuTime::default();
        let counted = cpu.clone();
        let metered = Metered::new(guest.run(cpu.clone()), cpu, cpu_millicores);
        // Its memory is gone with it; the time it has used is not.
        call.usage_at_end.leave(async move {
            let used = u64::saturating_from(counted.used().as_millis());
            ResourceUsage { cpu_millicore_seconds: used, ..ResourceUsage::default() }
        });
        call.dispatch.release();
        let task = threads.spawn(async move {
            // Held until the guest's memory is back in the pool, however it ends.
            let _held = (place, ticking);
            metered.await
        });
        let ended = Running(task).ended().await.map_err(ExecutorError::may_have_run)?;
        match verdict::judge(call, ended) {
            Ok(output) => Ok(ToolOutput { value: scrubber.value(output.value), usage: output.usage }),
            Err(error) => {
                let mut error = error.map(|refusal| scrubber.refusal(refusal));
                if let Some(program) = &mut error.program {
                    program.output = scrubber.text(&program.output).into_owned();
                }
                Err(error)
            }
        }
    }

    /// Everything up to the first instruction of the guest, its place included.
    async fn prepared(
        &self,
        call: &ToolCall,
        component: &str,
        env: &BTreeMap<String, String>,
    ) -> Result<Ready, Refusal> {
        let permissions = call.tool.permissions()?;
        let bounds = Bounds::of(&call.limits, &self.config)?;
        let folder = self.homes.of(&call.tool)?;
        let loaded = self.load(&folder, component).await?;
        if matches!(loaded.entry, Entry::Command(_)) && !permissions.credentials.is_empty() {
            return Err(no_way_for_secrets());
        }
        let wants_to_save = call.tool.manifest.checkpoint_config.as_ref().is_some_and(|config| config.enabled);
        if matches!(loaded.entry, Entry::Command(_)) && wants_to_save {
            return Err(no_way_to_save());
        }
        let waited = self.places.wait(&call.tenant, call.agent.as_str()).await;
        let place = waited.map_err(|_| too_many_wait())?;
        let secrets = self.confinement.secrets(call, permissions).await?;
        let scrubber = Arc::new(secrets.scrubber());
        let companion = Arc::new(ScrubbedCompanion::new(Arc::clone(&call.companion), Arc::clone(&scrubber)));
        let host = Host::of(companion, Secrets::of(&secrets)?, call);
        let guest = self.guest(call, loaded, host, env, bounds)?;
        let (log, secrets) = (guest.log.clone(), Arc::clone(&scrubber));
        call.program_log.leave(move || secrets.text(&log.last_lines()).into_owned());
        Ok(Ready { place, guest, scrubber, cpu_millicores: bounds.cpu_millicores })
    }

    /// Everything one call consists of.
    fn guest(
        &self,
        call: &ToolCall,
        loaded: Arc<LoadedComponent>,
        host: Host,
        env: &BTreeMap<String, String>,
        bounds: Bounds,
    ) -> Result<Guest, Refusal> {
        let permissions = call.tool.permissions()?;
        let parameters = call.parameters.to_string();
        let result_bytes_max = usize::saturating_from(call.limits.result_bytes);
        let (stdout, log) = (ResultStream::new(result_bytes_max), LogStream::default());
        let streams = match loaded.entry {
            Entry::Tool { .. } => Streams { stdin: Vec::new(), stdout: None, log: log.clone() },
            Entry::Command(_) => {
                Streams { stdin: parameters.clone().into_bytes(), stdout: Some(stdout.clone()), log: log.clone() }
            }
        };
        let wants_directories = !permissions.read.is_empty() || !permissions.write.is_empty();
        if wants_directories && !self.engine.nobody().is_kept() {
            return Err(too_many_rights());
        }
        let wasi = grants::wasi(permissions, &self.confinement, env, streams)?;
        let gate: Arc<dyn Outbound> = Arc::new(Gated(self.confinement.gate_even_if_closed(call, permissions)?));
        let state = State::new(wasi, Sender::new(Arc::clone(&gate)), Limiter::new(bounds), host);
        Ok(Guest { loaded, engine: self.engine.engine().clone(), state, parameters, stdout, log, gate })
    }
}

#[async_trait]
impl Executor for WasmExecutor {
    fn kind(&self) -> &'static str {
        "wasm"
    }

    fn admits(&self, tenant: &TenantId, manifest: &Manifest) -> Result<(), ManifestError> {
        self.homes.admit(tenant, manifest)
    }

    fn ready(&self, tool: &ToolVersion, binding: &Execution, demand: Isolation) -> Result<(), Refusal> {
        let Execution::Wasm { .. } = binding else { return Err(unbound()) };
        if demand > Isolation::Process {
            return Err(Refusal::new(ErrorCode::E3405, "a WASM component cannot be given more isolation than its own")
                .hint("use a server that has it; less isolation than demanded is never given")
                .retryable(false));
        }
        let permissions = tool.permissions()?;
        permissions.read.iter().chain(&permissions.write).try_for_each(|path| self.confinement.admitted(path))?;
        self.homes.of(tool).map(drop)
    }

    fn places(&self) -> Vec<(&'static str, PlaceUsage)> {
        vec![("wasm_guests", self.places.usage())]
    }

    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        let Some(Execution::Wasm { component, env }) = &call.tool.manifest.execution else {
            return Err(ExecutorError::not_sent(unbound()));
        };
        // The kernel drops the call at its deadline; asked here too, because a guest must not rely on somebody else's clock.
        let ended = tokio::select! {
            biased;
            ended = self.run(&call, component, env) => Some(ended),
            () = time_nears_its_end(&call, Duration::ZERO) => None,
        };
        let ended = ended.unwrap_or_else(|| {
            let refusal = Refusal::new(ErrorCode::E3402, "the tool did not answer in time")
                .hint("allow more time, or let the tool do less; a component that is called for the first time may still be compiling");
            Err(ExecutorError::new(refusal, call.dispatch.reach()))
        });
        ended.map_err(log_hint::naming(&call.tool.id))
    }
}

/// A call that can begin.
struct Ready {
    place: FairPermit,
    guest: Guest,
    scrubber: Arc<SecretScrubber>,
    cpu_millicores: u64,
}

/// A guest on its threads. Dropping it stops the guest (WASM-2).
struct Running(JoinHandle<Ended>);

impl Running {
    async fn ended(mut self) -> Result<Ended, Refusal> {
        (&mut self.0).await.map_err(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "a WASM call stopped unexpectedly");
            Refusal::new(ErrorCode::E3404, "the tool stopped unexpectedly")
                .hint("report this with the trace id")
                .caused_by(error)
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn linker(engine: &GuestEngine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine.engine());
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    host::add_to_linker(&mut linker)?;
    Ok(linker)
}

fn unbound() -> Refusal {
    Refusal::new(ErrorCode::E3108, "the tool is not bound to a WASM component").retryable(false)
}

fn too_many_wait() -> Refusal {
    const RETRY_AFTER_MS: u64 = 1_000;
    let refusal = Refusal::new(ErrorCode::E3003, "too many calls wait for a WASM guest of this server already")
        .hint("nothing was run; call again when some of them have ended");
    Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal }
}

fn going() -> Refusal {
    Refusal::new(ErrorCode::E3405, "the server is about to stop")
}

fn too_many_rights() -> Refusal {
    Refusal::new(
        ErrorCode::E3405,
        "directories cannot be given to a WASM tool here without the server's rights over them",
    )
    .hint("start the server as an ordinary user, or where the user 65534 exists; the server's log says what failed")
    .retryable(false)
}

fn no_way_to_save() -> Refusal {
    Refusal::new(ErrorCode::E3010, "a `wasi:cli/command` component has no way to save checkpoints")
        .hint("implement the world `gantry:tool/tool`, or leave `checkpoint_config.enabled` out of the manifest")
        .retryable(false)
}

fn no_way_for_secrets() -> Refusal {
    Refusal::new(ErrorCode::E3405, "a `wasi:cli/command` component has no way to be given credentials")
        .hint("implement the world `gantry:tool/tool`, whose import `secrets` gives exactly the declared ones")
        .retryable(false)
}
