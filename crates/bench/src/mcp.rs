//! What the gateway adds to an MCP call: the same `tools/call` directly against a server and through Gantry, in turns.
//!
//! The server answers with what it was given and does nothing else, so that it is not what limits the throughput; behind
//! Gantry it stands twice, over HTTP and over its standard streams. A call through Gantry carries an agent's token, passes
//! all six phases and leaves its record. Rounds take turns, and the median round is judged by its ratio to the direct one
//! before it. The processor time of the gateway alone is read from the system.
//!
//! Not here: what the tokens of long lists cost (`affordances`), and calls of tools that are not MCP (`scenarios`).

mod page;
mod processor;
mod requests;
pub(crate) mod upstream;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde_json::json;

use self::upstream::TOOLS_MANY;
use super::load::{self, Measured, Traffic};
use super::neighbour::Neighbour;
use super::product::{self, Product};
use super::scenarios::median;
use super::{Scale, machine, progress};

pub(super) use self::page::page;

/// How many connections call at once.
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// Whole lists that are read after the first.
const LISTS: usize = 20;
/// Pages of one list, after which it counts as endless.
const PAGES_MAX: usize = 1000;
/// How long others are looked at, before and after.
const LOOK: Duration = Duration::from_secs(1);
/// What every right answer contains.
const ANSWER: &str = "bench says hello";

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) machine: String,
    pub(super) busy_share: f64,
    calls: Vec<Row>,
    list: ListCost,
}

/// One number of connections.
#[derive(Serialize)]
struct Row {
    connections: usize,
    /// The direct round of the median pair with the server over HTTP.
    direct: Measured,
    over_http: Through,
    over_stdio: Through,
}

/// The same load through Gantry.
#[derive(Serialize, Clone, Copy)]
struct Through {
    measured: Measured,
    /// Throughput in terms of the direct round before it.
    ratio: f64,
    ratio_range: (f64, f64),
    added_p50_us: f64,
    added_p99_us: f64,
    /// Of the gateway's process, all threads.
    processor_us_per_call: f64,
    #[serde(skip)]
    direct: Measured,
}

/// The whole list of a large catalogue.
#[derive(Serialize)]
struct ListCost {
    tools: usize,
    pages: usize,
    bytes: usize,
    first_ms: f64,
    /// Median of the lists after the first.
    warm_ms: f64,
}

/// All of it.
pub(super) async fn all(gantry: &Path, scale: &Scale) -> Result<Results> {
    let folder = machine::folder_on_disk(gantry, "bench-mcp-")?;
    let data = folder.path().join("data");
    let busy_before = machine::busy_share(LOOK).await?;
    let server = Product::start(gantry, &data).await?;
    let admin = product::admin_token(&data)?;
    let agent = server.agent_token(&admin).await?;
    let upstream = upstream::over_http()?;
    let url = format!("http://{}/mcp", upstream.address);
    server.put(&admin, "/v1/servers/near", &json!({ "reach": { "type": "http", "url": url } })).await?;
    server.put(&admin, "/v1/servers/piped", &json!({ "reach": upstream::stdio(&["mcp-echo-server"])? })).await?;
    // Calls of tools that nobody has classified are journalled durably; what the gateway itself adds is measured without.
    for name in ["near", "piped"] {
        let path = format!("/v1/servers/{name}/tools/echo/classify");
        server.post(&admin, &path, &json!({ "side_effect_policy": "pure" })).await?;
    }
    let calls = calls(&server, &upstream, &agent, scale).await?;

    progress("a list of many MCP tools");
    let many = json!({ "reach": upstream::stdio(&["mcp-echo-server", "--many"])? });
    server.put(&admin, "/v1/servers/many", &many).await?;
    let list = list(&server, &agent).await?;
    server.stop().await?;
    let busy_share = busy_before.max(machine::busy_share(LOOK).await?);
    Ok(Results { machine: machine::description(), busy_share, calls, list })
}

async fn calls(server: &Product, upstream: &Neighbour, agent: &str, scale: &Scale) -> Result<Vec<Row>> {
    let traffic = |request: Vec<u8>| Traffic { requests: Arc::from(vec![request]), status: 200, contains: ANSWER };
    let direct = traffic(requests::call(None, "echo", ANSWER));
    let near = traffic(requests::call(Some(agent), "near__echo", ANSWER));
    let piped = traffic(requests::call(Some(agent), "piped__echo", ANSWER));
    let mut table = Vec::new();
    for connections in CONNECTIONS {
        progress(&format!("MCP calls over {connections} connections"));
        let (mut over_http, mut over_stdio) = (Vec::new(), Vec::new());
        for _ in 0..scale.rounds {
            let bare = load::round(upstream.address, &direct, connections, scale.warm_up, scale.round).await?;
            for (rounds, traffic) in [(&mut over_http, &near), (&mut over_stdio, &piped)] {
                let before = processor::seconds(server.pid())?;
                let measured = load::round(server.address, traffic, connections, scale.warm_up, scale.round).await?;
                let used = processor::seconds(server.pid())? - before;
                rounds.push(Through::of(bare, measured, used, scale));
            }
        }
        let (over_http, over_stdio) = (Through::median(over_http)?, Through::median(over_stdio)?);
        table.push(Row { connections, direct: over_http.direct, over_http, over_stdio });
    }
    Ok(table)
}

/// Reads the whole list again and again.
async fn list(server: &Product, agent: &str) -> Result<ListCost> {
    let (mut times, mut shape) = (Vec::new(), (0, 0, 0));
    for _ in 0..=LISTS {
        let start = Instant::now();
        let (mut tools, mut pages, mut bytes, mut cursor) = (0, 0, 0, None::<String>);
        loop {
            let request = requests::list(agent, cursor.as_deref());
            let (status, body) = load::ask_once(server.address, &request).await?;
            ensure!(status == 200, "tools/list answered {status}");
            pages += 1;
            bytes += body.len();
            let page = requests::page(&body)?;
            tools += page.tools;
            cursor = page.next;
            ensure!(pages <= PAGES_MAX, "the list has no end");
            if cursor.is_none() {
                break;
            }
        }
        times.push(start.elapsed().as_secs_f64() * 1e3);
        shape = (tools, pages, bytes);
    }
    let (tools, pages, bytes) = shape;
    ensure!(tools >= TOOLS_MANY, "only {tools} tools were listed");
    let first_ms = times.first().copied().unwrap_or_default();
    Ok(ListCost { tools, pages, bytes, first_ms, warm_ms: median(times.into_iter().skip(1).collect()) })
}

impl Through {
    fn of(direct: Measured, measured: Measured, processor_seconds: f64, scale: &Scale) -> Self {
        let ratio = measured.per_second / direct.per_second;
        // The counter ran through the warm-up as well, at the same pace.
        let calls = measured.per_second * (scale.warm_up + scale.round).as_secs_f64();
        Self {
            measured,
            ratio,
            ratio_range: (ratio, ratio),
            added_p50_us: measured.p50_us - direct.p50_us,
            added_p99_us: measured.p99_us - direct.p99_us,
            processor_us_per_call: processor_seconds * 1e6 / calls,
            direct,
        }
    }

    fn median(mut rounds: Vec<Self>) -> Result<Self> {
        rounds.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let ends = rounds.first().zip(rounds.last()).map(|(low, high)| (low.ratio, high.ratio));
        let (median, ratio_range) = rounds.get(rounds.len() / 2).zip(ends).context("no rounds were asked for")?;
        Ok(Self { ratio_range, ..*median })
    }
}
