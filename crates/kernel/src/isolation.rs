//! How isolated a call must be: the manifest's own word, and what the operator demands on top (EXEC-015). Pure: the
//! demands and the facts of a call are handed in.
//!
//! The levels are `builtin < process < gvisor < microvm`. A WASM component has no level of its own to ask for: it counts as
//! `process`, because its memory safety is the compiler's and its kernel is the host's, and never as `gvisor` (decision
//! 0020). What runs no code of the tool's author here (built-ins, services elsewhere) counts as `builtin`.
//!
//! Invariants
//! - ISO-1: the effective level is at least the manifest's and at least that of every demand that matches.
//! - ISO-2: another demand never lowers it, and the order of demands does not matter.
//! - ISO-3: a kind of tool that can never be so isolated is refused (E3405), not run with less.
//!
//! Not here: whether this machine has the level (the executor), and demands of policies (`phases/conditions`), which join.

use contract::error::{ErrorCode, Refusal};
use contract::ids::{TenantId, ToolId};
use contract::manifest::{Execution, Isolation};
use policy::ToolPattern;
use serde::Deserialize;

/// One demand: calls that have everything it names run at least at `level`. One that names nothing is about every call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IsolationDemand {
    pub level: Isolation,
    /// A tool id, `namespace.*` or `*`.
    #[serde(default)]
    pub tool: Option<ToolPattern>,
    /// A tag of the manifest.
    #[serde(default)]
    pub tag: Option<String>,
    /// The tenant of the caller.
    #[serde(default)]
    pub tenant: Option<TenantId>,
}

/// What the operator demands. The default demands nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct IsolationPolicy {
    demands: Vec<IsolationDemand>,
}

/// What a demand can ask about a call.
#[derive(Debug, Clone, Copy)]
pub struct IsolationFacts<'a> {
    pub tool: &'a ToolId,
    /// Its other names: a demand about one of them is about the tool.
    pub aliases: &'a [ToolId],
    pub tags: &'a [String],
    /// Of the caller.
    pub tenant: &'a TenantId,
}

impl IsolationDemand {
    fn matches(&self, facts: IsolationFacts<'_>) -> bool {
        let names = || std::iter::once(facts.tool).chain(facts.aliases);
        self.tool.as_ref().is_none_or(|pattern| names().any(|name| pattern.matches(name)))
            && self.tag.as_ref().is_none_or(|tag| facts.tags.contains(tag))
            && self.tenant.as_ref().is_none_or(|tenant| tenant == facts.tenant)
    }
}

impl IsolationPolicy {
    /// From its demands.
    pub fn new(demands: Vec<IsolationDemand>) -> Self {
        Self { demands }
    }

    /// The level a call must have.
    ///
    /// ```
    /// # use gantry_kernel::{IsolationDemand, IsolationFacts, IsolationPolicy};
    /// # use contract::manifest::Isolation;
    /// let demand = IsolationDemand { level: Isolation::Gvisor, tool: "demo.*".parse().ok(), tag: None, tenant: None };
    /// let policy = IsolationPolicy::new(vec![demand]);
    /// let (tool, tenant) = ("demo.word_stats".parse().unwrap(), "acme".parse().unwrap());
    /// let facts = IsolationFacts { tool: &tool, aliases: &[], tags: &[], tenant: &tenant };
    /// assert_eq!(policy.effective(Isolation::Process, facts), Isolation::Gvisor);
    /// ```
    pub fn effective(&self, asked: Isolation, facts: IsolationFacts<'_>) -> Isolation {
        let demanded = self.demands.iter().filter(|demand| demand.matches(facts)).map(|demand| demand.level);
        demanded.fold(asked, Isolation::max)
    }
}

/// Refuses what can never be had with this kind of tool, whatever the machine (ISO-3).
pub(crate) fn possible(binding: &Execution, demand: Isolation) -> Result<(), Refusal> {
    let most = binding.isolation_possible();
    if demand <= most {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::E3405,
        format!(
            "this call must be isolated by `{}`, and a tool of type `{}` is isolated by `{}` at most",
            demand.as_str(),
            binding.kind(),
            most.as_str()
        ),
    )
    .hint("use a version that runs as a process or container; less isolation than demanded is never given")
    .retryable(false))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEVELS: [Isolation; 3] = [Isolation::Process, Isolation::Gvisor, Isolation::Microvm];
    const TOOLS: [&str; 3] = ["calculator", "demo.word_stats", "demo.other_tool"];
    const TAGS: [&str; 2] = ["untrusted", "finance"];
    const TENANTS: [&str; 2] = ["local", "acme"];

    fn demand() -> impl Strategy<Value = IsolationDemand> {
        let pattern = prop::option::of(prop::sample::select(vec!["*", "demo.*", "calculator", "demo.word_stats"]));
        let tag = prop::option::of(prop::sample::select(TAGS.to_vec()));
        let tenant = prop::option::of(prop::sample::select(TENANTS.to_vec()));
        (prop::sample::select(LEVELS.to_vec()), pattern, tag, tenant).prop_map(|(level, tool, tag, tenant)| {
            IsolationDemand {
                level,
                tool: tool.map(|text| text.parse().unwrap()),
                tag: tag.map(str::to_owned),
                tenant: tenant.map(|text| text.parse().unwrap()),
            }
        })
    }

    #[test]
    fn a_demand_about_a_former_name_is_one_about_the_tool() {
        let demand =
            |tool: &str| IsolationDemand { level: Isolation::Gvisor, tool: tool.parse().ok(), tag: None, tenant: None };
        let (tool, tenant) = ("demo.new".parse().unwrap(), "acme".parse().unwrap());
        let aliases = ["demo.old".parse().unwrap(), "legacy.old".parse().unwrap()];
        let facts = IsolationFacts { tool: &tool, aliases: &aliases, tags: &[], tenant: &tenant };
        for (named, expected) in
            [("demo.old", Isolation::Gvisor), ("legacy.*", Isolation::Gvisor), ("demo.other", Isolation::Process)]
        {
            let policy = IsolationPolicy::new(vec![demand(named)]);
            assert_eq!(policy.effective(Isolation::Process, facts), expected, "{named}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// ISO-1 and ISO-2.
        #[test]
        fn demands_only_raise_and_their_order_does_not_matter(
            demands in prop::collection::vec(demand(), 0..6),
            more in demand(),
            tool in prop::sample::select(TOOLS.to_vec()),
            tags in prop::sample::subsequence(TAGS.to_vec(), 0..=2),
            tenant in prop::sample::select(TENANTS.to_vec()),
            asked in prop::sample::select(vec![Isolation::Builtin, Isolation::Process, Isolation::Gvisor, Isolation::Microvm]),
        ) {
            let (tool, tenant) = (tool.parse().unwrap(), tenant.parse().unwrap());
            let tags: Vec<String> = tags.into_iter().map(str::to_owned).collect();
            let facts = IsolationFacts { tool: &tool, aliases: &[], tags: &tags, tenant: &tenant };
            let level = IsolationPolicy::new(demands.clone()).effective(asked, facts);
            prop_assert!(level >= asked);
            for demand in &demands {
                prop_assert!(!demand.matches(facts) || level >= demand.level);
            }
            let why = level == asked || demands.iter().any(|demand| demand.matches(facts) && demand.level == level);
            prop_assert!(why, "a level that nobody asked for");

            let reversed: Vec<_> = demands.iter().rev().cloned().collect();
            prop_assert_eq!(IsolationPolicy::new(reversed).effective(asked, facts), level);
            let wider: Vec<_> = demands.into_iter().chain([more]).collect();
            prop_assert!(IsolationPolicy::new(wider).effective(asked, facts) >= level);
        }
    }

    #[test]
    fn a_kind_that_can_never_be_so_isolated_is_refused() {
        use Isolation::{Builtin, Gvisor, Microvm, Process};
        let of = |value| serde_json::from_value::<Execution>(value).unwrap();
        let builtin = of(serde_json::json!({ "type": "builtin", "handler": "calculator" }));
        let wasm = of(serde_json::json!({ "type": "wasm", "component": "a.wasm" }));
        let http = of(serde_json::json!({ "type": "http", "method": "GET", "url": "https://example.com" }));
        let process = of(serde_json::json!({ "type": "process", "command": ["a"] }));
        for (binding, fine, refused) in [
            (&builtin, vec![Builtin], vec![Process, Gvisor, Microvm]),
            (&http, vec![Builtin], vec![Process]),
            (&wasm, vec![Builtin, Process], vec![Gvisor, Microvm]),
            (&process, vec![Process, Gvisor, Microvm], vec![]),
        ] {
            assert!(fine.iter().all(|level| possible(binding, *level).is_ok()), "{}", binding.kind());
            for level in refused {
                let refusal = possible(binding, level).unwrap_err();
                assert_eq!((refusal.code, refusal.retryable), (ErrorCode::E3405, Some(false)), "{}", binding.kind());
            }
        }
        assert!(serde_json::from_value::<Isolation>(serde_json::json!("builtin")).is_err(), "nobody can ask for less");
    }
}
