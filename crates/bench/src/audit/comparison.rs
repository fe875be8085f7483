//! What a call on the record costs in terms of another server's, both with everything on record, in turns under the same load.
//!
//! The other one is this build with a log that nobody waits for: what it costs that a record is written before its answer
//! leaves (decision 0049). Or it is the build of another commit, where that is at hand as `gantry-bench` (`--former`): what
//! everything costs that has changed between the two.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::harness;
use crate::goal::{Bound, Goal};
use crate::load::{self, Measured, Traffic};
use crate::neighbour::Neighbour;
use crate::{Scale, echo, progress};

/// Alone, for what is added to each call, and many, for what is lost in all.
const CONNECTIONS: [usize; 2] = [1, 64];
/// Of the throughput without waiting that is to be left with many connections.
const THROUGHPUT_LEFT: f64 = 0.90;
/// Microseconds that may be added to a call of one who is alone.
const P50_ADDED_US: f64 = 30.0;

/// Then and now, at one number of connections: the median pair of rounds.
#[derive(Serialize, Clone, Copy)]
pub(super) struct Change {
    pub(super) connections: usize,
    pub(super) then: Measured,
    pub(super) now: Measured,
    /// Throughput now in terms of then, and the lowest and highest of all rounds.
    pub(super) ratio: f64,
    pub(super) ratio_range: (f64, f64),
    /// The median of what the rounds added to the median call.
    pub(super) p50_added_us: f64,
}

/// The server that this build is compared with.
#[derive(Clone, Copy)]
pub(super) enum Other<'p> {
    /// This build, with answers that do not wait for their records.
    Unwaited,
    /// The build of another commit.
    Build(&'p Path),
}

impl Other<'_> {
    fn start(self, data: &str, collector: &str) -> Result<Neighbour> {
        match self {
            Self::Unwaited => Neighbour::start(&[harness::NAME, data, collector, harness::QUEUED]),
            Self::Build(program) => Neighbour::start_build(program, &[harness::NAME, data, collector]),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Unwaited => "unwaited",
            Self::Build(_) => "former",
        }
    }
}

/// Both in turn.
pub(super) async fn changes(other: Other<'_>, folder: &Path, traffic: &Traffic, scale: &Scale) -> Result<Vec<Change>> {
    let collector = echo::start()?;
    let collector = format!("http://{}", collector.address);
    let data = |name: &str| -> Result<String> {
        let path = folder.join(format!("{}-{name}", other.name()));
        std::fs::create_dir(&path)?;
        Ok(path.to_str().context("the path of the build is no text")?.to_owned())
    };
    let then = other.start(&data("then")?, &collector)?;
    let now = Neighbour::start(&[harness::NAME, &data("now")?, &collector])?;
    let mut table = Vec::new();
    for connections in CONNECTIONS {
        progress(&format!("calls against {}, {connections} connections", other.name()));
        let mut pairs = Vec::new();
        for _ in 0..scale.rounds {
            let then = load::round(then.address, traffic, connections, scale.warm_up, scale.round).await?;
            let now = load::round(now.address, traffic, connections, scale.warm_up, scale.round).await?;
            pairs.push((then, now));
        }
        table.extend(median(connections, pairs));
    }
    Ok(table)
}

fn median(connections: usize, mut pairs: Vec<(Measured, Measured)>) -> Option<Change> {
    let ratio = |(then, now): &(Measured, Measured)| now.per_second / then.per_second;
    let mut added: Vec<f64> = pairs.iter().map(|(then, now)| now.p50_us - then.p50_us).collect();
    added.sort_by(f64::total_cmp);
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let middle = pairs.get(pairs.len() / 2)?;
    let (then, now) = *middle;
    Some(Change {
        connections,
        then,
        now,
        ratio: ratio(middle),
        ratio_range: (ratio(pairs.first()?), ratio(pairs.last()?)),
        p50_added_us: *added.get(added.len() / 2)?,
    })
}

/// What is promised of waiting for the record (DESIGN §2), in terms of a server whose answers do not.
pub(super) fn goals(changes: &[Change]) -> Vec<Goal> {
    let fewest = changes.iter().min_by_key(|change| change.connections);
    let most = changes.iter().max_by_key(|change| change.connections);
    let left = most.map(|most| Goal {
        what: format!("throughput with records written before answers, {} connections", most.connections),
        measured: Some(most.ratio),
        unit: "of that without waiting",
        bound: Bound::AtLeast(THROUGHPUT_LEFT),
    });
    let added = fewest.map(|fewest| Goal {
        what: format!("added by that to a call, p50, {} connection", fewest.connections),
        measured: Some(fewest.p50_added_us),
        unit: "µs",
        bound: Bound::Below(P50_ADDED_US),
    });
    left.into_iter().chain(added).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_pair_is_judged_and_the_median_of_what_was_added() {
        let measured = |per_second, p50_us| Measured { per_second, p50_us, p99_us: 0.0 };
        let pairs = vec![
            (measured(100.0, 10.0), measured(50.0, 11.0)),
            (measured(100.0, 10.0), measured(95.0, 60.0)),
            (measured(100.0, 10.0), measured(110.0, 15.0)),
        ];
        let change = median(64, pairs).unwrap();
        assert_eq!((change.ratio, change.ratio_range, change.p50_added_us), (0.95, (0.5, 1.1), 5.0));
        assert_eq!(goals(&[change]).len(), 2);
        assert!(median(1, Vec::new()).is_none() && goals(&[]).is_empty());
    }
}
