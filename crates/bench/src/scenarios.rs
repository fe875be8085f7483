//! What is measured, in order: starting, calls against the echo server, the catalogue as it grows, the parts by themselves.
//!
//! Each question is answered by one function that returns numbers only; judging and printing them is [`super::report`].

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base::SaturatingFrom as _;
use serde::Serialize;
use serde_json::json;

use super::catalogue::{Catalogue, percent_encoded};
use super::echo;
use super::load::{self, Measured, Traffic};
use super::micro::{self, Part};
use super::product::{self, Product};
use super::{Scale, machine, progress};

/// How many connections call at once.
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// How many connections register at once.
const REGISTRARS: usize = 8;
/// How many different questions search is asked.
const QUESTIONS: usize = 200;
/// The body of the measured call, and what its answer must contain.
pub(super) const CALL: &str = r#"{"tool_id":"calculator","parameters":{"expression":"sqrt(16) + 2^3"}}"#;
pub(super) const CALL_ANSWER: &str = r#""result":12"#;
/// Memory is read when allocators and caches had this long to settle.
const SETTLE: Duration = Duration::from_secs(1);

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) machine: String,
    /// The share of all cores that others used before and after, the larger of the two.
    pub(super) busy_share: f64,
    /// The median pair of rounds at each number of connections.
    pub(super) calls: Vec<Pair>,
    /// The same call where nobody has written a policy, and where activations and a hundred policies decide.
    pub(super) governed: Governed,
    pub(super) catalogues: Vec<CatalogueCost>,
    pub(super) starts: Starts,
    pub(super) memory: Memory,
    pub(super) parts: Vec<Part>,
}

/// Echo server and product under the same load.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Pair {
    pub(super) connections: usize,
    pub(super) echo: Measured,
    pub(super) gantry: Measured,
    /// Throughput of the product in terms of the echo server's.
    pub(super) ratio: f64,
    /// The lowest and highest ratio of all rounds: how much the median can be trusted.
    pub(super) ratio_range: (f64, f64),
}

/// What policies and activations cost: two servers under the same load.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Governed {
    pub(super) connections: usize,
    pub(super) plain: Measured,
    pub(super) governed: Measured,
    /// Throughput with policies and activations in terms of that without.
    pub(super) ratio: f64,
    pub(super) ratio_range: (f64, f64),
}

/// What a catalogue of a certain size costs.
#[derive(Serialize)]
pub(super) struct CatalogueCost {
    pub(super) tools: usize,
    pub(super) registrations_per_second: f64,
    /// One page of 50, one connection.
    pub(super) list: Measured,
    /// One search, one connection.
    pub(super) search: Measured,
    /// The calculator again, 16 connections: must not depend on the number of tools.
    pub(super) call: Measured,
    pub(super) memory_mib: f64,
}

/// Medians, in milliseconds.
#[derive(Serialize)]
pub(super) struct Starts {
    pub(super) count: usize,
    /// With an empty data directory.
    pub(super) first_ms: f64,
    /// With the data directory of an earlier start.
    pub(super) again_ms: f64,
    /// One start with every tool of the largest catalogue.
    pub(super) with_all_tools_ms: f64,
}

/// Resident memory, in MiB.
#[derive(Serialize)]
pub(super) struct Memory {
    pub(super) idle_mib: f64,
    pub(super) after_calls_mib: f64,
}

/// All of it.
pub(super) async fn all(gantry: &Path, scale: &Scale) -> Result<Results> {
    let folder = machine::folder_on_disk(gantry, "bench-")?;
    let data = folder.path().join("data");

    let busy_before = machine::busy_share(SETTLE).await?;
    progress("starting");
    let (first_ms, again_ms) = starts(gantry, folder.path(), scale.starts).await?;
    let server = Product::start(gantry, &data).await?;
    tokio::time::sleep(SETTLE).await;
    let idle_mib = machine::resident_mib(server.pid())?;

    let admin = product::admin_token(&data)?;
    let agent = server.agent_token(&admin).await?;
    let calls = calls(&server, &agent, scale).await?;
    let governed = governed(&server, &agent, gantry, folder.path(), scale).await?;
    tokio::time::sleep(SETTLE).await;
    let after_calls_mib = machine::resident_mib(server.pid())?;

    let catalogues = catalogues(&server, &admin, &agent, scale).await?;
    progress("starting with all tools");
    server.stop().await?;
    let server = Product::start(gantry, &data).await?;
    let with_all_tools_ms = server.started_in.as_secs_f64() * 1e3;
    server.stop().await?;

    progress("parts by themselves");
    Ok(Results {
        machine: machine::description(),
        busy_share: busy_before.max(machine::busy_share(SETTLE).await?),
        calls,
        governed,
        catalogues,
        starts: Starts { count: scale.starts, first_ms, again_ms, with_all_tools_ms },
        memory: Memory { idle_mib, after_calls_mib },
        // On a thread of its own, because one of them drives a runtime of its own.
        parts: std::thread::spawn(micro::parts).join().map_err(|_| anyhow::anyhow!("a part failed"))??,
    })
}

/// Median times of a first and of a repeated start.
async fn starts(gantry: &Path, folder: &Path, count: usize) -> Result<(f64, f64)> {
    let (mut first, mut again) = (Vec::new(), Vec::new());
    for number in 0..count {
        let data = folder.join(format!("start-{number}"));
        for times in [&mut first, &mut again] {
            let server = Product::start(gantry, &data).await?;
            times.push(server.started_in.as_secs_f64() * 1e3);
            server.stop().await?;
        }
    }
    Ok((median(first), median(again)))
}

/// Echo and product in turn, at each number of connections.
async fn calls(server: &Product, agent: &str, scale: &Scale) -> Result<Vec<Pair>> {
    let request = load::request("POST", "/v1/tools/invoke", Some(agent), Some(CALL));
    let requests: Arc<[Vec<u8>]> = Arc::from(vec![request]);
    let to_gantry = Traffic { requests: Arc::clone(&requests), status: 200, contains: CALL_ANSWER };
    let to_echo = Traffic { requests, status: 200, contains: "sqrt(16)" };
    let echo = echo::start()?;

    let mut table = Vec::new();
    for connections in CONNECTIONS {
        progress(&format!("calls over {connections} connections"));
        let mut pairs = Vec::new();
        for _ in 0..scale.rounds {
            let echo = load::round(echo.address, &to_echo, connections, scale.warm_up, scale.round).await?;
            let gantry = load::round(server.address, &to_gantry, connections, scale.warm_up, scale.round).await?;
            let ratio = gantry.per_second / echo.per_second;
            pairs.push(Pair { connections, echo, gantry, ratio, ratio_range: (ratio, ratio) });
        }
        pairs.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let ends = pairs.first().zip(pairs.last()).map(|(low, high)| (low.ratio, high.ratio));
        if let (Some(median), Some(ratio_range)) = (pairs.get(pairs.len() / 2), ends) {
            table.push(Pair { ratio_range, ..*median });
        }
    }
    Ok(table)
}

/// The server as it is, and another with activations and policies, in turn.
async fn governed(plain: &Product, agent: &str, gantry: &Path, folder: &Path, scale: &Scale) -> Result<Governed> {
    const CONNECTIONS: usize = 64;
    progress("calls with policies and activations");
    let data = folder.join("governed");
    let server = Product::start(gantry, &data).await?;
    let admin = product::admin_token(&data)?;
    let other = server.agent_token(&admin).await?;
    let activations = json!({ "activations": [
        { "agent_id": "*", "tool_id": "*", "enabled": false },
        { "agent_id": product::AGENT, "tool_id": "calculator", "enabled": true },
    ] });
    let policies = json!({ "policies": format!("{}\npermit (principal, action, resource == Tool::\"calculator\");", micro::policies(100)) });
    for (path, body) in [("/v1/activations", activations), ("/v1/policies", policies)] {
        server.put(&admin, path, &body).await?;
    }
    let traffic = |token: &str| {
        let request = load::request("POST", "/v1/tools/invoke", Some(token), Some(CALL));
        Traffic { requests: Arc::from(vec![request]), status: 200, contains: CALL_ANSWER }
    };
    let (to_plain, to_governed) = (traffic(agent), traffic(&other));
    let mut rounds = Vec::new();
    for _ in 0..scale.rounds {
        let plain = load::round(plain.address, &to_plain, CONNECTIONS, scale.warm_up, scale.round).await?;
        let governed = load::round(server.address, &to_governed, CONNECTIONS, scale.warm_up, scale.round).await?;
        let ratio = governed.per_second / plain.per_second;
        rounds.push(Governed { connections: CONNECTIONS, plain, governed, ratio, ratio_range: (ratio, ratio) });
    }
    server.stop().await?;
    rounds.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let ends = rounds.first().zip(rounds.last()).map(|(low, high)| (low.ratio, high.ratio));
    let (median, ratio_range) = rounds.get(rounds.len() / 2).zip(ends).context("no rounds were asked for")?;
    Ok(Governed { ratio_range, ..*median })
}

/// Registers more and more tools and asks at each size.
async fn catalogues(server: &Product, admin: &str, agent: &str, scale: &Scale) -> Result<Vec<CatalogueCost>> {
    let catalogue = Catalogue::read()?;
    let ask = |target: String| load::request("GET", &target, Some(agent), None);
    let questions = catalogue.questions(QUESTIONS);
    let searches: Vec<Vec<u8>> =
        questions.map(|text| ask(format!("/v1/tools/search?q={}", percent_encoded(text)))).collect();
    let search = Traffic { requests: Arc::from(searches), status: 200, contains: "\"results\"" };
    let request = load::request("POST", "/v1/tools/invoke", Some(agent), Some(CALL));
    let call = Traffic { requests: Arc::from(vec![request]), status: 200, contains: CALL_ANSWER };

    let mut table = Vec::new();
    let mut registered = 0_usize;
    for &tools in scale.tool_counts {
        progress(&format!("a catalogue of {tools} tools"));
        let manifests = (registered..tools).filter_map(|number| catalogue.manifest(number));
        let register = |manifest: serde_json::Value| {
            load::request("POST", "/v1/tools/register", Some(admin), Some(&json!(manifest).to_string()))
        };
        let registrations: Vec<Vec<u8>> = manifests.map(register).collect();
        let count = u32::saturating_from(registrations.len());
        let traffic = Traffic { requests: Arc::from(registrations), status: 201, contains: "" };
        let taken = load::each_once(server.address, &traffic, REGISTRARS).await?;
        registered = tools;

        let pages = (1..=tools.div_ceil(50)).map(|page| ask(format!("/v1/tools?page_size=50&page={page}")));
        let list = Traffic { requests: Arc::from(pages.collect::<Vec<_>>()), status: 200, contains: "\"pagination\"" };
        table.push(CatalogueCost {
            tools,
            registrations_per_second: f64::from(count) / taken.as_secs_f64(),
            list: load::round(server.address, &list, 1, scale.warm_up, scale.round).await?,
            search: load::round(server.address, &search, 1, scale.warm_up, scale.round).await?,
            call: load::round(server.address, &call, 16, scale.warm_up, scale.round).await?,
            memory_mib: machine::resident_mib(server.pid())?,
        });
    }
    Ok(table)
}

/// The upper median; 0 of nothing.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
