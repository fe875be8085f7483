//! `cargo xtask ci`: the gates of a change, in the order in which they fail fastest.
//!
//! `.ci/run` has the same list as a script, for machines that should see each step by itself.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{check, suite, workspace};

const STEPS: [&[&str]; 2] =
    [&["fmt", "--all", "--check"], &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]];

/// The command: stops at the first gate that does not open.
pub(crate) fn run() -> Result<ExitCode> {
    for step in STEPS {
        println!("+ cargo {}", step.join(" "));
        let status = workspace::cargo().args(step).status().context("cannot run cargo")?;
        if !status.success() {
            eprintln!("error: `cargo {}` failed", step.join(" "));
            return Ok(ExitCode::FAILURE);
        }
    }
    println!("+ cargo xtask check");
    if check::run()? != ExitCode::SUCCESS {
        return Ok(ExitCode::FAILURE);
    }
    println!("+ cargo xtask test");
    suite::run(&[])
}
