//! MCP servers behind this Gantry: what keeps them alive, what takes their tools in, and how both end.

use std::sync::Arc;

use contract::envelope::CallLimits;
use executors::{Confinement, RuntimePrograms, Walls};
use kernel::Kernel;
use kernel::ports::change_bus::ChangeBus;
use kernel::ports::clock::Clock;
use kernel::ports::upstream_store::UpstreamStore;
use sandbox::egress::{Resolver, SystemResolver};
use sandbox::{Launch, Sandbox};
use telemetry::Metrics;
use upstreams::catalogue::{Catalogue, CatalogueParts, Scanned};
use upstreams::{Admission, ServerState, UpstreamBounds, UpstreamEvent, UpstreamObserver, UpstreamParts, Upstreams};

use super::wiring::House;
use crate::config::Config;
use crate::failure::Failure;
use crate::secrets_folder::SecretsFolder;

/// Who may put what behind this server.
fn admission(config: &Config) -> Arc<Admission> {
    let resolver: Arc<dyn Resolver> = Arc::new(SystemResolver);
    let egress = &config.egress;
    Arc::new(Admission::new(&egress.bounds, &egress.open_networks, config.upstreams.clone(), &resolver))
}

/// What keeps servers. None is started before somebody wants it.
pub(super) fn keep(
    house: &House,
    config: &Config,
    confinement: Confinement,
    clock: &Arc<dyn Clock>,
) -> Result<Arc<Upstreams>, Failure> {
    let data_dir = house.data_dir().path();
    // A launcher of their own: servers live long, and must not take the places of calls.
    let sandbox = Sandbox::new(Launch::own_executable(crate::LAUNCHER_ARGUMENT), config.sandbox.sandboxes);
    Ok(Upstreams::new(UpstreamParts {
        admission: admission(config),
        walls: Walls::new(sandbox, RuntimePrograms::default()),
        confinement,
        secrets: Arc::new(SecretsFolder::new(config.secrets.dir(data_dir))),
        redactor: house.redactor(),
        clock: Arc::clone(clock),
        entropy: house.entropy(),
        log_dir: data_dir.join("logs").join("servers"),
        packages: config.packages_dir(data_dir),
        limits: config.sandbox.envelope.resolve(None, &CallLimits::default())?,
        bounds: UpstreamBounds { programs_max: config.sandbox.sandboxes, ..UpstreamBounds::default() },
        observer: Arc::new(Counted(Arc::clone(&house.metrics))),
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
    upstreams: &Arc<Upstreams>,
    news: Option<&Arc<dyn ChangeBus>>,
    config: &Config,
) -> Result<Arc<Catalogue>, Failure> {
    let parts = CatalogueParts {
        kernel: Arc::clone(kernel),
        store,
        supervision: Arc::clone(upstreams) as _,
        inspector: Arc::new(Scanned { blocks: config.scan.blocks }),
        admission: Arc::clone(upstreams.admission()),
        bus: news.cloned(),
        reread: config.upstreams_reread,
    };
    let catalogue = Catalogue::open(parts).await.map_err(|refusal| {
        Failure::from(refusal)
            .hint("what is kept of MCP servers cannot be read; `gantry doctor` looks at the data directory")
    })?;
    catalogue.listen_to(upstreams);
    Ok(catalogue)
}
