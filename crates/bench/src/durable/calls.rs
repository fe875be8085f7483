//! Calls over REST: with effects, beside raw SQLite; and without, with and without a key.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use serde_json::{Value, json};
use store::measure::{RawLedger, ledger_rate};

use super::apart;
use crate::load::{self, Connection, Fresh, Measured};
use crate::product::Product;
use crate::scenarios::median;
use crate::{Scale, progress};

/// How many connections call at once.
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// A tool that says of itself that it has effects, and the same without.
const EFFECTFUL: &str = "bench.note";
const PURE: &str = "calculator";
/// What every right answer contains: it was done, and not found done.
const ANSWER: &str = r#""cached":false"#;

/// One number of connections: the median round.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Row {
    pub(super) connections: usize,
    /// Calls a second of which SQLite alone could keep intent and end.
    pub(super) raw_per_second: f64,
    /// The same through the ledger, without a server around it.
    pub(super) ledger_per_second: f64,
    /// The same call of a tool without effects, through the server.
    pub(super) pure: Measured,
    pub(super) gantry: Measured,
    /// Throughput in terms of raw SQLite's.
    pub(super) ratio: f64,
    pub(super) ratio_range: (f64, f64),
}

/// What a key costs where nothing has to be kept: medians.
#[derive(Serialize)]
pub(super) struct KeyCost {
    pub(super) pairs: usize,
    pub(super) without_us: f64,
    pub(super) with_us: f64,
    /// The median difference of two calls, one after the other.
    pub(super) added_us: f64,
}

/// Publishes the tool with effects. It has none, so that what is measured is what is kept of it.
pub(super) async fn register(server: &Product, admin: &str) -> Result<()> {
    let manifest = json!({
        "tool_id": "note", "namespace": "bench", "version": "1.0.0", "name": "Note", "provider": "Bench",
        "description": "Evaluates an expression, and says of itself that this changes something.", "protocol": "native",
        "side_effect_policy": "idempotent", "timeout_class": "standard", "idempotency": {}, "required_permissions": [],
        "side_effects": [{ "resource": "note", "op": "UPDATE", "scope": "account" }],
        "parameters": { "type": "object", "required": ["expression"],
            "properties": { "expression": { "type": "string", "description": "what is evaluated" } } },
        "result_schema": { "type": "object" }, "execution": { "type": "builtin", "handler": "calculator" },
    });
    let request = load::request("POST", "/v1/tools/register", Some(admin), Some(&manifest.to_string()));
    let (status, answer) = load::ask_once(server.address, &request).await?;
    ensure!(status == 201, "the tool was not published: {status}, {}", String::from_utf8_lossy(&answer));
    Ok(())
}

/// Calls of one tool, each with a key of its own or with none.
fn fresh(agent: &str, tool: &'static str, series: &str, with_key: bool) -> Fresh {
    let (agent, series) = (agent.to_owned(), series.to_owned());
    Fresh::new(200, ANSWER, move |number| {
        let mut body = json!({ "tool_id": tool, "parameters": { "expression": "sqrt(16) + 2^3" } });
        if let (Value::Object(members), true) = (&mut body, with_key) {
            let key = format!("{series}-{number:012}");
            members.insert("execution_options".into(), json!({ "idempotency_key": key }));
        }
        load::request("POST", "/v1/tools/invoke", Some(&agent), Some(&body.to_string()))
    })
}

/// Raw SQLite, the ledger, a tool without effects and one with, in turns, at each number of connections.
pub(super) async fn measure(server: &Product, agent: &str, folder: &Path, scale: &Scale) -> Result<Vec<Row>> {
    let mut raw = RawLedger::open(&folder.join("raw.db")).map_err(|failure| anyhow!(failure))?;
    let (pure, effectful) = (fresh(agent, PURE, "pure", false), fresh(agent, EFFECTFUL, "call", true));
    let mut table = Vec::new();
    for connections in CONNECTIONS {
        progress(&format!("calls with effects over {connections} connections"));
        let mut rounds = Vec::new();
        for number in 0..scale.rounds {
            let (again, raw_per_second) = raw_round(raw, connections, scale.round).await?;
            raw = again;
            let (file, span) = (folder.join(format!("ledger-{connections}-{number}.db")), scale.round);
            let ledger_per_second = apart(async move { ledger_rate(&file, connections, span).await }).await?;
            let round =
                async |fresh| load::fresh_round(server.address, fresh, connections, scale.warm_up, scale.round).await;
            let (pure, gantry) = (round(&pure).await?, round(&effectful).await?);
            let ratio = gantry.per_second / raw_per_second;
            let ratio_range = (ratio, ratio);
            rounds.push(Row { connections, raw_per_second, ledger_per_second, pure, gantry, ratio, ratio_range });
        }
        rounds.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let ends = rounds.first().zip(rounds.last()).map(|(low, high)| (low.ratio, high.ratio));
        let (median, ratio_range) = rounds.get(rounds.len() / 2).zip(ends).context("no rounds were asked for")?;
        table.push(Row { ratio_range, ..*median });
    }
    Ok(table)
}

/// A round of SQLite alone, on a thread where it disturbs nobody.
async fn raw_round(mut raw: RawLedger, callers: usize, span: Duration) -> Result<(RawLedger, f64)> {
    let round = move || raw.round(callers, span).map(|rate| (raw, rate));
    tokio::task::spawn_blocking(round).await.context("a measurement died")?.map_err(|failure| anyhow!(failure))
}

/// The same call of a tool without effects, in turns with and without a key, on one connection.
pub(super) async fn key_cost(server: &Product, agent: &str, pairs: usize) -> Result<KeyCost> {
    let (without, with) = (fresh(agent, PURE, "pair", false), fresh(agent, PURE, "pair", true));
    let mut connection = Connection::open(server.address).await?;
    let (mut bare, mut keyed, mut added) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..pairs {
        // Whoever is second finds everything warm, so they take turns at that too.
        let (bare_us, keyed_us) = if number.is_multiple_of(2) {
            let bare = connection.timed_fresh(&without).await?;
            (bare, connection.timed_fresh(&with).await?)
        } else {
            let keyed = connection.timed_fresh(&with).await?;
            (connection.timed_fresh(&without).await?, keyed)
        };
        let (bare_us, keyed_us) = (bare_us.as_secs_f64() * 1e6, keyed_us.as_secs_f64() * 1e6);
        bare.push(bare_us);
        keyed.push(keyed_us);
        added.push(keyed_us - bare_us);
    }
    Ok(KeyCost { pairs, without_us: median(bare), with_us: median(keyed), added_us: median(added) })
}
