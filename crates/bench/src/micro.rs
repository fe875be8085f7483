//! The parts of a call by themselves, in nanoseconds: reading, validating, recognising, authorizing, resolving, digesting.
//!
//! A part is run in batches long enough for the clock, and the median batch is reported. These numbers explain the ratio
//! of the whole; the budgets among them are those of the design (validation under 5 µs, authorization under 20 µs).

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use contract::json::JsonLimits;
use contract::manifest::SideEffectPolicy;
use contract::schema::{Coercion, CompiledSchema, SchemaLimits};
use contract::version::{Version, VersionAvailability, VersionSpec, resolve};
use contract::{canonical, json};
use policy::{
    MintRequest, OutputSchema, Policies, PolicyQuestion, Role, SigningKey, TokenTrust, ToolFacts, ToolGrant, ToolReach,
};
use serde::Serialize;
use serde_json::{Value, json};

use super::authorization;
use super::scenarios::median;

/// One batch takes about this long.
const BATCH: Duration = Duration::from_millis(10);
const BATCHES: usize = 21;
/// A moment, in milliseconds since the epoch; the tokens here are minted for it.
const NOW_MS: i64 = 1_800_000_000_000;

/// What one part costs.
#[derive(Serialize)]
pub(super) struct Part {
    pub(super) what: &'static str,
    pub(super) nanoseconds: f64,
    /// At most this much, where there is a budget.
    pub(super) budget_nanoseconds: Option<f64>,
}

/// All parts.
pub(super) fn parts() -> Result<Vec<Part>> {
    let mut parts = vec![reading()?];
    parts.extend(validating()?);
    parts.extend(authorizing()?);
    parts.push(resolving()?);
    parts.push(digesting());
    Ok(parts)
}

/// Median time of one run.
fn nanoseconds<R>(mut run: impl FnMut() -> R) -> f64 {
    let mut runs = 1_u32;
    let batch = loop {
        let taken = timed(runs, &mut run);
        if taken >= BATCH || runs >= 1 << 28 {
            break runs;
        }
        runs *= 2;
    };
    let batches = (0..BATCHES).map(|_| timed(batch, &mut run).as_secs_f64() * 1e9 / f64::from(batch));
    median(batches.collect())
}

fn timed<R>(runs: u32, run: &mut impl FnMut() -> R) -> Duration {
    let start = Instant::now();
    for _ in 0..runs {
        black_box(run());
    }
    start.elapsed()
}

fn part(what: &'static str, nanoseconds: f64) -> Part {
    Part { what, nanoseconds, budget_nanoseconds: None }
}

/// A call such as agents send.
fn typical_call() -> Value {
    json!({
        "tool_id": "demo.send_report", "tool_version": "^1.2.0",
        "parameters": { "recipient": "jane@example.com", "subject": "Weekly figures", "rows": 250, "format": "pdf",
            "urgent": false, "labels": ["weekly", "figures"], "period": { "from": "2026-01-05", "to": "2026-01-11" } },
        "agent_context": { "session_id": "s-1" },
    })
}

fn typical_schema() -> Value {
    json!({
        "type": "object",
        "required": ["recipient", "subject", "rows", "format"],
        "properties": {
            "recipient": { "type": "string", "format": "email" },
            "subject": { "type": "string", "minLength": 1, "maxLength": 200 },
            "rows": { "type": "integer", "minimum": 1, "maximum": 10000 },
            "format": { "enum": ["pdf", "html", "csv"] },
            "urgent": { "type": "boolean", "default": false },
            "labels": { "type": "array", "maxItems": 10, "items": { "type": "string" } },
            "period": { "type": "object", "required": ["from", "to"], "properties": {
                "from": { "type": "string", "format": "date" }, "to": { "type": "string", "format": "date" } } },
        },
    })
}

fn reading() -> Result<Part> {
    let bytes = serde_json::to_vec(&typical_call())?;
    let limits = JsonLimits::default();
    json::read(&bytes, &limits).context("the typical call cannot be read")?;
    Ok(part("strict reading of a typical call", nanoseconds(|| json::read(black_box(&bytes), &limits))))
}

fn validating() -> Result<Vec<Part>> {
    let schema = CompiledSchema::input(&typical_schema(), &SchemaLimits::default(), Coercion::Lossless)?;
    let call = typical_call().pointer("/parameters").cloned().unwrap_or_default();
    let mut strings = call.clone();
    if let Some(rows) = strings.get_mut("rows") {
        *rows = "250".into();
    }
    for value in [&call, &strings] {
        anyhow::ensure!(schema.prepare(value.clone()).is_ok(), "the typical call does not fit its schema");
    }
    // The values are consumed, so copying them is measured apart and taken off.
    let copy = nanoseconds(|| black_box(&call).clone());
    let plain = nanoseconds(|| schema.prepare(black_box(&call).clone())) - copy;
    let coerced = nanoseconds(|| schema.prepare(black_box(&strings).clone())) - copy;
    Ok(vec![
        Part { what: "validation of a typical call", nanoseconds: plain, budget_nanoseconds: Some(5_000.0) },
        part("validation with a string to convert", coerced),
    ])
}

/// How many policies the decisions are made with, of which half name a tool or an agent.
const POLICIES: usize = 100;

/// Policies as an organisation of some size has them: each looks at something else, few apply to one call.
pub(super) fn policies(count: usize) -> String {
    let rule = |number: usize| match number % 4 {
        0 => format!(
            "@id(\"p{number}\") permit (principal in Tenant::\"local\", action, resource in Namespace::\"demo\") when {{ context.risk != \"high\" && resource.major == {number} }};"
        ),
        1 => format!(
            "@id(\"p{number}\") forbid (principal, action, resource) when {{ context.arguments.number.hasTag(\"rows\") && context.arguments.number.getTag(\"rows\") > {} }};",
            1000 + number
        ),
        2 => format!("@id(\"p{number}\") permit (principal, action, resource == Tool::\"demo.tool_{number}\");"),
        _ => format!("@id(\"p{number}\") forbid (principal == Agent::\"did:example:{number}\", action, resource);"),
    };
    let mut text: String = (1..count).map(rule).collect::<Vec<_>>().join("\n");
    text.push_str("\n@id(\"reports\") permit (principal, action, resource == Tool::\"demo.send_report\") when { context.arguments.text.hasTag(\"recipient\") && context.arguments.text.getTag(\"recipient\") like \"*@example.com\" };");
    text
}

fn authorizing() -> Result<Vec<Part>> {
    let key = SigningKey::from_seed(&[7; 32]);
    let wish = MintRequest {
        sub: "bench-agent".parse()?,
        tenant: "local".parse()?,
        roles: vec![Role::Agent],
        tools: ["other.*", "demo.*"]
            .iter()
            .map(|pattern| Ok(ToolGrant { tool_id: pattern.parse()?, version_range: Some("^1.0.0".parse()?) }))
            .collect::<Result<_>>()?,
        scopes: vec!["network:https://api.example.com".parse()?, "tool:*".parse()?],
        user_did: None,
        session_id: None,
        ttl_seconds: 3600,
        limits: Vec::new(),
        budget: None,
        act: None,
    };
    let (token, _) = policy::mint(&wish, &key, "t-1".into(), NOW_MS)?;
    let trust = TokenTrust::own(key.verifying_key());
    let caller = policy::verify(&token, &trust, NOW_MS)?;
    let (tool, version) = ("demo.send_report".parse()?, Version::new(1, 2, 3));
    let needs = ["tool:send_report", "network:https://api.example.com"];
    let decide = || caller.may_call(black_box(&tool), &version) && caller.missing_scope(needs).is_none();
    anyhow::ensure!(decide(), "the typical caller is not authorized");

    let compiled = |count| {
        let problem = |problems: Vec<policy::PolicyProblem>| {
            anyhow::anyhow!(
                "the policies cannot be used: {}",
                problems.first().map(ToString::to_string).unwrap_or_default()
            )
        };
        Policies::compile(&policies(count)).map_err(problem)
    };
    let (some, many) = (compiled(POLICIES)?, compiled(POLICIES * 100)?);
    let arguments = typical_call().pointer("/parameters").cloned().unwrap_or_default();
    let (tags, permissions) = (vec!["mail".to_owned()], needs.map(str::to_owned).to_vec());
    let question = PolicyQuestion {
        tenant: caller.tenant(),
        agent: caller.subject(),
        user: None,
        session: None,
        roles: caller.roles(),
        scopes: caller.scopes(),
        tool: ToolFacts {
            aliases: &[],
            id: &tool,
            version: &version,
            tags: &tags,
            categories: &tags,
            effects: SideEffectPolicy::Idempotent,
            required_permissions: &permissions,
            provider: "Bench",
            reach: ToolReach::default(),
            output_schema: OutputSchema::Declared,
        },
        arguments: &arguments,
        now_ms: NOW_MS,
        environment: "bench",
    };
    for policies in [&some, &many] {
        let verdict = policies.decide(&question);
        anyhow::ensure!(verdict.allowed, "the typical call is denied: {}", verdict.reason);
    }
    Ok(vec![
        part(
            "token seen for the first time (signature)",
            nanoseconds(|| policy::verify(black_box(&token), &trust, NOW_MS)),
        ),
        part("token against tool, version and scopes", nanoseconds(decide)),
        Part {
            what: "decision of 100 policies, not remembered",
            nanoseconds: nanoseconds(|| some.decide(black_box(&question))),
            budget_nanoseconds: Some(200_000.0),
        },
        part("decision of 10000 policies, not remembered", nanoseconds(|| many.decide(black_box(&question)))),
        Part {
            what: "receive, validate and authorize, token and decision remembered",
            nanoseconds: authorization::remembered(
                &token,
                &typical_call(),
                &typical_schema(),
                policies(POLICIES),
                NOW_MS,
                |run| nanoseconds(run),
            )?,
            budget_nanoseconds: Some(20_000.0),
        },
    ])
}

fn resolving() -> Result<Part> {
    let versions: Vec<Version> = (0..20).map(|number| Version::new(1 + number / 10, number % 10, 0)).collect();
    let spec = VersionSpec::parse("^1.2.0")?;
    let run = || {
        matches!(
            resolve(&spec, versions.iter().map(|v| (v, VersionAvailability::Active))),
            contract::version::VersionResolution::Found(_)
        )
    };
    anyhow::ensure!(run(), "the typical range finds nothing");
    Ok(part("a range resolved among 20 versions", nanoseconds(run)))
}

fn digesting() -> Part {
    let parameters = typical_call().pointer("/parameters").cloned().unwrap_or_default();
    part("canonical digest of the parameters", nanoseconds(|| canonical::digest(black_box(&parameters))))
}
