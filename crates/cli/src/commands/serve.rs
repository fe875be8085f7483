//! `gantry serve`: one server on one data directory, from the first file to the last flush. (DESIGN §3 Start, OPS-011)
//!
//! ```text
//! configuration ─▶ data directory ─▶ store (lock) ─▶ keys ─▶ audit log ─▶ port ─▶ kernel ─▶ policies ─▶ tools ─▶ doors open
//! signal ─▶ drain ─▶ audit flushed ─▶ store closed ─▶ exit 0          second signal ─▶ exit at once
//! ```
//!
//! The store comes before the keys, because its lock is what keeps two servers from making keys at once; and before the
//! port, because "this data directory is in use" is the better message of the two.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use executors::ProcessExecutor;
use insights::InsightQueries;
use kernel::Kernel;
use ports::change_bus::ChangeBus;
use ports::clock::Clock;
use ports::tool_folders::ToolFolders;
use server::{Door, DoorParts};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::CommandOutcome;
use crate::config::{FlagValue, GantryConfig};
use crate::context::CommandContext;
use crate::data_dir::RunningServer;
use crate::failure::CommandFailure;
use crate::policy_files::follower::PolicyFollower;
use crate::tool_folders::loader::FolderLoader;
use crate::tool_folders::watcher::ToolWatcher;

pub(super) mod alone;
mod archive;
mod assembly;
mod audit_sinks;
mod banner;
mod call_insights;
mod callbacks;
mod development;
mod installation;
mod jobs;
mod ledger_upkeep;
mod log_heads;
mod membership;
mod shared_state;
mod signals;
mod tls;
mod upstreams;
mod worker;

use assembly::{KernelAssembly, RunningKernel, VersionKind};
use banner::Banner;
use callbacks::Callbacks;
pub(super) use development::DevelopmentTool;
use jobs::SealedQueue;
use tls::TlsKeeper;

/// How long the audit log and the store have to finish after the last call.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(30);
/// How often checkpoints whose time is over are cleaned away (CKPT-015).
const CLEANING_INTERVAL: Duration = Duration::from_hours(24);

/// Start a server
///
/// Without any configuration: data in ./.gantry, built-in tools, http://127.0.0.1:7300.
#[derive(Debug, Args)]
pub(crate) struct ServeCommand {
    /// Address and port; port 0 picks a free one and prints it [default: 127.0.0.1:7300]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Certificate chain of the server, as PEM: with --tls-key the doors speak TLS; read again when it changes, and on SIGHUP
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of that certificate, as PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Authorities, as PEM: clients must show a certificate of one of them
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
    /// A tool folder, or a folder of tool folders; watched for changes (repeatable)
    #[arg(long, value_name = "DIR")]
    tools: Vec<PathBuf>,
    /// Listen on a non-loopback address without TLS; tokens cross the network in the clear
    #[arg(long)]
    insecure_plaintext: bool,
    /// Run process tools without the sandbox, with the rights of this server: for machines that cannot make namespaces
    #[arg(long)]
    unsandboxed_processes: bool,
    /// Take no calls: do jobs beside other servers on the same PostgreSQL; only /health and /metrics answer
    #[arg(long)]
    worker_only: bool,
    /// No flag leads here: see `gantry tool dev`.
    #[arg(skip)]
    development: Option<DevelopmentTool>,
}

impl ServeCommand {
    /// The same, without doors for calls.
    pub(super) fn into_worker(self) -> Self {
        Self { worker_only: true, ..self }
    }

    /// A server for the development of one tool.
    pub(super) fn of_development(
        listen: SocketAddr,
        unsandboxed_processes: bool,
        development: DevelopmentTool,
    ) -> Self {
        Self {
            listen: Some(listen.to_string()),
            tls_cert: None,
            tls_key: None,
            tls_client_ca: None,
            tools: vec![development.folder.clone()],
            insecure_plaintext: false,
            unsandboxed_processes,
            worker_only: false,
            development: Some(development),
        }
    }

    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let config = context.config(self.flags())?;
        worker::refuse_without_others(&config)?;
        self.tool_folders_are_there()?;
        let redacting = assembly::redacting(context, &config)?;
        let redaction = telemetry::TraceRedaction::new(redacting.of_all());
        let log = telemetry::init_logging(config.log.format, &config.log.level, context.wants_colour(), redaction)
            .map_err(|error| CommandFailure::new(error.to_string()).hint("mend `[log] level`"))?;
        let mut signals = signals::Signals::listen()?;
        let versions = if self.development.is_some() { VersionKind::Draft } else { VersionKind::Published };
        let (assembly, traces) = assembly::build(context, &config, redacting, versions).await?;
        let tls = TlsKeeper::open(&config, &context.data_dir(), &assembly.metrics, Arc::clone(&assembly.clock) as _)?;
        let listener = bind(&config).await?;
        let queue = SealedQueue::build(&assembly, &config)?;
        let callbacks = Callbacks::build(&assembly, &config, &queue.queue)?;
        let RunningKernel {
            kernel,
            insights,
            recorder,
            loaders,
            processes,
            mut policies,
            upstreams,
            sinks,
            shared,
            changes,
        } = Box::pin(assembly.open(&config, &queue, Arc::clone(&callbacks.webhooks))).await?;
        // Before anything can be called: what policies forbid must never have been allowed.
        if let Some(policies) = &mut policies {
            policies.begin().await?;
        }
        let builtin = assembly::register_builtins(&kernel, &assembly).await?;
        let folders = load(loaders).await;

        let stored = assembly.servers()?;
        let catalogue = upstreams::open(&kernel, stored, &upstreams, changes.as_ref(), &config).await?;

        ledger_upkeep::begin(&kernel).await?;

        let running = announcement(&listener, tls.is_some())?;
        let announced = context.data_dir().announce(&running)?;
        let (membership, announcing) = membership::join(&assembly, &config, &shared, &running);
        let jobs = Box::pin(jobs::open(&kernel, &queue, &callbacks)).await?;
        let watchers = watchers(folders);
        let door = Door::new(DoorParts {
            config: config.server.limits.clone(),
            mcp: config.mcp.clone(),
            session_key: assembly.session_key(),
            insights: Some(Arc::clone(&insights)),
            servers: Some(Arc::clone(&catalogue) as _),
            webhooks: Some(Arc::clone(&callbacks.webhooks)),
            inbound_jobs: callbacks.inbound.clone(),
            jobs: Some(Arc::clone(&jobs)),
            free_space: Some(call_insights::free_space(context.data_dir().path(), &config)),
            shared_state: Some(Arc::clone(&shared)),
            membership: Some(Arc::clone(&membership)),
            log: Some(log),
            tool_folders: look_requests(&watchers),
            ..DoorParts::of_kernel(Arc::clone(&kernel), assembly.metrics_text(tls.as_ref().map(TlsKeeper::state)))
        });
        let listener = listening(listener, tls.as_ref(), &config);
        let background = jobs::begin(&assembly, queue, callbacks, jobs)?;
        let mut keepers = keepers(&kernel, &insights, &processes, policies, &assembly);
        keepers.extend(tls.map(|tls| tokio::spawn(tls.run())));
        keepers.extend(follow_registry(&kernel, changes));
        keepers.push(tokio::spawn(async move { catalogue.follow().await }));
        keepers.extend(assembly.follow_keys(&kernel));
        let clock = Arc::clone(&assembly.clock) as Arc<dyn Clock>;
        keepers.push(tokio::spawn(shared_state::watch(shared, Arc::clone(&assembly.metrics), clock)));
        keepers.extend(archive::keep(&assembly, config.retention));
        keepers.extend(log_heads::keep(&assembly, recorder.log()));
        keepers.extend(ledger_upkeep::keep(&kernel, Arc::clone(&assembly.clock) as Arc<dyn Clock>));
        keepers.extend(watch(watchers, &assembly));
        let tools = kernel.registry().snapshot().tool_count();
        match &self.development {
            None => Banner { running: &running, data_dir: context.data_dir().path(), tools, builtin, config: &config }
                .show(&context.printer),
            Some(development) => {
                keepers.push(development::show_calls(&kernel, context.printer.clone()));
                development.greet(&context.printer, &running, context.data_dir().path());
            }
        }
        tell_limits(&config);

        let drained = tokio::select! {
            drained = server::serve(listener, door, background.held_at(signals.first())) => drained,
            () = signals.second() => {
                announced.withdraw();
                return Err(CommandFailure::new("stopped at once, because of a second signal"));
            }
        };
        tracing::info!(
            in_flight = drained.in_flight,
            finished = drained.finished,
            aborted = drained.aborted,
            "drained"
        );
        background.end().await;
        keepers.push(announcing);
        for keeper in keepers {
            keeper.abort();
        }
        membership.leave().await;
        // Nobody will call them again; each ends now, not when the last of the server does.
        processes.warm().clear();
        let closed = tokio::time::timeout(CLOSING_TIMEOUT, async {
            upstreams.shut_down().await;
            kernel.books().retire().await;
            insights.source().close().await;
            recorder.close().await;
            sinks.close().await;
            assembly.store.close().await;
            if let Some(traces) = traces {
                traces.close().await;
            }
        });
        tokio::select! {
            closed = closed => {
                announced.withdraw();
                closed.map_err(|_| CommandFailure::new("the audit log could not be flushed in time").hint("look at the disk and at the log above"))?;
            }
            () = signals.second() => {
                announced.withdraw();
                return Err(CommandFailure::new("stopped at once, because of a second signal"));
            }
        }
        context.printer.note("stopped");
        Ok(CommandOutcome::Done)
    }

    /// A folder that was named and is not there is a slip; one in the configuration may come later.
    fn tool_folders_are_there(&self) -> Result<(), CommandFailure> {
        let missing = self.tools.iter().find(|dir| !std::fs::metadata(dir).is_ok_and(|found| found.is_dir()));
        missing.map_or(Ok(()), |dir| {
            Err(CommandFailure::usage(format!("--tools: there is no folder `{}`", dir.display())))
        })
    }

    /// What the command line says about the configuration.
    fn flags(&self) -> Vec<FlagValue> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        let mut flags = Vec::new();
        flags.extend(self.listen.as_ref().map(|listen| FlagValue::new("server", "listen", listen.clone())));
        for (name, file) in
            [("tls_cert", &self.tls_cert), ("tls_key", &self.tls_key), ("tls_client_ca", &self.tls_client_ca)]
        {
            flags.extend(file.as_ref().map(|file| FlagValue::new("server", name, text(file))));
        }
        if !self.tools.is_empty() {
            flags.push(FlagValue::new("tools", "dirs", self.tools.iter().map(text).collect::<Vec<_>>()));
        }
        if self.development.is_some() {
            flags.push(FlagValue::new("log", "level", development::LOG_LEVEL));
        }
        for (section, name, is_given) in [
            ("server", "insecure_plaintext", self.insecure_plaintext),
            ("process", "unsandboxed", self.unsandboxed_processes),
            ("server", "worker_only", self.worker_only),
        ] {
            flags.extend(is_given.then(|| FlagValue::new(section, name, true)));
        }
        flags
    }
}

async fn bind(config: &GantryConfig) -> Result<TcpListener, CommandFailure> {
    let listen = config.server.listen;
    TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => CommandFailure::new(format!("{listen} is in use by another program")).hint(
            "stop that one (perhaps another gantry), or choose another port: --listen 127.0.0.1:0 picks a free one",
        ),
        std::io::ErrorKind::PermissionDenied => CommandFailure::new(format!("this user may not listen on {listen}"))
            .hint("ports below 1024 need rights; choose a higher one with --listen"),
        std::io::ErrorKind::AddrNotAvailable => {
            CommandFailure::new(format!("{} is not an address of this machine", listen.ip()))
                .hint("listen on 127.0.0.1, or on an address that `ip addr` shows")
        }
        _ => CommandFailure::new(format!("cannot listen on {listen}: {error}"))
            .hint("choose another address with --listen"),
    })
}

/// Says at the start which limits of process tools are not kept by the kernel.
fn tell_limits(config: &GantryConfig) {
    let groups = sandbox::offers().into_iter().find(|offer| offer.mechanism == sandbox::CONTROL_GROUPS);
    if let Some(sandbox::MechanismOffer { standing: sandbox::MechanismState::Weaker { detail, .. }, .. }) = groups
        && !config.process.unsandboxed
    {
        tracing::warn!("control groups: {detail}");
    }
}

/// The listener of the doors, in the clear or not.
fn listening(listener: TcpListener, tls: Option<&TlsKeeper>, config: &GantryConfig) -> server::DoorListener {
    match tls {
        Some(tls) => tls.listener(listener, &config.server.limits),
        None => listener.into(),
    }
}

fn announcement(listener: &TcpListener, over_tls: bool) -> Result<RunningServer, CommandFailure> {
    let mut address =
        listener.local_addr().map_err(|error| CommandFailure::new(format!("the listener has no address: {error}")))?;
    if address.ip().is_unspecified() {
        // "Everywhere" is no address to connect to; this machine's own is.
        address.set_ip(match address {
            std::net::SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            std::net::SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(RunningServer {
        url: format!("{}://{address}", if over_tls { "https" } else { "http" }),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// What keeps the kernel up to date for as long as the doors are open: access as other instances change it, the keys of
/// another issuer, policies in files; and what lets warm processes go when nobody has called them for a while.
fn keepers(
    kernel: &Arc<Kernel>,
    insights: &Arc<InsightQueries>,
    processes: &Arc<ProcessExecutor>,
    policies: Option<PolicyFollower>,
    assembly: &KernelAssembly,
) -> Vec<JoinHandle<()>> {
    let (following, fetching) = (Arc::clone(kernel), Arc::clone(kernel));
    let warm = Arc::clone(processes.warm());
    let clock = || Arc::clone(&assembly.clock) as Arc<dyn Clock>;
    let keys_clock = clock();
    let mut keepers = vec![
        tokio::spawn(async move { following.access().follow().await }),
        tokio::spawn(async move { fetching.identity().keep_keys_fresh(&*keys_clock).await }),
        tokio::spawn(async move { warm.keep_in_order().await }),
        tokio::spawn(clean_checkpoints(Arc::clone(kernel), clock())),
    ];
    let (learning, reporting) = (Arc::clone(insights.source()), Arc::clone(insights));
    keepers.push(tokio::spawn(async move { learning.keep().await }));
    keepers.push(tokio::spawn(async move { reporting.keep_reporting_deprecations().await }));
    let guarding = kernel.resilience().cloned();
    keepers.extend(guarding.map(|resilience| tokio::spawn(async move { resilience.follow().await })));
    keepers.extend(policies.map(|policies| tokio::spawn(policies.run(clock()))));
    keepers
}

/// Keeps the registry what other instances on the same store make of it.
fn follow_registry(kernel: &Arc<Kernel>, changes: Option<Arc<dyn ChangeBus>>) -> Option<JoinHandle<()>> {
    let kernel = Arc::clone(kernel);
    changes.map(|changes| tokio::spawn(async move { kernel.registry().follow(&*changes).await }))
}

/// Frees what is over once after the start and then once a day.
async fn clean_checkpoints(kernel: Arc<Kernel>, clock: Arc<dyn Clock>) {
    loop {
        // A failure is in the log already, and tomorrow is another day.
        let _ = kernel.prune_checkpoints().await;
        clock.sleep(CLEANING_INTERVAL).await;
    }
}

/// What notices changes of the folders that were loaded.
fn watchers(folders: Vec<(FolderLoader, Vec<PathBuf>)>) -> Vec<(ToolWatcher, FolderLoader)> {
    folders.into_iter().map(|(loader, watched)| (ToolWatcher::start(&watched), loader)).collect()
}

/// Where a look at the folders of the shared catalogue can be asked for.
fn look_requests(watchers: &[(ToolWatcher, FolderLoader)]) -> Option<Arc<dyn ToolFolders>> {
    let (watcher, _) = watchers.iter().find(|(_, loader)| loader.tenant.is_home())?;
    Some(Arc::new(watcher.requests()))
}

/// Keeps what was loaded up to date with what is in the folders.
fn watch(watchers: Vec<(ToolWatcher, FolderLoader)>, assembly: &KernelAssembly) -> Vec<JoinHandle<()>> {
    let clock = || Arc::clone(&assembly.clock) as Arc<dyn Clock>;
    watchers.into_iter().map(|(watcher, loader)| tokio::spawn(watcher.run(loader, clock()))).collect()
}

/// Loads every tool folder; answers also which directories to watch.
async fn load(loaders: Vec<FolderLoader>) -> Vec<(FolderLoader, Vec<PathBuf>)> {
    let mut loaded = Vec::new();
    for mut loader in loaders {
        let (round, watched) = loader.load().await;
        for warning in &round.warnings {
            tracing::warn!("{warning}");
        }
        loaded.push((loader, watched));
    }
    loaded
}
