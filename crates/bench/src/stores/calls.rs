//! The same calls on each store, in turns: one without effects, and one whose intent and end are kept durably.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::setup::{EFFECTFUL, InstanceGroup, PURE, Place, Services};
use super::{Scale, spread};
use crate::load::Measured;
use crate::progress;

/// How many callers there are at once.
const CONNECTIONS: [usize; 3] = [1, 16, 64];

/// One store under one load: the median round by its ratio.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Row {
    pub(super) store: Store,
    pub(super) effects: bool,
    pub(super) connections: usize,
    pub(super) measured: Measured,
    /// Throughput in terms of the embedded store's in the same turn.
    pub(super) ratio: f64,
    pub(super) ratio_range: (f64, f64),
}

/// What is compared.
#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Store {
    Embedded,
    Postgres,
    PostgresRedis,
    ThreeInstances,
}

impl Store {
    /// The embedded store first: the others are measured by it.
    const ALL: [Self; 4] = [Self::Embedded, Self::Postgres, Self::PostgresRedis, Self::ThreeInstances];

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Postgres => "PostgreSQL",
            Self::PostgresRedis => "PostgreSQL + Redis",
            Self::ThreeInstances => "PostgreSQL + Redis, 3 instances",
        }
    }

    async fn start(self, gantry: &Path, folder: &Path, services: &Services) -> Result<InstanceGroup> {
        let store = if self == Self::Embedded { None } else { Some(services.postgres.database()?) };
        let shared = matches!(self, Self::PostgresRedis | Self::ThreeInstances).then(|| services.redis(0));
        let place = Place { store: store.as_deref(), shared: shared.as_deref() };
        let (name, count) = match self {
            Self::Embedded => ("embedded", 1),
            Self::Postgres => ("postgres", 1),
            Self::PostgresRedis => ("redis", 1),
            Self::ThreeInstances => ("three", 3),
        };
        InstanceGroup::start(gantry, folder, name, place, count).await
    }
}

/// All stores in turns, for each kind of call and each number of callers.
pub(super) async fn measure(gantry: &Path, folder: &Path, services: &Services, scale: &Scale) -> Result<Vec<Row>> {
    progress("starting the embedded store, PostgreSQL, Redis and six instances");
    let mut groups = Vec::with_capacity(Store::ALL.len());
    for store in Store::ALL {
        groups.push((store, store.start(gantry, folder, services).await?));
    }
    let mut table = Vec::new();
    for (effects, tool) in [(false, PURE), (true, EFFECTFUL)] {
        for connections in CONNECTIONS {
            progress(&format!("calls of `{tool}` on each store, {connections} connections"));
            let mut rounds: Vec<Vec<Row>> = vec![Vec::new(); groups.len()];
            for turn in 0..scale.rounds {
                let mut embedded = None;
                for ((store, group), rows) in groups.iter().zip(&mut rounds) {
                    let targets = group.targets(tool, &format!("{connections}-{turn}"));
                    let measured = spread::round(&targets, connections, scale).await?;
                    let ratio = measured.per_second / *embedded.get_or_insert(measured.per_second);
                    let ratio_range = (ratio, ratio);
                    rows.push(Row { store: *store, effects, connections, measured, ratio, ratio_range });
                }
            }
            for rows in rounds {
                table.push(median(rows)?);
            }
        }
    }
    for (_, group) in groups {
        group.stop().await?;
    }
    Ok(table)
}

/// The median by ratio, then by throughput: all ratios of the embedded store are 1.
fn median(mut rows: Vec<Row>) -> Result<Row> {
    let order =
        |a: &Row, b: &Row| a.ratio.total_cmp(&b.ratio).then(a.measured.per_second.total_cmp(&b.measured.per_second));
    rows.sort_by(order);
    let ends = rows.first().zip(rows.last()).map(|(low, high)| (low.ratio, high.ratio));
    let (median, ratio_range) = rows.get(rows.len() / 2).zip(ends).context("no rounds were asked for")?;
    Ok(Row { ratio_range, ..*median })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_round_counts_and_its_neighbours_are_the_range() {
        let row = |ratio, per_second| Row {
            store: Store::Postgres,
            effects: false,
            connections: 1,
            measured: Measured { per_second, p50_us: 1.0, p99_us: 2.0 },
            ratio,
            ratio_range: (ratio, ratio),
        };
        let found = median(vec![row(0.9, 1.0), row(0.5, 2.0), row(0.7, 3.0)]).unwrap();
        assert!((found.ratio - 0.7).abs() < 1e-9 && found.ratio_range == (0.5, 0.9));
        assert!(
            (median(vec![row(1.0, 9.0), row(1.0, 5.0), row(1.0, 7.0)]).unwrap().measured.per_second - 7.0).abs() < 1e-9
        );
        assert!(median(Vec::new()).is_err());
    }
}
