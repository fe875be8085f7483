//! The pipeline's answer equals that of a naive evaluator, for random tokens, activations, policies and calls.
//!
//! The evaluator below knows nothing of snapshots, caches, Cedar or patterns compiled ahead: it reads the same
//! configuration and applies the rules of DESIGN §2 and §8.7 word for word.

use contract::error::ErrorCode;
use gantry_kernel::{AccessSettings, ActivationWish, TenantWish};
use policy::{PolicyOverrides, VisibilityDefault};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;
use test_kernel::{TestKernel, TestKernelOptions, admin, mint_request};

const AGENTS: [&str; 2] = ["ann", "bob"];
/// Id, whether it is pure, and the scope it needs.
const TOOLS: [(&str, bool, Option<&str>); 3] =
    [("greet", true, None), ("demo.writer", false, None), ("demo.reader", true, Some("filesystem:read:/data/in"))];
const PATTERNS: [&str; 5] = ["*", "demo.*", "greet", "demo.writer", "demo.reader"];
const SCOPES: [&str; 5] =
    ["*", "filesystem:read:*", "filesystem:read:/data", "filesystem:read:/database", "filesystem:write:/data"];

#[derive(Debug, Clone)]
struct Rule {
    forbid: bool,
    agent: Option<usize>,
    tool: Option<usize>,
    /// Applies when `times` is more than this.
    more_than: Option<i64>,
}

#[derive(Debug, Clone)]
struct Switch {
    /// `None`: every agent.
    agent: Option<usize>,
    pattern: usize,
    enabled: bool,
}

#[derive(Debug, Clone)]
struct World {
    default: Option<VisibilityDefault>,
    tenant_tools: Vec<usize>,
    switches: Vec<Switch>,
    /// `None`: nobody has written any.
    platform: Option<Vec<Rule>>,
    tenant: Option<Vec<Rule>>,
    grants: Vec<(usize, Option<&'static str>)>,
    scopes: Vec<usize>,
    times_max: Option<i64>,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    agent: usize,
    tool: usize,
    times: i64,
}

// -------------------------------------------------------------------------------------------------- the naive evaluator

fn pattern_names(pattern: &str, tool: &str) -> bool {
    pattern == "*"
        || pattern == tool
        || pattern.strip_suffix(".*").is_some_and(|space| tool.split('.').next() == Some(space) && tool.contains('.'))
}

fn scope_covers(granted: &str, needed: &str) -> bool {
    match granted {
        "*" => true,
        "filesystem:read:*" => needed.starts_with("filesystem:read:"),
        _ => needed == granted || needed.starts_with(&format!("{granted}/")),
    }
}

fn rules_allow(rules: Option<&Vec<Rule>>, attempt: Attempt) -> bool {
    let Some(rules) = rules else { return true };
    let applies = |rule: &&Rule| {
        rule.agent.is_none_or(|agent| agent == attempt.agent)
            && rule.tool.is_none_or(|tool| tool == attempt.tool)
            && rule.more_than.is_none_or(|bound| attempt.times > bound)
    };
    !rules.iter().filter(|rule| rule.forbid).any(|rule| applies(&rule))
        && rules.iter().filter(|rule| !rule.forbid).any(|rule| applies(&rule))
}

fn expected(world: &World, attempt: Attempt) -> Option<ErrorCode> {
    let (tool, pure, need) = TOOLS[attempt.tool];
    if !world.tenant_tools.iter().any(|pattern| pattern_names(PATTERNS[*pattern], tool)) {
        return Some(ErrorCode::E3101);
    }
    if !world.grants.iter().any(|(pattern, _)| pattern_names(PATTERNS[*pattern], tool)) {
        return Some(ErrorCode::E3204);
    }
    // The agent's own switches before the tenant's; a tool by name before its namespace before everything.
    let rank = |switch: &&Switch| {
        let own = switch.agent.is_some();
        let width = match PATTERNS[switch.pattern] {
            "*" => 0,
            "demo.*" => 1,
            _ => 2,
        };
        (own, width)
    };
    let switch = world
        .switches
        .iter()
        .filter(|switch| switch.agent.is_none_or(|agent| agent == attempt.agent))
        .filter(|switch| pattern_names(PATTERNS[switch.pattern], tool))
        .max_by_key(rank);
    let reached = match (switch, world.default.unwrap_or(VisibilityDefault::ReadOnly)) {
        (Some(switch), _) => switch.enabled,
        (None, VisibilityDefault::Enabled) => true,
        (None, VisibilityDefault::ReadOnly) => pure,
        (None, VisibilityDefault::Disabled) => false,
    };
    if !reached {
        return Some(ErrorCode::E3101);
    }
    // Every tool is published as 1.0.0.
    let version_fits = |range: &Option<&str>| range.is_none_or(|range| range == "^1");
    if !world.grants.iter().any(|(pattern, range)| pattern_names(PATTERNS[*pattern], tool) && version_fits(range)) {
        return Some(ErrorCode::E3204);
    }
    let granted = |need: &str| world.scopes.iter().any(|scope| scope_covers(SCOPES[*scope], need));
    let within = world.times_max.is_none_or(|max| attempt.times <= max);
    let allowed = need.is_none_or(granted)
        && within
        && rules_allow(world.platform.as_ref(), attempt)
        && rules_allow(world.tenant.as_ref(), attempt);
    (!allowed).then_some(ErrorCode::E3206)
}

// ------------------------------------------------------------------------------------------------------- the real thing

fn cedar(rules: &[Rule]) -> String {
    rules
        .iter()
        .map(|rule| {
            let effect = if rule.forbid { "forbid" } else { "permit" };
            let principal = rule.agent.map(|agent| format!(" == Agent::\"{}\"", AGENTS[agent])).unwrap_or_default();
            let resource = rule.tool.map(|tool| format!(" == Tool::\"{}\"", TOOLS[tool].0)).unwrap_or_default();
            let when = rule.more_than.map_or_else(String::new, |bound| {
                format!(
                    " when {{ context.arguments.number.hasTag(\"times\") && context.arguments.number.getTag(\"times\") > {bound} }}"
                )
            });
            format!("{effect} (principal{principal}, action, resource{resource}){when};\n")
        })
        .collect()
}

async fn built(world: &World) -> (TestKernel, Vec<String>) {
    let settings = AccessSettings { visibility: world.default, ..AccessSettings::default() };
    let stage = TestKernel::with(TestKernelOptions { settings, ..TestKernelOptions::default() }).await;
    for (tool, pure, need) in TOOLS {
        let (namespace, name) = tool.split_once('.').map_or((None, tool), |(space, name)| (Some(space), name));
        let mut change = json!({ "tool_id": name, "namespace": namespace, "required_permissions": need.into_iter().collect::<Vec<_>>() });
        if !pure {
            change["side_effect_policy"] = json!("idempotent");
            change["side_effects"] = json!([{ "resource": "r", "op": "UPDATE", "scope": "s" }]);
            change["idempotency"] = json!({});
        }
        stage.publish(change).await;
    }
    let mut tokens = Vec::new();
    for agent in AGENTS {
        let grants: Vec<_> = world
            .grants
            .iter()
            .map(|(pattern, range)| match range {
                Some(range) => json!({ "tool_id": PATTERNS[*pattern], "version_range": range }),
                None => json!({ "tool_id": PATTERNS[*pattern] }),
            })
            .collect();
        let scopes: Vec<_> = world.scopes.iter().map(|scope| SCOPES[*scope]).collect();
        let limits: Vec<_> =
            world.times_max.iter().map(|max| json!({ "tool_id": "*", "argument": "/times", "max": max })).collect();
        let request = mint_request(json!({ "sub": agent, "tools": grants, "scopes": scopes, "limits": limits }));
        tokens.push(stage.kernel.mint_token(admin(), &request).await.unwrap().token);
    }
    let tenant = TenantWish {
        tenant: "acme".parse().unwrap(),
        name: None,
        visibility: None,
        tools: Some(world.tenant_tools.iter().map(|pattern| PATTERNS[*pattern].parse().unwrap()).collect()),
        enabled: None,
    };
    stage.kernel.put_tenants(admin(), &[tenant]).await.unwrap();
    let wishes = world
        .switches
        .iter()
        .map(|switch| ActivationWish {
            tenant: Some("acme".parse().unwrap()),
            agent: switch.agent.map(|agent| AGENTS[agent].parse().unwrap()),
            tool: PATTERNS[switch.pattern].parse().unwrap(),
            enabled: switch.enabled,
            overrides: PolicyOverrides::default(),
            replaces: gantry_kernel::ReplacedActivation::default(),
        })
        .collect();
    stage.kernel.put_activations(admin(), wishes).await.unwrap();
    if let Some(rules) = &world.platform {
        stage.kernel.put_policies(admin(), None, cedar(rules)).await.unwrap();
    }
    if let Some(rules) = &world.tenant {
        stage.kernel.put_policies(admin(), Some(&"acme".parse().unwrap()), cedar(rules)).await.unwrap();
    }
    (stage, tokens)
}

fn worlds() -> impl Strategy<Value = World> {
    let default = prop_oneof![
        Just(None),
        Just(Some(VisibilityDefault::Enabled)),
        Just(Some(VisibilityDefault::ReadOnly)),
        Just(Some(VisibilityDefault::Disabled)),
    ];
    let rule = (any::<bool>(), prop::option::of(0..2usize), prop::option::of(0..3usize), prop::option::of(0..4i64))
        .prop_map(|(forbid, agent, tool, more_than)| Rule { forbid, agent, tool, more_than });
    let rules = || prop::option::of(prop::collection::vec(rule.clone(), 0..4));
    // One record per (agent, pattern): a later one replaces an earlier one, which is not what is looked at here.
    let switches =
        prop::collection::btree_map((prop::option::of(0..2usize), 0..5usize), any::<bool>(), 0..5).prop_map(|map| {
            map.into_iter().map(|((agent, pattern), enabled)| Switch { agent, pattern, enabled }).collect::<Vec<_>>()
        });
    let grants = prop::collection::vec((0..5usize, prop::option::of(prop_oneof![Just("^1"), Just("^2")])), 0..4);
    (
        default,
        prop::collection::vec(0..5usize, 0..3),
        switches,
        rules(),
        rules(),
        grants,
        prop::collection::vec(0..5usize, 0..3),
        prop::option::of(1..5i64),
    )
        .prop_map(|(default, tenant_tools, switches, platform, tenant, grants, scopes, times_max)| World {
            default,
            tenant_tools,
            switches,
            platform,
            tenant,
            grants,
            scopes,
            times_max,
        })
}

#[test]
fn the_pipeline_answers_what_a_naive_evaluator_answers() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut runner = TestRunner::new(Config { cases: 150, ..Config::default() });
    let outcome = runner.run(&worlds(), |world| {
        runtime.block_on(async {
            let (stage, tokens) = built(&world).await;
            // Twice, because the second answer may be a remembered one.
            for _ in 0..2 {
                for (agent, token) in tokens.iter().enumerate() {
                    for (tool, times) in (0..TOOLS.len()).flat_map(|tool| [(tool, 1), (tool, 3), (tool, 6)]) {
                        let call = json!({ "tool_id": TOOLS[tool].0, "parameters": { "name": "Ada", "times": times } });
                        let answer = stage.call_as(Some(token), call).await.err().map(|failed| failed.refusal.code);
                        let attempt = Attempt { agent, tool, times };
                        prop_assert_eq!(answer, expected(&world, attempt), "{:?}", attempt);
                    }
                }
            }
            Ok(())
        })
    });
    outcome.unwrap();
}
