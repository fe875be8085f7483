//! What should be enabled for whom, and what should be declared otherwise, with the counts that say so. (ANALYT-002, ANALYT-003)
//!
//! Three grounds. *Unmet need*: an agent looked for or called a tool of its tenant that it may not use (tier 2 without
//! tier 3), so often. *Co-use*: an agent uses one of two tools that others use together, so often, and not the other.
//! *Reclassify*: a tool takes longer than the class that it declares.
//!
//! Nothing is enabled by this: it is advice for whoever manages activations. What an agent has by now is not recommended.

use std::collections::{HashMap, HashSet};

use contract::ids::{Subject, TenantId, ToolId};
use policy::Action;

use crate::administration::{Actor, tenant_of};
use crate::health::alerts::Reclassify;
use crate::invoke::Kernel;
use crate::ports::usage_store::{ANALYTICS_MAX, Days, Grouping, Pair, USAGE_PAGE_MAX, UsageQuery, Wish};
use contract::error::Refusal;
use contract::version::Version;

/// Times that something must have happened before it is advice.
const COUNT_MIN: u64 = 3;
/// Pages of agents and their tools that are looked at.
const PAGES_MAX: usize = 20;
/// Longest list of advice.
const ADVICE_MAX: usize = 200;

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// The agent searched for it or called it so often, and may not use it.
    UnmetNeed { count: u64 },
    /// The agent uses `with`, and others have used both together so often.
    CoUse { with: ToolId, count: u64, enabled: bool },
    /// Calls take longer than the declared class allows.
    Reclassify { version: Version, change: Reclassify, timeouts: u64, calls: u64 },
}

impl Reason {
    fn count(&self) -> u64 {
        match self {
            Self::UnmetNeed { count } | Self::CoUse { count, .. } => *count,
            Self::Reclassify { timeouts, .. } => *timeouts,
        }
    }
}

/// One piece of advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recommendation {
    pub tool: ToolId,
    /// For whom; `None`: about the tool itself.
    pub agent: Option<Subject>,
    pub reason: Reason,
}

impl Kernel {
    /// Advice for a tenant, the best founded first.
    pub async fn recommendations(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        days: Days,
    ) -> Result<Vec<Recommendation>, Refusal> {
        let caller = self.permitted(actor, Action::SeeUsage).await?;
        let tenant = tenant_of(&caller, tenant)?;
        let insights = self.written().await?;
        let store = &insights.parts.usage;
        let wishes = store.wishes(&tenant, days, ANALYTICS_MAX).await.map_err(|error| error.refusal())?;
        let pairs = store.pairs(&tenant, days, ANALYTICS_MAX).await.map_err(|error| error.refusal())?;
        let used = self.tools_by_agent(&tenant, days).await?;
        let mut advice = unmet(&wishes, |agent, tool| self.reach_now(&tenant, agent, tool));
        advice.extend(co_used(&pairs, &used, |agent, tool| self.reach_now(&tenant, agent, tool)));
        let slow = insights.health.reports(self.clock().monotonic(), |key| key.tenant == tenant);
        advice.extend(slow.into_iter().filter_map(|report| {
            let reason = Reason::Reclassify {
                version: report.key.version,
                change: report.suggestion?,
                timeouts: report.counts.timeouts,
                calls: report.counts.calls,
            };
            Some(Recommendation { tool: report.key.tool, agent: None, reason })
        }));
        advice.sort_by(|left, right| {
            let order = |it: &Recommendation| (std::cmp::Reverse(it.reason.count()), it.tool.clone(), it.agent.clone());
            order(left).cmp(&order(right))
        });
        advice.truncate(ADVICE_MAX);
        Ok(advice)
    }

    /// Which agent has used what; as far as some pages go.
    async fn tools_by_agent(
        &self,
        tenant: &TenantId,
        days: Days,
    ) -> Result<HashMap<Subject, HashSet<ToolId>>, Refusal> {
        let insights = self.learned()?;
        let mut used: HashMap<Subject, HashSet<ToolId>> = HashMap::new();
        for page in 0..PAGES_MAX {
            let query = UsageQuery {
                tenant: tenant.clone(),
                from: days.from,
                to: days.to,
                tool: None,
                agent: None,
                user: None,
                by: Grouping { day: false, tool: true, agent: true, user: false },
                skip: page * USAGE_PAGE_MAX,
                most: USAGE_PAGE_MAX,
            };
            let found = insights.parts.usage.usage(&query).await.map_err(|error| error.refusal())?;
            for group in found.groups {
                if let (Some(agent), Some(tool), true) = (group.agent, group.tool, group.sum.calls > group.sum.refused)
                {
                    used.entry(agent).or_default().insert(tool);
                }
            }
            if !found.more {
                break;
            }
        }
        Ok(used)
    }

    /// Does the agent have the tool now (`Some(true)`), could it (`Some(false)`), or is it not the tenant's (`None`)?
    fn reach_now(&self, tenant: &TenantId, agent: &Subject, tool: &ToolId) -> Option<bool> {
        let access = self.access().snapshot().clone();
        let registry = self.registry().snapshot();
        let view = access.view(tenant, agent);
        let tool = registry.tool(tenant, tool).filter(|tool| view.has(&tool.tenant, &tool.id))?;
        let current = tool.current(self.clock().now())?;
        Some(view.reach(&tool.id, || current.manifest.side_effect_policy).is_ok())
    }
}

/// What agents wanted, as far as they still lack it and could have it.
fn unmet(wishes: &[Wish], reach: impl Fn(&Subject, &ToolId) -> Option<bool>) -> Vec<Recommendation> {
    let lacking = wishes.iter().filter(|wish| wish.count >= COUNT_MIN && reach(&wish.agent, &wish.tool) == Some(false));
    lacking
        .map(|wish| Recommendation {
            tool: wish.tool.clone(),
            agent: Some(wish.agent.clone()),
            reason: Reason::UnmetNeed { count: wish.count },
        })
        .collect()
}

/// For each agent the tools that go with its own, each by the pair that says so most often.
fn co_used(
    pairs: &[Pair],
    used: &HashMap<Subject, HashSet<ToolId>>,
    reach: impl Fn(&Subject, &ToolId) -> Option<bool>,
) -> Vec<Recommendation> {
    let mut advice = Vec::new();
    for (agent, own) in used {
        let mut told: HashSet<&ToolId> = HashSet::new();
        // Most often first, so the first pair about a tool is the best.
        for pair in pairs.iter().filter(|pair| pair.count >= COUNT_MIN) {
            let (with, tool) = match (own.contains(&pair.first), own.contains(&pair.second)) {
                (true, false) => (&pair.first, &pair.second),
                (false, true) => (&pair.second, &pair.first),
                (true, true) | (false, false) => continue,
            };
            if told.insert(tool)
                && let Some(enabled) = reach(agent, tool)
            {
                let reason = Reason::CoUse { with: with.clone(), count: pair.count, enabled };
                advice.push(Recommendation { tool: tool.clone(), agent: Some(agent.clone()), reason });
            }
        }
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolId {
        name.parse().unwrap()
    }

    fn agent(name: &str) -> Subject {
        name.parse().unwrap()
    }

    #[test]
    fn wishes_become_advice_when_they_are_often_and_could_be_met() {
        let wish = |name: &str, of: &str, count| Wish { agent: agent(name), tool: tool(of), count };
        let wishes = [wish("a", "lacks", 5), wish("a", "seldom", 2), wish("a", "has_it", 9), wish("a", "foreign", 9)];
        let reach = |_: &Subject, tool: &ToolId| match tool.as_str() {
            "has_it" => Some(true),
            "foreign" => None,
            _ => Some(false),
        };
        let advice = unmet(&wishes, reach);
        assert_eq!(advice.len(), 1);
        assert_eq!((advice[0].tool.as_str(), &advice[0].reason), ("lacks", &Reason::UnmetNeed { count: 5 }));
    }

    #[test]
    fn the_other_half_of_a_pair_is_advised_once_with_the_best_count() {
        let pair = |first: &str, second: &str, count| Pair { first: tool(first), second: tool(second), count };
        let pairs = [pair("aaa", "ccc", 9), pair("bbb", "ccc", 7), pair("aaa", "bbb", 5), pair("aaa", "ddd", 1)];
        let used = HashMap::from([(agent("one"), HashSet::from([tool("aaa"), tool("bbb")]))]);
        let advice = co_used(&pairs, &used, |_, _| Some(false));
        let reason = Reason::CoUse { with: tool("aaa"), count: 9, enabled: false };
        assert_eq!(advice, [Recommendation { tool: tool("ccc"), agent: Some(agent("one")), reason }]);
        assert!(co_used(&pairs, &used, |_, _| None).is_empty(), "what the tenant does not have is not advised");
    }
}
