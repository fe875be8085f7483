//! Ten thousand policies: they compile, and a decision looks only at those that could hold.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::fmt::Write as _;

use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use gantry_policy::{OutputSchema, Policies, PolicyQuestion, PolicyVerdict, ToolFacts, ToolReach};
use serde_json::json;

fn decide(policies: &Policies, agent: &str, tool: &str) -> PolicyVerdict {
    let (tenant, agent, tool): (TenantId, Subject, ToolId) =
        ("acme".parse().unwrap(), agent.parse().unwrap(), tool.parse().unwrap());
    policies.decide(&PolicyQuestion {
        tenant: &tenant,
        agent: &agent,
        user: None,
        session: None,
        roles: &[],
        scopes: &[],
        tool: ToolFacts {
            aliases: &[],
            id: &tool,
            version: &Version::new(1, 0, 0),
            tags: &[],
            categories: &[],
            effects: SideEffectPolicy::Idempotent,
            required_permissions: &[],
            provider: "process",
            reach: ToolReach::default(),
            output_schema: OutputSchema::Declared,
        },
        arguments: &json!({ "amount": 50, "to": "ann@acme.com" }),
        now_ms: 0,
        environment: "production",
    })
}

/// `count` policies half of them a permit for one tool, half a forbid for one agent, and one in a hundred for all.
fn many(count: usize) -> String {
    let mut text = String::new();
    for n in 0..count {
        let policy = match n % 100 {
            0 => format!("forbid (principal, action, resource) when {{ resource.major == {} }};", n + 1_000),
            // Some look at arguments.
            odd if odd % 10 == 1 => format!(
                "permit (principal in Tenant::\"acme\", action, resource == Tool::\"tools.tool{n}\") when {{ \
                 context.arguments.number.hasTag(\"amount\") && context.arguments.number.getTag(\"amount\") <= 100 }};"
            ),
            odd if odd % 2 == 1 => {
                format!("permit (principal in Tenant::\"acme\", action, resource == Tool::\"tools.tool{n}\");")
            }
            _ => format!("forbid (principal == Agent::\"did:web:a{n}\", action, resource in Namespace::\"tools\");"),
        };
        writeln!(text, "@id(\"p{n}\") {policy}").unwrap();
    }
    text
}

#[test]
fn ten_thousand_policies_compile_and_decide() {
    let policies = Policies::compile(&many(10_000)).unwrap();
    assert_eq!(policies.len(), 10_000);
    for (agent, tool, allowed, determining) in [
        ("did:web:a1", "tools.tool1", true, vec!["p1"]),
        ("did:web:a1", "tools.tool9999", true, vec!["p9999"]),
        ("did:web:a9998", "tools.tool9999", false, vec!["p9998"]),
        ("did:web:a1", "tools.tool2", false, vec![]),
    ] {
        let verdict = decide(&policies, agent, tool);
        assert_eq!(
            (verdict.allowed, verdict.determining),
            (allowed, determining.into_iter().map(str::to_owned).collect())
        );
    }
}
