//! What it costs that nothing is lost and nothing is done twice: calls with effects, a key on a call without, jobs,
//! checkpoints.
//!
//! A call with effects writes an intent before it starts and its end before it is answered, both durably. The limit is what
//! SQLite can take of the very same rows from one thread that does nothing else, with groups that are always full; it is
//! measured in turns with the gateway, on the same disk, and the median pair is judged. Between the two stand the ledger by
//! itself and the same call of a tool without effects, which show where the rest goes.
//!
//! Not here: whether any of it holds (the crash tests), and how the store measures itself (`store::measure`).

mod calls;
mod checkpoints;
mod jobs;
mod page;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use store::measure::{DrainCost, StoreMeasureError, drain};

use self::checkpoints::{CheckpointCost, checkpoint_cost};
use super::product::{self, Product};
use super::{Scale as Rounds, machine, progress};

pub(super) use self::page::page;

/// How often each thing is done.
pub(super) struct Scale {
    /// Pairs of calls with and without a key.
    pairs: usize,
    /// Jobs whose start is waited for.
    starts: usize,
    /// Jobs that are drained.
    jobs: u64,
    /// Checkpoints of each kind.
    checkpoints: u32,
}

pub(super) const FULL: Scale = Scale { pairs: 5_000, starts: 200, jobs: 100_000, checkpoints: 20 };

/// Enough to see that everything works.
pub(super) const QUICK: Scale = Scale { pairs: 20, starts: 5, jobs: 2_000, checkpoints: 2 };

/// How long others are looked at, before and after.
const LOOK: Duration = Duration::from_secs(1);

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) machine: String,
    pub(super) busy_share: f64,
    calls: Vec<calls::Row>,
    key: calls::KeyCost,
    start: jobs::StartCost,
    drained: DrainCost,
    checkpoint: CheckpointCost,
}

/// All of it.
pub(super) async fn all(gantry: &Path, rounds: &Rounds) -> Result<Results> {
    let scale = &rounds.durable;
    let folder = machine::folder_on_disk(gantry, "bench-durable-")?;
    let data = folder.path().join("data");
    let busy_before = machine::busy_share(LOOK).await?;
    let server = Product::start(gantry, &data).await?;
    let admin = product::admin_token(&data)?;
    let agent = server.agent_token(&admin).await?;
    calls::register(&server, &admin).await?;

    progress("a call with and without a key");
    let key = calls::key_cost(&server, &agent, scale.pairs).await?;
    progress("jobs that start");
    let start = jobs::start_cost(&server, &agent, scale.starts).await?;
    let calls = calls::measure(&server, &agent, folder.path(), rounds).await?;
    server.stop().await?;

    progress("a long queue");
    let (file, count) = (folder.path().join("drain.db"), scale.jobs);
    let drained = apart(async move { drain(&file, count).await }).await?;
    progress("checkpoints");
    let (file, count) = (folder.path().join("checkpoints.db"), scale.checkpoints);
    let checkpoint = apart(async move { checkpoint_cost(&file, count).await }).await?;
    let busy_share = busy_before.max(machine::busy_share(LOOK).await?);
    Ok(Results { machine: machine::description(), busy_share, calls, key, start, drained, checkpoint })
}

/// Runs what the store measures as the server would: on a runtime with a thread for every core, which ours is not.
async fn apart<T: Send + 'static>(
    work: impl Future<Output = Result<T, StoreMeasureError>> + Send + 'static,
) -> Result<T> {
    let run = || tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(work);
    tokio::task::spawn_blocking(run).await.context("a measurement died")?.map_err(|failure| anyhow!(failure))
}
