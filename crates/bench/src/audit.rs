//! What it costs that everything is on record: calls with audit, traces and metrics against calls with none of them, and the
//! log and the redaction by themselves.
//!
//! The product cannot be told not to record, and must not be: a call that cannot be recorded does not run. So the server is
//! put together here, twice, from the product's own crates ([`harness`]): once with the real log on disk, metrics, traces to a
//! collector on loopback and redaction, once with ports that do nothing. Both are processes of their own, take turns under the
//! same load, and the median pair is judged. What the kernel prepares for the ports is done on both sides.
//!
//! Not here: whether any of it holds (the tests of `audit`), and how the log and the redaction measure themselves
//! (`audit::measure`, `redaction::measure`).

mod comparison;
pub(crate) mod harness;
mod page;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::audit::measure::{LogCost, MeasureExtent, log_cost};
use anyhow::{Context, Result, anyhow};
use redaction::measure::speeds;
use serde::Serialize;

use self::comparison::Other;
use super::load::{self, Measured, Traffic};
use super::neighbour::Neighbour;
use super::scenarios::{CALL, CALL_ANSWER};
use super::{Scale as Rounds, echo, machine, progress};

pub(super) use self::page::page;

/// How much is measured.
pub(super) struct Scale {
    log: MeasureExtent,
    /// JSON of each kind that is redacted, and how often.
    redacted_bytes: usize,
    redacted_rounds: u32,
}

pub(super) const FULL: Scale = Scale {
    log: MeasureExtent { records: 1_000_000, appends: 200, proofs: 1_000 },
    redacted_bytes: 16 << 20,
    redacted_rounds: 5,
};

/// Enough to see that everything works.
pub(super) const QUICK: Scale = Scale {
    log: MeasureExtent { records: 5_000, appends: 10, proofs: 20 },
    redacted_bytes: 1 << 20,
    redacted_rounds: 1,
};

/// How many connections call at once.
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// How long others are looked at, before and after.
const LOOK: Duration = Duration::from_secs(1);

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) machine: String,
    pub(super) busy_share: f64,
    calls: Vec<Pair>,
    /// Records written before their answers, and after them.
    waiting: Vec<comparison::Change>,
    /// Nothing without a former build.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    changes: Vec<comparison::Change>,
    log: LogCost,
    redaction: Vec<Redacted>,
}

/// A server that records nothing and one that records everything, under the same load.
#[derive(Serialize, Clone, Copy)]
struct Pair {
    connections: usize,
    bare: Measured,
    observed: Measured,
    /// Throughput of the one that records in terms of the other's.
    ratio: f64,
    /// The lowest and highest ratio of all rounds.
    ratio_range: (f64, f64),
}

/// How fast one kind of document is redacted on one core.
#[derive(Serialize)]
struct Redacted {
    what: &'static str,
    text_mb_per_second: f64,
    value_mb_per_second: f64,
}

/// All of it.
pub(super) async fn all(gantry: &Path, former: Option<&Path>, rounds: &Rounds) -> Result<Results> {
    let scale = &rounds.audit;
    // Beside the builds, because a folder for temporary files may be in memory and forgive every sync to disk.
    let place = gantry.parent().unwrap_or(gantry);
    let folder = tempfile::Builder::new().prefix("bench-audit-").tempdir_in(place).context("no temporary folder")?;
    let busy_before = machine::busy_share(LOOK).await?;
    let request = load::request("POST", "/v1/tools/invoke", Some(&harness::token()?), Some(CALL));
    let traffic = Traffic { requests: Arc::from(vec![request]), status: 200, contains: CALL_ANSWER };
    let calls = calls(folder.path(), &traffic, rounds).await?;
    let waiting = comparison::changes(Other::Unwaited, folder.path(), &traffic, rounds).await?;
    let changes = match former {
        Some(former) => comparison::changes(Other::Build(former), folder.path(), &traffic, rounds).await?,
        None => Vec::new(),
    };

    progress("the audit log, as it grows");
    let (logs, extent) = (folder.path().join("logs"), scale.log);
    std::fs::create_dir(&logs)?;
    let log = apart(move || log_cost(&logs, extent)).await?;
    progress("redaction");
    let (bytes, times) = (scale.redacted_bytes, scale.redacted_rounds);
    let speeds = apart(move || speeds(bytes, times)).await?;
    let redaction = speeds.into_iter().map(|speed| Redacted {
        what: speed.what,
        text_mb_per_second: speed.text_mb_per_second,
        value_mb_per_second: speed.value_mb_per_second,
    });
    let busy_share = busy_before.max(machine::busy_share(LOOK).await?);
    Ok(Results {
        machine: machine::description(),
        busy_share,
        calls,
        waiting,
        changes,
        log,
        redaction: redaction.collect(),
    })
}

/// Both servers in turn, at each number of connections.
async fn calls(folder: &Path, traffic: &Traffic, scale: &Rounds) -> Result<Vec<Pair>> {
    let data = folder.join("observed");
    std::fs::create_dir(&data)?;
    let data = data.to_str().context("the path of the build is no text")?;
    // It takes whatever it is sent and says that it is fine, as a collector does.
    let collector = echo::start()?;
    let bare = Neighbour::start(&[harness::NAME])?;
    let observed = Neighbour::start(&[harness::NAME, data, &format!("http://{}", collector.address)])?;
    let mut table = Vec::new();
    for connections in CONNECTIONS {
        progress(&format!("calls on and off the record, {connections} connections"));
        let mut pairs = Vec::new();
        for _ in 0..scale.rounds {
            let bare = load::round(bare.address, traffic, connections, scale.warm_up, scale.round).await?;
            let observed = load::round(observed.address, traffic, connections, scale.warm_up, scale.round).await?;
            let ratio = observed.per_second / bare.per_second;
            pairs.push(Pair { connections, bare, observed, ratio, ratio_range: (ratio, ratio) });
        }
        pairs.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
        let ends = pairs.first().zip(pairs.last()).map(|(low, high)| (low.ratio, high.ratio));
        if let (Some(median), Some(ratio_range)) = (pairs.get(pairs.len() / 2), ends) {
            table.push(Pair { ratio_range, ..*median });
        }
    }
    Ok(table)
}

/// Runs what blocks on a thread of its own.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Box<dyn std::error::Error + Send + Sync>> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("a measurement died")?.map_err(|failure| anyhow!(failure))
}
