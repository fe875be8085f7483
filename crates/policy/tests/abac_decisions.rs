//! What policies decide: tables of a policy, a question, and the verdict.
#![expect(clippy::unwrap_used, clippy::panic, reason = "test crate")]

use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use gantry_policy::{
    ContextNeeds, Obligation, OutputSchema, PermissionScope, Policies, PolicyQuestion, PolicyUpstream, PolicyVerdict,
    Role, ToolFacts, ToolReach,
};
use serde_json::{Value, json};

/// 2026-01-07 is a Wednesday.
const WEDNESDAY_NOON_MS: i64 = 1_767_787_200_000;

/// A question about one tool, with everything a schema knows filled in.
struct Asked {
    tenant: TenantId,
    agent: Subject,
    user: Option<Subject>,
    tool: ToolId,
    arguments: Value,
    now_ms: i64,
}

impl Asked {
    fn new() -> Self {
        Self {
            tenant: "acme".parse().unwrap(),
            agent: "did:web:acme.example:a".parse().unwrap(),
            user: Some("did:web:acme.example:u".parse().unwrap()),
            tool: "billing.refund".parse().unwrap(),
            arguments: json!({}),
            now_ms: WEDNESDAY_NOON_MS,
        }
    }

    fn with(arguments: Value) -> Self {
        Self { arguments, ..Self::new() }
    }

    fn of(&self, policies: &Policies) -> PolicyVerdict {
        let scopes: Vec<PermissionScope> = vec!["tool:*".parse().unwrap()];
        policies.decide(&PolicyQuestion {
            tenant: &self.tenant,
            agent: &self.agent,
            user: self.user.as_ref(),
            session: Some("s-1"),
            roles: &[Role::Agent, Role::ToolAuthor],
            scopes: &scopes,
            tool: ToolFacts {
                aliases: &[],
                id: &self.tool,
                version: &Version::new(2, 1, 0),
                tags: &["money".to_owned()],
                categories: &["finance".to_owned()],
                effects: SideEffectPolicy::Compensatable,
                required_permissions: &["tool:refund".to_owned()],
                provider: "process",
                reach: ToolReach {
                    permissions: &["tool:refund".to_owned(), "network:https://pay.example".to_owned()],
                    hosts: &["pay.example".to_owned()],
                    upstream: Some(PolicyUpstream {
                        server: "refunds",
                        transport: "stdio",
                        command: Some("refunds-mcp"),
                        addresses: &[],
                    }),
                },
                output_schema: OutputSchema::Unconstrained,
            },
            arguments: &self.arguments,
            now_ms: self.now_ms,
            environment: "production",
        })
    }
}

fn compile(text: &str) -> Policies {
    Policies::compile(text).unwrap_or_else(|problems| panic!("{text}: {problems:?}"))
}

fn when(condition: &str) -> Policies {
    compile(&format!("permit (principal, action, resource) when {{ {condition} }};"))
}

#[test]
fn conditions_see_everything_the_schema_promises() {
    let asked = Asked::with(json!({
        "to": "ann@acme.com", "count": 3, "price": 9.95, "dry_run": true, "ids": ["a", "b", 7],
        "customer": { "email": "bob@acme.com" }, "items": [{ "price": 5 }],
    }));
    for (condition, holds) in [
        (r#"resource.hosts.contains("pay.example")"#, true),
        (r#"["pay.example", "cdn.example"].containsAll(resource.hosts)"#, true),
        (r#"["cdn.example"].containsAll(resource.hosts)"#, false),
        (r#"resource.permissions.contains("network:https://pay.example")"#, true),
        (r#"resource.required_permissions.contains("network:https://pay.example")"#, false),
        (r#"resource has upstream && resource.upstream.server == "refunds""#, true),
        (r#"resource has upstream && resource.upstream.transport == "http""#, false),
        (
            r#"resource has upstream && resource.upstream has command && resource.upstream.command == "refunds-mcp""#,
            true,
        ),
        (r#"resource has upstream && resource.upstream.addresses.isEmpty()"#, true),
        (r#"resource.output_schema == "unconstrained""#, true),
        (r#"principal in Tenant::"acme""#, true),
        (r#"principal in Tenant::"other""#, false),
        (r#"principal == Agent::"did:web:acme.example:a""#, true),
        (r#"principal has user && principal.user == User::"did:web:acme.example:u""#, true),
        (r#"principal has user && principal.user in Tenant::"acme""#, true),
        (r#"principal.roles.contains("tool_author")"#, true),
        (r#"principal.roles.contains("admin")"#, false),
        (r#"principal.scopes.contains("tool:*")"#, true),
        (r#"action == Action::"invoke""#, true),
        (r#"resource == Tool::"billing.refund""#, true),
        (r#"resource in Namespace::"billing""#, true),
        (r#"resource in Namespace::"bill""#, false),
        (r#"resource has namespace && resource.namespace == "billing" && resource.name == "refund""#, true),
        (r#"resource.version == "2.1.0" && resource.major >= 2"#, true),
        (r#"resource.tags.contains("money") && resource.categories.contains("finance")"#, true),
        (r#"resource.side_effects == "compensatable" && context.risk == "medium""#, true),
        (r#"principal.scopes.containsAll(resource.required_permissions)"#, false),
        (r#"resource.provider == "process""#, true),
        (r#"context.environment == "production""#, true),
        (r#"context has session && context.session == "s-1""#, true),
        ("context.hour == 12 && context.minute == 0 && context.weekday == 3", true),
        (
            r#"context.time >= datetime("2026-01-07T12:00:00Z") && context.time < datetime("2026-01-07T12:00:01Z")"#,
            true,
        ),
        (r#"context.time.offset(duration("1d")).toDate() == datetime("2026-01-08")"#, true),
        (r#"context.arguments.text.hasTag("to") && context.arguments.text.getTag("to") like "*@acme.com""#, true),
        (r#"context.arguments.text.hasTag("cc") && context.arguments.text.getTag("cc") like "*""#, false),
        (r#"context.arguments.number.hasTag("count") && context.arguments.number.getTag("count") == 3"#, true),
        (r#"context.arguments.text.hasTag("count") && context.arguments.text.getTag("count") == "3""#, true),
        (
            r#"context.arguments.decimal.hasTag("price") && context.arguments.decimal.getTag("price") == decimal("9.95")"#,
            true,
        ),
        (
            r#"context.arguments.decimal.hasTag("count") && context.arguments.decimal.getTag("count").lessThan(decimal("3.1"))"#,
            true,
        ),
        (r#"context.arguments.flag.hasTag("dry_run") && context.arguments.flag.getTag("dry_run")"#, true),
        (
            r#"context.arguments.list.hasTag("ids") && context.arguments.list.getTag("ids").containsAll(["a", "7"])"#,
            true,
        ),
        (
            r#"context.arguments.list.hasTag("ids") && ["a", "b"].containsAll(context.arguments.list.getTag("ids"))"#,
            false,
        ),
        (
            r#"context.arguments.text.hasTag("customer.email") && context.arguments.text.getTag("customer.email") like "bob@*""#,
            true,
        ),
        (
            r#"context.arguments.number.hasTag("items.0.price") && context.arguments.number.getTag("items.0.price") <= 5"#,
            true,
        ),
        (r#"context.arguments.names.containsAll(["to", "customer", "customer.email", "items.0", "ids.2"])"#, true),
        (r#"context.arguments.names.contains("bcc")"#, false),
        (r#"context.arguments.text.hasTag(resource.name)"#, false),
    ] {
        let verdict = asked.of(&when(condition));
        assert_eq!(verdict.allowed, holds, "{condition}: {}", verdict.reason);
    }
}

#[test]
fn a_verdict_names_what_determined_it() {
    let forbid = r#"@id("never") forbid (principal, action, resource == Tool::"billing.refund");"#;
    let permit = r#"@id("b") permit (principal, action, resource); @id("a") permit (principal, action, resource);"#;
    let other = r#"permit (principal, action, resource == Tool::"other_tool");"#;
    let cases: [(String, bool, &[&str], &str); 5] = [
        (String::new(), false, &[], "no policy permits this"),
        (other.into(), false, &[], "no policy permits this"),
        (permit.into(), true, &["a", "b"], "permitted by `a` and `b`"),
        (format!("{permit}{forbid}"), false, &["never"], "forbidden by `never`"),
        (format!("{other}permit (principal, action, resource);"), true, &["policy1"], "permitted by `policy1`"),
    ];
    for (text, allowed, determining, reason) in cases {
        let verdict = Asked::new().of(&compile(&text));
        assert_eq!((verdict.allowed, verdict.reason.as_str()), (allowed, reason), "{text}");
        assert_eq!(verdict.determining, determining, "{text}");
    }
}

#[test]
fn obligations_are_those_of_all_permits_that_hold_once_each() {
    let policies = compile(
        r#"
        @obligations("redact=email, require_approval") permit (principal, action, resource);
        @obligations("timeout_seconds=5,redact=email") permit (principal, action, resource in Namespace::"billing");
        @obligations("result_bytes=10") permit (principal, action, resource == Tool::"other_tool");
        permit (principal, action, resource);
        "#,
    );
    let expected = [Obligation::Redact("email".into()), Obligation::RequireApproval, Obligation::TimeoutSeconds(5)];
    assert_eq!(Asked::new().of(&policies).obligations, expected);
}

#[test]
fn a_policy_that_cannot_be_evaluated_denies_and_is_named() {
    let permit = "permit (principal, action, resource);";
    let asked = Asked::with(json!({ "n": i64::MAX, "s": "x", "l": ["a@acme.com"] }));
    for (effect, condition, reason) in [
        (
            "forbid",
            r#"context.arguments.number.hasTag("n") && context.arguments.number.getTag("n") + 1 > 0"#,
            "policy `odd` could not be evaluated: a number grows beyond 64 bits",
        ),
        (
            "forbid",
            r#"context.arguments.number.hasTag("s") && context.arguments.number.getTag("s") > 0"#,
            "policy `odd` could not be evaluated: it reads the argument `s` as a whole number of 64 bits, and it is none",
        ),
        (
            "permit",
            r#"context.arguments.list.hasTag("s") && context.arguments.list.getTag("s").contains("x")"#,
            "policy `odd` could not be evaluated: it reads the argument `s` as a list of texts, numbers and booleans, and it is none",
        ),
        (
            "permit",
            r#"context.arguments.text.hasTag("l") && context.arguments.text.getTag("l") like "*@acme.com""#,
            "policy `odd` could not be evaluated: it reads the argument `l` as text, and it is none",
        ),
        (
            "forbid",
            r#"context.arguments.flag.hasTag("s") && context.arguments.flag.getTag("s")"#,
            "policy `odd` could not be evaluated: it reads the argument `s` as a boolean, and it is none",
        ),
    ] {
        let policies =
            compile(&format!(r#"{permit} @id("odd") {effect} (principal, action, resource) when {{ {condition} }};"#));
        let verdict = asked.of(&policies);
        assert_eq!((verdict.allowed, verdict.reason.as_str()), (false, reason));
        assert_eq!(verdict.determining, ["odd"]);
    }
}

#[test]
fn a_forbid_that_holds_is_named_before_one_that_failed() {
    let policies = compile(
        r#"
        @id("odd") forbid (principal, action, resource)
        when { context.arguments.number.hasTag("s") && context.arguments.number.getTag("s") > 0 };
        @id("plain") forbid (principal, action, resource);
        "#,
    );
    assert_eq!(Asked::with(json!({ "s": "x" })).of(&policies).reason, "forbidden by `plain`");
}

#[test]
fn arguments_that_cannot_be_shown_deny_only_where_somebody_looks() {
    let many: serde_json::Map<String, Value> = (0..600).map(|n| (format!("a{n}"), json!(n))).collect();
    let looks_at_all = when(r#"!context.arguments.names.contains("x")"#);
    let looks_at_one = when(r#"context.arguments.number.hasTag("a7") && context.arguments.number.getTag("a7") == 7"#);
    let blind = when("true");
    for (arguments, all, one) in
        [(Value::Object(many), false, true), (json!({ "a.b": 1, "a": { "b": 2 }, "a7": 7 }), true, true)]
    {
        let asked = Asked::with(arguments);
        assert_eq!(asked.of(&looks_at_all).allowed, all);
        assert_eq!(asked.of(&looks_at_one).allowed, one);
        assert!(asked.of(&blind).allowed);
    }
    let ambiguous = Asked::with(json!({ "a.b": 1, "a": { "b": 200 } }));
    let limit = when(r#"context.arguments.number.hasTag("a.b") && context.arguments.number.getTag("a.b") < 100"#);
    assert_eq!(ambiguous.of(&limit).reason, "two arguments have the path `a.b`");
}

#[test]
fn a_time_beyond_the_calendar_denies_where_time_is_read() {
    for now_ms in [i64::MAX, i64::MIN] {
        let asked = Asked { now_ms, ..Asked::new() };
        assert!(!asked.of(&when("context.hour >= 0")).allowed);
        assert!(asked.of(&when("true")).allowed);
    }
}

#[test]
fn no_policies_permit_nothing() {
    assert!(Policies::none().is_empty() && !Asked::new().of(&Policies::none()).allowed);
}

#[test]
fn needs_are_the_union_over_all_policies() {
    let policies = compile(
        r#"
        permit (principal, action, resource) when { context.risk == "low" };
        permit (principal, action, resource == Tool::"abc") when { context.weekday < 6 };
        forbid (principal == Agent::"x", action, resource) unless { context has session };
        "#,
    );
    assert_eq!(policies.needs(), ContextNeeds { arguments: false, time: true, session: true });
}

/// Conditions `n` deep, and whether they hold.
fn deep(n: usize) -> [(String, bool); 5] {
    [
        ("true && ".repeat(n) + "true", true),
        ("false || ".repeat(n) + "true", true),
        ("true && ".repeat(n) + "false", false),
        ("if true then ".repeat(n) + "true" + &" else false".repeat(n), true),
        ("1".to_owned() + &"+1".repeat(n) + &format!(" == {}", n + 1), true),
    ]
}

#[test]
fn the_deepest_policies_are_evaluated_or_deny() {
    for (body, holds) in deep(24) {
        assert_eq!(Asked::new().of(&when(&body)).allowed, holds, "{body}");
    }
    // How deep the engine gets depends on the stack it finds. Where it gives up, that is a denial.
    for (body, holds) in deep(127) {
        let verdict = Asked::new().of(&when(&body));
        let gave_up = !verdict.allowed && verdict.reason.ends_with("its conditions are nested too deeply");
        assert!(verdict.allowed == holds || gave_up, "{}", verdict.reason);
    }
}
