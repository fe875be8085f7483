//! `cargo xtask bench`: what a call costs, what a sandbox costs, what a gateway for MCP costs, what durability costs, what a
//! record of everything costs and what it costs to outgrow one machine, as ratios against what is bare, in the same run.
//!
//! Absolute numbers of one machine say little on another, and little on the same machine tomorrow. So the release binary
//! and the echo server are asked in turn, with the same load generator and the same bytes, and the median of the pairs
//! is judged. The same for isolation: a start in our sandbox, a bare one, and those of others take turns. Everything runs on loopback, on free ports, in a temporary data directory, for a bounded time.
//!
//! ```text
//! xtask (dev) ── builds ──▶ gantry-bench measure ──┬──▶ gantry-bench echo-server
//!                              load, report        ├──▶ gantry serve ──▶ gantry-bench mcp-echo-server
//!                              isolation, mcp      ├──▶ gantry sandbox-launcher, bwrap, runc, runsc
//!                              durable, audit      ├──▶ gantry-bench bench-harness, on and off the record
//!                              stores              └──▶ gantry serve, one and three ──▶ PostgreSQL, Redis
//! ```
//!
//! A crate of its own, because it is put together from all of the product, and `cargo xtask check` must not wait for that. All
//! programs but `xtask` are release builds.
//!
//! Not here: quality of search (`search_eval`).
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer command talks to a terminal")]
#![expect(clippy::disallowed_methods, reason = "starts servers, and measures time: no ports to go through")]

mod audit;
mod authorization;
mod catalogue;
mod durable;
mod echo;
mod goal;
mod isolation;
mod load;
mod machine;
mod mcp;
mod micro;
mod neighbour;
mod product;
mod report;
mod repository;
mod scenarios;
mod stores;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::Serialize;

/// The product's, because servers that are put together here from its crates are measured (`audit/harness.rs`), and so are those they
/// are compared with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long and how much is measured.
struct Scale {
    /// Pairs of echo and product rounds; the median pair is reported.
    rounds: usize,
    round: Duration,
    warm_up: Duration,
    starts: usize,
    tool_counts: &'static [usize],
    isolation: isolation::Scale,
    durable: durable::Scale,
    audit: audit::Scale,
    stores: stores::Scale,
}

const FULL: Scale = Scale {
    rounds: 5,
    round: Duration::from_secs(2),
    warm_up: Duration::from_millis(500),
    starts: 10,
    tool_counts: &[10, 1_000, 10_000],
    isolation: isolation::FULL,
    durable: durable::FULL,
    audit: audit::FULL,
    stores: stores::FULL,
};

/// Enough to see that everything works; its numbers are not worth keeping.
const QUICK: Scale = Scale {
    rounds: 1,
    round: Duration::from_millis(300),
    warm_up: Duration::from_millis(100),
    starts: 2,
    tool_counts: &[10, 200],
    isolation: isolation::QUICK,
    durable: durable::QUICK,
    audit: audit::QUICK,
    stores: stores::QUICK,
};

/// What the command line asks for.
#[derive(Default)]
struct Options {
    quick: bool,
    json: bool,
    write: bool,
    only: Option<Section>,
    gantry: Option<PathBuf>,
    /// `gantry-bench` as another commit built it, for what has changed since.
    former: Option<PathBuf>,
}

/// A part of the report; each can be measured and kept without the others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    /// The server under load, starting, memory, parts.
    Calls,
    /// Sandboxes, containers, WASM.
    Isolation,
    /// MCP through the gateway.
    Mcp,
    /// Effects, keys, jobs, checkpoints.
    Durable,
    /// Audit, traces, metrics, redaction.
    Audit,
    /// PostgreSQL and Redis against the embedded store.
    Stores,
}

/// What was measured.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    calls: Option<scenarios::Results>,
    #[serde(skip_serializing_if = "Option::is_none")]
    isolation: Option<isolation::Results>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mcp: Option<mcp::Results>,
    #[serde(skip_serializing_if = "Option::is_none")]
    durable: Option<durable::Results>,
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<audit::Results>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stores: Option<stores::Results>,
}

impl Report {
    /// The share of the cores that others had, at its worst.
    fn busy_share(&self) -> f64 {
        let calls = self.calls.as_ref().map_or(0.0, |results| results.busy_share);
        let isolation = self.isolation.as_ref().map_or(0.0, |results| results.busy_share);
        let durable = self.durable.as_ref().map_or(0.0, |results| results.busy_share);
        let audit = self.audit.as_ref().map_or(0.0, |results| results.busy_share);
        let stores = self.stores.as_ref().map_or(0.0, |results| results.busy_share);
        let mcp = self.mcp.as_ref().map_or(0.0, |results| results.busy_share);
        [calls, isolation, mcp, durable, audit, stores].into_iter().fold(0.0, f64::max)
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    let outcome = match command.as_str() {
        "measure" => measure(&rest),
        // How `measure` starts this very program.
        "echo-server" => echo::run(),
        "mcp-echo-server" => mcp::upstream::run(&rest),
        // And how it starts this program as another commit has it (`--former`): the name stays.
        audit::harness::NAME => audit::harness::run(&rest),
        _ => Err(anyhow!("this program is started by `cargo xtask bench`")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and reports.
fn measure(arguments: &[String]) -> Result<()> {
    let options = Options::read(arguments)?;
    let gantry = options.gantry.as_deref().context("measure needs --gantry with the path of the binary")?;
    ensure!(options.quick || !cfg!(debug_assertions), "only release builds are measured: use `cargo xtask bench`");
    let scale = if options.quick { &QUICK } else { &FULL };
    // One thread for the generator: it has to leave the cores to what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    // The server is started in a folder of its own, where a relative path would lead elsewhere.
    let gantry = gantry.canonicalize().context("there is no binary at the path of --gantry")?;
    let former = options.former.as_ref().map(|path| path.canonicalize()).transpose();
    let former = former.context("there is no program at the path of --former")?;
    let wanted = |section| options.only.is_none_or(|only| only == section);
    let report = runtime.block_on(async {
        let calls = if wanted(Section::Calls) { Some(scenarios::all(&gantry, scale).await?) } else { None };
        let isolation =
            if wanted(Section::Isolation) { Some(isolation::all(&gantry, &scale.isolation).await?) } else { None };
        let mcp = if wanted(Section::Mcp) { Some(mcp::all(&gantry, scale).await?) } else { None };
        let durable = if wanted(Section::Durable) { Some(durable::all(&gantry, scale).await?) } else { None };
        let audit =
            if wanted(Section::Audit) { Some(audit::all(&gantry, former.as_deref(), scale).await?) } else { None };
        let stores = if wanted(Section::Stores) { Some(stores::all(&gantry, scale).await?) } else { None };
        anyhow::Ok(Report { calls, isolation, mcp, durable, audit, stores })
    })?;

    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", report::markdown(&report));
    }
    if options.write {
        ensure!(!options.quick, "--write keeps full measurements only: leave out --quick");
        report::write(&report)?;
    }
    Ok(())
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--json" => options.json = true,
                "--write" => options.write = true,
                "--only" => options.only = Some(Section::named(arguments.next().map(String::as_str))?),
                "--gantry" => options.gantry = arguments.next().map(|path| Path::new(path).to_path_buf()),
                "--former" => options.former = arguments.next().map(|path| Path::new(path).to_path_buf()),
                unknown => {
                    bail!("bench has no option `{unknown}`: it has --quick, --json, --write, --only and --former")
                }
            }
        }
        Ok(options)
    }
}

impl Section {
    fn named(name: Option<&str>) -> Result<Self> {
        match name {
            Some("calls") => Ok(Self::Calls),
            Some("isolation") => Ok(Self::Isolation),
            Some("mcp") => Ok(Self::Mcp),
            Some("durable") => Ok(Self::Durable),
            Some("audit") => Ok(Self::Audit),
            Some("stores") => Ok(Self::Stores),
            _ => bail!("--only wants `calls`, `isolation`, `mcp`, `durable`, `audit` or `stores`"),
        }
    }
}

/// Says what is going on, where it does not disturb the report.
fn progress(what: &str) {
    eprintln!("bench: {what}");
}
