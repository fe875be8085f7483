//! What clients are told without asking again: that a list is not what it was, and that a resource they watch has changed.
//!
//! A session of an older client and a stream of `subscriptions/listen` have one follower each. It compares what its own
//! caller may see with what it saw last, and holds the news of servers against the same: a change that does not concern it
//! is none.
//!
//! What a client does not take within [`TELLING_TIME`] is told again with the next news, once, however often it has changed
//! meanwhile: a client that never reads costs a follower a bounded set of words and keeps nobody else waiting.
//!
//! Not here: noticing that something has changed (`change_notifier` for the catalogue, `upstreams` for servers).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use ports::offerings::{OfferingChange, OfferingNotice, OfferingServer, ResourceWatch};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

use super::offering_relay::OfferingRelay;
use super::{McpVisit, resources};
use crate::door::Door;

/// How long a client may take to accept one word.
const TELLING_TIME: Duration = Duration::from_secs(5);
/// Resources that one session or stream watches.
pub(crate) const WATCHED_MAX: usize = 100;

/// Something a client is told.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ClientNotice {
    Tools,
    Resources,
    Prompts,
    /// A resource, by the address under which the client watches it.
    Updated(String),
}

/// Which lists a client wants to hear of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListSubscriptions {
    pub(crate) tools: bool,
    pub(crate) resources: bool,
    pub(crate) prompts: bool,
}

impl ListSubscriptions {
    /// Older clients hear of all.
    pub(crate) const ALL: Self = Self { tools: true, resources: true, prompts: true };

    fn include(self, told: &ClientNotice) -> bool {
        match told {
            ClientNotice::Tools => self.tools,
            ClientNotice::Resources => self.resources,
            ClientNotice::Prompts => self.prompts,
            ClientNotice::Updated(_) => true,
        }
    }
}

/// What one client watches.
#[derive(Debug, Default)]
pub(crate) struct ResourceSubscriptions(Mutex<HashMap<String, Watched>>);

#[derive(Debug)]
enum Watched {
    /// One of Gantry's own, which says who has which tools.
    Own,
    Server {
        server: String,
        /// As the server has it.
        uri: String,
        _watch: ResourceWatch,
    },
}

impl ResourceSubscriptions {
    /// Watches one more.
    pub(crate) async fn add(&self, door: &Door, visit: &McpVisit, uri: &str) -> Result<(), Refusal> {
        let full = || {
            Refusal::new(ErrorCode::E3003, format!("more than {WATCHED_MAX} resources are watched at once"))
                .hint("stop watching some of them")
        };
        if self.all().contains_key(uri) {
            return Ok(());
        }
        if self.all().len() >= WATCHED_MAX {
            return Err(full());
        }
        let watched = if resources::changes(uri) {
            resources::may_watch(door.kernel(), &visit.caller, uri)?;
            Watched::Own
        } else {
            let found = OfferingRelay::at(door, visit).resource_at(uri).await?;
            let asked = found.ok_or_else(|| resources::nothing(uri))?;
            let (server, own) = asked.place();
            let watch = door.kernel().watch_resource(visit.who.actor(), server, own).await?;
            Watched::Server { server: server.to_owned(), uri: own.to_owned(), _watch: watch }
        };
        let mut all = self.all();
        if all.len() >= WATCHED_MAX {
            return Err(full());
        }
        all.insert(uri.to_owned(), watched);
        Ok(())
    }

    /// Stops watching one. Nothing happens if it was not watched.
    pub(crate) fn remove(&self, uri: &str) {
        // What ends a watch at its server is not done under the lock.
        let removed = self.all().remove(uri);
        drop(removed);
    }

    /// What is watched of something, as the client knows it.
    fn meant(&self, is_meant: impl Fn(&Watched) -> bool) -> Vec<ClientNotice> {
        self.all()
            .iter()
            .filter(|(_, watched)| is_meant(watched))
            .map(|(uri, _)| ClientNotice::Updated(uri.clone()))
            .collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Watched>> {
        self.0.lock_unpoisoned()
    }
}

/// Tells one client what it wants to hear, until it is gone (`tell` says false), may not see anything any more, or we end.
pub(crate) async fn follow<F, T>(
    door: &std::sync::Arc<Door>,
    visit: &McpVisit,
    wants: ListSubscriptions,
    watching: &ResourceSubscriptions,
    tell: F,
) where
    F: Fn(ClientNotice) -> T + Send + Sync,
    T: Future<Output = bool> + Send,
{
    let mcp = door.mcp();
    let mut changes = mcp.changes.follow(&door.shared_kernel());
    let mut of_servers = door.kernel().offering_notices();
    let mut silent = false;
    let mut tools = visit.seen.get().copied().unwrap_or_else(|| mcp.listing(door.kernel(), visit).fingerprint);
    let mut servers = OfferingRelay::at(door, visit).servers();
    let mut due: BTreeSet<ClientNotice> = BTreeSet::new();
    loop {
        // The token may have ended or been revoked meanwhile.
        let Ok(caller) = door.kernel().recognise(visit.who.actor()).await else { return };
        let visit = &McpVisit { caller, ..visit.clone() };
        let now = mcp.listing(door.kernel(), visit).fingerprint;
        if std::mem::replace(&mut tools, now) != now {
            due.insert(ClientNotice::Tools);
            due.extend(watching.meant(|watched| matches!(watched, Watched::Own)));
        }
        let now = OfferingRelay::at(door, visit).servers();
        if now != servers {
            due.extend([ClientNotice::Resources, ClientNotice::Prompts]);
            servers = now;
        }
        due.retain(|told| wants.include(told));
        while let Some(told) = due.first().cloned() {
            match tokio::time::timeout(TELLING_TIME, tell(told.clone())).await {
                Ok(true) => due.remove(&told),
                Ok(false) => return,
                // It does not read. This and the rest are for the next time.
                Err(_) => break,
            };
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            heard = of_servers.recv(), if !silent => {
                let mut heard = heard;
                // What has come together is told together.
                loop {
                    match heard {
                        Ok(one) => due.extend(concerning(&one, visit, &servers, watching)),
                        Err(RecvError::Lagged(_)) => {
                            due.extend([ClientNotice::Resources, ClientNotice::Prompts]);
                            due.extend(watching.meant(|_| true));
                        }
                        Err(RecvError::Closed) => {
                            silent = true;
                            break;
                        }
                    }
                    heard = match of_servers.try_recv() {
                        Ok(one) => Ok(one),
                        Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                        Err(TryRecvError::Empty | TryRecvError::Closed) => break,
                    };
                }
            }
            () = mcp.ending.cancelled() => return,
        }
    }
}

/// What a word of a server means to one client.
fn concerning(
    notice: &OfferingNotice,
    visit: &McpVisit,
    servers: &[OfferingServer],
    watching: &ResourceSubscriptions,
) -> Vec<ClientNotice> {
    let tenant = visit.caller.caller().tenant();
    let server = servers.iter().find(|server| server.name == notice.server);
    let Some(server) = server.filter(|_| notice.tenant.as_ref().is_none_or(|concerned| concerned == tenant)) else {
        return Vec::new();
    };
    match &notice.change {
        OfferingChange::Resources if server.resources => vec![ClientNotice::Resources],
        OfferingChange::Prompts if server.prompts => vec![ClientNotice::Prompts],
        OfferingChange::Resource(changed) if server.resources => watching.meant(
            |watched| matches!(watched, Watched::Server { server, uri, .. } if *server == notice.server && uri == changed),
        ),
        _ => Vec::new(),
    }
}
