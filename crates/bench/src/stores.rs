//! What it costs to outgrow one machine: the same calls on the embedded store, on PostgreSQL, on PostgreSQL with Redis, and on
//! three instances of the last; what breakers and limits in Redis add; and whether a long past makes a call dearer.
//!
//! All servers of a comparison run at once and are asked in turns, so that they share the fortune of the machine; the median
//! round is judged. PostgreSQL keeps its promises (`fsync`, `synchronous_commit`), as the embedded store does. Everything shares
//! the cores of one machine, so three instances show what sharing costs and not what three machines bring.
//!
//! Not here: whether instances agree (the tests), what the stores measure of themselves (`store::measure`).

mod calls;
mod guarded;
mod page;
mod past;
mod setup;
mod spread;

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use super::{Scale as Rounds, machine, progress};
use setup::Services;

pub(super) use self::page::page;

/// How much is measured.
pub(super) struct Scale {
    /// Rounds of every kind of call on every store; the median is reported.
    rounds: usize,
    round: Duration,
    warm_up: Duration,
    /// Pairs of calls with breaker and limit in memory and in Redis.
    pairs: usize,
    /// Calls that were made before.
    past_calls: u32,
    /// Tools that are stored.
    past_tools: usize,
}

pub(super) const FULL: Scale = Scale {
    rounds: 5,
    round: Duration::from_secs(1),
    warm_up: Duration::from_millis(200),
    pairs: 3_000,
    past_calls: 1_000_000,
    past_tools: 10_000,
};

/// Enough to see that everything works.
pub(super) const QUICK: Scale = Scale {
    rounds: 1,
    // Long enough for the slowest answer of 64 callers on a machine that is busy with other things.
    round: Duration::from_millis(1_500),
    warm_up: Duration::from_millis(100),
    pairs: 10,
    past_calls: 2_000,
    past_tools: 40,
};

/// How long others are looked at, before and after.
const LOOK: Duration = Duration::from_secs(1);

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) machine: String,
    pub(super) busy_share: f64,
    calls: Vec<calls::Row>,
    guarded: guarded::Cost,
    past: Vec<past::Row>,
    past_calls: u32,
    past_tools: usize,
}

/// All of it.
pub(super) async fn all(gantry: &Path, rounds: &Rounds) -> Result<Results> {
    let scale = &rounds.stores;
    let folder = machine::folder_on_disk(gantry, "bench-stores-")?;
    let busy_before = machine::busy_share(LOOK).await?;
    let services = Services::start()?;
    let calls = calls::measure(gantry, folder.path(), &services, scale).await?;
    progress("breakers and limits in memory and in Redis");
    let guarded = guarded::measure(gantry, folder.path(), &services, scale.pairs).await?;
    let past = past::measure(gantry, folder.path(), &services, scale).await?;
    drop(services);
    let busy_share = busy_before.max(machine::busy_share(LOOK).await?);
    let (past_calls, past_tools) = (scale.past_calls, scale.past_tools);
    Ok(Results { machine: machine::description(), busy_share, calls, guarded, past, past_calls, past_tools })
}
