//! What the servers behind Gantry offer, and what of it is offered to callers: discovery, pins, quarantine. (MCP-003,
//! REG-019…023)
//!
//! ```text
//! look at a server ─▶ descriptors one by one ─▶ judge each against its pin ─▶ take away what may not be offered
//!     ─▶ publish what is new ─▶ pins durable ─▶ offer what may be
//! ```
//!
//! Taking away comes first and offering last, so that whatever interrupts a look leaves less on offer, never more; the
//! next look does the rest.
//!
//! Invariants
//! - CAT-1: no caller sees a definition that was not accepted. What is published is made from accepted ones alone.
//! - CAT-2: a tool is offered only after its pin is durable, and all changes of one look become visible at once.
//! - CAT-3: one look, or one decision, at a time for each server.
//! - CAT-5: where several instances share a store, what one has changed is so at all of them ([`ServerCatalogue::follow`]).
//! - CAT-6: what was judged by pins that another instance has changed since is not kept; it is judged again.
//! - CAT-7: servers are put and removed one after the other: whether there is room for one, and in which namespace its tools
//!   stand, is judged by exactly those that are stored when it is, on every instance.
//! - CAT-4: a published tool of a server without an accepted pin is offered to nobody, from the first moment on; and
//!   only what is taken in here is published as one (the kernel refuses it by hand).
//!
//! Not here: keeping servers alive (`supervisor`), the rules of pinning (`pins`), how names are made (`naming`).

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::Execution;
use contract::nearest::nearest;
use kernel::{Kernel, ToolKey, WhyUnavailable};
use ports::change_bus::ChangeBus;
use ports::server_administration::ToolProblem;
use ports::upstream_store::{PinRecord, ServerRecord, UpstreamStore};

use crate::admission::ServerAdmission;
use crate::pins;
use crate::spec::{LifeBounds, ServerSpec};

mod administration;
mod descriptor;
mod difference;
mod intake;
mod manifest;
mod scanned;
mod source;
mod spec_changes;
mod store_changes;
mod stored;
mod supervised;
#[cfg(test)]
mod tests;

pub(crate) use descriptor::shown;
pub use descriptor::{DUPLICATE_TOOL_NAME, INVALID_TOOL_SCHEMA, NO_ANSWER, NOT_ADMITTED, TOO_MANY_TOOLS};
pub use intake::IntakeReport;
pub use scanned::DefinitionScanner;
pub use source::{
    ChangesSettled, DefinitionInspection, DefinitionInspector, ServerSupervision, ToolSource, WantedServer,
};

/// Least time between two looks that a server itself has asked for: one that cries all day is looked at once a second.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// What a catalogue is made of.
#[derive(Debug, Clone)]
pub struct CatalogueParts {
    pub kernel: Arc<Kernel>,
    pub store: Arc<dyn UpstreamStore>,
    pub supervision: Arc<dyn ServerSupervision>,
    pub inspector: Arc<dyn DefinitionInspector>,
    /// Judges what is put.
    pub admission: Arc<ServerAdmission>,
    /// Carries changes between instances on one store; none if there can be no others.
    pub bus: Option<Arc<dyn ChangeBus>>,
    /// How often everything is read again without a word from anybody.
    pub reread: Duration,
}

/// What the servers behind Gantry offer.
#[derive(Debug)]
pub struct ServerCatalogue {
    parts: CatalogueParts,
    servers: Mutex<BTreeMap<ServerKey, KnownServer>>,
    /// CAT-3. One entry for each server.
    turns: Mutex<HashMap<ServerKey, Arc<tokio::sync::Mutex<()>>>>,
    /// CAT-7. Held for a reading and a writing of the store and no longer: nobody's server is asked anything meanwhile.
    placing: tokio::sync::Mutex<()>,
    /// Servers that are being looked at because they said so, and whether they have said it again meanwhile.
    looking: Mutex<HashMap<ServerKey, bool>>,
    /// Held for reading by whoever stores something, for writing by whoever reads everything anew (FOL-1).
    storing: tokio::sync::RwLock<()>,
    /// Hands servers over in the order in which they have changed.
    supervising: Mutex<()>,
}

/// Whose server, and what it is called.
type ServerKey = (TenantId, String);

/// What is known of one server.
#[derive(Debug, Clone)]
struct KnownServer {
    record: ServerRecord,
    /// None if this release cannot read it; then the server is not started.
    spec: Option<ServerSpec>,
    /// Does it answer, as far as anybody knows? A server that has not been asked yet is started when it is.
    answers: bool,
    /// By its own names of the tools.
    pins: BTreeMap<String, PinRecord>,
    problems: Vec<ToolProblem>,
}

impl KnownServer {
    /// The availability of every tool.
    fn availability(&self) -> impl Iterator<Item = (ToolKey, Option<WhyUnavailable>)> {
        self.pins.values().map(|pin| (key_of(pin), pins::why_unavailable(pin, self.answers)))
    }

    /// Is it kept without ever being started?
    fn is_disabled(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.disabled)
    }

    /// What calls of its tools may take and give, unless they say otherwise.
    fn upkeep(&self) -> LifeBounds {
        self.spec.as_ref().map_or_else(LifeBounds::default, |spec| spec.upkeep)
    }

    fn namespace(&self) -> String {
        namespace(&self.record.name, self.spec.as_ref())
    }
}

fn key_of(pin: &PinRecord) -> ToolKey {
    (pin.tenant.clone(), pin.tool.clone())
}

pub(crate) fn namespace(name: &str, spec: Option<&ServerSpec>) -> String {
    spec.and_then(|spec| spec.namespace.clone()).unwrap_or_else(|| crate::tool_names::namespace(name))
}

impl ServerCatalogue {
    /// Reads what is kept, says what may be offered (CAT-4), and hands the servers over to be kept alive. To be done
    /// before any door opens.
    pub async fn open(parts: CatalogueParts) -> Result<Arc<Self>, Refusal> {
        let state = parts.store.load().await.map_err(|error| error.refusal())?;
        let servers = store_changes::read(state, &BTreeMap::new());
        let catalogue = Arc::new(Self {
            parts,
            servers: Mutex::new(servers),
            turns: Mutex::default(),
            placing: tokio::sync::Mutex::default(),
            looking: Mutex::default(),
            storing: tokio::sync::RwLock::default(),
            supervising: Mutex::default(),
        });
        catalogue.close_what_nobody_accepted();
        catalogue.supervise().await;
        Ok(catalogue)
    }

    /// The server does or does not answer: its tools come and go with it (REG-022).
    pub fn availability(&self, tenant: &TenantId, server: &str, answers: bool) {
        let mut servers = self.table();
        let Some(kept) = servers.get_mut(&(tenant.clone(), server.to_owned())) else { return };
        // The last word of a process may come after its server was switched off.
        kept.answers = answers && !kept.is_disabled();
        // Under the lock, so that of two words about one server the later one holds.
        self.parts.kernel.availability().set(kept.availability());
    }

    /// The server says that its tools have changed. Looks at it soon; however often it says so, one look at a time and
    /// one more after that.
    pub fn look_again(self: &Arc<Self>, tenant: &TenantId, server: &str) {
        let key = (tenant.clone(), server.to_owned());
        if self.kept(&key).is_none() {
            return;
        }
        match lock(&self.looking).entry(key.clone()) {
            Entry::Occupied(mut again) => {
                again.insert(true);
                return;
            }
            Entry::Vacant(first) => first.insert(false),
        };
        let catalogue = Arc::clone(self);
        tokio::spawn(async move { catalogue.look_until_quiet(&key).await });
    }

    async fn look_until_quiet(&self, key: &ServerKey) {
        loop {
            // A server that has stopped meanwhile says what it has when it is started the next time. To start it for this would
            // make it speak again, and so keep it from ever resting.
            if !self.is_stopped(key)
                && let Err(refusal) = self.refresh(&key.0, &key.1).await
            {
                tracing::warn!(server = key.1, code = %refusal.code, message = refusal.message, "cannot look at its tools");
            }
            self.parts.kernel.clock().sleep(LOOK_PAUSE).await;
            let mut looking = lock(&self.looking);
            match looking.get_mut(key) {
                Some(again) if *again => *again = false,
                _ => {
                    looking.remove(key);
                    return;
                }
            }
        }
    }

    fn is_stopped(&self, (tenant, server): &ServerKey) -> bool {
        self.parts.supervision.status(tenant, server).get("state").and_then(serde_json::Value::as_str)
            == Some("stopped")
    }

    /// The names of all servers, with whose they are.
    pub fn names(&self) -> Vec<(TenantId, String)> {
        self.table().keys().cloned().collect()
    }

    // ------------------------------------------------------------------------------------------------ private parts

    /// CAT-4: what the pins say, and of published tools without a pin that nobody may have them.
    fn close_what_nobody_accepted(&self) {
        {
            let servers = self.table();
            self.parts.kernel.availability().set(servers.values().flat_map(KnownServer::availability));
        }
        self.close_orphans();
    }

    /// CAT-4, the second half.
    fn close_orphans(&self) {
        // Held to the end: of two words about one tool the later one holds.
        let servers = self.table();
        let pinned: HashSet<ToolKey> = servers.values().flat_map(|kept| kept.pins.values().map(key_of)).collect();
        let registry = self.parts.kernel.registry().snapshot();
        let orphans = registry
            .tools()
            .filter(|tool| tool.versions().iter().any(|v| matches!(v.manifest.execution, Some(Execution::Mcp { .. }))))
            .map(|tool| ((tool.tenant.clone(), tool.id.clone()), tool.server()))
            .filter(|(key, _)| !pinned.contains(key))
            .map(|(key, server)| {
                let is_there = server.is_some_and(|name| servers.contains_key(&(key.0.clone(), name.to_owned())));
                let why = if is_there { WhyUnavailable::Withdrawn } else { WhyUnavailable::ServerRemoved };
                (key, Some(why))
            });
        self.parts.kernel.availability().set(orphans);
    }

    /// Hands all servers over. What is given back waits until the changes have come to life; nobody has to.
    fn supervise(&self) -> ChangesSettled {
        let _order = lock(&self.supervising);
        let wanted = self
            .table()
            .iter()
            .filter(|(_, kept)| !kept.is_disabled())
            .filter_map(|((tenant, name), kept)| {
                Some(WantedServer { tenant: tenant.clone(), name: name.clone(), spec: kept.spec.clone()? })
            })
            .collect();
        self.parts.supervision.apply(wanted)
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<ServerKey, KnownServer>> {
        lock(&self.servers)
    }

    fn kept(&self, key: &ServerKey) -> Option<KnownServer> {
        self.table().get(key).cloned()
    }

    /// What is known of a server, or that there is none.
    fn known(&self, key: &ServerKey) -> Result<KnownServer, Refusal> {
        let servers = self.table();
        servers.get(key).cloned().ok_or_else(|| {
            let names = servers.keys().filter(|(tenant, _)| *tenant == key.0).map(|(_, name)| name.as_str());
            let refusal = Refusal::new(ErrorCode::E3101, format!("there is no server `{}`", descriptor::shown(&key.1)));
            match nearest(&key.1, names) {
                Some(near) => refusal.hint(format!("did you mean `{near}`?")),
                None => refusal.hint("`gantry server list` shows those there are"),
            }
        })
    }

    /// CAT-3: to be held for the whole of a look or a decision.
    fn turn(&self, key: &ServerKey) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(lock(&self.turns).entry(key.clone()).or_default())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock_unpoisoned()
}
