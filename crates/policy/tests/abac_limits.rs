//! A limit on a number cannot be evaded by the shape of the number.
#![expect(clippy::unwrap_used, reason = "test crate")]

use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use gantry_policy::{OutputSchema, Policies, PolicyQuestion, ToolFacts, ToolReach};
use proptest::prelude::*;
use serde_json::{Value, json};

/// `amount` compared with a bound, in a view: how it is written, and what it means.
struct Comparison {
    holds: fn(f64, f64) -> bool,
    whole: &'static str,
    decimal: &'static str,
}

const COMPARISONS: [Comparison; 4] = [
    Comparison { holds: |a, b| a > b, whole: ">", decimal: "greaterThan" },
    Comparison { holds: |a, b| a >= b, whole: ">=", decimal: "greaterThanOrEqual" },
    Comparison { holds: |a, b| a < b, whole: "<", decimal: "lessThan" },
    Comparison { holds: |a, b| a <= b, whole: "<=", decimal: "lessThanOrEqual" },
];

fn condition(comparison: &Comparison, whole: bool, bound: i64) -> String {
    let (has, get) = if whole {
        ("context.arguments.number.hasTag(\"amount\")", "context.arguments.number.getTag(\"amount\")")
    } else {
        ("context.arguments.decimal.hasTag(\"amount\")", "context.arguments.decimal.getTag(\"amount\")")
    };
    if whole {
        format!("{has} && {get} {} {bound}", comparison.whole)
    } else {
        format!("{has} && {get}.{}(decimal(\"{bound}.0\"))", comparison.decimal)
    }
}

fn allows(policies: &str, arguments: &Value) -> bool {
    let (tenant, agent, tool): (TenantId, Subject, ToolId) =
        ("t".parse().unwrap(), "a".parse().unwrap(), "pay".parse().unwrap());
    let question = PolicyQuestion {
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
            effects: SideEffectPolicy::Irreversible,
            required_permissions: &[],
            provider: "process",
            reach: ToolReach::default(),
            output_schema: OutputSchema::Declared,
        },
        arguments,
        now_ms: 0,
        environment: "production",
    };
    Policies::compile(policies).unwrap().decide(&question).allowed
}

fn forbid(condition: &str) -> String {
    format!("permit (principal, action, resource); forbid (principal, action, resource) when {{ {condition} }};")
}

fn permit(condition: &str) -> String {
    format!("permit (principal, action, resource) when {{ {condition} }};")
}

#[test]
fn a_limit_of_100_holds_against_every_way_to_write_more() {
    let over_100 = [
        json!(101),
        json!(100.5),
        json!(100.00001),
        json!(100.000_000_000_001),
        json!(1e30),
        json!(1.7e308),
        json!(i64::MAX),
        json!(u64::MAX),
        serde_json::from_str("9223372036854775808").unwrap(),
        // Not numbers at all: whoever accepts these may read them as more than 100.
        json!("1000"),
        json!([1000]),
        json!({ "value": 1000 }),
        json!(true),
    ];
    for amount in over_100 {
        let arguments = json!({ "amount": amount });
        for whole in [true, false] {
            let [more, _, _, at_most] = &COMPARISONS;
            assert!(!allows(&forbid(&condition(more, whole, 100)), &arguments), "{amount} {whole}");
            assert!(!allows(&permit(&condition(at_most, whole, 100)), &arguments), "{amount} {whole}");
        }
    }
}

#[test]
fn honest_amounts_pass() {
    for (amount, as_whole) in [(json!(100), true), (json!(1e2), true), (json!(0), true), (json!(99.99), false)] {
        let arguments = json!({ "amount": amount });
        for whole in [true, false].into_iter().filter(|whole| !whole || as_whole) {
            let [more, _, _, at_most] = &COMPARISONS;
            assert!(allows(&forbid(&condition(more, whole, 100)), &arguments), "{amount} {whole}");
            assert!(allows(&permit(&condition(at_most, whole, 100)), &arguments), "{amount} {whole}");
        }
    }
}

#[test]
fn equality_is_exact_also_for_numbers_no_view_holds() {
    let same = r#"context.arguments.decimal.hasTag("a") && context.arguments.decimal.hasTag("b")
        && context.arguments.decimal.getTag("a") == context.arguments.decimal.getTag("b")"#;
    for (a, b, equal) in [
        (json!(1), json!(1.0), true),
        (json!(1e30), json!(1e30), true),
        (json!(1e30), json!(1e29), false),
        (json!(0.123_456), json!(0.123_456), true),
        (json!(0.123_456), json!(0.1235), false),
        (json!("x"), json!("x"), false),
    ] {
        assert_eq!(allows(&permit(same), &json!({ "a": a, "b": b })), equal, "{a} {b}");
    }
}

/// Numbers around whole bounds, where rounding would bite, and numbers from everywhere.
fn amounts() -> impl Strategy<Value = f64> {
    prop_oneof![
        (-20_i32..20, -30_000_i32..30_000).prop_map(|(whole, part)| f64::from(whole) + f64::from(part) / 10_000.0),
        (-20_i32..20, -9_i32..9).prop_map(|(whole, part)| f64::from(whole) + f64::from(part) * 1e-9),
        (-20_i32..20).prop_map(f64::from),
        any::<f64>().prop_filter("finite", |float| float.is_finite()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The truth is the comparison of the numbers themselves. A forbid that is true must deny; a permit that is not true
    /// must not allow; and where the view holds the number, the decision is the truth.
    #[test]
    fn no_number_passes_a_comparison_it_should_not(amount in amounts(), bound in -20_i64..20, which in 0_usize..4, whole: bool) {
        let comparison = COMPARISONS.get(which).unwrap();
        let truth = (comparison.holds)(amount, f64::from(i32::try_from(bound).unwrap()));
        let arguments = json!({ "amount": amount });
        let condition = condition(comparison, whole, bound);
        let (forbidden, permitted) = (allows(&forbid(&condition), &arguments), allows(&permit(&condition), &arguments));
        prop_assert!(!(truth && forbidden), "a true forbid allowed {}", amount);
        prop_assert!(truth || !permitted, "a false permit allowed {}", amount);
        let held = if whole { amount.fract() == 0.0 && amount.abs() < 9e18 } else { amount.fract() == 0.0 && amount.abs() < 9e14 };
        if held {
            prop_assert_eq!((forbidden, permitted), (!truth, truth));
        }
    }
}
