//! MCP servers behind this Gantry: what keeps them alive, what takes their tools in, and how both end.

use std::sync::Arc;

use contract::envelope::CallLimits;
use executors::{RuntimePrograms, SandboxProvider, ToolConfinement};
use kernel::Kernel;
use ports::change_bus::ChangeBus;
use ports::clock::Clock;
use ports::upstream_store::UpstreamStore;
use sandbox::egress::{HostResolver, SystemResolver};
use sandbox::{LauncherCommand, Sandbox};
use telemetry::Metrics;
use upstreams::catalogue::{CatalogueParts, DefinitionScanner, ServerCatalogue};
use upstreams::{
    ServerAdmission, ServerState, UpstreamBounds, UpstreamEvent, UpstreamObserver, UpstreamParts, UpstreamServers,
};

use super::assembly::KernelAssembly;
use crate::config::GantryConfig;
use crate::failure::CommandFailure;
use crate::secrets_folder::SecretsFolder;

/// Who may put what behind this server.
fn admission(config: &GantryConfig) -> Arc<ServerAdmission> {
    let resolver: Arc<dyn HostResolver> = Arc::new(SystemResolver);
    let egress = &config.egress;
    Arc::new(ServerAdmission::new(&egress.bounds, &egress.open_networks, config.upstreams.lists.clone(), &resolver))
}

/// What keeps servers. None is started before somebody wants it.
pub(super) fn keep(
    assembly: &KernelAssembly,
    config: &GantryConfig,
    confinement: ToolConfinement,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<UpstreamServers>, CommandFailure> {
    let data_dir = assembly.data_dir().path();
    // A launcher of their own: servers live long, and must not take the places of calls.
    let sandbox = Sandbox::new(LauncherCommand::own_executable(crate::LAUNCHER_ARGUMENT), config.sandbox.sandboxes);
    Ok(UpstreamServers::new(UpstreamParts {
        admission: admission(config),
        walls: SandboxProvider::new(sandbox, RuntimePrograms::default()),
        confinement,
        secrets: Arc::new(SecretsFolder::new(config.secrets.dir(data_dir))),
        redactor: assembly.redactor(),
        clock: Arc::clone(clock),
        entropy: assembly.entropy(),
        log_dir: data_dir.join("logs").join("servers"),
        packages: config.upstreams.packages_dir(data_dir),
        limits: config.sandbox.envelope.resolve(None, &CallLimits::default())?,
        bounds: UpstreamBounds { programs_max: config.sandbox.sandboxes, ..UpstreamBounds::default() },
        observer: Arc::new(Counted(Arc::clone(&assembly.metrics))),
    }))
}

/// Counts what happens to servers.
#[derive(Debug)]
struct Counted(Arc<Metrics>);

impl UpstreamObserver for Counted {
    fn happened(&self, server: Option<&str>, event: UpstreamEvent) {
        let metrics = self.0.upstreams();
        match event {
            UpstreamEvent::Moved { from, to } => {
                metrics.moved(from.map(ServerState::as_str), to.map(ServerState::as_str));
            }
            UpstreamEvent::Started { done, again } => metrics.started(server, done, again),
            UpstreamEvent::GivenUp => metrics.given_up(server),
            UpstreamEvent::CallBegun => metrics.call_begun(server),
            UpstreamEvent::CallEnded => metrics.call_ended(server),
            UpstreamEvent::Indeterminate => metrics.indeterminate(server),
            UpstreamEvent::Reconnected(what) => metrics.reconnected(server, what.as_str()),
            UpstreamEvent::Dropped(what) => metrics.message_dropped(server, what.as_str()),
            UpstreamEvent::LogDropped { bytes } => metrics.log_dropped(server, bytes),
        }
    }
}

/// Opens the catalogue. Before any door: what nobody has accepted must never have been offered.
pub(super) async fn open(
    kernel: &Arc<Kernel>,
    store: Arc<dyn UpstreamStore>,
    upstreams: &Arc<UpstreamServers>,
    changes: Option<&Arc<dyn ChangeBus>>,
    config: &GantryConfig,
) -> Result<Arc<ServerCatalogue>, CommandFailure> {
    let parts = CatalogueParts {
        kernel: Arc::clone(kernel),
        store,
        supervision: Arc::clone(upstreams) as _,
        inspector: Arc::new(DefinitionScanner { blocks: config.scan.blocks }),
        admission: Arc::clone(upstreams.admission()),
        bus: changes.cloned(),
        reread: config.upstreams.reread,
    };
    let catalogue = ServerCatalogue::open(parts).await.map_err(|refusal| {
        CommandFailure::from(refusal)
            .hint("what is kept of MCP servers cannot be read; `gantry doctor` looks at the data directory")
    })?;
    catalogue.listen_to(upstreams);
    Ok(catalogue)
}
