//! `cargo xtask bench`: builds the product and the bench in release, and lets the bench measure.
//!
//! The bench is a program of its own (`crates/bench`), so that everything else here need not be built with all of the product.
//!
//! Not here: what is measured and how (`bench`), quality of search (`search_eval`).

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace;

/// Options that stand alone, and those that are followed by a word.
const FLAGS: [&str; 3] = ["--quick", "--json", "--write"];
const WITH_VALUE: [&str; 2] = ["--only", "--former"];

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    // Complain about options before minutes of building; what they say is read by the bench.
    known(arguments)?;
    let built = workspace::cargo()
        .args(["build", "--release", "--package", "gantry", "--package", "gantry-bench"])
        .status()
        .context("cannot run cargo")?;
    ensure!(built.success(), "the release build failed");
    let folder = workspace::target_folder()?.join("release");
    let status = Command::new(folder.join("gantry-bench"))
        .arg("measure")
        .args(arguments)
        .arg("--gantry")
        .arg(folder.join("gantry"))
        .status()
        .context("cannot start the bench")?;
    ensure!(status.success(), "the measurement failed");
    Ok(())
}

fn known(arguments: &[String]) -> Result<()> {
    let mut arguments = arguments.iter().map(String::as_str);
    while let Some(argument) = arguments.next() {
        if WITH_VALUE.contains(&argument) {
            ensure!(arguments.next().is_some_and(|word| !word.starts_with("--")), "{argument} wants a word after it");
        } else if !FLAGS.contains(&argument) {
            bail!("bench has no option `{argument}`: it has --quick, --json, --write, --only and --former");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<()> {
        known(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_are_complained_about_before_anything_is_built() {
        for fine in ["", "--quick --json", "--only audit --former /builds/gantry-bench --write"] {
            assert!(asked(fine).is_ok(), "{fine}");
        }
        for wrong in ["--slow", "audit", "--only", "--only --quick", "--former"] {
            assert!(asked(wrong).is_err(), "{wrong}");
        }
    }
}
