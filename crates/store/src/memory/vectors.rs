//! `VectorStore` without durability: every question measures every vector. What the other adapters are compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::canonical::Digest;
use contract::ids::{TenantId, ToolId};
use ports::vector_store::{
    Embedding, NearestQuery, Neighbour, NeighbourScope, SPACES_MAX, SpaceState, VectorError, VectorRecord, VectorSpace,
    VectorStore, batch, check_nearest, check_tools, ranked,
};

use super::MemoryStore;

/// What each space has of each tool.
pub(super) type Spaces = BTreeMap<VectorSpace, BTreeMap<(TenantId, ToolId), (Digest, Embedding)>>;

impl MemoryStore {
    fn all_spaces(&self) -> MutexGuard<'_, Spaces> {
        self.vectors.lock_unpoisoned()
    }

    /// The ids of the tools a tenant has published.
    fn published_by(&self, tenant: &TenantId) -> BTreeSet<ToolId> {
        let versions = self.versions();
        versions.keys().filter(|(of, ..)| of == tenant).map(|(_, tool, _)| tool.clone()).collect()
    }
}

#[async_trait]
impl VectorStore for MemoryStore {
    async fn open_space(&self, space: &VectorSpace) -> Result<(), VectorError> {
        let mut spaces = self.all_spaces();
        if !spaces.contains_key(space) && spaces.len() >= SPACES_MAX {
            return Err(VectorError::TooManySpaces);
        }
        spaces.entry(space.clone()).or_default();
        Ok(())
    }

    async fn spaces(&self) -> Result<Vec<SpaceState>, VectorError> {
        let state = |(space, kept): (&VectorSpace, &BTreeMap<_, _>)| SpaceState {
            space: space.clone(),
            vectors: u64::saturating_from(kept.len()),
        };
        Ok(self.all_spaces().iter().map(state).collect())
    }

    async fn drop_space(&self, space: &VectorSpace) -> Result<bool, VectorError> {
        Ok(self.all_spaces().remove(space).is_some())
    }

    async fn put(&self, space: &VectorSpace, tenant: &TenantId, records: &[VectorRecord]) -> Result<(), VectorError> {
        let records = batch(space, records)?;
        let mut spaces = self.all_spaces();
        let kept = spaces.get_mut(space).ok_or_else(|| space.missing())?;
        for (tool, record) in records {
            kept.insert((tenant.clone(), tool.clone()), (record.digest, record.embedding.clone()));
        }
        Ok(())
    }

    async fn remove(&self, tenant: &TenantId, tools: &[ToolId]) -> Result<u64, VectorError> {
        check_tools(tools.len())?;
        let mut removed = 0;
        for kept in self.all_spaces().values_mut() {
            for tool in tools {
                removed += u64::from(kept.remove(&(tenant.clone(), tool.clone())).is_some());
            }
        }
        Ok(removed)
    }

    async fn missing(
        &self,
        space: &VectorSpace,
        tenant: &TenantId,
        wanted: &[(ToolId, Digest)],
    ) -> Result<Vec<ToolId>, VectorError> {
        check_tools(wanted.len())?;
        let spaces = self.all_spaces();
        let kept = spaces.get(space).ok_or_else(|| space.missing())?;
        let is_missing = |(tool, digest): &&(ToolId, Digest)| {
            kept.get(&(tenant.clone(), tool.clone())).is_none_or(|(there, _)| there != digest)
        };
        Ok(wanted.iter().filter(is_missing).map(|(tool, _)| tool.clone()).collect())
    }

    async fn nearest(&self, space: &VectorSpace, asked: NearestQuery<'_>) -> Result<Vec<Neighbour>, VectorError> {
        check_nearest(space, &asked)?;
        let (home, own) = (TenantId::home(), self.published_by(asked.tenant));
        let spaces = self.all_spaces();
        let kept = spaces.get(space).ok_or_else(|| space.missing())?;
        let is_visible = |(tenant, tool): &(TenantId, ToolId)| {
            let is_named = match asked.among {
                NeighbourScope::Visible => true,
                NeighbourScope::Tools(tools) => tools.contains(tool),
            };
            is_named && (tenant == asked.tenant || *tenant == home && !own.contains(tool))
        };
        let seen = kept.iter().filter(|(key, _)| is_visible(key));
        let candidates = seen.map(|((tenant, tool), (_, embedding))| (tenant.clone(), tool.clone(), embedding.clone()));
        Ok(ranked(&asked, candidates))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const WIDTH: usize = 3;

    /// Small whole numbers, so that some distances are equal.
    fn direction() -> impl Strategy<Value = Vec<f32>> {
        let numbers = proptest::collection::vec((-3_i8..=3).prop_map(f32::from), WIDTH);
        numbers.prop_filter("has a direction", |numbers| numbers.iter().any(|number| *number != 0.0))
    }

    /// By the schoolbook, without what the store computes with.
    fn cosine_distance(left: &[f32], right: &[f32]) -> f64 {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>();
        1.0 - dot(left, right) / (dot(left, left).sqrt() * dot(right, right).sqrt())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn the_nearest_are_those_of_sorting_by_cosine(
            all in proptest::collection::vec(direction(), 1..40), query in direction(), limit in 1_usize..50,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let (store, space) = (MemoryStore::new(), VectorSpace::new("model", WIDTH).unwrap());
            let tenant: TenantId = "acme".parse().unwrap();
            let tool = |index: usize| format!("demo.tool{index:02}").parse::<ToolId>().unwrap();
            let found = runtime.block_on(async {
                store.open_space(&space).await.unwrap();
                let records: Vec<VectorRecord> = all.iter().enumerate().map(|(index, numbers)| VectorRecord {
                    tool: tool(index),
                    digest: Digest::of_bytes(b"text"),
                    embedding: Embedding::new(numbers).unwrap(),
                }).collect();
                store.put(&space, &tenant, &records).await.unwrap();
                let to = Embedding::new(&query).unwrap();
                store.nearest(&space, NearestQuery { tenant: &tenant, to: &to, among: NeighbourScope::Visible, limit }).await.unwrap()
            });
            let mut expected: Vec<f64> = all.iter().map(|numbers| cosine_distance(&query, numbers)).collect();
            expected.sort_by(f64::total_cmp);
            expected.truncate(limit);
            prop_assert_eq!(found.len(), expected.len());
            for (one, distance) in found.iter().zip(&expected) {
                prop_assert!((one.distance - distance).abs() < 1e-6, "{:?} {}", one, distance);
                let index: usize = one.tool.as_str().trim_start_matches("demo.tool").parse().unwrap();
                let own = cosine_distance(&query, all.get(index).unwrap());
                prop_assert!((one.distance - own).abs() < 1e-6, "{:?} is {} away", one, own);
            }
            for pair in found.windows(2) {
                let [first, second] = pair else { continue };
                let in_order = first.distance < second.distance
                    || first.distance.to_bits() == second.distance.to_bits() && first.tool < second.tool;
                prop_assert!(in_order, "{:?}", pair);
            }
        }
    }
}
