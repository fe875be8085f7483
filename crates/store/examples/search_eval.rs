//! How good and how fast is tool search? Run it by `cargo xtask search-eval`, which builds it in release.
//!
//! Publishes each set of tools into a fresh SQLite store and asks its queries through the ports, so what is measured is
//! what the product does. Sets are JSON lines: `{"tool":{id,name,description,parameters?}}` and
//! `{"query":{id,query,relevant}}`. Options: `--data DIR` (default `testdata/tool_search`), `--json`, and `--copies N`,
//! which publishes every tool N times under different ids to see how the latency grows (qualities then mean nothing).
#![expect(clippy::print_stdout, reason = "a command: its output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]
#![expect(clippy::cast_precision_loss, reason = "counts are small")]

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use contract::ids::TenantId;
use contract::manifest::Manifest;
use gantry_store::sqlite::{SqliteOptions, SqliteStore};
use ports::clock::UnixMillis;
use ports::lifecycle::Lifecycle;
use ports::registry_store::{RegistryStore, StoredVersion};
use ports::tool_search::ToolSearch;
use serde_json::{Value, json};

/// How many hits are judged.
const HITS: usize = 10;
/// Publications under way at one time.
const PUBLISHED_TOGETHER: usize = 256;

type Failure = Box<dyn Error + Send + Sync>;

struct Query {
    text: String,
    relevant: HashSet<String>,
}

struct Set {
    name: String,
    tools: Vec<Value>,
    queries: Vec<Query>,
}

#[derive(Default)]
struct Sums {
    recall_1: f64,
    recall_5: f64,
    recall_10: f64,
    ndcg_10: f64,
    hit_1: f64,
}

struct Arguments {
    data: PathBuf,
    json: bool,
    copies: usize,
}

fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&arguments.data)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    let mut reports = Vec::new();
    for file in files {
        let set = Set::read(&file)?;
        let report = runtime.block_on(evaluate(set, arguments.copies))?;
        if !arguments.json {
            println!("{}", line(&report));
        }
        reports.push(report);
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
    }
    Ok(())
}

impl Arguments {
    fn parse(mut given: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut arguments = Self { data: PathBuf::from("testdata/tool_search"), json: false, copies: 1 };
        while let Some(option) = given.next() {
            match option.as_str() {
                "--data" => arguments.data = given.next().ok_or("--data needs a directory")?.into(),
                "--copies" => arguments.copies = given.next().ok_or("--copies needs a number")?.parse()?,
                "--json" => arguments.json = true,
                other => {
                    return Err(format!("unknown option `{other}`: there are --data DIR, --copies N, --json").into());
                }
            }
        }
        Ok(arguments)
    }
}

impl Set {
    fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let mut set = Self { name, tools: Vec::new(), queries: Vec::new() };
        for line in std::fs::read_to_string(path)?.lines().filter(|line| !line.trim().is_empty()) {
            let mut value: Value = serde_json::from_str(line)?;
            if let Some(tool) = value.get_mut("tool") {
                set.tools.push(tool.take());
            } else if let Some(query) = value.get("query") {
                let relevant = query.get("relevant").and_then(Value::as_array).into_iter().flatten();
                set.queries.push(Query {
                    text: text(query, "query").to_owned(),
                    relevant: relevant.filter_map(Value::as_str).map(str::to_owned).collect(),
                });
            }
        }
        Ok(set)
    }
}

async fn evaluate(set: Set, copies: usize) -> Result<Value, Failure> {
    let directory = tempfile::tempdir()?;
    let store = Arc::new(SqliteStore::open(&directory.path().join("eval.db"), &SqliteOptions::default())?);
    let names = publish(&store, &set.tools, copies).await?;
    let mut sums = Sums::default();
    let mut latencies_ms = Vec::new();
    for query in &set.queries {
        let started = Instant::now();
        let hits = store.search(&TenantId::home(), &query.text, HITS).await?;
        latencies_ms.push(started.elapsed().as_secs_f64() * 1000.0);
        let found: Vec<bool> = hits
            .iter()
            .map(|hit| names.get(hit.tool.as_str()).is_some_and(|name| query.relevant.contains(name)))
            .collect();
        sums.add(&found, query.relevant.len());
    }
    store.close().await;
    latencies_ms.sort_by(f64::total_cmp);
    let quantile = |per_cent: usize| {
        latencies_ms.get((latencies_ms.len() * per_cent / 100).min(latencies_ms.len().saturating_sub(1))).copied()
    };
    let mean = |sum: f64| sum / set.queries.len().max(1) as f64;
    Ok(json!({
        "set": set.name, "tools": names.len(), "queries": set.queries.len(),
        "recall_at_1": mean(sums.recall_1), "recall_at_5": mean(sums.recall_5), "recall_at_10": mean(sums.recall_10),
        "ndcg_at_10": mean(sums.ndcg_10), "hit_at_1": mean(sums.hit_1),
        "p50_ms": quantile(50), "p99_ms": quantile(99), "max_ms": quantile(100),
    }))
}

impl Sums {
    fn add(&mut self, found: &[bool], relevant: usize) {
        let total = relevant.max(1) as f64;
        let recall = |places: usize| found.iter().take(places).filter(|hit| **hit).count() as f64 / total;
        let gain = |place: usize| ((place + 2) as f64).log2().recip();
        let gained: f64 = found.iter().enumerate().filter(|(_, hit)| **hit).map(|(place, _)| gain(place)).sum();
        let ideal: f64 = (0..relevant.clamp(1, HITS)).map(gain).sum();
        self.recall_1 += recall(1);
        self.recall_5 += recall(5);
        self.recall_10 += recall(10);
        self.ndcg_10 += gained / ideal;
        self.hit_1 += if found.first() == Some(&true) { 1.0 } else { 0.0 };
    }
}

/// Publishes all tools; answers with the name in the set of each id in the store.
async fn publish(store: &Arc<SqliteStore>, tools: &[Value], copies: usize) -> Result<HashMap<String, String>, Failure> {
    let mut names = HashMap::new();
    let mut versions = Vec::new();
    for copy in 0..copies {
        for tool in tools {
            let mut id = snake_case(text(tool, "id"));
            while names.contains_key(&id) {
                id.push_str(if copy == 0 { "_b" } else { "_c" });
            }
            names.insert(id.clone(), text(tool, "id").to_owned());
            versions.push(version(&id, tool)?);
        }
    }
    let mut versions = versions.into_iter().peekable();
    while versions.peek().is_some() {
        let group: Vec<_> = versions
            .by_ref()
            .take(PUBLISHED_TOGETHER)
            .map(|version| {
                let store = Arc::clone(store);
                tokio::spawn(async move { store.publish(version).await })
            })
            .collect();
        for publication in group {
            publication.await??;
        }
    }
    Ok(names)
}

fn version(id: &str, tool: &Value) -> Result<StoredVersion, Failure> {
    let parameters = tool.get("parameters").filter(|parameters| parameters.is_object());
    let manifest: Manifest = serde_json::from_value(json!({
        "tool_id": id, "version": "1.0.0", "name": text(tool, "name"), "description": text(tool, "description"),
        "provider": "Evaluation", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": parameters.cloned().unwrap_or_else(|| json!({ "type": "object" })),
        "result_schema": { "type": "object" },
    }))?;
    Ok(StoredVersion {
        tenant: TenantId::home(),
        tool: manifest.id()?,
        version: manifest.version.clone(),
        digest: manifest.digest(),
        manifest,
        lifecycle: Lifecycle::default(),
        published_at: UnixMillis(0),
        published_by: "evaluation".parse()?,
    })
}

/// The id an author would have given: `getHTTPStatus` becomes `get_http_status`.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut id = String::new();
    for (at, &letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let after = letters.get(at + 1);
        let hump = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase() || (before.is_uppercase() && after.is_some_and(|after| after.is_lowercase()))
            });
        if (hump || !letter.is_ascii_alphanumeric()) && !id.is_empty() && !id.ends_with('_') {
            id.push('_');
        }
        if letter.is_ascii_alphanumeric() {
            id.push(letter.to_ascii_lowercase());
        }
    }
    if !id.starts_with(|first: char| first.is_ascii_lowercase()) {
        id.insert_str(0, "n_");
    }
    while id.len() < 3 {
        id.push('_');
    }
    id
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn line(report: &Value) -> String {
    let number = |member: &str| report.get(member).and_then(Value::as_f64).unwrap_or(0.0);
    let per_cent = |member: &str| number(member) * 100.0;
    format!(
        "{:<16} {:>6} tools {:>5} queries  Recall@1 {:5.1} %  @5 {:5.1} %  @10 {:5.1} %  nDCG@10 {:5.1} %  Hit@1 {:5.1} %  \
         p50 {:.2} ms  p99 {:.2} ms  max {:.2} ms",
        text(report, "set"),
        number("tools"),
        number("queries"),
        per_cent("recall_at_1"),
        per_cent("recall_at_5"),
        per_cent("recall_at_10"),
        per_cent("ndcg_at_10"),
        per_cent("hit_at_1"),
        number("p50_ms"),
        number("p99_ms"),
        number("max_ms"),
    )
}
