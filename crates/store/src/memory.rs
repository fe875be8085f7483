//! A store without durability, for tests of other crates. It passes the same suite as the real ones.
//!
//! One lock, plain maps, and a BM25 computed by walking over all documents: as simple as can be, so that the adapters have
//! something obvious to be compared with.

mod access;
mod archive;
mod breaker_history;
mod checkpoints;
mod jobs;
mod ledger;
mod log_heads;
mod upstreams;
mod usage;
mod vectors;
mod version_use;
mod webhooks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::ids::{TenantId, ToolId};
use contract::version::Version;
use ports::clock::{Clock, UnixMillis};
use ports::lifecycle::Lifecycle;
use ports::registry_store::{
    LifecycleChange, PublishOutcome, QuarantineChange, RegistryStore, StoreError, StoredVersion, ToolQuarantine,
};
use ports::tool_search::{SearchHit, ToolSearch};

use crate::search::{FIELD_WEIGHTS, HITS_MAX, Ranking, SearchPlan, TermIndex, ToolDocument, fuse, newest_searchable};
use crate::time::StoreTime;

/// Saturation of repeated terms, as in FTS5.
const K1: f64 = 1.2;
/// How much long documents are held back, as in FTS5.
const B: f64 = 0.75;

/// The fake.
#[derive(Debug, Default)]
pub struct MemoryStore {
    versions: Mutex<Versions>,
    access: Mutex<access::Access>,
    upstreams: Mutex<upstreams::Upstreams>,
    ledger: Mutex<ledger::Lines>,
    time: StoreTime,
    webhooks: Mutex<webhooks::Webhooks>,
    jobs: Mutex<jobs::Jobs>,
    checkpoints: Mutex<checkpoints::Kept>,
    usage: Mutex<usage::Kept>,
    vectors: Mutex<vectors::Spaces>,
    archive: Mutex<archive::Kept>,
    breaker_history: Mutex<breaker_history::Transitions>,
    log_heads: Mutex<log_heads::Heads>,
    version_use: Mutex<version_use::Counted>,
    quarantines: Mutex<BTreeMap<(TenantId, ToolId), ToolQuarantine>>,
}

/// Every version by what names it.
type Versions = BTreeMap<(TenantId, ToolId, Version), StoredVersion>;

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store that measures leases and windows by this clock.
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { time: StoreTime::starting(Some(clock)), ..Self::default() }
    }

    /// The store's own time.
    fn now(&self) -> UnixMillis {
        self.time.now()
    }

    fn versions(&self) -> MutexGuard<'_, Versions> {
        self.versions.lock_unpoisoned()
    }
}

#[async_trait]
impl RegistryStore for MemoryStore {
    async fn load(&self) -> Result<Vec<StoredVersion>, StoreError> {
        Ok(self.versions().values().cloned().collect())
    }

    async fn publish(&self, version: StoredVersion) -> Result<PublishOutcome, StoreError> {
        let key = (version.tenant.clone(), version.tool.clone(), version.version.clone());
        let mut versions = self.versions();
        if let Some(there) = versions.get(&key) {
            let same = there.digest == version.digest;
            let published = there.digest;
            return Ok(if same { PublishOutcome::Same } else { PublishOutcome::Different { published } });
        }
        versions.insert(key, version);
        Ok(PublishOutcome::New)
    }

    async fn change_lifecycle(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        version: &Version,
        from: &Lifecycle,
        to: &Lifecycle,
    ) -> Result<LifecycleChange, StoreError> {
        let mut versions = self.versions();
        let Some(stored) = versions.get_mut(&(tenant.clone(), tool.clone(), version.clone())) else {
            return Ok(LifecycleChange::Unknown);
        };
        if stored.lifecycle != *from {
            return Ok(LifecycleChange::Stale(stored.lifecycle.clone()));
        }
        stored.lifecycle = to.clone();
        Ok(LifecycleChange::Done)
    }

    async fn quarantines(&self) -> Result<Vec<ToolQuarantine>, StoreError> {
        Ok(self.quarantines.lock_unpoisoned().values().cloned().collect())
    }

    async fn put_quarantine(&self, quarantine: &ToolQuarantine) -> Result<QuarantineChange, StoreError> {
        let key = (quarantine.tenant.clone(), quarantine.tool.clone());
        let mut quarantines = self.quarantines.lock_unpoisoned();
        if quarantines.get(&key).is_some_and(|there| !there.yields_to(&quarantine.by_tenant)) {
            return Ok(QuarantineChange::Withheld);
        }
        quarantines.insert(key, quarantine.clone());
        Ok(QuarantineChange::Done)
    }

    async fn remove_quarantine(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        by: &TenantId,
    ) -> Result<QuarantineChange, StoreError> {
        let mut quarantines = self.quarantines.lock_unpoisoned();
        let key = (tenant.clone(), tool.clone());
        match quarantines.get(&key) {
            None => return Ok(QuarantineChange::Unknown),
            Some(there) if !there.yields_to(by) => return Ok(QuarantineChange::Withheld),
            Some(_) => {}
        }
        quarantines.remove(&key);
        Ok(QuarantineChange::Done)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl ToolSearch for MemoryStore {
    async fn search(&self, tenant: &TenantId, query: &str, limit: usize) -> Result<Vec<SearchHit>, StoreError> {
        let index = Index::of(&self.versions(), tenant);
        let Ok(plan) = SearchPlan::of(query, &index);
        let rankings = plan.rankings.iter().map(|terms| index.rank(terms)).collect();
        let limit = limit.min(HITS_MAX);
        let mut hits = Vec::new();
        for (tool, score) in fuse(rankings, limit) {
            hits.push(SearchHit { tool: tool.clone(), score });
        }
        // INVARIANT: fuse orders equal scores by its key, which here is the tool id.
        hits.truncate(limit);
        Ok(hits)
    }
}

// ----------------------------------------------------------------------------------------------------------- Index

/// The documents a tenant can find and their term counts, made anew for each search.
#[derive(Debug, Default)]
struct Index {
    documents: Vec<(ToolId, ToolDocument)>,
    frequencies: BTreeMap<String, u64>,
}

impl Index {
    fn of(versions: &Versions, tenant: &TenantId) -> Self {
        let mut index = Self::default();
        let published = |by: &TenantId| -> BTreeSet<&ToolId> {
            versions.keys().filter(|(of, _, _)| of == by).map(|(_, tool, _)| tool).collect()
        };
        let (home, own) = (TenantId::home(), published(tenant));
        let shared = published(&home).into_iter().filter(|tool| !own.contains(tool)).map(|tool| (&home, tool));
        let seen: Vec<(&TenantId, &ToolId)> = shared.chain(own.iter().map(|tool| (tenant, *tool))).collect();
        for (tenant, tool) in seen {
            let states = versions
                .iter()
                .filter(|((owner, of, _), _)| owner == tenant && of == tool)
                .map(|((_, _, version), stored)| (version.clone(), stored.lifecycle.recorded));
            let newest =
                newest_searchable(states).and_then(|version| versions.get(&(tenant.clone(), tool.clone(), version)));
            if let Some(stored) = newest {
                let document = ToolDocument::of(&stored.manifest);
                for term in document.vocabulary() {
                    *index.frequencies.entry(term.to_owned()).or_default() += 1;
                }
                index.documents.push((tool.clone(), document));
            }
        }
        index
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^52")]
    fn rank(&self, terms: &[String]) -> Ranking<&ToolId> {
        let length =
            |document: &ToolDocument| document.fields.iter().flat_map(|field| field.split_whitespace()).count();
        let total = self.documents.len() as f64;
        let average = self.documents.iter().map(|(_, document)| length(document)).sum::<usize>() as f64 / total;
        let mut ranked = Vec::new();
        for (tool, document) in &self.documents {
            let mut score = 0.0;
            for term in terms {
                let with = self.frequencies.get(term).copied().unwrap_or(0) as f64;
                let rarity = ((total - with + 0.5) / (with + 0.5)).ln().max(1e-6);
                let weight: f64 = document
                    .fields
                    .iter()
                    .zip(FIELD_WEIGHTS)
                    .map(|(field, weight)| weight * field.split(' ').filter(|word| word == term).count() as f64)
                    .sum();
                let stretch = 1.0 - B + B * length(document) as f64 / average;
                score += rarity * weight * (K1 + 1.0) / (weight + K1 * stretch);
            }
            if score > 0.0 {
                ranked.push((tool, score));
            }
        }
        ranked
    }
}

impl TermIndex for Index {
    type Error = std::convert::Infallible;

    fn documents(&self) -> Result<u64, Self::Error> {
        Ok(u64::saturating_from(self.documents.len()))
    }

    fn frequency(&self, term: &str) -> Result<u64, Self::Error> {
        Ok(self.frequencies.get(term).copied().unwrap_or(0))
    }

    fn beginning_with(&self, prefix: &str) -> Result<Vec<(String, u64)>, Self::Error> {
        let range = self.frequencies.range(prefix.to_owned()..).take_while(|(term, _)| term.starts_with(prefix));
        Ok(range.map(|(term, documents)| (term.clone(), *documents)).collect())
    }

    fn of_length(&self, min: usize, max: usize, visit: &mut dyn FnMut(&str, u64)) -> Result<(), Self::Error> {
        for (term, documents) in &self.frequencies {
            if (min..=max).contains(&term.chars().count()) {
                visit(term, *documents);
            }
        }
        Ok(())
    }
}
