//! What changes on servers besides their tools: lists of resources and prompts, and resources that somebody watches.
//!
//! ```text
//! server ──▶ Router ──▶ Changes (of one unit, coalesced) ──every NEWS_EVERY──▶ News (bounded) ──▶ whoever follows
//! Watch ──▶ WatchedResources (counted by address) ──▶ follower: asks the server, again after every restart
//! ```
//!
//! Invariants
//! - WATCH-1: a server that floods costs one note per watched resource and [`NEWS_EVERY`], for others as for itself.
//! - WATCH-2: whoever watches hears of a resource again after a restart, because nobody knows what happened in between.
//! - WATCH-3: a resource that nobody watches any more is not watched at the server either.
//!
//! Not here: who may watch (`kernel`), what a client is told (the door).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use ports::offerings::{OfferingChange, OfferingNotice, ResourceWatch};
use serde_json::json;
use tokio::sync::{Notify, broadcast, watch};

use crate::connection::ProtocolEra;
use crate::supervisor::ServerUnit;
use crate::supervisor::live::LiveConnection;
use crate::upstreams::{UnitKey, UpstreamServers};

/// News that wait for the slowest who follows. Who is slower is told that it missed some.
const NEWS_MAX: usize = 256;
/// News of one unit are told no more often than this.
const NEWS_EVERY: Duration = Duration::from_millis(100);
/// Resources of one unit that are watched at once.
const WATCHED_MAX: usize = 1_024;
/// Before a server that could not be asked to tell of changes is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

// ----------------------------------------------------------------------------------------------------------------- notices

/// Tells everybody who follows.
#[derive(Debug)]
pub(crate) struct WatchNotifier(broadcast::Sender<OfferingNotice>);

impl Default for WatchNotifier {
    fn default() -> Self {
        Self(broadcast::Sender::new(NEWS_MAX))
    }
}

impl WatchNotifier {
    pub(crate) fn follow(&self) -> broadcast::Receiver<OfferingNotice> {
        self.0.subscribe()
    }

    fn tell(&self, notice: OfferingNotice) {
        // Nobody may follow.
        let _ = self.0.send(notice);
    }
}

/// What has changed on one unit and is not told yet (WATCH-1).
#[derive(Debug)]
pub(crate) struct UnitChanges {
    watched: Arc<WatchedResources>,
    noted: Mutex<Noted>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Noted {
    resources: bool,
    prompts: bool,
    /// Of those that are watched.
    updated: BTreeSet<String>,
}

impl UnitChanges {
    pub(crate) fn new(watched: Arc<WatchedResources>) -> Self {
        Self { watched, noted: Mutex::default(), wake: Notify::new() }
    }

    pub(crate) fn note(&self, change: OfferingChange) {
        let mut noted = self.noted();
        match change {
            OfferingChange::Resources => noted.resources = true,
            OfferingChange::Prompts => noted.prompts = true,
            OfferingChange::Resource(uri) => {
                let Some(watched) = self.watched.meant_by(&uri) else { return };
                noted.updated.insert(watched);
            }
        }
        drop(noted);
        self.wake.notify_one();
    }

    /// A server that was started anew may have anything (WATCH-2).
    pub(crate) fn note_all(&self) {
        let mut noted = self.noted();
        (noted.resources, noted.prompts) = (true, true);
        noted.updated.extend(self.watched.uris.borrow().keys().cloned());
        drop(noted);
        self.wake.notify_one();
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock_unpoisoned()
    }
}

/// Tells what has changed on a unit, for as long as it is there.
pub(crate) async fn tell_offerings(unit: Arc<ServerUnit>) {
    loop {
        unit.changes.wake.notified().await;
        let Noted { resources, prompts, updated } = std::mem::take(&mut *unit.changes.noted());
        let lists = [(resources, OfferingChange::Resources), (prompts, OfferingChange::Prompts)];
        let lists = lists.into_iter().filter(|(changed, _)| *changed).map(|(_, change)| change);
        for change in lists.chain(updated.into_iter().map(OfferingChange::Resource)) {
            let (tenant, server) = (unit.concerns().cloned(), unit.name.clone());
            unit.context().notices.tell(OfferingNotice { tenant, server, change });
        }
        unit.context().clock.sleep(NEWS_EVERY).await;
    }
}

// ------------------------------------------------------------------------------------------------------------ watching

/// Resources of one unit that somebody watches, and how many do.
#[derive(Debug, Default)]
pub(crate) struct WatchedResources {
    uris: watch::Sender<BTreeMap<String, usize>>,
    /// Somebody sees to it that the server tells.
    followed: Mutex<bool>,
}

/// All of them, by unit.
#[derive(Debug, Default)]
pub(crate) struct WatchTable(Mutex<HashMap<UnitKey, Weak<WatchedResources>>>);

impl WatchTable {
    pub(crate) fn of(&self, key: &UnitKey) -> Arc<WatchedResources> {
        let mut all = self.0.lock_unpoisoned();
        if let Some(known) = all.get(key).and_then(Weak::upgrade) {
            return known;
        }
        all.retain(|_, watched| watched.strong_count() > 0);
        let new: Arc<WatchedResources> = Arc::default();
        all.insert(key.clone(), Arc::downgrade(&new));
        new
    }
}

impl WatchedResources {
    /// The watched resource that an address belongs to: itself, or one that it is a part of.
    fn meant_by(&self, uri: &str) -> Option<String> {
        let uris = self.uris.borrow();
        let is_part = |whole: &str| uri.strip_prefix(whole).is_some_and(|rest| rest.starts_with(['/', '#', '?']));
        uris.keys().find(|known| known.as_str() == uri).or_else(|| uris.keys().find(|known| is_part(known))).cloned()
    }

    fn add(&self, uri: &str) -> Result<(), Refusal> {
        let mut fits = true;
        self.uris.send_if_modified(|uris| {
            let new = !uris.contains_key(uri);
            fits = !new || uris.len() < WATCHED_MAX;
            if fits {
                *uris.entry(uri.to_owned()).or_default() += 1;
            }
            new && fits
        });
        if fits { Ok(()) } else { Err(too_many()) }
    }

    fn remove(&self, uri: &str) {
        self.uris.send_if_modified(|uris| {
            let Some(count) = uris.get_mut(uri) else { return false };
            *count = count.saturating_sub(1);
            let last = *count == 0;
            if last {
                uris.remove(uri);
            }
            last
        });
    }
}

fn too_many() -> Refusal {
    Refusal::new(ErrorCode::E3701, format!("more than {WATCHED_MAX} resources of one server are watched"))
        .hint("stop watching some of them")
}

impl UpstreamServers {
    /// Watches a resource until the watch is dropped.
    pub(crate) fn watch_resource(&self, key: UnitKey, uri: &str) -> Result<ResourceWatch, Refusal> {
        let watched = self.watches.of(&key);
        watched.add(uri)?;
        let mut followed = watched.followed.lock_unpoisoned();
        if !std::mem::replace(&mut *followed, true) {
            // Nobody waits for its end: it has nothing of its own, and ends after what it follows.
            tokio::spawn(follow(self.me.clone(), key, Arc::clone(&watched)));
        }
        drop(followed);
        let uri = uri.to_owned();
        Ok(ResourceWatch::until(move || watched.remove(&uri)))
    }

    /// The unit behind a key, made if need be. `None`: it is not defined any more.
    fn unit_of(&self, (owner, name, tenant): &UnitKey) -> Option<Arc<ServerUnit>> {
        self.definition(owner, name).and_then(|definition| self.unit_watched(&definition, tenant)).ok()
    }
}

/// Sees to it that a server tells of what is watched, until nothing is or there is no server (WATCH-3).
async fn follow(upstreams: Weak<UpstreamServers>, key: UnitKey, watched: Arc<WatchedResources>) {
    let mut wanted = watched.uris.subscribe();
    loop {
        {
            let mut followed = watched.followed.lock_unpoisoned();
            if wanted.borrow_and_update().is_empty() {
                *followed = false;
                return;
            }
        }
        // Not held while waiting: whoever drops all servers must not wait for us.
        let unit = upstreams.upgrade().and_then(|upstreams| upstreams.unit_of(&key));
        let Some(unit) = unit else {
            *watched.followed.lock_unpoisoned() = false;
            return;
        };
        if let Ok(in_use) = unit.live().await {
            let live = Arc::clone(in_use.live());
            let _watching = live.watched();
            drop(in_use);
            let following = async {
                match live.connection.met().era {
                    ProtocolEra::Legacy => one_by_one(&unit, &live, &mut wanted).await,
                    ProtocolEra::Modern => all_at_once(&unit, &live, &mut wanted).await,
                }
            };
            tokio::select! {
                () = following => {}
                () = live.connection.ended() => continue,
                () = unit.replaced(&live) => continue,
            }
        }
        tokio::select! {
            () = unit.context().clock.sleep(ASK_AGAIN) => {}
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

/// As servers before 2026-07-28 are asked. Comes back when nothing is wanted any more.
async fn one_by_one(unit: &ServerUnit, live: &LiveConnection, wanted: &mut watch::Receiver<BTreeMap<String, usize>>) {
    let patience = unit.context().bounds.list_patience;
    let mut asked: BTreeSet<String> = BTreeSet::new();
    loop {
        let now: BTreeSet<String> = wanted.borrow_and_update().keys().cloned().collect();
        let new = now.difference(&asked).map(|uri| ("resources/subscribe", uri));
        for (method, uri) in new.chain(asked.difference(&now).map(|uri| ("resources/unsubscribe", uri))) {
            if let Err(fault) = live.connection.request_within(patience, method, json!({ "uri": uri })).await {
                tracing::debug!(server = %unit.name, %fault, method, "a server does not let a resource be watched");
            }
        }
        asked = now;
        if asked.is_empty() || wanted.changed().await.is_err() {
            return;
        }
    }
}

/// As servers of 2026-07-28 are asked: one request for all of them, sent anew when they are others.
async fn all_at_once(unit: &ServerUnit, live: &LiveConnection, wanted: &mut watch::Receiver<BTreeMap<String, usize>>) {
    loop {
        let uris: Vec<String> = wanted.borrow_and_update().keys().cloned().collect();
        if uris.is_empty() {
            return;
        }
        let params = json!({ "notifications": { "resourceSubscriptions": uris } });
        tokio::select! {
            ended = live.connection.request("subscriptions/listen", params) => {
                if let Err(fault) = ended {
                    tracing::debug!(server = %unit.name, %fault, "a server does not let resources be watched");
                }
                return;
            }
            changed = wanted.changed() => if changed.is_err() { return },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched() -> Arc<WatchedResources> {
        let home = contract::ids::TenantId::home();
        WatchTable::default().of(&(home.clone(), "notes".into(), home))
    }

    #[test]
    fn what_two_watch_is_watched_until_both_have_stopped() {
        let watched = watched();
        watched.add("note://1").unwrap();
        watched.add("note://1").unwrap();
        watched.remove("note://1");
        assert_eq!(watched.meant_by("note://1").as_deref(), Some("note://1"));
        watched.remove("note://1");
        assert_eq!(watched.meant_by("note://1"), None);
        watched.remove("note://1");
    }

    #[test]
    fn a_part_means_the_whole_that_is_watched_and_a_namesake_does_not() {
        let watched = watched();
        watched.add("note://1").unwrap();
        for (uri, meant) in
            [("note://1/page/2", true), ("note://1#end", true), ("note://12", false), ("note://", false)]
        {
            assert_eq!(watched.meant_by(uri).is_some(), meant, "{uri}");
        }
    }

    #[test]
    fn a_flood_is_one_note_and_what_nobody_watches_is_none() {
        let watched = watched();
        watched.add("note://1").unwrap();
        let changes = UnitChanges::new(Arc::clone(&watched));
        for n in 0..10_000 {
            changes.note(OfferingChange::Resource(format!("note://{}", n % 3)));
        }
        assert_eq!(changes.noted().updated.iter().collect::<Vec<_>>(), ["note://1"]);
    }

    #[test]
    fn there_is_a_limit_to_what_is_watched_of_one_server() {
        let watched = watched();
        for n in 0..WATCHED_MAX {
            watched.add(&format!("note://{n}")).unwrap();
        }
        assert_eq!(watched.add("note://more").unwrap_err().code, ErrorCode::E3701);
        assert!(watched.add("note://0").is_ok(), "it is watched already");
    }
}
