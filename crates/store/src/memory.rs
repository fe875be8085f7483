//! A store without durability, for tests of other crates. It passes the same suite as the real ones.
//!
//! One lock, plain maps, and a BM25 computed by walking over all documents: as simple as can be, so that the adapters have
//! something obvious to be compared with.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use contract::ids::ToolId;
use contract::version::Version;
use kernel::ports::registry_store::{LifecycleChange, Published, RegistryStore, StoreError, StoredVersion};
use kernel::ports::tool_search::{SearchHit, ToolSearch};
use kernel::registry::Lifecycle;

use crate::search::{Document, FIELD_WEIGHTS, HITS_MAX, Plan, Ranking, Vocabulary, fuse, newest_searchable};

/// Saturation of repeated terms, as in FTS5.
const K1: f64 = 1.2;
/// How much long documents are held back, as in FTS5.
const B: f64 = 0.75;

/// The fake.
#[derive(Debug, Default)]
pub struct MemoryStore {
    versions: Mutex<BTreeMap<(String, Version), StoredVersion>>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn versions(&self) -> MutexGuard<'_, BTreeMap<(String, Version), StoredVersion>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl RegistryStore for MemoryStore {
    async fn load(&self) -> Result<Vec<StoredVersion>, StoreError> {
        Ok(self.versions().values().cloned().collect())
    }

    async fn publish(&self, version: StoredVersion) -> Result<Published, StoreError> {
        let key = (version.tool.as_str().to_owned(), version.version.clone());
        let mut versions = self.versions();
        if let Some(there) = versions.get(&key) {
            let same = there.digest == version.digest;
            let published = there.digest;
            return Ok(if same { Published::Same } else { Published::Different { published } });
        }
        let StoredVersion { tool, version, manifest, digest, lifecycle, published_at, published_by } = version;
        versions.insert(key, StoredVersion { tool, version, manifest, digest, lifecycle, published_at, published_by });
        Ok(Published::New)
    }

    async fn change_lifecycle(
        &self,
        tool: &ToolId,
        version: &Version,
        from: &Lifecycle,
        to: &Lifecycle,
    ) -> Result<LifecycleChange, StoreError> {
        let mut versions = self.versions();
        let Some(stored) = versions.get_mut(&(tool.as_str().to_owned(), version.clone())) else {
            return Ok(LifecycleChange::Unknown);
        };
        if stored.lifecycle != *from {
            return Ok(LifecycleChange::Stale(stored.lifecycle.clone()));
        }
        stored.lifecycle = to.clone();
        Ok(LifecycleChange::Done)
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl ToolSearch for MemoryStore {
    async fn search(&self, query: &str, limit: usize) -> Result<Vec<SearchHit>, StoreError> {
        let index = Index::of(&self.versions());
        let Ok(plan) = Plan::of(query, &index);
        let rankings = plan.rankings.iter().map(|terms| index.rank(terms)).collect();
        let limit = limit.min(HITS_MAX);
        let mut hits = Vec::new();
        for (tool, score) in fuse(rankings, limit) {
            let tool = tool.parse().map_err(|error: contract::ids::NameError| StoreError::Corrupt(Box::new(error)))?;
            hits.push(SearchHit { tool, score });
        }
        // INVARIANT: fuse orders equal scores by its key, which here is the tool id.
        hits.truncate(limit);
        Ok(hits)
    }
}

// ----------------------------------------------------------------------------------------------------------- Index

/// Documents and term counts, made anew for each search.
#[derive(Debug, Default)]
struct Index {
    documents: Vec<(String, Document)>,
    frequencies: BTreeMap<String, u64>,
}

impl Index {
    fn of(versions: &BTreeMap<(String, Version), StoredVersion>) -> Self {
        let mut index = Self::default();
        let tools: HashSet<&String> = versions.keys().map(|(tool, _)| tool).collect();
        for tool in tools {
            let states = versions
                .iter()
                .filter(|((of, _), _)| of == tool)
                .map(|((_, version), stored)| (version.clone(), stored.lifecycle.recorded));
            let newest = newest_searchable(states).and_then(|version| versions.get(&(tool.clone(), version)));
            if let Some(stored) = newest {
                let document = Document::of(&stored.manifest);
                for term in document.vocabulary() {
                    *index.frequencies.entry(term.to_owned()).or_default() += 1;
                }
                index.documents.push((tool.clone(), document));
            }
        }
        index
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of words are far below 2^52")]
    fn rank(&self, terms: &[String]) -> Ranking<&str> {
        let length = |document: &Document| document.fields.iter().flat_map(|field| field.split_whitespace()).count();
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
                ranked.push((tool.as_str(), score));
            }
        }
        ranked
    }
}

impl Vocabulary for Index {
    type Error = std::convert::Infallible;

    fn documents(&self) -> Result<u64, Self::Error> {
        Ok(u64::try_from(self.documents.len()).unwrap_or(u64::MAX))
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
