//! What isolation costs: starts beside bare ones and beside other people's sandboxes, tools through the whole gateway,
//! WASM components, many calls at once, and the memory of interpreters that wait.
//!
//! Whatever is compared takes turns in one loop without pauses, in alternating order, so that noise hits all alike and
//! nobody always comes after the same neighbour. Of each, the best and the median are kept: the best shows what the work
//! costs, the median what a user gets on this machine.
//!
//! Not here: whether a sandbox holds (`escape`), and the cost of a call that starts nothing (`scenarios`).

mod burst;
mod hello;
mod memory;
mod page;
mod peers;
mod starts;
mod tools;
mod wasm;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Serialize;

use self::tools::ToolServer;
use super::scenarios::median;
use super::{machine, progress};

pub(super) use self::page::page;

/// How often each thing is done.
pub(super) struct Scale {
    /// Rounds of starts.
    starts: usize,
    /// Containers, which take a hundred times longer, join every so many rounds.
    containers_every: usize,
    /// Rounds of the Python tool.
    hellos: usize,
    /// Loads of each component from the compiled cache.
    loads: usize,
    /// Instantiations of each component.
    instances: usize,
    /// Calls of each connection of the burst.
    burst_calls: usize,
}

pub(super) const FULL: Scale =
    Scale { starts: 100, containers_every: 10, hellos: 50, loads: 30, instances: 2_000, burst_calls: 20 };

/// Enough to see that everything works.
pub(super) const QUICK: Scale =
    Scale { starts: 6, containers_every: 3, hellos: 3, loads: 3, instances: 20, burst_calls: 2 };

/// How long others are looked at, before and after.
const LOOK: Duration = Duration::from_secs(1);

/// Everything that was measured.
#[derive(Serialize)]
pub(super) struct Results {
    pub(super) machine: String,
    /// The share of all cores that others used before and after, the larger of the two.
    pub(super) busy_share: f64,
    starts: starts::Starts,
    hello: hello::Hello,
    components: Vec<wasm::Component>,
    burst: burst::Burst,
    memory: memory::Memory,
}

/// The same thing done several times.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Times {
    count: usize,
    best_us: f64,
    median_us: f64,
}

/// All of it.
pub(super) async fn all(gantry: &Path, scale: &Scale) -> Result<Results> {
    let busy_before = machine::busy_share(LOOK).await?;
    progress("starts of a program that does nothing");
    let starts = starts::measure(gantry, scale).await?;
    progress("WASM components");
    let components = wasm::measure(scale).await?;
    progress("a Python tool through the gateway");
    let tool_server = ToolServer::open(gantry).await?;
    let hello = hello::measure(&tool_server, scale.hellos).await?;
    progress("interpreters that wait");
    let memory = memory::measure(&tool_server).await?;
    progress("many sandboxed calls at once");
    let burst = burst::measure(&tool_server, scale.burst_calls).await?;
    tool_server.close().await?;
    let busy_share = busy_before.max(machine::busy_share(LOOK).await?);
    Ok(Results { machine: machine::description(), busy_share, starts, hello, components, burst, memory })
}

impl Times {
    fn of(times: &[Duration]) -> Result<Self> {
        let best = times.iter().min().context("nothing was measured")?;
        let micros = times.iter().map(|time| time.as_secs_f64() * 1e6).collect();
        Ok(Self { count: times.len(), best_us: best.as_secs_f64() * 1e6, median_us: median(micros) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_by_the_best_and_the_median() {
        let times = [30, 10, 20].map(Duration::from_micros);
        let told = Times::of(&times).unwrap();
        assert!((told.best_us - 10.0).abs() < 0.01 && (told.median_us - 20.0).abs() < 0.01, "{told:?}");
        assert_eq!(told.count, 3);
        assert!(Times::of(&[]).is_err());
    }
}
