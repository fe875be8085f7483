//! All servers behind Gantry: which there are, how each stands, and what can be asked of them besides calling their tools.
//!
//! A server is defined by a tenant (its owner) and runs once for each tenant that calls it, or once for all if it is
//! shareable. The definitions are an immutable map that is swapped; the processes are made when they are wanted.
//!
//! Invariants
//! - UPS-1: nothing is started before somebody wants it.
//! - UPS-2: a tenant's calls never reach the process of another tenant, unless the server is shareable.
//! - UPS-3: lists are read to their end or refused: at most [`ITEMS_MAX`] items and [`LIST_BYTES_MAX`] bytes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use executors::{Confinement, Walls};
use kernel::ResolvedLimits;
use kernel::ports::clock::{Clock, UnixMillis};
use kernel::ports::entropy::Entropy;
use kernel::ports::secret_source::SecretSource;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::bounds::UpstreamBounds;
use crate::connection::{Era, outbound, within};
use crate::fault::{Fault, METHOD_NOT_FOUND};
use crate::server_log::ServerLog;
use crate::spec::ServerSpec;
use crate::starter::Starter;
use crate::supervisor::live::InUse;
use crate::supervisor::{House, ServerState, Unit};
use crate::watcher::{UpstreamWatcher, Watchers};

/// Most items of one list of a server.
pub const ITEMS_MAX: usize = 10_000;
/// Most bytes of one list of a server.
pub const LIST_BYTES_MAX: usize = 64 << 20;
/// Most pages of one list of a server.
const PAGES_MAX: usize = 1_000;
/// Most lines of a log that are shown at once.
const LOG_LINES_MAX: usize = 10_000;

/// What keeping servers needs.
#[derive(Debug)]
pub struct UpstreamParts {
    /// What stands around programs. Its sandboxes are occupied for as long as servers run, so it should be of their own.
    pub walls: Walls,
    /// What programs may be given.
    pub confinement: Confinement,
    pub secrets: Arc<dyn SecretSource>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    /// Where the logs of servers are kept, usually `<data-dir>/logs/servers`.
    pub log_dir: PathBuf,
    /// What one program may use.
    pub limits: ResolvedLimits,
    pub bounds: UpstreamBounds,
}

/// One definition.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
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
    pub era: Option<Era>,
    pub pid: Option<u32>,
    pub last_error: Option<String>,
    /// Calls and other questions so far.
    pub calls: u64,
}

/// A definition in force.
#[derive(Debug)]
pub(crate) struct Definition {
    pub(crate) tenant: TenantId,
    pub(crate) name: String,
    pub(crate) spec: Arc<ServerSpec>,
    log: Arc<ServerLog>,
}

type Key = (TenantId, String);
/// A definition, and the tenant it runs for.
type UnitKey = (TenantId, String, TenantId);

/// The servers behind Gantry.
#[derive(Debug)]
pub struct Upstreams {
    house: Arc<House>,
    log_dir: PathBuf,
    definitions: ArcSwap<HashMap<Key, Arc<Definition>>>,
    units: Mutex<Units>,
}

#[derive(Debug, Default)]
struct Units {
    all: HashMap<UnitKey, Arc<Unit>>,
    closed: bool,
}

impl Upstreams {
    /// With no servers yet. Must be called within a runtime.
    pub fn new(parts: UpstreamParts) -> Arc<Self> {
        let UpstreamParts { walls, confinement, secrets, clock, entropy, log_dir, limits, bounds } = parts;
        let http = outbound::client().inspect_err(
            |error| tracing::error!(%error, "servers elsewhere cannot be reached: there is no HTTP client"),
        );
        let starter = Starter { walls, confinement, secrets, clock: Arc::clone(&clock), http: http.ok(), limits };
        let (watchers, tasks) = (Watchers::default(), TaskTracker::new());
        let house = Arc::new(House { starter, bounds, clock, entropy, watchers, tasks });
        Arc::new(Self { house, log_dir, definitions: ArcSwap::default(), units: Mutex::default() })
    }

    /// These are the servers from now on. What is new is known, what is changed is switched over, what is gone is drained.
    pub fn apply(&self, servers: Vec<Server>) {
        let mut units = self.units();
        if units.closed {
            return;
        }
        let before = self.definitions.load_full();
        let mut after = HashMap::with_capacity(servers.len());
        for Server { tenant, name, spec } in servers {
            let key = (tenant.clone(), name.clone());
            let definition = match before.get(&key) {
                Some(known) if *known.spec == spec => Arc::clone(known),
                known => {
                    let log = known.map_or_else(|| self.open_log(&tenant, &name), |known| Arc::clone(&known.log));
                    Arc::new(Definition { tenant, name, spec: Arc::new(spec), log })
                }
            };
            after.insert(key, definition);
        }
        let mut stopped = Vec::new();
        units.all.retain(|(owner, name, tenant), unit| {
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
                (Some(old), Some(new)) if !Arc::ptr_eq(&old.spec, &new.spec) => {
                    unit.change(Arc::clone(&new.spec));
                    true
                }
                _ => true,
            }
        });
        self.definitions.store(Arc::new(after));
        drop(units);
        for unit in stopped {
            self.house.tasks.spawn(async move { unit.stop().await });
        }
    }

    /// All tools of a server as it describes them, every page.
    ///
    /// # Errors
    /// The server is not known, cannot be reached, or has too many.
    pub async fn list_tools(&self, tenant: &TenantId, name: &str) -> Result<Vec<Value>, Refusal> {
        self.list(tenant, name, tenant, "tools/list", "tools").await
    }

    /// All resources of a server, for a tenant that calls.
    ///
    /// # Errors
    /// As [`list_tools`](Self::list_tools); also if its resources are not offered.
    pub async fn list_resources(&self, owner: &TenantId, name: &str, caller: &TenantId) -> Result<Vec<Value>, Refusal> {
        self.offers_resources(owner, name)?;
        self.list(owner, name, caller, "resources/list", "resources").await
    }

    /// All templates of resources.
    ///
    /// # Errors
    /// As [`list_resources`](Self::list_resources).
    pub async fn list_resource_templates(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
    ) -> Result<Vec<Value>, Refusal> {
        self.offers_resources(owner, name)?;
        self.list(owner, name, caller, "resources/templates/list", "resourceTemplates").await
    }

    /// One resource, as the server gives it: `{ "contents": [...] }`.
    ///
    /// # Errors
    /// As [`list_resources`](Self::list_resources).
    pub async fn read_resource(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
        uri: &str,
    ) -> Result<Value, Refusal> {
        self.offers_resources(owner, name)?;
        self.ask(owner, name, caller, "resources/read", json!({ "uri": uri })).await
    }

    /// All prompts of a server.
    ///
    /// # Errors
    /// As [`list_tools`](Self::list_tools); also if its prompts are not offered.
    pub async fn list_prompts(&self, owner: &TenantId, name: &str, caller: &TenantId) -> Result<Vec<Value>, Refusal> {
        self.offers_prompts(owner, name)?;
        self.list(owner, name, caller, "prompts/list", "prompts").await
    }

    /// One prompt. `params` are those of `prompts/get`.
    ///
    /// # Errors
    /// As [`list_prompts`](Self::list_prompts).
    pub async fn get_prompt(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
        params: Value,
    ) -> Result<Value, Refusal> {
        self.offers_prompts(owner, name)?;
        self.ask(owner, name, caller, "prompts/get", params).await
    }

    /// Completes an argument. `params` are those of `completion/complete`.
    ///
    /// # Errors
    /// The server is not known or cannot be reached, or neither its prompts nor its resources are offered.
    pub async fn complete(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
        params: Value,
    ) -> Result<Value, Refusal> {
        self.offers_prompts(owner, name).or_else(|_| self.offers_resources(owner, name))?;
        self.ask(owner, name, caller, "completion/complete", params).await
    }

    /// How every server stands, one line for each process there is or was, in a stable order.
    pub fn status(&self) -> Vec<ServerStatus> {
        let units = self.units();
        let definitions = self.definitions.load();
        let mut all: Vec<ServerStatus> = units.all.values().map(|unit| status_of(unit, &definitions)).collect();
        // Servers nobody has wanted yet.
        for definition in definitions.values() {
            let has_unit = |unit: &Arc<Unit>| unit.owner == definition.tenant && unit.name == definition.name;
            if !units.all.values().any(has_unit) {
                all.push(ServerStatus {
                    tenant: definition.tenant.clone(),
                    name: definition.name.clone(),
                    serves: None,
                    state: ServerState::Stopped,
                    since: self.house.clock.now(),
                    restarts: 0,
                    era: None,
                    pid: None,
                    last_error: None,
                    calls: 0,
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
        let of_it = |unit: &&Arc<Unit>| unit.owner == *owner && unit.name == name;
        let mut units: Vec<Arc<Unit>> = self.units().all.values().filter(of_it).cloned().collect();
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
            tracing::warn!(server = %name, %error, "the log of a server cannot be read");
            Refusal::new(ErrorCode::E3000, format!("the log of the server `{name}` cannot be read"))
        })
    }

    /// Somebody else wants to hear of changes.
    pub fn watch(&self, watcher: Arc<dyn UpstreamWatcher>) {
        self.house.watchers.add(watcher);
    }

    /// Ends everything, calls that run first, and comes back when nothing is left.
    pub async fn shut_down(&self) {
        let units: Vec<Arc<Unit>> = {
            let mut units = self.units();
            units.closed = true;
            units.all.drain().map(|(_, unit)| unit).collect()
        };
        self.definitions.store(Arc::default());
        futures_util::future::join_all(units.iter().map(|unit| unit.stop())).await;
        self.house.tasks.close();
        self.house.tasks.wait().await;
    }

    /// Every definition in force, in no order.
    pub(crate) fn definitions(&self) -> Vec<Arc<Definition>> {
        self.definitions.load().values().cloned().collect()
    }

    /// What a name means for a tenant.
    pub(crate) fn definition(&self, owner: &TenantId, name: &str) -> Result<Arc<Definition>, Refusal> {
        let definitions = self.definitions.load();
        definitions.get(&(owner.clone(), name.to_owned())).cloned().ok_or_else(|| unknown(name))
    }

    /// UPS-2.
    pub(crate) fn unit(&self, definition: &Arc<Definition>, caller: &TenantId) -> Result<Arc<Unit>, Refusal> {
        let tenant = if definition.spec.shareable { &definition.tenant } else { caller };
        let key = (definition.tenant.clone(), definition.name.clone(), tenant.clone());
        let mut units = self.units();
        if let Some(unit) = units.all.get(&key) {
            return Ok(Arc::clone(unit));
        }
        if units.closed {
            return Err(Refusal::new(ErrorCode::E3001, "the server is being shut down"));
        }
        if units.all.len() >= self.house.bounds.units_max {
            return Err(Refusal::new(ErrorCode::E3701, "too many servers are kept at once"));
        }
        // The definition may have changed since it was looked up.
        let current = self.definition(&definition.tenant, &definition.name)?;
        let unit = Unit::new(
            &self.house,
            current.tenant.clone(),
            tenant.clone(),
            current.name.clone(),
            Arc::clone(&current.spec),
            Arc::clone(&current.log),
        );
        units.all.insert(key, Arc::clone(&unit));
        Ok(unit)
    }

    async fn ask(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
        method: &str,
        params: Value,
    ) -> Result<Value, Refusal> {
        self.run(owner, name, caller, Errand::Ask { method, params }).await
    }

    async fn list(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
        method: &str,
        member: &str,
    ) -> Result<Vec<Value>, Refusal> {
        match self.run(owner, name, caller, Errand::List { method, member }).await? {
            Value::Array(items) => Ok(items),
            _ => Ok(Vec::new()),
        }
    }

    async fn run(
        &self,
        owner: &TenantId,
        name: &str,
        caller: &TenantId,
        errand: Errand<'_>,
    ) -> Result<Value, Refusal> {
        let unit = self.unit(&self.definition(owner, name)?, caller)?;
        let _turn = unit.admitted().await?;
        let mut again = true;
        loop {
            let live = unit.live().await?;
            match errand.once(&self.house, &live).await {
                Ok(value) => return Ok(live.scrubber.value(value)),
                Err(fault) if fault.ends_connection() && std::mem::take(&mut again) => {
                    if matches!(fault, Fault::NotSent(_)) {
                        live.connection.give_up("the server cannot be reached");
                    }
                }
                Err(fault) => return Err(live.scrubber.refusal(fault.refusal(name, true))),
            }
        }
    }

    fn offers_resources(&self, owner: &TenantId, name: &str) -> Result<(), Refusal> {
        if self.definition(owner, name)?.spec.resources { Ok(()) } else { Err(not_offered(name, "resources")) }
    }

    fn offers_prompts(&self, owner: &TenantId, name: &str) -> Result<(), Refusal> {
        if self.definition(owner, name)?.spec.prompts { Ok(()) } else { Err(not_offered(name, "prompts")) }
    }

    fn open_log(&self, tenant: &TenantId, name: &str) -> Arc<ServerLog> {
        let file = if *tenant == TenantId::home() { name.to_owned() } else { format!("{tenant}__{name}") };
        ServerLog::open(&self.log_dir, &file, self.house.bounds.log, Arc::clone(&self.house.clock))
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        self.units.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that may be asked twice.
enum Errand<'a> {
    Ask { method: &'a str, params: Value },
    List { method: &'a str, member: &'a str },
}

impl Errand<'_> {
    async fn once(&self, house: &House, live: &InUse) -> Result<Value, Fault> {
        let patience = house.bounds.list_patience;
        match self {
            Self::Ask { method, params } => live.connection.request_within(patience, method, params.clone()).await,
            Self::List { method, member } => {
                let pages = pages(live, method, member);
                within(&*house.clock, patience, pages).await.unwrap_or(Err(Fault::Late)).map(Value::Array)
            }
        }
    }
}

/// Whoever forgets to shut down leaves no process behind; only nobody waits for the end.
impl Drop for Upstreams {
    fn drop(&mut self) {
        self.units().all.drain().for_each(|(_, unit)| unit.abandon());
    }
}

/// UPS-3.
async fn pages(live: &InUse, method: &str, member: &str) -> Result<Vec<Value>, Fault> {
    let mut items = Vec::new();
    let mut bytes = 0;
    let mut cursor: Option<Value> = None;
    for _ in 0..PAGES_MAX {
        let params = cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        let mut page = match live.connection.request(method, params).await {
            Ok(page) => page,
            // It has none of these.
            Err(Fault::Refused(error)) if error.code == METHOD_NOT_FOUND && cursor.is_none() => return Ok(items),
            Err(fault) => return Err(fault),
        };
        let Some(Value::Array(found)) = page.get_mut(member).map(Value::take) else {
            return Err(Fault::Nonsense("list"));
        };
        bytes += found.iter().map(|item| item.to_string().len()).sum::<usize>();
        items.extend(found);
        if items.len() > ITEMS_MAX || bytes > LIST_BYTES_MAX {
            return Err(too_many(method));
        }
        let next = page.get("nextCursor").filter(|next| !next.is_null()).cloned();
        match next {
            None => return Ok(items),
            // It would go round for ever.
            Some(next) if Some(&next) == cursor.as_ref() => return Err(Fault::Nonsense("list that ends")),
            Some(next) => cursor = Some(next),
        }
    }
    Err(too_many(method))
}

fn too_many(method: &str) -> Fault {
    Refusal::new(ErrorCode::E3407, format!("the server's answer to `{method}` has more than can be taken"))
        .retryable(false)
        .into()
}

fn status_of(unit: &Unit, definitions: &HashMap<Key, Arc<Definition>>) -> ServerStatus {
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
        calls: unit.calls(),
    }
}

fn unknown(name: &str) -> Refusal {
    let shown: String = name.chars().take(100).collect();
    Refusal::new(ErrorCode::E3108, format!("there is no server `{shown}` behind this one"))
        .hint("`gantry server list` shows the servers there are")
        .retryable(false)
}

fn not_offered(name: &str, what: &str) -> Refusal {
    Refusal::new(ErrorCode::E3010, format!("the {what} of the server `{name}` are not offered"))
        .hint(format!("let the operator set `{what}` for this server"))
        .retryable(false)
}
