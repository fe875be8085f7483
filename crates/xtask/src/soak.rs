//! `cargo xtask soak [--calls N] [--seed N]`: the soak of the black-box tests at its full length.
//!
//! In `cargo xtask test` the same test makes fewer calls, because every change waits for it. What is checked is written
//! there (`tests/mcp/soak.rs`); here is only how long it goes on.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::{services, workspace};

const CALLS_DEFAULT: &str = "10000";

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (mut calls, mut seed) = (CALLS_DEFAULT.to_owned(), None);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next().filter(|value| value.parse::<u64>().is_ok());
        let value = value.with_context(|| format!("`{argument}` wants a number: soak has --calls and --seed"))?;
        match argument.as_str() {
            "--calls" => calls.clone_from(value),
            "--seed" => seed = Some(value.clone()),
            unknown => bail!("soak has no option `{unknown}`: it has --calls and --seed"),
        }
    }
    services::peers::provide()?;
    let mut command = workspace::cargo();
    command.args(["test", "--package", "gantry", "--test", "blackbox", "mcp::soak", "--", "--nocapture"]);
    command.env("GANTRY_SOAK_CALLS", calls).env(services::peers::FOLDER_VARIABLE, services::peers::folder()?);
    if let Some(seed) = seed {
        command.env("GANTRY_SOAK_SEED", seed);
    }
    let status = command.status().context("cannot run cargo")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
