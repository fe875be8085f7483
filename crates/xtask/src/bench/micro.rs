//! The parts of a call by themselves, in nanoseconds: reading, validating, recognising, authorizing, resolving, digesting.
//!
//! A part is run in batches long enough for the clock, and the median batch is reported. These numbers explain the ratio
//! of the whole; the budgets among them are those of the design (validation under 5 µs, authorization under 20 µs).

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use contract::json::JsonLimits;
use contract::schema::{Coercion, CompiledSchema, SchemaLimits};
use contract::version::{Availability, Version, VersionSpec, resolve};
use contract::{canonical, json};
use kernel::Identity;
use kernel::ports::clock::UnixMillis;
use policy::{Authenticator, BearerSecret, MintRequest, Role, SigningKey, ToolGrant};
use serde::Serialize;
use serde_json::{Value, json};

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

fn authorizing() -> Result<Vec<Part>> {
    let key = SigningKey::from_seed(&[7; 32]);
    let wish = MintRequest {
        sub: "did:key:zBench".parse()?,
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
    };
    let (token, _) = policy::mint(&wish, &key, "t-1".into(), NOW_MS)?;
    let keys = [key.verifying_key()];
    let identity = Identity::new(Authenticator::new("bench-admin", keys.to_vec())?);
    let recognise = || identity.recognise(Some(BearerSecret(black_box(&token))), UnixMillis(NOW_MS));
    let caller = recognise()?;
    let (tool, version) = ("demo.send_report".parse()?, Version::new(1, 2, 3));
    let needs = ["tool:send_report", "network:https://api.example.com"];
    let decide = || caller.may_call(black_box(&tool), &version) && caller.missing_scope(needs).is_none();
    anyhow::ensure!(decide(), "the typical caller is not authorized");

    let first = nanoseconds(|| policy::verify(black_box(&token), &keys, NOW_MS));
    let (recognised, decided) = (nanoseconds(recognise), nanoseconds(decide));
    Ok(vec![
        part("token seen for the first time (signature)", first),
        Part {
            what: "authorization: token seen before, tool, version and scopes",
            nanoseconds: recognised + decided,
            budget_nanoseconds: Some(20_000.0),
        },
    ])
}

fn resolving() -> Result<Part> {
    let versions: Vec<Version> = (0..20).map(|number| Version::new(1 + number / 10, number % 10, 0)).collect();
    let spec = VersionSpec::parse("^1.2.0")?;
    let run = || {
        matches!(
            resolve(&spec, versions.iter().map(|v| (v, Availability::Active))),
            contract::version::Resolution::Found(_)
        )
    };
    anyhow::ensure!(run(), "the typical range finds nothing");
    Ok(part("a range resolved among 20 versions", nanoseconds(run)))
}

fn digesting() -> Part {
    let parameters = typical_call().pointer("/parameters").cloned().unwrap_or_default();
    part("canonical digest of the parameters", nanoseconds(|| canonical::digest(black_box(&parameters))))
}
