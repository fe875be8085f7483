//! `cargo xtask scan-eval`: how much of a labelled set of tool definitions and outputs the scanner finds; and the fit of
//! its model. (DESIGN §8)
//!
//! The work is done by examples of the `scan` crate: they call the scanner as `upstreams` does and depend on nothing else.
//! Arguments are passed on: `[FILE] [--why] [--json]` to the measurement, everything after a first `fit` to the fit, which
//! is described in `docs/tool-scanning.md`.

use anyhow::{Context, bail};

use crate::workspace;

/// Builds and runs the measurement; fails if it does.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let (example, args) = match args.split_first() {
        Some((first, rest)) if first == "fit" => ("scan_fit", rest),
        _ => ("scan_eval", args),
    };
    let status = workspace::cargo()
        .args(["run", "--quiet", "--package", "gantry-scan", "--example", example, "--"])
        .args(args)
        .status()
        .context("cargo could not be started")?;
    if !status.success() {
        bail!("the measurement failed");
    }
    Ok(())
}
