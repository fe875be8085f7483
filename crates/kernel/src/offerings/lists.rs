//! What servers offer, remembered for a moment: listing is free for callers, so it must cost the servers little.
//!
//! A list depends on the server, the tenant and the kind, and on nobody's token: what of it a caller sees is decided outside.
//! So all callers of a tenant share one answer for [`KEPT_FOR`], and those who ask meanwhile wait for the one question that is
//! under way. It is asked to its end whether or not somebody still waits: hanging up does not buy another one. What a server
//! says to have changed, and a server that is described anew, is asked again at once. (decision 0084)
//!
//! Invariants
//! - LISTS-1: a server is asked for a list of a tenant by one question at a time, and after an answer not for [`KEPT_FOR`], nor
//!   after a failure for [`FAILURE_KEPT_FOR`], unless it said that the list has changed.
//! - LISTS-2: at most [`LISTS_MAX`] lists and [`BYTES_MAX`] bytes are kept; the oldest make room.
//!
//! Not here: who may see what of a list (`offerings`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use ports::clock::Clock;
use ports::observer::Observer;
use ports::offerings::{OfferingChange, OfferingKind, OfferingNotice, OfferingServer, Offerings};
use ports::tool_origin::ToolOrigin;
use serde_json::Value;
use tokio::sync::broadcast::error::TryRecvError;
use tokio::sync::{broadcast, watch};

use super::{PATIENCE, too_slow};

/// How long an answer is good for.
const KEPT_FOR: Duration = Duration::from_secs(5);
/// How long a failure is.
const FAILURE_KEPT_FOR: Duration = Duration::from_secs(1);
/// Most lists that are kept or asked for at once.
const LISTS_MAX: usize = 1_024;
/// Most bytes of all lists.
const BYTES_MAX: usize = 64 << 20;

/// Whose list of what.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ListKey {
    tenant: TenantId,
    owner: TenantId,
    server: String,
    what: OfferingKind,
}

/// An answer, and when it came.
#[derive(Debug, Clone)]
struct Answered {
    at: Duration,
    bytes: usize,
    items: Result<Arc<Vec<Value>>, Refusal>,
}

impl Answered {
    fn is_good(&self, now: Duration) -> bool {
        let kept_for = if self.items.is_ok() { KEPT_FOR } else { FAILURE_KEPT_FOR };
        now.saturating_sub(self.at) < kept_for
    }
}

#[derive(Debug)]
struct CachedList {
    /// The server as it was described then.
    origin: Option<Arc<ToolOrigin>>,
    /// None while it is asked.
    answer: watch::Receiver<Option<Answered>>,
}

impl CachedList {
    fn is_good(&self, now: Duration, origin: Option<&Arc<ToolOrigin>>) -> bool {
        let same = match (&self.origin, origin) {
            (Some(then), Some(now)) => Arc::ptr_eq(then, now),
            (None, None) => true,
            _ => false,
        };
        let answer = self.answer.borrow();
        // Whoever asked may have been ended with its runtime.
        let is_asked = answer.is_none() && self.answer.has_changed().is_ok();
        same && (is_asked || answer.as_ref().is_some_and(|answer| answer.is_good(now)))
    }
}

#[derive(Debug)]
struct CachedLists {
    lists: HashMap<ListKey, CachedList>,
    notices: broadcast::Receiver<OfferingNotice>,
}

/// The lists of all servers.
#[derive(Debug)]
pub(crate) struct OfferedLists {
    offerings: Arc<dyn Offerings>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    kept: Mutex<CachedLists>,
}

impl OfferedLists {
    pub(crate) fn new(offerings: Arc<dyn Offerings>, clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Arc<Self> {
        let kept = CachedLists { lists: HashMap::new(), notices: offerings.notices() };
        Arc::new(Self { offerings, clock, observer, kept: Mutex::new(kept) })
    }

    /// What a server offers a tenant of this kind.
    pub(super) async fn list(
        self: &Arc<Self>,
        tenant: &TenantId,
        server: &OfferingServer,
        what: OfferingKind,
    ) -> Result<Arc<Vec<Value>>, Refusal> {
        let (owner, name) = (server.owner.clone(), server.name.clone());
        let key = ListKey { tenant: tenant.clone(), owner, server: name, what };
        let origin = self.offerings.origin(tenant, &server.name)?;
        let mut answer = self.kept_or_asked(key, origin)?;
        let answered = answer.wait_for(Option::is_some).await;
        let items = answered.ok().and_then(|answered| answered.as_ref().map(|answered| answered.items.clone()));
        items.unwrap_or_else(|| Err(not_asked(&server.name)))
    }

    fn kept_or_asked(
        self: &Arc<Self>,
        key: ListKey,
        origin: Option<Arc<ToolOrigin>>,
    ) -> Result<watch::Receiver<Option<Answered>>, Refusal> {
        let now = self.clock.monotonic();
        let mut kept = self.kept();
        kept.hear();
        if let Some(list) = kept.lists.get(&key).filter(|list| list.is_good(now, origin.as_ref())) {
            self.observer.offerings_listed(true);
            return Ok(list.answer.clone());
        }
        kept.lists.remove(&key);
        kept.trim(now, LISTS_MAX - 1);
        if kept.lists.len() >= LISTS_MAX {
            return Err(not_asked(&key.server));
        }
        self.observer.offerings_listed(false);
        let (tell, answer) = watch::channel(None);
        kept.lists.insert(key.clone(), CachedList { origin, answer: answer.clone() });
        drop(kept);
        let lists = Arc::clone(self);
        // Not the caller's to end; bounded by its patience, and in number by LISTS-2.
        tokio::spawn(async move {
            tell.send_replace(Some(lists.ask(&key).await));
            lists.kept().trim(lists.clock.monotonic(), LISTS_MAX);
        });
        Ok(answer)
    }

    async fn ask(&self, key: &ListKey) -> Answered {
        let items = tokio::select! {
            items = self.offerings.list(&key.tenant, &key.server, key.what) => items,
            () = self.clock.sleep(PATIENCE) => Err(too_slow(&key.server)),
        };
        let bytes = items.iter().flatten().map(|item| item.to_string().len()).sum();
        Answered { at: self.clock.monotonic(), bytes, items: items.map(Arc::new) }
    }

    fn kept(&self) -> MutexGuard<'_, CachedLists> {
        self.kept.lock_unpoisoned()
    }
}

impl CachedLists {
    /// Forgets what is said to have changed.
    fn hear(&mut self) {
        loop {
            match self.notices.try_recv() {
                Ok(notice) => self.lists.retain(|key, _| !notice_is_of(&notice, key)),
                // Whatever it was.
                Err(TryRecvError::Lagged(_)) => self.lists.clear(),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    /// LISTS-2. What is being asked for stays.
    fn trim(&mut self, now: Duration, most: usize) {
        let is_over = |list: &CachedList| list.answer.borrow().as_ref().is_some_and(|answer| !answer.is_good(now));
        self.lists.retain(|_, list| !is_over(list));
        let bytes = |list: &CachedList| list.answer.borrow().as_ref().map_or(0, |answer| answer.bytes);
        let mut total: usize = self.lists.values().map(bytes).sum();
        while self.lists.len() > most || total > BYTES_MAX {
            let answered = self.lists.iter().filter_map(|(key, list)| Some((list.answer.borrow().as_ref()?.at, key)));
            let Some(oldest) = answered.min_by_key(|(at, _)| *at).map(|(_, key)| key.clone()) else { return };
            total = total.saturating_sub(self.lists.remove(&oldest).as_ref().map_or(0, bytes));
        }
    }
}

fn notice_is_of(notice: &OfferingNotice, key: &ListKey) -> bool {
    let of_kind = match notice.change {
        OfferingChange::Resources => matches!(key.what, OfferingKind::Resources | OfferingKind::ResourceTemplates),
        OfferingChange::Prompts => key.what == OfferingKind::Prompts,
        OfferingChange::Resource(_) => false,
    };
    of_kind && notice.server == key.server && notice.tenant.as_ref().is_none_or(|tenant| *tenant == key.tenant)
}

fn not_asked(server: &str) -> Refusal {
    Refusal::new(ErrorCode::E3003, format!("what `{server}` offers cannot be listed now: too many lists are asked for"))
        .hint("list again later")
}
