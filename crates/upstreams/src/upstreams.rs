//! All servers behind Gantry: which there are, and how each stands.
//!
//! A server is defined by a tenant (its owner) and runs once for each tenant that calls it, or once for all if it is
//! shareable. The definitions are an immutable map that is swapped; the processes are made when they are wanted.
//!
//! Invariants
//! - UPS-1: nothing is started before somebody wants it.
//! - UPS-2: a tenant's calls never reach the process of another tenant, unless the server is shareable.
//!
//! Not here: what can be asked of a server besides calling its tools (`lists`), and calling them (`executor`).

mod eras;
mod lists;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use arc_swap::ArcSwap;
use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use executors::{SandboxProvider, ToolConfinement};
use fair_places::{FairPlaces, PlaceBounds, PlaceUsage};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::redactor::Redactor;
use ports::resolved_limits::ResolvedLimits;
use ports::secret_source::SecretSource;
use ports::tool_origin::ToolOrigin;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;

use crate::admission::ServerAdmission;
use crate::bounds::UpstreamBounds;
use crate::connection::ProtocolEra;
use crate::observer::{ServerTeller, UpstreamObserver};
use crate::origin::origin;
use crate::server_log::ServerLog;
use crate::spec::ServerSpec;
use crate::starter::ServerStarter;
use crate::supervisor::{EraMeeting, ServerState, ServerUnit, SupervisorContext, UnitName};
use crate::watched::{WatchNotifier, WatchTable};
use crate::watcher::{UpstreamWatcher, WatcherSet};
pub use lists::{ITEMS_MAX, LIST_BYTES_MAX, ListTurn};

/// Most lines of a log that are shown at once.
const LOG_LINES_MAX: usize = 10_000;

/// What keeping servers needs.
#[derive(Debug)]
pub struct UpstreamParts {
    /// Judges what is started and reached.
    pub admission: Arc<ServerAdmission>,
    /// What stands around programs. Its sandboxes are occupied for as long as servers run, so it should be of their own.
    pub walls: SandboxProvider,
    /// What programs may be given.
    pub confinement: ToolConfinement,
    pub secrets: Arc<dyn SecretSource>,
    /// Takes out of the logs of servers what must not be seen.
    pub redactor: Arc<dyn Redactor>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Where the logs of servers are kept, usually `<data-dir>/logs/servers`.
    pub log_dir: PathBuf,
    /// Where packages are installed that servers are started from, usually `<data-dir>/packages`.
    pub packages: PathBuf,
    /// What one program may use.
    pub limits: ResolvedLimits,
    pub bounds: UpstreamBounds,
    /// Who counts.
    pub observer: Arc<dyn UpstreamObserver>,
}

/// One definition.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerDefinition {
    /// Who has defined it, and owns its tools.
    pub tenant: TenantId,
    pub name: String,
    pub spec: ServerSpec,
}

/// How a server stands.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerStatus {
    /// Who has defined it.
    pub tenant: TenantId,
    pub name: String,
    /// Whose calls this process serves; `None` is everybody's.
    pub serves: Option<TenantId>,
    pub state: ServerState,
    pub since: UnixMillis,
    pub restarts: u64,
    pub era: Option<ProtocolEra>,
    pub pid: Option<u32>,
    pub last_error: Option<String>,
    /// What helps, if Gantry itself refused the last start.
    pub last_hint: Option<String>,
    /// Calls and other questions so far.
    pub calls: u64,
    /// How it stands in the older protocol, if it was met in that one as well, for callers who speak it.
    pub also_in_legacy: Option<SecondMeeting>,
}

/// A second process or session of a server that speaks both protocols.
#[derive(Debug, Clone, PartialEq)]
pub struct SecondMeeting {
    pub state: ServerState,
    pub pid: Option<u32>,
    pub calls: u64,
}

/// Changes on their way.
#[derive(Debug, Default)]
pub struct PendingChanges(Vec<oneshot::Receiver<Result<(), Refusal>>>);

impl PendingChanges {
    /// Waits until each of them has come to life or has failed to; how it went is in the server's status. Bounded by
    /// [`start_timeout_seconds`](crate::spec::LifeBounds::start_timeout_seconds) of each, and they go on at the same time.
    pub async fn settled(self) {
        futures_util::future::join_all(self.0).await;
    }
}

/// A definition in force.
#[derive(Debug)]
pub(crate) struct ActiveDefinition {
    pub(crate) tenant: TenantId,
    pub(crate) name: String,
    /// At its first address.
    pub(crate) spec: Arc<ServerSpec>,
    /// At each of its addresses, the first one first.
    addresses: Vec<Arc<ServerSpec>>,
    /// What policies are told of it.
    pub(crate) origin: Arc<ToolOrigin>,
    log: Arc<ServerLog>,
}

impl ActiveDefinition {
    /// The names of its addresses, if it has several.
    pub(crate) fn endpoints(&self) -> Vec<String> {
        if !self.has_fallbacks() {
            return Vec::new();
        }
        self.addresses.iter().map(|spec| spec.reach.authority().unwrap_or_default()).collect()
    }

    /// At one of its addresses, if it is met there in this way at all.
    fn met_at(&self, endpoint: usize, meeting: EraMeeting) -> Option<&Arc<ServerSpec>> {
        let spec = self.addresses.get(endpoint)?;
        (meeting == EraMeeting::First || spec.may_be_met_twice()).then_some(spec)
    }

    pub(crate) fn has_fallbacks(&self) -> bool {
        self.addresses.len() > 1
    }

    fn is_as(&self, spec: &ServerSpec) -> bool {
        self.addresses == spec.clone().at_each_address()
    }
}

type Key = (TenantId, String);
/// A definition, and the tenant it runs for.
pub(crate) type UnitKey = (TenantId, String, TenantId);

/// One of what there is of a server: for a tenant, at the address of this number (the first one is 0), met in this way.
type Place = (UnitKey, usize, EraMeeting);

/// The servers behind Gantry.
#[derive(Debug)]
pub struct UpstreamServers {
    pub(crate) context: Arc<SupervisorContext>,
    redactor: Arc<dyn Redactor>,
    log_dir: PathBuf,
    definitions: ArcSwap<HashMap<Key, Arc<ActiveDefinition>>>,
    units: Mutex<Units>,
    pub(crate) watches: WatchTable,
    /// For what goes on by itself and must not keep all of this alive.
    pub(crate) me: Weak<Self>,
}

#[derive(Debug, Default)]
struct Units {
    all: HashMap<Place, Arc<ServerUnit>>,
    closed: bool,
}

impl UpstreamServers {
    /// With no servers yet. Must be called within a runtime.
    pub fn new(parts: UpstreamParts) -> Arc<Self> {
        let UpstreamParts {
            admission,
            walls,
            confinement,
            secrets,
            redactor,
            clock,
            entropy,
            log_dir,
            packages,
            limits,
            bounds,
            observer,
        } = parts;
        let most = bounds.programs_max;
        let programs = FairPlaces::new(PlaceBounds { capacity: most, per_flow: most, waiting: 0 });
        let starter = ServerStarter {
            programs,
            walls,
            confinement,
            secrets,
            clock: Arc::clone(&clock),
            admission,
            limits,
            packages,
        };
        let (watchers, tasks) = (WatcherSet::default(), TaskTracker::new());
        let context = Arc::new(SupervisorContext {
            starter,
            bounds,
            clock,
            entropy,
            watchers,
            notices: WatchNotifier::default(),
            tasks,
            observer,
        });
        Arc::new_cyclic(|me| Self {
            context,
            redactor,
            log_dir,
            definitions: ArcSwap::default(),
            units: Mutex::default(),
            watches: WatchTable::default(),
            me: me.clone(),
        })
    }

    /// Who may put what behind Gantry.
    pub fn admission(&self) -> &Arc<ServerAdmission> {
        &self.context.starter.admission
    }

    /// These are the servers from now on. What is new is known, what is changed is switched over, what is gone is drained.
    /// What is given back tells when the changes have come to life; nobody has to wait for it.
    pub fn apply(&self, servers: Vec<ServerDefinition>) -> PendingChanges {
        let mut units = self.units();
        let mut changes = PendingChanges::default();
        if units.closed {
            return changes;
        }
        let before = self.definitions.load_full();
        let mut after = HashMap::with_capacity(servers.len());
        for ServerDefinition { tenant, name, spec } in servers {
            let key = (tenant.clone(), name.clone());
            let definition = match before.get(&key) {
                Some(known) if known.is_as(&spec) => Arc::clone(known),
                known => {
                    let log = known.map_or_else(|| self.open_log(&tenant, &name), |known| Arc::clone(&known.log));
                    let addresses = spec.at_each_address();
                    // There always is one.
                    let Some(first) = addresses.first().cloned() else { continue };
                    let origin = Arc::new(origin(&name, addresses.iter().map(|spec| &**spec)));
                    Arc::new(ActiveDefinition { tenant, name, spec: first, addresses, origin, log })
                }
            };
            after.insert(key, definition);
        }
        let mut stopped = Vec::new();
        units.all.retain(|((owner, name, tenant), endpoint, meeting), unit| {
            let key = (owner.clone(), name.clone());
            match (before.get(&key), after.get(&key)) {
                (_, None) => {
                    stopped.push(Arc::clone(unit));
                    false
                }
                // One for all is not one for each, and the other way round.
                (Some(old), Some(new)) if old.spec.shareable != new.spec.shareable && tenant != owner => {
                    stopped.push(Arc::clone(unit));
                    false
                }
                (Some(old), Some(new)) if !Arc::ptr_eq(old, new) => match new.met_at(*endpoint, *meeting) {
                    // It does not have that address any more, or is met in one way only.
                    None => {
                        stopped.push(Arc::clone(unit));
                        false
                    }
                    Some(spec) => {
                        let was_alone = unit.has_stand_in(new.has_fallbacks() || *meeting == EraMeeting::Legacy);
                        if was_alone && new.has_fallbacks() {
                            // Whatever became of this one, there is another to ask now.
                            self.context.watchers.availability(unit, true);
                        }
                        if old.addresses.get(*endpoint) != Some(spec) {
                            changes.0.push(unit.change(Arc::clone(spec)));
                        }
                        true
                    }
                },
                _ => true,
            }
        });
        self.definitions.store(Arc::new(after));
        drop(units);
        for unit in stopped {
            self.context.tasks.spawn(async move { unit.stop().await });
        }
        changes
    }

    /// How every server stands, one line for each process there is or was, in a stable order.
    pub fn status(&self) -> Vec<ServerStatus> {
        let units = self.units();
        let definitions = self.definitions.load();
        // How further addresses stand, their breakers say.
        let first =
            units.all.iter().filter(|((_, endpoint, meeting), _)| *endpoint == 0 && *meeting == EraMeeting::First);
        let again = |key: &UnitKey| units.all.get(&(key.clone(), 0, EraMeeting::Legacy));
        let mut all: Vec<ServerStatus> =
            first.map(|((key, ..), unit)| status_of(unit, again(key).map(|unit| &**unit), &definitions)).collect();
        // Servers nobody has wanted yet.
        for definition in definitions.values() {
            let has_unit = |unit: &Arc<ServerUnit>| unit.owner == definition.tenant && unit.name == definition.name;
            if !units.all.iter().any(|((_, endpoint, _), unit)| *endpoint == 0 && has_unit(unit)) {
                all.push(ServerStatus {
                    tenant: definition.tenant.clone(),
                    name: definition.name.clone(),
                    serves: None,
                    state: ServerState::Stopped,
                    since: self.context.clock.now(),
                    restarts: 0,
                    era: None,
                    pid: None,
                    last_error: None,
                    last_hint: None,
                    calls: 0,
                    also_in_legacy: None,
                });
            }
        }
        all.sort_by(|a, b| {
            let key = |status: &ServerStatus| {
                (status.tenant.to_string(), status.name.clone(), status.serves.as_ref().map(ToString::to_string))
            };
            key(a).cmp(&key(b))
        });
        all
    }

    /// Starts every process of this server anew; calls that run finish on the old ones.
    ///
    /// # Errors
    /// There is no such server, or a new process could not be started; the old one serves on then.
    pub async fn restart(&self, owner: &TenantId, name: &str) -> Result<(), Refusal> {
        let definition = self.definition(owner, name)?;
        let of_it = |unit: &&Arc<ServerUnit>| unit.owner == *owner && unit.name == name;
        let mut units: Vec<Arc<ServerUnit>> = self.units().all.values().filter(of_it).cloned().collect();
        if units.is_empty() {
            units.push(self.unit(&definition, owner)?);
        }
        for unit in units {
            unit.restart().await?;
        }
        Ok(())
    }

    /// The last lines of a server's log, oldest first.
    ///
    /// # Errors
    /// There is no such server, or its log cannot be read.
    pub async fn log_tail(&self, owner: &TenantId, name: &str, lines: usize) -> Result<Vec<String>, Refusal> {
        let definition = self.definition(owner, name)?;
        definition.log.tail(lines.min(LOG_LINES_MAX)).await.map_err(|error| {
            tracing::warn!(server = %name, error = &error as &dyn std::error::Error, "the log of a server cannot be read");
            Refusal::new(ErrorCode::E3000, format!("the log of the server `{name}` cannot be read")).caused_by(error)
        })
    }

    /// Somebody else wants to hear of changes.
    pub fn watch(&self, watcher: Arc<dyn UpstreamWatcher>) {
        self.context.watchers.add(watcher);
    }

    /// Ends everything, calls that run first, and comes back when nothing is left.
    pub async fn shut_down(&self) {
        let units: Vec<Arc<ServerUnit>> = {
            let mut units = self.units();
            units.closed = true;
            units.all.drain().map(|(_, unit)| unit).collect()
        };
        self.definitions.store(Arc::default());
        futures_util::future::join_all(units.iter().map(|unit| unit.stop())).await;
        self.context.tasks.close();
        self.context.tasks.wait().await;
    }

    /// Every definition in force, in no order.
    pub(crate) fn definitions(&self) -> Vec<Arc<ActiveDefinition>> {
        self.definitions.load().values().cloned().collect()
    }

    /// What a name means for a tenant.
    pub(crate) fn definition(&self, owner: &TenantId, name: &str) -> Result<Arc<ActiveDefinition>, Refusal> {
        let definitions = self.definitions.load();
        definitions.get(&(owner.clone(), name.to_owned())).cloned().ok_or_else(|| unknown(name))
    }

    /// At its first address.
    pub(crate) fn unit(
        &self,
        definition: &Arc<ActiveDefinition>,
        caller: &TenantId,
    ) -> Result<Arc<ServerUnit>, Refusal> {
        self.unit_at(definition, caller, 0, EraMeeting::First)
    }

    /// UPS-2.
    fn unit_at(
        &self,
        definition: &Arc<ActiveDefinition>,
        caller: &TenantId,
        endpoint: usize,
        meeting: EraMeeting,
    ) -> Result<Arc<ServerUnit>, Refusal> {
        let tenant = if definition.spec.shareable { &definition.tenant } else { caller };
        let key = ((definition.tenant.clone(), definition.name.clone(), tenant.clone()), endpoint, meeting);
        let mut units = self.units();
        if let Some(unit) = units.all.get(&key) {
            return Ok(Arc::clone(unit));
        }
        if units.closed {
            return Err(Refusal::new(ErrorCode::E3001, "the server is being shut down"));
        }
        if units.all.len() >= self.context.bounds.units_max {
            return Err(Refusal::new(ErrorCode::E3701, "too many servers are kept at once"));
        }
        // The definition may have changed since it was looked up.
        let current = self.definition(&definition.tenant, &definition.name)?;
        let Some(spec) = current.met_at(endpoint, meeting) else { return Err(unknown(&current.name)) };
        // Resources are watched at the first address only.
        let watched = if endpoint == 0 { self.watches.of(&key.0) } else { Arc::default() };
        let unit = ServerUnit::new(
            &self.context,
            UnitName {
                owner: current.tenant.clone(),
                tenant: tenant.clone(),
                server: current.name.clone(),
                endpoint,
                meeting,
                has_stand_in: current.has_fallbacks() || meeting == EraMeeting::Legacy,
            },
            Arc::clone(spec),
            Arc::clone(&current.log),
            watched,
        );
        units.all.insert(key, Arc::clone(&unit));
        Ok(unit)
    }

    /// One that is of no use is ended, and nobody is sent to it any more.
    fn forget(&self, unit: &Arc<ServerUnit>) {
        self.units().all.retain(|_, known| !Arc::ptr_eq(known, unit));
        let unit = Arc::clone(unit);
        self.context.tasks.spawn(async move { unit.stop().await });
    }

    fn open_log(&self, tenant: &TenantId, name: &str) -> Arc<ServerLog> {
        let file = if *tenant == TenantId::home() { name.to_owned() } else { format!("{tenant}__{name}") };
        let teller = ServerTeller::new(Arc::clone(&self.context.observer), tenant, name);
        let redactor = self.redactor.of_tenant(tenant).unwrap_or_else(|| Arc::clone(&self.redactor));
        ServerLog::open(
            &self.log_dir,
            &file,
            self.context.bounds.log,
            Arc::clone(&self.context.clock),
            teller,
            redactor,
        )
    }

    /// How many calls are on servers and wait for their turn there, of all servers together.
    pub(crate) fn places(&self) -> PlaceUsage {
        let none = PlaceBounds { capacity: 0, per_flow: 0, waiting: 0 };
        let empty = PlaceUsage { bounds: none, held: 0, waiting: 0, refused: 0 };
        self.units().all.values().fold(empty, |all, unit| {
            let one = unit.places();
            PlaceUsage {
                bounds: PlaceBounds {
                    capacity: all.bounds.capacity.saturating_add(one.bounds.capacity),
                    per_flow: all.bounds.per_flow.max(one.bounds.per_flow),
                    waiting: all.bounds.waiting.saturating_add(one.bounds.waiting),
                },
                held: all.held.saturating_add(one.held),
                waiting: all.waiting.saturating_add(one.waiting),
                refused: all.refused.saturating_add(one.refused),
            }
        })
    }

    /// How many servers run as programs of this machine.
    pub(crate) fn programs(&self) -> PlaceUsage {
        self.context.starter.programs.usage()
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        self.units.lock_unpoisoned()
    }
}

/// Whoever forgets to shut down leaves no process behind; only nobody waits for the end.
impl Drop for UpstreamServers {
    fn drop(&mut self) {
        self.units().all.drain().for_each(|(_, unit)| unit.abandon());
    }
}

fn status_of(
    unit: &ServerUnit,
    again: Option<&ServerUnit>,
    definitions: &HashMap<Key, Arc<ActiveDefinition>>,
) -> ServerStatus {
    let shared =
        definitions.get(&(unit.owner.clone(), unit.name.clone())).is_some_and(|definition| definition.spec.shareable);
    let facts = unit.facts().clone();
    ServerStatus {
        tenant: unit.owner.clone(),
        name: unit.name.clone(),
        serves: (!shared).then(|| unit.tenant.clone()),
        state: unit.state(),
        since: facts.since,
        restarts: facts.restarts,
        era: facts.era,
        pid: unit.process(),
        last_error: facts.last_error,
        last_hint: facts.last_hint,
        calls: unit.calls(),
        also_in_legacy: again.map(|unit| SecondMeeting {
            state: unit.state(),
            pid: unit.process(),
            calls: unit.calls(),
        }),
    }
}

fn unknown(name: &str) -> Refusal {
    let shown: String = name.chars().take(100).collect();
    Refusal::new(ErrorCode::E3108, format!("there is no server `{shown}` behind this one"))
        .hint("`gantry server list` shows the servers there are")
        .retryable(false)
}
