//! `cargo xtask search-eval`: quality and speed of tool search on public sets of tools and queries. (REG-014, DESIGN §7)
//!
//! The work is an example of the `store` crate, run in release: it publishes into a real store and asks through the
//! ports, so what is measured is what the product does, and a debug build of this program does not distort the times.
//! Arguments are passed on: `--data DIR` (default `testdata/tool_search`), `--json`, `--copies N`.

use anyhow::{Context, bail};

use crate::workspace;

/// Builds and runs the evaluation; fails if it does.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let status = workspace::cargo()
        .args(["run", "--quiet", "--release", "--package", "gantry-store", "--example", "search_eval", "--"])
        .args(args)
        .status()
        .context("cargo could not be started")?;
    if !status.success() {
        bail!("the evaluation failed");
    }
    Ok(())
}
