//! `cargo xtask acceptance first-day`: the `mcpServers` file that people have, imported and used.
//!
//! Real packages, from the real registries, by the real binary: at least twenty servers are imported from one file, each is listed
//! and called. What cannot work on this machine must say so in words that are expected. Then two starts are measured, and one is done
//! without a network.
//!
//! Not here: the same for six of them in every test run (`tests/mcp/first_day.rs`), whose packages are installed beforehand.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::{services, workspace};

mod gateway;
mod offline;
mod page;
mod stage;
mod starts;
mod verdict;

use gateway::{Gateway, Place};
use stage::Stage;
use verdict::{Outcome, Row};

/// A file with fewer shows too little.
const SERVERS_MIN: usize = 20;

/// The command.
pub(super) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (mut binary, mut write) = (None, false);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--write" => write = true,
            "--gantry" => binary = Some(PathBuf::from(arguments.next().context("`--gantry` wants a file")?)),
            unknown => bail!("first-day has no option `{unknown}`: it has --write and --gantry FILE"),
        }
    }
    services::start_all()?;
    let binary = binary.map_or_else(|| workspace::built(&["--package", "gantry"], "gantry"), Ok)?;
    let stage = Stage::build()?;
    let home = tempfile::Builder::new().prefix("gantry-first-day-").tempdir().context("no temporary folder")?;
    let postgres = test_servers::PostgresServer::start()?;
    let database = postgres.database()?;
    let place = Place { binary, home: home.path().to_owned(), work: stage.folder().to_owned(), database };
    let gateway = Gateway::start(place.clone())?;
    let rows = rows(&place, &stage)?;
    println!("{}", page::table(&rows));
    let starts = starts::measure(&place)?;
    println!("{}", page::times(&starts));
    drop(gateway);
    offline::check(&place)?;
    println!("without a network: both start and answer");
    let unexpected = rows.iter().filter(|row| matches!(row.outcome, Outcome::Unexpected(_))).count();
    let slow = starts.iter().filter(|start| start.ratio() > starts::GOAL).count();
    ensure!(rows.len() >= SERVERS_MIN, "only {} servers were tried", rows.len());
    if write && unexpected == 0 {
        workspace::write(page::PAGE, &page::page(&rows, &starts))?;
    }
    println!("{unexpected} unexpected, {slow} slower than {} times the direct start", starts::GOAL);
    Ok(if unexpected + slow == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Imports the file, and judges each server.
fn rows(place: &Place, stage: &Stage) -> Result<Vec<Row>> {
    let file = stage.at("mcp.json").display().to_string();
    let plan = place.json(&["--json", "import", "mcp", &file, "--dry-run"])?;
    let imported = place.json(&["--json", "import", "mcp", &file, "--yes"])?;
    let list = |document: &Value| document.get("servers").and_then(Value::as_array).cloned().unwrap_or_default();
    let (planned, imported) = (list(&plan), list(&imported));
    let named = |list: &[Value], name: &str| {
        list.iter().find(|one| one.get("name").and_then(Value::as_str) == Some(name)).cloned()
    };
    let work = stage.folder().display().to_string();
    let mut rows = Vec::new();
    for (name, expectation) in verdict::expectations()? {
        let mut row = expectation.judge(&name, named(&imported, &name).as_ref(), place)?;
        let runs = named(&planned, &name).and_then(|one| one.get("runs")?.as_str().map(str::to_owned));
        row.written = runs.unwrap_or_default().replace(&work, "…").replace(&place.database, "postgres://…");
        if let Outcome::Own { message, .. } | Outcome::Gap { message, .. } = &mut row.outcome {
            *message = message.replace(&work, "…");
        }
        rows.push(row);
    }
    Ok(rows)
}
