//! Whatever a child may do, its parent may do (DEL-1): random chains of delegation, judged by an evaluator that knows
//! nothing of containment. It only tries calls, one after the other, and compares texts.
//!
//! The world is small and closed. Beside every name that a right can have it holds one that no right has, so that a right
//! which is wider shows it in a call.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "test crate")]

use std::sync::LazyLock;

use contract::version::Version;
use gantry_policy::{
    ArgumentLimit, CallBudget, ChainError, DelegatedRights, Delegator, NarrowingRequest, PermissionScope,
    RightsWidening, ToolGrant, first_widening, narrow,
};
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Value, json};

// ---------------------------------------------------------------------------------------------------- what rights say

const PATTERNS: [&str; 6] = ["*", "demo.*", "other.*", "demo.alpha", "demo.beta", "gamma"];
const RANGES: [Option<&str>; 9] = [
    None,
    Some("*"),
    Some("^1"),
    Some(">=1.2.0 <3.0.0"),
    Some("2.x"),
    Some("1.x || 3.x"),
    Some("1.0.0"),
    Some("2.1.0-rc.1"),
    Some(">=3.0.0"),
];
const SCOPES: [&str; 15] = [
    "*",
    "tool:*",
    "tool:a",
    "tool:a:*",
    "filesystem:*",
    "filesystem:read:/",
    "filesystem:read:/data",
    "filesystem:read:/data/in",
    "filesystem:write:/data",
    "network:*",
    "network:https:*",
    "network:https://*.h.org",
    "network:https://a.h.org",
    "network:https://a.h.org/v1",
    "network:a.h.org:443",
];
const CALLS: [Option<u64>; 4] = [None, Some(0), Some(1), Some(3)];

static LIMITS: LazyLock<Vec<ArgumentLimit>> = LazyLock::new(|| {
    let limits = json!([
        { "tool_id": "*", "argument": "/n", "max": 50 },
        { "tool_id": "demo.*", "argument": "/n", "min": 10 },
        { "tool_id": "demo.alpha", "argument": "/n", "one_of": [5, 20] },
        { "tool_id": "gamma", "argument": "/p", "under": "/data" },
        { "tool_id": "*", "argument": "/p", "max_length": 8 },
    ]);
    serde_json::from_value(limits).unwrap()
});

fn grant(pattern: &str, range: Option<&str>) -> ToolGrant {
    ToolGrant { tool_id: pattern.parse().unwrap(), version_range: range.map(|range| range.parse().unwrap()) }
}

fn any_tools() -> impl Strategy<Value = Vec<ToolGrant>> {
    let entry = (select(&PATTERNS[..]), select(&RANGES[..])).prop_map(|(pattern, range)| grant(pattern, range));
    proptest::collection::vec(entry, 0..4)
}

fn any_scopes() -> impl Strategy<Value = Vec<PermissionScope>> {
    let parse = |texts: Vec<&str>| texts.iter().map(|text| text.parse().unwrap()).collect();
    proptest::collection::vec(select(&SCOPES[..]), 0..4).prop_map(parse)
}

fn any_budget() -> impl Strategy<Value = Option<CallBudget>> {
    prop_oneof![1 => Just(None), 3 => select(&CALLS[..]).prop_map(|calls| Some(CallBudget { calls }))]
}

fn any_rights() -> impl Strategy<Value = DelegatedRights> {
    (any_tools(), any_scopes(), subsequence(LIMITS.clone(), 0..3), any_budget(), 0..4_i64).prop_map(
        |(tools, scopes, limits, budget, expires_at)| DelegatedRights { tools, scopes, limits, budget, expires_at },
    )
}

/// Rights that have something to hand on.
fn wide_rights() -> impl Strategy<Value = DelegatedRights> {
    (any_rights(), any::<[bool; 4]>()).prop_map(|(mut rights, [all_tools, all_scopes, no_budget, long])| {
        if all_tools {
            rights.tools.push(grant("*", None));
        }
        if all_scopes {
            rights.scopes.push("*".parse().unwrap());
        }
        if no_budget {
            rights.budget = None;
        }
        if long {
            rights.expires_at = 4;
        }
        rights
    })
}

/// Mostly asks for little, so that chains become long, and often enough for too much.
fn any_wish() -> impl Strategy<Value = NarrowingRequest> {
    (
        proptest::option::weighted(0.4, any_tools()),
        proptest::option::weighted(0.4, any_scopes()),
        subsequence(LIMITS.clone(), 0..2),
        prop_oneof![2 => Just(None), 1 => any_budget()],
        proptest::option::weighted(0.3, 0..6_i64),
    )
        .prop_map(|(tools, scopes, limits, budget, expires_at)| NarrowingRequest {
            tools,
            scopes,
            limits,
            budget,
            expires_at,
        })
}

// ------------------------------------------------------------------------------------------------ the naive evaluator

const TOOLS: [&str; 6] = ["demo.alpha", "demo.beta", "demo.fresh", "other.alpha", "gamma", "fresh.alpha"];
const VERSIONS: [&str; 10] =
    ["0.9.0", "1.0.0", "1.1.0", "1.5.0", "2.0.0", "2.1.0-rc.1", "2.9.9", "3.3.0", "4.0.0", "9.9.9-fresh"];
const NEEDS: [&str; 20] = [
    "other:fresh",
    "tool:a",
    "tool:a:fresh",
    "tool:fresh",
    "filesystem:read:/fresh",
    "filesystem:read:/database",
    "filesystem:read:/data",
    "filesystem:read:/data/fresh",
    "filesystem:read:/data/in",
    "filesystem:read:/data/in/fresh",
    "filesystem:write:/data",
    "filesystem:write:/fresh",
    "network:http://fresh.h.org",
    "network:https://fresh.org",
    "network:https://h.org",
    "network:https://fresh.h.org",
    "network:https://a.h.org",
    "network:https://a.h.org/v1/fresh",
    "network:https://a.h.org/v10",
    "network:a.h.org:443",
];
const TIMES: std::ops::Range<i64> = 0..5;
const EARLIER_CALLS: [u64; 4] = [0, 1, 2, 9];

fn argument_sets() -> Vec<Value> {
    vec![
        json!({}),
        json!({ "n": 5, "p": "/data/x" }),
        json!({ "n": 20, "p": "/data" }),
        json!({ "n": 20, "p": "/etc" }),
        json!({ "n": 30, "p": "/database" }),
        json!({ "n": 99, "p": "/data/longer" }),
        json!({ "n": 20 }),
        json!({ "p": "/data" }),
    ]
}

/// What some rights allow, tried out. A call is allowed when all five say so.
struct Tried {
    versions: Vec<Vec<bool>>,
    needs: Vec<bool>,
    arguments: Vec<Vec<bool>>,
    times: Vec<bool>,
    counts: Vec<bool>,
}

fn try_out(rights: &DelegatedRights) -> Tried {
    let versions: Vec<Version> = VERSIONS.iter().map(|text| text.parse().unwrap()).collect();
    let sets = argument_sets();
    Tried {
        versions: TOOLS
            .iter()
            .map(|tool| versions.iter().map(|version| names(&rights.tools, tool, version)).collect())
            .collect(),
        needs: NEEDS.iter().map(|need| rights.scopes.iter().any(|scope| opens(scope.as_str(), need))).collect(),
        arguments: TOOLS
            .iter()
            .map(|tool| sets.iter().map(|set| rights.limits.iter().all(|limit| is_kept(limit, tool, set))).collect())
            .collect(),
        times: TIMES.map(|now| now < rights.expires_at).collect(),
        counts: EARLIER_CALLS
            .into_iter()
            .map(|earlier| rights.budget.as_ref().and_then(|budget| budget.calls).is_none_or(|most| earlier < most))
            .collect(),
    }
}

fn fits(pattern: &str, tool: &str) -> bool {
    pattern == "*" || pattern == tool || pattern.strip_suffix('*').is_some_and(|space| tool.starts_with(space))
}

fn names(tools: &[ToolGrant], tool: &str, version: &Version) -> bool {
    tools.iter().any(|entry| {
        fits(&entry.tool_id.to_string(), tool)
            && entry.version_range.as_ref().is_none_or(|range| range.matches(version))
    })
}

fn opens(scope: &str, need: &str) -> bool {
    if scope == need || scope == "*" {
        return true;
    }
    if let Some(start) = scope.strip_suffix('*') {
        return need.starts_with(start);
    }
    if let Some(domain) = scope.strip_prefix("network:https://*") {
        let host = need.strip_prefix("network:https://").and_then(|rest| rest.split('/').next());
        return host.is_some_and(|host| host.ends_with(domain));
    }
    let has_places = scope.starts_with("filesystem:") || scope.contains("://");
    has_places && need.starts_with(&format!("{}/", scope.trim_end_matches('/')))
}

fn is_kept(limit: &ArgumentLimit, tool: &str, arguments: &Value) -> bool {
    if !fits(&limit.tool_id.to_string(), tool) {
        return true;
    }
    let number = arguments["n"].as_i64();
    let text = arguments["p"].as_str();
    // By position in the list above: an evaluator that reads bounds would repeat what is tried here.
    match LIMITS.iter().position(|other| other == limit) {
        Some(0) => number.is_some_and(|n| n <= 50),
        Some(1) => number.is_some_and(|n| n >= 10),
        Some(2) => number.is_some_and(|n| n == 5 || n == 20),
        Some(3) => text.is_some_and(|path| path == "/data" || path.starts_with("/data/")),
        Some(4) => text.is_some_and(|path| path.len() <= 8),
        _ => panic!("{limit:?} is not of this world"),
    }
}

/// The first call that `child` may make and `parent` may not.
fn call_beyond(child: &Tried, parent: &Tried) -> Option<String> {
    for (tool, name) in TOOLS.iter().enumerate() {
        for version in allowed(&child.versions[tool]) {
            for set in allowed(&child.arguments[tool]) {
                for need in allowed(&child.needs) {
                    for now in allowed(&child.times) {
                        for earlier in allowed(&child.counts) {
                            let fine = parent.versions[tool][version]
                                && parent.arguments[tool][set]
                                && parent.needs[need]
                                && parent.times[now]
                                && parent.counts[earlier];
                            if !fine {
                                let (version, need, earlier) = (VERSIONS[version], NEEDS[need], EARLIER_CALLS[earlier]);
                                return Some(format!("{name} {version} {need} set {set} at {now} after {earlier}"));
                            }
                        }
                    }
                }
            }
        }
    }
    None
}

fn allowed(row: &[bool]) -> impl Iterator<Item = usize> {
    row.iter().enumerate().filter(|(_, allowed)| **allowed).map(|(at, _)| at)
}

/// Is there something in one part that the child's has and the parent's has not, whatever the other parts say?
fn is_really_wider(widening: &RightsWidening, child: &Tried, parent: &Tried) -> bool {
    let wider = |child: &[bool], parent: &[bool]| child.iter().zip(parent).any(|(child, parent)| *child && !parent);
    match widening {
        RightsWidening::Tool(_) | RightsWidening::VersionRange { .. } => {
            child.versions.iter().zip(&parent.versions).any(|(child, parent)| wider(child, parent))
        }
        RightsWidening::Scope(_) => wider(&child.needs, &parent.needs),
        RightsWidening::LimitMissing { .. } => {
            child.arguments.iter().zip(&parent.arguments).any(|(child, parent)| wider(child, parent))
        }
        RightsWidening::Budget { .. } => wider(&child.counts, &parent.counts),
        RightsWidening::Lifetime { .. } => wider(&child.times, &parent.times),
    }
}

/// What the wish would come to if nobody judged it.
fn unjudged(parent: &DelegatedRights, wish: &NarrowingRequest) -> DelegatedRights {
    let mut rights = parent.clone();
    rights.tools = wish.tools.clone().unwrap_or(rights.tools);
    rights.scopes = wish.scopes.clone().unwrap_or(rights.scopes);
    rights.limits.extend(wish.limits.clone());
    rights.budget = wish.budget.clone().or(rights.budget);
    rights.expires_at = wish.expires_at.unwrap_or(rights.expires_at);
    rights
}

// --------------------------------------------------------------------------------------------------------- properties

/// The rights along a chain: each wish that is refused is passed over.
fn chain_of(root: DelegatedRights, wishes: &[NarrowingRequest]) -> Vec<DelegatedRights> {
    let mut chain = vec![root];
    for wish in wishes {
        if let Ok(child) = narrow(chain.last().unwrap(), wish) {
            chain.push(child);
        }
    }
    chain
}

/// The chain as a token carries it, nearest link first, and the rights of the token itself.
fn as_claim(chain: &[DelegatedRights]) -> Option<Delegator> {
    chain.iter().enumerate().fold(None, |act, (at, rights)| {
        Some(Delegator::of(format!("agent_{at}").parse().unwrap(), format!("token_{at}"), 0, rights, act))
    })
}

/// Makes one part of `child` wider than `parent`. `None` where the parent has all there is.
fn widen(child: &DelegatedRights, parent: &DelegatedRights, part: usize, which: Index) -> Option<DelegatedRights> {
    let mut wider = child.clone();
    match part {
        0 if !parent.tools.contains(&grant("*", None)) => wider.tools.push(grant("*", None)),
        1 if parent.tools.iter().all(|entry| entry.tool_id.to_string() != "*") => {
            wider.tools.insert(which.index(wider.tools.len() + 1), grant("fresh.alpha", Some("1.0.0")));
        }
        2 if parent.scopes.iter().all(|scope| scope.as_str() != "*") => {
            let scope = ["*", "other:fresh", "other:*"][which.index(3)].parse().unwrap();
            wider.scopes.insert(which.index(wider.scopes.len() + 1), scope);
        }
        3 if !parent.limits.is_empty() => {
            let dropped = which.get(&parent.limits);
            wider.limits.retain(|limit| limit != dropped);
        }
        4 => {
            let most = parent.budget.as_ref()?.calls?;
            wider.budget = [None, Some(CallBudget { calls: None }), Some(CallBudget { calls: Some(most + 1) })]
                [which.index(3)]
            .clone();
        }
        5 => wider.expires_at = parent.expires_at + 1,
        _ => return None,
    }
    Some(wider)
}

/// Is it the part that `widen` changed?
fn is_about(widening: &RightsWidening, part: usize) -> bool {
    match widening {
        RightsWidening::Tool(_) | RightsWidening::VersionRange { .. } => part < 2,
        RightsWidening::Scope(_) => part == 2,
        RightsWidening::LimitMissing { .. } => part == 3,
        RightsWidening::Budget { .. } => part == 4,
        RightsWidening::Lifetime { .. } => part == 5,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_wish_is_granted_exactly_if_nothing_in_it_is_wider(parent in wide_rights(), wish in any_wish()) {
        let before = try_out(&parent);
        let wished = unjudged(&parent, &wish);
        match narrow(&parent, &wish) {
            Ok(child) => {
                let after = try_out(&child);
                prop_assert_eq!(call_beyond(&after, &before), None);
                // Granted as it was wished: the same calls, none cut away.
                prop_assert_eq!(call_beyond(&try_out(&wished), &after), None);
            }
            Err(widening) => {
                prop_assert!(is_really_wider(&widening, &try_out(&wished), &before), "{}", widening);
            }
        }
    }

    #[test]
    fn along_a_chain_rights_only_shrink(root in wide_rights(), wishes in proptest::collection::vec(any_wish(), 1..12)) {
        let mut chain = chain_of(root, &wishes);
        chain.truncate(6);
        let tried: Vec<Tried> = chain.iter().map(try_out).collect();
        for (at, child) in chain.iter().enumerate() {
            for above in 0..at {
                prop_assert_eq!(first_widening(child, &chain[above]), None, "{} in {}", at, above);
                prop_assert_eq!(call_beyond(&tried[at], &tried[above]), None, "{} in {}", at, above);
            }
        }
        let (leaf, links) = chain.split_last().unwrap();
        if let Some(act) = as_claim(links) {
            prop_assert_eq!(act.verify("leaf", leaf), Ok(()));
        }
    }

    #[test]
    fn every_widening_is_found(
        root in wide_rights(),
        wishes in proptest::collection::vec(any_wish(), 1..8),
        which in any::<Index>(),
    ) {
        let mut chain = chain_of(root, &wishes);
        chain.truncate(5);
        let leaf = chain.last().unwrap().clone();
        for (above, parent) in chain.iter().enumerate() {
            for part in 0..6 {
                let Some(wider) = widen(&leaf, parent, part, which) else { continue };
                let found = first_widening(&wider, parent);
                prop_assert!(found.as_ref().is_some_and(|found| is_about(found, part)), "{} {} {:?}", above, part, found);
                // The same in a chain, wherever in it the parent is, and whether or not the links between agree.
                let act = as_claim(&chain).unwrap();
                let refused = matches!(act.verify("leaf", &wider), Err(ChainError::Widened { .. }));
                prop_assert!(refused, "{} {}", above, part);
            }
        }
    }

    #[test]
    fn being_within_is_transitive_and_means_fewer_calls(
        first in any_rights(), second in any_rights(), third in any_rights(), wish in any_wish(),
    ) {
        // Independent rights are rarely within each other, so one of them is also narrowed.
        let second = narrow(&third, &wish).unwrap_or(second);
        let all = [first, second, third];
        for child in &all {
            prop_assert_eq!(first_widening(child, child), None);
            for parent in &all {
                if first_widening(child, parent).is_none() {
                    prop_assert_eq!(call_beyond(&try_out(child), &try_out(parent)), None);
                    for root in &all {
                        prop_assert!(first_widening(parent, root).is_some() || first_widening(child, root).is_none());
                    }
                }
            }
        }
    }
}
