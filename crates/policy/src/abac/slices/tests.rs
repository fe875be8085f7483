//! The sliced, pruned decision against the plain one: a single set of all policies, asked with the whole context.

use cedar_policy::{Authorizer, Decision, PolicySet};
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::facts::Facts;
use super::super::reads::Reads;
use super::super::vocabulary::vocabulary;
use super::super::{OutputSchema, Policies, PolicyQuestion, ToolFacts, ToolReach};
use crate::role::Role;

const PRINCIPALS: [&str; 7] = [
    "principal",
    r#"principal == Agent::"a1""#,
    r#"principal == Agent::"a2""#,
    r#"principal in Tenant::"t1""#,
    r#"principal is Agent in Tenant::"t2""#,
    "principal is Agent",
    r#"principal in Agent::"a1""#,
];
const RESOURCES: [&str; 7] = [
    "resource",
    r#"resource == Tool::"n1.one""#,
    r#"resource == Tool::"two""#,
    r#"resource in Namespace::"n1""#,
    r#"resource is Tool in Namespace::"n2""#,
    "resource is Tool",
    r#"resource in Tool::"two""#,
];
/// The last ones fail for some questions.
const CONDITIONS: [&str; 12] = [
    "",
    "when { context.hour < 12 }",
    r#"when { context.weekday == 3 || context.time > datetime("2026-01-01") }"#,
    r#"unless { principal has user && principal.user == User::"u" }"#,
    r#"when { context has session && context.session == "s" }"#,
    r#"when { context.arguments.names.contains("x.y") }"#,
    r#"when { context.arguments.text.hasTag("x.y") && context.arguments.text.getTag("x.y") like "1*" }"#,
    r#"when { context.arguments.list.hasTag(resource.name) }"#,
    r#"when { resource.side_effects == "pure" && principal.roles.contains("agent") }"#,
    r#"when { context.arguments.number.hasTag("x.y") && context.arguments.number.getTag("x.y") > 10 }"#,
    r#"when { context.arguments.decimal.hasTag("x.y") && context.arguments.decimal.getTag("x.y").lessThan(decimal("10.5")) }"#,
    r#"unless { context.arguments.flag.hasTag("f") && context.arguments.flag.getTag("f") }"#,
];

fn policy() -> impl Strategy<Value = String> {
    let choice = |all: &'static [&'static str]| proptest::sample::select(all);
    (any::<bool>(), choice(&PRINCIPALS), choice(&RESOURCES), choice(&CONDITIONS)).prop_map(
        |(permit, principal, resource, condition)| {
            let effect = if permit { "permit" } else { "forbid" };
            format!("{effect} ({principal}, action, {resource}) {condition};\n")
        },
    )
}

fn arguments() -> impl Strategy<Value = Value> {
    proptest::sample::select(vec![
        json!({}),
        json!({ "x": { "y": 5 }, "f": true }),
        json!({ "x": { "y": 11 }, "f": false, "one": [] }),
        json!({ "x": { "y": 10.25 }, "two": "z" }),
        json!({ "x": { "y": 1e30 }, "f": "no" }),
        json!({ "x": { "y": "12" }, "x.z": null }),
        json!({ "x": [], "f": null }),
    ])
}

#[derive(Debug)]
struct Asked {
    tenant: TenantId,
    agent: Subject,
    user: Option<Subject>,
    session: Option<String>,
    tool: ToolId,
    effects: SideEffectPolicy,
    arguments: Value,
    now_ms: i64,
}

impl Asked {
    fn question<'a>(&'a self, version: &'a Version) -> PolicyQuestion<'a> {
        PolicyQuestion {
            tenant: &self.tenant,
            agent: &self.agent,
            user: self.user.as_ref(),
            session: self.session.as_deref(),
            roles: &[Role::Agent],
            scopes: &[],
            tool: ToolFacts {
                aliases: &[],
                id: &self.tool,
                version,
                tags: &[],
                categories: &[],
                effects: self.effects,
                required_permissions: &[],
                provider: "builtin",
                reach: ToolReach::default(),
                output_schema: OutputSchema::Declared,
            },
            arguments: &self.arguments,
            now_ms: self.now_ms,
            environment: "test",
        }
    }
}

fn asked() -> impl Strategy<Value = Asked> {
    let name = |all: &'static [&'static str]| proptest::sample::select(all);
    (
        name(&["t1", "t2", "t3"]),
        name(&["a1", "a2", "a3"]),
        any::<bool>(),
        any::<bool>(),
        name(&["n1.one", "n1.two", "n2.one", "two", "three"]),
        any::<bool>(),
        arguments(),
        0_i64..2_000_000_000_000,
    )
        .prop_map(|(tenant, agent, user, session, tool, pure, arguments, now_ms)| Asked {
            tenant: tenant.parse().unwrap(),
            agent: agent.parse().unwrap(),
            user: user.then(|| "u".parse().unwrap()),
            session: session.then(|| "s".to_owned()),
            tool: tool.parse().unwrap(),
            effects: if pure { SideEffectPolicy::Pure } else { SideEffectPolicy::Irreversible },
            arguments,
            now_ms,
        })
}

/// The reference: Cedar's answer over the whole set, and a failure of any policy denies.
fn plain(text: &str, question: &PolicyQuestion<'_>) -> (bool, Vec<String>) {
    let set: PolicySet = text.parse().unwrap();
    let facts = Facts::of(question, &Reads::everything(), vocabulary()).unwrap();
    let response = Authorizer::new().is_authorized(&facts.request, &set, &facts.entities);
    let mut reasons: Vec<String> = response.diagnostics().reason().map(ToString::to_string).collect();
    let failed: Vec<_> = response.diagnostics().errors().map(|error| error.to_string()).collect();
    reasons.sort();
    match response.decision() {
        Decision::Allow if failed.is_empty() => (true, reasons),
        Decision::Deny if !reasons.is_empty() => (false, reasons),
        Decision::Allow | Decision::Deny => (false, Vec::new()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn sliced_decisions_are_those_of_the_whole_set(
        policies in proptest::collection::vec(policy(), 0..12),
        questions in proptest::collection::vec(asked(), 1..6),
    ) {
        let text = policies.concat();
        let sliced = Policies::compile(&text).unwrap();
        for asked in &questions {
            let version = Version::new(1, 0, 0);
            let question = asked.question(&version);
            let verdict = sliced.decide(&question);
            let (allowed, reasons) = plain(&text, &question);
            prop_assert_eq!(verdict.allowed, allowed, "{}\n{:?}\n{}", text, asked, verdict.reason);
            if !reasons.is_empty() {
                prop_assert_eq!(&verdict.determining, &reasons);
            }
        }
    }
}
