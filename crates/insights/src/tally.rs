//! Sums of use in memory, until they are written: by agent, tool, user and day; what was used together; what was wanted.
//!
//! A call takes one lock, that of its agent's shard, for a handful of additions. Every map is bounded, for each tenant by itself:
//! the names that one tenant makes up take no room from another. Use is never left out: when a tenant has no room for another
//! row in a shard, the call is counted for [`OTHERS`] of that tenant. What is only a hint, pairs and wishes, is left out instead.
//!
//! Used together are two tools that one agent (in one session, if its token names one) calls within [`TOGETHER`] of each
//! other; a tool counts once until it has not been called for that long.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use contract::cost::{CostComponent, Costs};
use contract::ids::{Subject, TenantId, ToolId};
use contract::money::{Amount, Currency};
use ports::latency::Latencies;
use ports::usage_store::{CostLine, Day, UsageBatch, UsageKey, UsageSum};
use uuid::Uuid;

/// Locks among which agents are spread.
const SHARDS: usize = 16;
/// Rows of a tenant in a shard that are summed up at once.
const ROWS_MAX: usize = 1_024;
/// Agents of a tenant in a shard whose last tools are remembered.
const AGENTS_MAX: usize = 256;
/// Tools that are remembered of an agent.
const RECENT_MAX: usize = 8;
/// Pairs and wishes of a tenant in a shard that are summed up at once.
const HINTS_MAX: usize = 1_024;
/// Tools called within this span of each other were used together.
const TOGETHER: Duration = Duration::from_secs(600);

/// Whom calls are counted for when there is no room for more names.
pub(crate) const OTHERS: &str = "(others)";

/// Whose call: tenant, agent, session, user.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UsageOwner<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) agent: &'a Subject,
    pub(crate) session: Option<&'a str>,
    pub(crate) user: Option<&'a Subject>,
}

/// What is added for one call.
#[derive(Debug)]
pub(crate) struct Addition<'a> {
    pub(crate) tool: &'a ToolId,
    pub(crate) day: Day,
    pub(crate) sum: UsageSum,
    pub(crate) costs: Costs,
    /// How long it took, and the monotonic time of its end; only if the tool ran.
    pub(crate) ran: Option<(Duration, Duration)>,
}

#[derive(Debug, Default)]
struct Row {
    sum: UsageSum,
    costs: HashMap<(Currency, CostComponent), Amount>,
}

type Remembered = (TenantId, Subject, Option<Box<str>>);

/// The tenants that have called: as many as there are.
type Shard = HashMap<TenantId, Sums>;

/// Of one tenant.
#[derive(Debug, Default)]
struct Sums {
    rows: HashMap<UsageKey, Row>,
    latencies: HashMap<(TenantId, ToolId, Day), Latencies>,
    recent: HashMap<Remembered, VecDeque<(ToolId, Duration)>>,
    pairs: HashMap<(TenantId, Day, ToolId, ToolId), u64>,
    wishes: HashMap<(TenantId, Day, Subject, ToolId), u64>,
}

/// The sums.
#[derive(Debug)]
pub(crate) struct Tally {
    shards: [Mutex<Shard>; SHARDS],
    spread: RandomState,
}

impl Default for Tally {
    fn default() -> Self {
        Self { shards: Default::default(), spread: RandomState::new() }
    }
}

impl Tally {
    /// Adds one call.
    pub(crate) fn add(&self, whose: UsageOwner<'_>, addition: &Addition<'_>) {
        let mut shard = self.shard(whose.agent);
        let shard = sums_of(&mut shard, whose.tenant);
        shard.add_row(whose, addition);
        if let Some((took, now)) = addition.ran {
            let key = (whose.tenant.clone(), addition.tool.clone(), addition.day);
            if shard.latencies.len() < ROWS_MAX || shard.latencies.contains_key(&key) {
                shard.latencies.entry(key).or_default().note(took);
            }
            shard.used(whose, addition.tool, addition.day, now);
        }
    }

    /// Notes that an agent wanted a tool that it may not use.
    pub(crate) fn wish(&self, tenant: &TenantId, agent: &Subject, tool: &ToolId, day: Day) {
        let key = (tenant.clone(), day, agent.clone(), tool.clone());
        count(&mut sums_of(&mut self.shard(agent), tenant).wishes, key);
    }

    /// Takes everything out.
    pub(crate) fn drain(&self, id: Uuid) -> UsageBatch {
        let mut batch =
            UsageBatch { id, rows: Vec::new(), latencies: Vec::new(), pairs: Vec::new(), wishes: Vec::new() };
        for shard in &self.shards {
            let mut shard = shard.lock_unpoisoned();
            shard.retain(|_, sums| {
                batch.rows.extend(sums.rows.drain().map(|(key, row)| (key, row.sum, row.lines())));
                batch.latencies.extend(sums.latencies.drain());
                batch.pairs.extend(sums.pairs.drain());
                batch.wishes.extend(sums.wishes.drain());
                !sums.recent.is_empty()
            });
        }
        batch
    }

    fn shard(&self, agent: &Subject) -> MutexGuard<'_, Shard> {
        let index = usize::try_from(self.spread.hash_one(agent) % SHARDS as u64).unwrap_or(0);
        // INVARIANT: the index is below the number of shards.
        let [first, ..] = &self.shards;
        self.shards.get(index).unwrap_or(first).lock_unpoisoned()
    }
}

impl Row {
    fn lines(self) -> Vec<CostLine> {
        let lines = self.costs.into_iter();
        lines.map(|((currency, component), amount)| CostLine { currency, component, amount }).collect()
    }
}

/// The sums of a tenant.
fn sums_of<'a>(shard: &'a mut Shard, tenant: &TenantId) -> &'a mut Sums {
    shard.entry(tenant.clone()).or_default()
}

impl Sums {
    fn add_row(&mut self, whose: UsageOwner<'_>, addition: &Addition<'_>) {
        static NOBODY: LazyLock<Option<Subject>> = LazyLock::new(|| OTHERS.parse().ok());
        let mut key = UsageKey {
            tenant: whose.tenant.clone(),
            day: addition.day,
            tool: addition.tool.clone(),
            agent: whose.agent.clone(),
            user: whose.user.cloned(),
        };
        if self.rows.len() >= ROWS_MAX
            && !self.rows.contains_key(&key)
            && let Some(others) = &*NOBODY
        {
            key = UsageKey { agent: others.clone(), user: None, ..key };
        }
        let row = self.rows.entry(key).or_default();
        row.sum.add(&addition.sum);
        for (component, amount) in addition.costs.parts() {
            let sum = row.costs.entry((addition.costs.currency, component)).or_default();
            *sum = sum.plus(amount);
        }
    }

    /// Counts the tool together with those that the agent has called a short while ago.
    fn used(&mut self, whose: UsageOwner<'_>, tool: &ToolId, day: Day, now: Duration) {
        let key: Remembered = (whose.tenant.clone(), whose.agent.clone(), whose.session.map(Into::into));
        if self.recent.len() >= AGENTS_MAX && !self.recent.contains_key(&key) {
            self.recent.retain(|_, tools| tools.back().is_some_and(|(_, at)| now.saturating_sub(*at) <= TOGETHER));
            if self.recent.len() >= AGENTS_MAX {
                return;
            }
        }
        let recent = self.recent.entry(key).or_default();
        recent.retain(|(_, at)| now.saturating_sub(*at) <= TOGETHER);
        if let Some(position) = recent.iter().position(|(other, _)| other == tool) {
            recent.remove(position);
        } else {
            for (other, _) in recent.iter() {
                let (first, second) = if other < tool { (other, tool) } else { (tool, other) };
                count(&mut self.pairs, (whose.tenant.clone(), day, first.clone(), second.clone()));
            }
            if recent.len() >= RECENT_MAX {
                recent.pop_front();
            }
        }
        recent.push_back((tool.clone(), now));
    }
}

/// One more, if there is room.
fn count<K: std::hash::Hash + Eq>(map: &mut HashMap<K, u64>, key: K) {
    if map.len() < HINTS_MAX || map.contains_key(&key) {
        *map.entry(key).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Day = Day(20_000);

    fn tenant(name: &str) -> TenantId {
        name.parse().unwrap()
    }

    fn call(tally: &Tally, tenant: &str, agent: &str, tool: &str, second: u64) {
        let (tenant, agent): (TenantId, Subject) = (tenant.parse().unwrap(), agent.parse().unwrap());
        let mut costs = Costs::default();
        costs.add(CostComponent::Token, "0.000001".parse().unwrap());
        let addition = Addition {
            tool: &tool.parse().unwrap(),
            day: DAY,
            sum: UsageSum { calls: 1, duration_ms: 5, ..UsageSum::default() },
            costs,
            ran: Some((Duration::from_millis(5), Duration::from_secs(second))),
        };
        tally.add(UsageOwner { tenant: &tenant, agent: &agent, session: None, user: None }, &addition);
    }

    fn pairs(batch: &UsageBatch) -> Vec<(String, String, u64)> {
        let pair = |((_, _, first, second), count): &((TenantId, Day, ToolId, ToolId), u64)| {
            (first.to_string(), second.to_string(), *count)
        };
        let mut pairs: Vec<_> = batch.pairs.iter().map(pair).collect();
        pairs.sort();
        pairs
    }

    #[test]
    fn tools_are_counted_together_once_until_they_have_rested() {
        let tally = Tally::default();
        for (tool, second) in [("aaa", 0), ("bbb", 10), ("aaa", 20), ("bbb", 30), ("ccc", 40)] {
            call(&tally, "local", "one", tool, second);
        }
        call(&tally, "local", "two", "ddd", 41);
        call(&tally, "acme", "one", "ddd", 42);
        let expected =
            [("aaa", "bbb", 1), ("aaa", "ccc", 1), ("bbb", "ccc", 1)].map(|(a, b, n)| (a.to_owned(), b.to_owned(), n));
        let batch = tally.drain(Uuid::nil());
        assert_eq!(pairs(&batch), expected);
        call(&tally, "local", "one", "ccc", 10_000);
        call(&tally, "local", "one", "aaa", 10_001);
        assert_eq!(pairs(&tally.drain(Uuid::nil())), [("aaa".to_owned(), "ccc".to_owned(), 1)]);
    }

    #[test]
    fn nothing_of_use_is_lost_when_there_are_too_many_names() {
        let tally = Tally::default();
        let names = SHARDS * ROWS_MAX + 5_000;
        for number in 0..names {
            call(&tally, "local", &format!("agent-{number}"), "aaa", 0);
        }
        let batch = tally.drain(Uuid::nil());
        assert!(batch.rows.len() <= SHARDS * (ROWS_MAX + 1));
        let calls: u64 = batch.rows.iter().map(|(_, sum, _)| sum.calls).sum();
        assert_eq!(calls, names as u64);
        let others = batch.rows.iter().filter(|(key, ..)| key.agent.as_str() == OTHERS).count();
        assert!(others >= 1);
        let cost =
            batch.rows.iter().flat_map(|(.., costs)| costs).fold(Amount::ZERO, |sum, line| sum.plus(line.amount));
        assert_eq!(cost, "0.000001".parse::<Amount>().unwrap().times(names as u64));
        assert!(tally.drain(Uuid::nil()).is_empty(), "taken once");
    }

    #[test]
    fn names_that_one_tenant_makes_up_take_no_room_from_another() {
        let tally = Tally::default();
        let made_up = SHARDS * ROWS_MAX + 5_000;
        for number in 0..made_up {
            call(&tally, "loud", &format!("agent-{number}"), "aaa", 0);
            let wanted = format!("tool.name_{number}").parse().unwrap();
            tally.wish(&tenant("loud"), &format!("agent-{number}").parse().unwrap(), &wanted, DAY);
        }
        for number in 0..40 {
            call(&tally, "quiet", &format!("agent-{number}"), "aaa", 1);
            call(&tally, "quiet", &format!("agent-{number}"), "bbb", 2);
            tally.wish(&tenant("quiet"), &format!("agent-{number}").parse().unwrap(), &"ccc".parse().unwrap(), DAY);
        }
        let batch = tally.drain(Uuid::nil());
        let quiet = tenant("quiet");
        let rows: Vec<_> = batch.rows.iter().filter(|(key, ..)| key.tenant == quiet).collect();
        assert_eq!(rows.len(), 80, "each of its agents and tools by its name");
        assert!(rows.iter().all(|(key, sum, _)| key.agent.as_str() != OTHERS && sum.calls == 1));
        assert_eq!(batch.wishes.iter().filter(|((of, ..), _)| *of == quiet).count(), 40);
        let pairs: u64 = batch.pairs.iter().filter(|((of, ..), _)| *of == quiet).map(|(_, count)| count).sum();
        assert_eq!(pairs, 40);
        assert!(batch.latencies.iter().any(|((of, tool, _), _)| *of == quiet && tool.as_str() == "bbb"));
        assert!(batch.rows.len() <= SHARDS * (ROWS_MAX + 1) + 80, "and the loud one has no more room than before");
    }

    #[test]
    fn wishes_are_counted_by_agent_and_tool() {
        let tally = Tally::default();
        let (agent, tool): (Subject, ToolId) = ("one".parse().unwrap(), "aaa".parse().unwrap());
        tally.wish(&tenant("local"), &agent, &tool, DAY);
        tally.wish(&tenant("local"), &agent, &tool, DAY);
        let batch = tally.drain(Uuid::nil());
        assert_eq!(batch.wishes, [((tenant("local"), DAY, agent, tool), 2)]);
    }
}
