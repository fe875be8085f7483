//! `UsageStore` and `HealthStore` without durability: rows in a list, added up when somebody asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::cost::CostComponent;
use contract::ids::{Subject, TenantId, ToolId};
use contract::money::{Amount, Currency};
use ports::health_store::{HealthRecord, HealthStore};
use ports::latency::Latencies;
use ports::registry_store::StoreError;
use ports::tool_version::VersionKey;
use ports::usage_store::{
    ANALYTICS_MAX, CostLine, Day, Days, ToolPair, ToolUsage, USAGE_PAGE_MAX, UnmetNeed, UsageBatch, UsageGroup,
    UsageKey, UsagePage, UsageQuery, UsageStore, UsageSum,
};
use uuid::Uuid;

use super::MemoryStore;

type Costs = BTreeMap<(Currency, CostComponent), Amount>;

/// All of it, by what names each row.
#[derive(Debug, Default)]
pub(super) struct Kept {
    batches: BTreeSet<Uuid>,
    rows: BTreeMap<UsageKey, (UsageSum, Costs)>,
    latencies: BTreeMap<(TenantId, ToolId, Day), Latencies>,
    pairs: BTreeMap<(TenantId, Day, ToolId, ToolId), u64>,
    wishes: BTreeMap<(TenantId, Day, Subject, ToolId), u64>,
    health: BTreeMap<VersionKey, HealthRecord>,
}

impl MemoryStore {
    fn kept_usage(&self) -> MutexGuard<'_, Kept> {
        self.usage.lock_unpoisoned()
    }
}

fn add_costs(sum: &mut Costs, lines: impl IntoIterator<Item = ((Currency, CostComponent), Amount)>) {
    for (key, amount) in lines {
        let part = sum.entry(key).or_default();
        *part = part.plus(amount);
    }
}

fn lines(costs: &Costs) -> Vec<CostLine> {
    let mut lines: Vec<CostLine> = costs
        .iter()
        .map(|((currency, component), amount)| CostLine { currency: *currency, component: *component, amount: *amount })
        .collect();
    lines.sort_by_key(|line| (line.currency, line.component.as_str()));
    lines
}

fn within(day: Day, days: Days) -> bool {
    (days.from..=days.to).contains(&day)
}

#[async_trait]
impl UsageStore for MemoryStore {
    async fn add_usage(&self, batch: &UsageBatch) -> Result<bool, StoreError> {
        let mut kept = self.kept_usage();
        if !kept.batches.insert(batch.id) {
            return Ok(false);
        }
        for (key, sum, costs) in &batch.rows {
            let (row, parts) = kept.rows.entry(key.clone()).or_default();
            row.add(sum);
            add_costs(parts, costs.iter().map(|line| ((line.currency, line.component), line.amount)));
        }
        for (key, latencies) in &batch.latencies {
            kept.latencies.entry(key.clone()).or_default().merge(latencies);
        }
        for (key, count) in &batch.pairs {
            *kept.pairs.entry(key.clone()).or_default() += count;
        }
        for (key, count) in &batch.wishes {
            *kept.wishes.entry(key.clone()).or_default() += count;
        }
        Ok(true)
    }

    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError> {
        let kept = self.kept_usage();
        let days = Days { from: query.from, to: query.to };
        let wanted = kept.rows.iter().filter(|(key, _)| {
            key.tenant == query.tenant
                && within(key.day, days)
                && query.tool.as_ref().is_none_or(|tool| *tool == key.tool)
                && query.agent.as_ref().is_none_or(|agent| *agent == key.agent)
                && query.user.as_ref().is_none_or(|user| Some(user) == key.user.as_ref())
        });
        let mut groups: BTreeMap<_, (UsageSum, Costs)> = BTreeMap::new();
        for (key, (sum, costs)) in wanted {
            let name = (
                query.by.day.then_some(key.day),
                query.by.tool.then(|| key.tool.clone()),
                query.by.agent.then(|| key.agent.clone()),
                query.by.user.then(|| key.user.clone()).flatten(),
            );
            let (all, parts) = groups.entry(name).or_default();
            all.add(sum);
            add_costs(parts, costs.iter().map(|(key, amount)| (*key, *amount)));
        }
        let most = query.most.clamp(1, USAGE_PAGE_MAX);
        let more = groups.len() > query.skip.saturating_add(most);
        let groups = groups.into_iter().skip(query.skip).take(most).map(|((day, tool, agent, user), (sum, costs))| {
            UsageGroup { day, tool, agent, user, sum, costs: lines(&costs) }
        });
        Ok(UsagePage { groups: groups.collect(), more })
    }

    async fn tool_usage(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<ToolUsage>, StoreError> {
        let kept = self.kept_usage();
        let mut tools: BTreeMap<&ToolId, (UsageSum, Costs, BTreeSet<&Subject>)> = BTreeMap::new();
        for (key, (sum, costs)) in kept.rows.iter().filter(|(key, _)| key.tenant == *tenant && within(key.day, days)) {
            let (all, parts, agents) = tools.entry(&key.tool).or_default();
            all.add(sum);
            add_costs(parts, costs.iter().map(|(key, amount)| (*key, *amount)));
            agents.insert(&key.agent);
        }
        let mut found: Vec<ToolUsage> = tools
            .into_iter()
            .map(|(tool, (sum, costs, agents))| {
                let mut latencies = Latencies::default();
                let of_tool =
                    |(of, id, day): &(TenantId, ToolId, Day)| of == tenant && id == tool && within(*day, days);
                for (_, some) in kept.latencies.iter().filter(|(key, _)| of_tool(key)) {
                    latencies.merge(some);
                }
                let agents = u64::saturating_from(agents.len());
                ToolUsage { tool: tool.clone(), sum, costs: lines(&costs), latencies, agents }
            })
            .collect();
        found.sort_by_key(|usage| std::cmp::Reverse(usage.sum.calls));
        found.truncate(most.clamp(1, ANALYTICS_MAX));
        Ok(found)
    }

    async fn pairs(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<ToolPair>, StoreError> {
        let kept = self.kept_usage();
        let mut sums: BTreeMap<(&ToolId, &ToolId), u64> = BTreeMap::new();
        for ((of, day, first, second), count) in &kept.pairs {
            if of == tenant && within(*day, days) {
                *sums.entry((first, second)).or_default() += count;
            }
        }
        let pair = |((first, second), count): ((&ToolId, &ToolId), u64)| ToolPair {
            first: first.clone(),
            second: second.clone(),
            count,
        };
        let mut pairs: Vec<ToolPair> = sums.into_iter().map(pair).collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse(pair.count));
        pairs.truncate(most.clamp(1, ANALYTICS_MAX));
        Ok(pairs)
    }

    async fn wishes(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<UnmetNeed>, StoreError> {
        let kept = self.kept_usage();
        let mut sums: BTreeMap<(&Subject, &ToolId), u64> = BTreeMap::new();
        for ((of, day, agent, tool), count) in &kept.wishes {
            if of == tenant && within(*day, days) {
                *sums.entry((agent, tool)).or_default() += count;
            }
        }
        let wish = |((agent, tool), count): ((&Subject, &ToolId), u64)| UnmetNeed {
            agent: agent.clone(),
            tool: tool.clone(),
            count,
        };
        let mut wishes: Vec<UnmetNeed> = sums.into_iter().map(wish).collect();
        wishes.sort_by_key(|wish| std::cmp::Reverse(wish.count));
        wishes.truncate(most.clamp(1, ANALYTICS_MAX));
        Ok(wishes)
    }

    async fn prune_usage(&self, before: Day, most: usize) -> Result<u64, StoreError> {
        /// Takes some away whose day is over.
        fn some<K: Ord + Clone, V>(map: &mut BTreeMap<K, V>, most: usize, over: impl Fn(&K) -> bool) -> usize {
            let over: Vec<K> = map.keys().filter(|key| over(key)).take(most).cloned().collect();
            over.iter().filter(|key| map.remove(key).is_some()).count()
        }
        let mut kept = self.kept_usage();
        let forgotten = some(&mut kept.rows, most, |key| key.day < before)
            + some(&mut kept.latencies, most, |key| key.2 < before)
            + some(&mut kept.pairs, most, |key| key.1 < before)
            + some(&mut kept.wishes, most, |key| key.1 < before);
        Ok(u64::saturating_from(forgotten))
    }
}

#[async_trait]
impl HealthStore for MemoryStore {
    async fn keep_health(&self, records: &[HealthRecord]) -> Result<(), StoreError> {
        let mut kept = self.kept_usage();
        kept.health.extend(records.iter().map(|record| (record.key.clone(), record.clone())));
        Ok(())
    }

    async fn health(&self, most: usize) -> Result<Vec<HealthRecord>, StoreError> {
        let mut records: Vec<HealthRecord> = self.kept_usage().health.values().cloned().collect();
        records.sort_by_key(|record| std::cmp::Reverse(record.at));
        records.truncate(most);
        Ok(records)
    }
}
