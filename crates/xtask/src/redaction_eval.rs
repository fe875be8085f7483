//! `cargo xtask redaction-eval`: precision and recall of redaction on labelled text. (DESIGN §8)
//!
//! The work is done by an example of the `redaction` crate, which calls the engine as everything does and depends on nothing
//! else. Arguments are passed on: `[--part all|fit|held-out] [--why] [FILE…]`.

use anyhow::{Context, bail};

use crate::workspace;

/// Builds and runs the measurement; fails if it does.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let status = workspace::cargo()
        .args(["run", "--quiet", "--package", "gantry-redaction", "--example", "redaction_eval", "--"])
        .args(args)
        .status()
        .context("cargo could not be started")?;
    if !status.success() {
        bail!("the measurement failed");
    }
    Ok(())
}
