//! What should be enabled for whom, and what should be declared otherwise, with the counts that say so. (ANALYT-002, ANALYT-003)
//!
//! Four grounds. *Unmet need*: an agent looked for or called a tool of its tenant that it may not use (tier 2 without
//! tier 3), so often. *Co-use*: an agent uses one of two tools that others use together, so often, and not the other.
//! *Similar*: an agent uses a tool so often whose description is much like that of another one. *Reclassify*: a tool takes
//! longer than the class that it declares.
//!
//! How much two descriptions are alike is asked of the registry's own search, with the description of the one for a question:
//! the score of the other as a share of the score that the one has itself. It is a likeness of words, not of meanings, so it
//! is the weakest ground, comes last, and is left out where a better one is known. An embedding would take its place behind
//! the same port.
//!
//! Nothing is enabled by this: it is advice for whoever manages activations. What an agent has by now is not recommended.

use std::collections::{HashMap, HashSet};

use contract::ids::{Subject, TenantId, ToolId};
use policy::Action;
use ports::actor::Actor;
use ports::usage_store::{ANALYTICS_MAX, Days, Grouping, ToolPair, USAGE_PAGE_MAX, UnmetNeed, UsageQuery};

use crate::health::alerts::Reclassify;
use crate::queries::InsightQueries;
use contract::error::Refusal;
use contract::version::Version;

/// Times that something must have happened before it is advice.
const COUNT_MIN: u64 = 3;
/// Pages of agents and their tools that are looked at.
const PAGES_MAX: usize = 20;
/// Longest list of advice.
const ADVICE_MAX: usize = 200;
/// Tools, the most used first, for which similar ones are looked for; and how many of each are looked at.
const COMPARED_MAX: usize = 50;
const SIMILAR_MAX: usize = 5;
/// From this share of its own score on, in percent, a description is like another one.
const ALIKE_PERCENT_MIN: u64 = 40;
/// Characters of a description that are compared.
const QUESTION_CHARS_MAX: usize = 400;

/// Why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecommendationReason {
    /// The agent searched for it or called it so often, and may not use it.
    UnmetNeed { count: u64 },
    /// The agent uses `with`, and others have used both together so often.
    CoUse { with: ToolId, count: u64, enabled: bool },
    /// The agent has called `to` so often, and what it says of itself is that much like what this one says.
    Similar { to: ToolId, count: u64, percent: u64, enabled: bool },
    /// Calls take longer than the declared class allows.
    Reclassify { version: Version, change: Reclassify, timeouts: u64, calls: u64 },
}

impl RecommendationReason {
    fn count(&self) -> u64 {
        match self {
            Self::UnmetNeed { count } | Self::CoUse { count, .. } | Self::Similar { count, .. } => *count,
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
    pub reason: RecommendationReason,
}

impl InsightQueries {
    /// Advice for a tenant, the best founded first.
    pub async fn recommendations(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        days: Days,
    ) -> Result<Vec<Recommendation>, Refusal> {
        let caller = self.kernel.permitted(actor, Action::SeeUsage).await?;
        let tenant = self.kernel.tenant_for(actor, &caller, tenant).await?;
        let insights = self.written().await?;
        let store = &insights.parts.usage;
        let wishes = store.wishes(&tenant, days, ANALYTICS_MAX).await.map_err(|error| error.refusal())?;
        let pairs = store.pairs(&tenant, days, ANALYTICS_MAX).await.map_err(|error| error.refusal())?;
        let used = self.tools_by_agent(&tenant, days).await?;
        let mut advice = unmet(&wishes, |agent, tool| self.kernel.reach_now(&tenant, agent, tool));
        advice.extend(co_used(&pairs, &used, |agent, tool| self.kernel.reach_now(&tenant, agent, tool)));
        let alike = self.alike(&tenant, &used).await?;
        let known: HashSet<_> = advice.iter().map(|it| (it.agent.clone(), it.tool.clone())).collect();
        let better = |agent: &Subject, tool: &ToolId| known.contains(&(Some(agent.clone()), tool.clone()));
        advice.extend(similar(&alike, &used, |agent, tool| {
            if better(agent, tool) { None } else { self.kernel.reach_now(&tenant, agent, tool) }
        }));
        let slow = insights.health.reports(self.kernel.clock().monotonic(), |key| key.tenant == tenant);
        advice.extend(slow.into_iter().filter_map(|report| {
            let reason = RecommendationReason::Reclassify {
                version: report.key.version,
                change: report.suggestion?,
                timeouts: report.counts.timeouts,
                calls: report.counts.calls,
            };
            Some(Recommendation { tool: report.key.tool, agent: None, reason })
        }));
        advice.sort_by(|left, right| {
            let order = |it: &Recommendation| {
                let weak = matches!(it.reason, RecommendationReason::Similar { .. });
                (weak, std::cmp::Reverse(it.reason.count()), it.tool.clone(), it.agent.clone())
            };
            order(left).cmp(&order(right))
        });
        advice.truncate(ADVICE_MAX);
        Ok(advice)
    }

    /// For the tools that are used most, those that describe themselves in a similar way, the most similar first.
    async fn alike(&self, tenant: &TenantId, used: &Used) -> Result<Alike, Refusal> {
        let mut calls: HashMap<&ToolId, u64> = HashMap::new();
        for (tool, count) in used.values().flatten() {
            *calls.entry(tool).or_default() += count;
        }
        let mut often: Vec<_> = calls.into_iter().filter(|(_, count)| *count >= COUNT_MIN).collect();
        often.sort_by_key(|(tool, count)| (std::cmp::Reverse(*count), *tool));
        let mut alike = Alike::new();
        for (tool, _) in often.into_iter().take(COMPARED_MAX) {
            let registry = self.kernel.registry().snapshot().clone();
            let Some(current) = registry.tool(tenant, tool).and_then(|tool| tool.current(self.kernel.clock().now()))
            else {
                continue;
            };
            let question = question(&current.manifest.description);
            let found = self.kernel.registry().search(tenant, &question, SIMILAR_MAX + 1, |_| true).await?;
            let scores = found.iter().filter_map(|hit| Some((&hit.tool.id, hit.score?)));
            alike.insert(tool.clone(), shares(tool, scores));
        }
        Ok(alike)
    }

    /// Which agent has used what, and how often; as far as some pages go.
    async fn tools_by_agent(&self, tenant: &TenantId, days: Days) -> Result<Used, Refusal> {
        let mut used = Used::new();
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
            let found = self.insights.parts.usage.usage(&query).await.map_err(|error| error.refusal())?;
            for group in found.groups {
                let ran = group.sum.calls.saturating_sub(group.sum.refused);
                if let (Some(agent), Some(tool), 1..) = (group.agent, group.tool, ran) {
                    used.entry(agent).or_default().insert(tool, ran);
                }
            }
            if !found.more {
                break;
            }
        }
        Ok(used)
    }
}

/// What each agent has used, and how often.
type Used = HashMap<Subject, HashMap<ToolId, u64>>;
/// For a tool those that are like it, and how much, in percent.
type Alike = HashMap<ToolId, Vec<(ToolId, u64)>>;

/// A description as one question: sentences apart would be asked one by one, and their scores could not be compared.
fn question(description: &str) -> String {
    let plain = description.chars().map(|c| if c.is_alphanumeric() { c } else { ' ' });
    plain.take(QUESTION_CHARS_MAX).collect()
}

/// Scores as shares of the score that the tool itself has. Without it nothing can be said.
fn shares<'a>(tool: &ToolId, scores: impl Iterator<Item = (&'a ToolId, f64)> + Clone) -> Vec<(ToolId, u64)> {
    let own = scores.clone().find(|(found, _)| *found == tool).map(|(_, score)| score).filter(|own| *own > 0.0);
    let Some(own) = own else { return Vec::new() };
    let others = scores.filter(|(found, _)| *found != tool);
    let percents = others.map(|(found, score)| (found.clone(), percent(score / own)));
    percents.filter(|(_, percent)| *percent >= ALIKE_PERCENT_MIN).collect()
}

fn percent(share: f64) -> u64 {
    // A count of whole percents, so that nothing depends on how floats are cut.
    (1..=100).take_while(|percent: &u32| share * 100.0 >= f64::from(*percent)).last().unwrap_or(0).into()
}

/// For each agent what is like the tools that it calls often, each by the one it is most like.
fn similar(alike: &Alike, used: &Used, reach: impl Fn(&Subject, &ToolId) -> Option<bool>) -> Vec<Recommendation> {
    let mut advice = Vec::new();
    for (agent, own) in used {
        let mut best: HashMap<&ToolId, (u64, u64, &ToolId)> = HashMap::new();
        for (to, count) in own.iter().filter(|(_, count)| **count >= COUNT_MIN) {
            for (tool, percent) in alike.get(to).into_iter().flatten().filter(|(tool, _)| !own.contains_key(tool)) {
                let ground = (*percent, *count, to);
                best.entry(tool).and_modify(|known| *known = ground.max(*known)).or_insert(ground);
            }
        }
        for (tool, (percent, count, to)) in best {
            if let Some(enabled) = reach(agent, tool) {
                let reason = RecommendationReason::Similar { to: to.clone(), count, percent, enabled };
                advice.push(Recommendation { tool: tool.clone(), agent: Some(agent.clone()), reason });
            }
        }
    }
    advice
}

/// What agents wanted, as far as they still lack it and could have it.
fn unmet(wishes: &[UnmetNeed], reach: impl Fn(&Subject, &ToolId) -> Option<bool>) -> Vec<Recommendation> {
    let lacking = wishes.iter().filter(|wish| wish.count >= COUNT_MIN && reach(&wish.agent, &wish.tool) == Some(false));
    lacking
        .map(|wish| Recommendation {
            tool: wish.tool.clone(),
            agent: Some(wish.agent.clone()),
            reason: RecommendationReason::UnmetNeed { count: wish.count },
        })
        .collect()
}

/// For each agent the tools that go with its own, each by the pair that says so most often.
fn co_used(pairs: &[ToolPair], used: &Used, reach: impl Fn(&Subject, &ToolId) -> Option<bool>) -> Vec<Recommendation> {
    let mut advice = Vec::new();
    for (agent, own) in used {
        let mut told: HashSet<&ToolId> = HashSet::new();
        // Most often first, so the first pair about a tool is the best.
        for pair in pairs.iter().filter(|pair| pair.count >= COUNT_MIN) {
            let (with, tool) = match (own.contains_key(&pair.first), own.contains_key(&pair.second)) {
                (true, false) => (&pair.first, &pair.second),
                (false, true) => (&pair.second, &pair.first),
                (true, true) | (false, false) => continue,
            };
            if told.insert(tool)
                && let Some(enabled) = reach(agent, tool)
            {
                let reason = RecommendationReason::CoUse { with: with.clone(), count: pair.count, enabled };
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
        let wish = |name: &str, of: &str, count| UnmetNeed { agent: agent(name), tool: tool(of), count };
        let wishes = [wish("a", "lacks", 5), wish("a", "seldom", 2), wish("a", "has_it", 9), wish("a", "foreign", 9)];
        let reach = |_: &Subject, tool: &ToolId| match tool.as_str() {
            "has_it" => Some(true),
            "foreign" => None,
            _ => Some(false),
        };
        let advice = unmet(&wishes, reach);
        assert_eq!(advice.len(), 1);
        assert_eq!(
            (advice[0].tool.as_str(), &advice[0].reason),
            ("lacks", &RecommendationReason::UnmetNeed { count: 5 })
        );
    }

    #[test]
    fn the_other_half_of_a_pair_is_advised_once_with_the_best_count() {
        let pair = |first: &str, second: &str, count| ToolPair { first: tool(first), second: tool(second), count };
        let pairs = [pair("aaa", "ccc", 9), pair("bbb", "ccc", 7), pair("aaa", "bbb", 5), pair("aaa", "ddd", 1)];
        let used = HashMap::from([(agent("one"), HashMap::from([(tool("aaa"), 1), (tool("bbb"), 1)]))]);
        let advice = co_used(&pairs, &used, |_, _| Some(false));
        let reason = RecommendationReason::CoUse { with: tool("aaa"), count: 9, enabled: false };
        assert_eq!(advice, [Recommendation { tool: tool("ccc"), agent: Some(agent("one")), reason }]);
        assert!(co_used(&pairs, &used, |_, _| None).is_empty(), "what the tenant does not have is not advised");
    }

    #[test]
    fn likeness_is_the_share_of_what_a_tool_scores_itself() {
        let (own, near, far) = (tool("own"), tool("near"), tool("far"));
        let scores = [(&own, 8.0), (&near, 4.0), (&far, 3.0)];
        assert_eq!(shares(&own, scores.into_iter()), [(near.clone(), 50)]);
        assert!(shares(&tool("else"), scores.into_iter()).is_empty(), "not found by its own words");
        assert!(shares(&own, [(&own, 0.0), (&near, 0.0)].into_iter()).is_empty());
        assert_eq!([percent(0.0), percent(0.499), percent(1.0), percent(7.0), percent(f64::NAN)], [0, 49, 100, 100, 0]);
        assert_eq!(question("Sends mail. To you!"), "Sends mail  To you ");
    }

    #[test]
    fn what_is_like_a_tool_in_use_is_advised_by_the_one_it_is_most_like() {
        let alike = Alike::from([
            (tool("aaa"), vec![(tool("ccc"), 45), (tool("bbb"), 90)]),
            (tool("bbb"), vec![(tool("ccc"), 60)]),
            (tool("seldom"), vec![(tool("ddd"), 99)]),
        ]);
        let own = HashMap::from([(tool("aaa"), 9), (tool("bbb"), 4), (tool("seldom"), 2)]);
        let used = HashMap::from([(agent("one"), own)]);
        let reason = RecommendationReason::Similar { to: tool("bbb"), count: 4, percent: 60, enabled: true };
        let advice = similar(&alike, &used, |_, _| Some(true));
        assert_eq!(advice, [Recommendation { tool: tool("ccc"), agent: Some(agent("one")), reason }]);
        assert!(similar(&alike, &used, |_, _| None).is_empty());
    }
}
