//! Who is told when a server changes what it offers, goes away or comes back.

use std::fmt;
use std::sync::{Arc, RwLock};

use base::RwLockExt as _;
use contract::ids::TenantId;

use crate::supervisor::{EraMeeting, ServerUnit};

/// Hears of servers. Must not wait and must not call back; whoever has work to do does it elsewhere.
pub trait UpstreamWatcher: Send + Sync + fmt::Debug {
    /// The tools of a server may be others now: it said so, or it was started anew. Told once a second at most.
    fn tools_changed(&self, tenant: &TenantId, server: &str);

    /// A server was given up, or is back. Its tools cannot be called in between.
    fn availability(&self, tenant: &TenantId, server: &str, available: bool);
}

/// All who watch.
#[derive(Debug, Default)]
pub(crate) struct WatcherSet(RwLock<Vec<Arc<dyn UpstreamWatcher>>>);

impl WatcherSet {
    pub(crate) fn add(&self, watcher: Arc<dyn UpstreamWatcher>) {
        self.0.write_unpoisoned().push(watcher);
    }

    pub(crate) fn tools_changed(&self, unit: &ServerUnit) {
        self.tell(unit, |watcher| watcher.tools_changed(&unit.owner, &unit.name));
    }

    pub(crate) fn availability(&self, unit: &ServerUnit, available: bool) {
        self.tell(unit, |watcher| watcher.availability(&unit.owner, &unit.name, available));
    }

    /// Tools belong to the owner of a server, so its own process speaks for them, at the first address and as it was met first. That of another tenant
    /// speaks only to that tenant's calls.
    fn tell(&self, unit: &ServerUnit, word: impl Fn(&dyn UpstreamWatcher)) {
        if unit.tenant == unit.owner && unit.endpoint == 0 && unit.meeting == EraMeeting::First {
            let watchers = self.0.read_unpoisoned();
            watchers.iter().for_each(|watcher| word(&**watcher));
        }
    }
}
