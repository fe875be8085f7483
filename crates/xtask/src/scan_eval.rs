//! `cargo xtask scan-eval`: how much of a labelled set of tool definitions and outputs the scanner finds. (DESIGN §8)
//!
//! The work is an example of the `scan` crate: it calls the scanner as `upstreams` does and depends on nothing else.
//! Arguments are passed on: `--data FILE` (default the crate's own set), `--part all|fit|held-out`, `--why`, `--json`.

use anyhow::{Context, bail};

use crate::workspace;

/// Builds and runs the measurement; fails if it does.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let status = workspace::cargo()
        .args(["run", "--quiet", "--package", "gantry-scan", "--example", "scan_eval", "--"])
        .args(args)
        .status()
        .context("cargo could not be started")?;
    if !status.success() {
        bail!("the measurement failed");
    }
    Ok(())
}
