//! A broker that speaks Kafka's protocol and keeps its topics on disk, for `cargo xtask kafka`: tansu, built from its sources.
//!
//! Building it takes about 16 minutes of two cores, so it is no part of what every test run provides; it lies in the folder
//! of the kits and stays there.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::peers;
use crate::workspace;

const VERSION: &str = "0.6.0";

/// The program, built if it is not there.
pub(crate) fn provide() -> Result<PathBuf> {
    let root = peers::folder()?.join(format!("tansu-{VERSION}"));
    let program = root.join("bin/tansu");
    if program.is_file() {
        return Ok(program);
    }
    println!("building tansu {VERSION} into {}: this takes about 16 minutes, once", root.display());
    let status = workspace::cargo()
        .args(["install", &format!("tansu@{VERSION}"), "--locked", "--no-default-features"])
        .args(["--features", "libsql,dynostore", "--root"])
        .arg(&root)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success() && program.is_file(), "tansu {VERSION} could not be built");
    Ok(program)
}
