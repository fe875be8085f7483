//! Is a call as cheap after a million others as it was at first, and with ten thousand tools as with a handful?
//!
//! For each store two servers, one new and one with a past, are asked in turns with calls over one connection: with one, what a
//! call costs is what it takes. The past is written into the store as it would lie there; the tools go in through the door.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::Value;
use store::measure::{postgres_history, sqlite_history};

use super::setup::{EFFECTFUL, InstanceGroup, PURE, Place, Services};
use super::{Scale, spread};
use crate::catalogue::Catalogue;
use crate::load::{self, Measured, Traffic};
use crate::progress;
use crate::scenarios::median;

/// How many connections register at once.
const REGISTRARS: usize = 8;
/// One: so that times are those of the call and not of its neighbours.
const CALLERS: usize = 1;

/// One store and one kind of call.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) store: &'static str,
    pub(super) effects: bool,
    /// The middle rounds of each.
    pub(super) new: Measured,
    pub(super) old: Measured,
    /// The median of what a call takes with a past in terms of what it takes without, round by round.
    pub(super) ratio: f64,
    pub(super) ratio_range: (f64, f64),
}

/// Both stores.
pub(super) async fn measure(gantry: &Path, folder: &Path, services: &Services, scale: &Scale) -> Result<Vec<Row>> {
    let mut table = Vec::new();
    for (name, is_database) in [("embedded", false), ("PostgreSQL", true)] {
        progress(&format!("{name} after {} calls and with {} tools", scale.past_calls, scale.past_tools));
        let (new, old) = if is_database {
            let (new, old) = (services.postgres.database()?, services.postgres.database()?);
            let new = start(gantry, folder, "new-database", Some(&new)).await?;
            // The first start makes the tables; the past comes between it and the second.
            start(gantry, folder, "old-database", Some(&old)).await?.stop().await?;
            let database = old.rsplit('/').next().context("a database without a name")?;
            services.postgres.sql(database, &postgres_history(scale.past_calls))?;
            (new, start(gantry, folder, "old-database", Some(&old)).await?)
        } else {
            let (file, calls) = (folder.join("old-file-0").join("gantry.db"), scale.past_calls);
            let filled = tokio::task::spawn_blocking(move || sqlite_history(&file, calls)).await;
            filled.context("the past could not be made")?.map_err(|failure| anyhow::anyhow!(failure))?;
            (start(gantry, folder, "new-file", None).await?, start(gantry, folder, "old-file", None).await?)
        };
        register_tools(&old, scale.past_tools).await?;
        for (effects, tool) in [(false, PURE), (true, EFFECTFUL)] {
            table.push(compared(name, effects, (&new, &old), tool, scale).await?);
        }
        new.stop().await?;
        old.stop().await?;
    }
    Ok(table)
}

async fn start(gantry: &Path, folder: &Path, name: &str, store: Option<&str>) -> Result<InstanceGroup> {
    InstanceGroup::start(gantry, folder, name, Place { store, shared: None }, 1).await
}

async fn register_tools(group: &InstanceGroup, tools: usize) -> Result<()> {
    let (catalogue, (address, admin)) = (Catalogue::read()?, group.first()?);
    let register =
        |manifest: Value| load::request("POST", "/v1/tools/register", Some(admin), Some(&manifest.to_string()));
    let requests: Vec<Vec<u8>> = (0..tools).filter_map(|number| catalogue.manifest(number)).map(register).collect();
    let traffic = Traffic { requests: Arc::from(requests), status: 201, contains: "" };
    load::each_once(address, &traffic, REGISTRARS).await?;
    Ok(())
}

async fn compared(
    store: &'static str,
    effects: bool,
    (new, old): (&InstanceGroup, &InstanceGroup),
    tool: &'static str,
    scale: &Scale,
) -> Result<Row> {
    let mut rounds = Vec::with_capacity(scale.rounds);
    for turn in 0..scale.rounds {
        let series = format!("past-{turn}");
        let new = spread::round(&new.targets(tool, &series), CALLERS, scale).await?;
        let old = spread::round(&old.targets(tool, &series), CALLERS, scale).await?;
        rounds.push((old.p50_us / new.p50_us, new, old));
    }
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends = rounds.first().zip(rounds.last()).map(|(low, high)| (low.0, high.0));
    let ratio = median(rounds.iter().map(|round| round.0).collect());
    let ((_, new, old), ratio_range) = rounds.get(rounds.len() / 2).zip(ends).context("no rounds were asked for")?;
    Ok(Row { store, effects, new: *new, old: *old, ratio, ratio_range })
}
