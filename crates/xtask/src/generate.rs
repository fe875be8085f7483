//! `cargo xtask generate`: files that follow from the product's own types, and the test that they still do.
//!
//! They are committed, because people read them on the web and editors fetch the schemas; they are generated, because a
//! second copy of the truth written by hand is a lie waiting to happen. `check` compares, `generate` writes.
//!
//! `docs/configuration.md` is made by the `gantry` binary itself, which alone knows its keys; a test of that package
//! compares it, so `check` does not.

mod error_pages;
mod error_prose;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;

/// The page of the binary's settings.
const CONFIGURATION: &str = "docs/configuration.md";

/// A generated file.
struct Artefact {
    path: String,
    text: String,
}

/// The command.
pub(crate) fn run() -> Result<()> {
    let artefacts = artefacts()?;
    let mut written = 0_usize;
    for artefact in &artefacts {
        if workspace::write(&artefact.path, &artefact.text)? {
            written += 1;
            println!("wrote {}", artefact.path);
        }
    }
    for path in leftovers(&artefacts)? {
        std::fs::remove_file(workspace::root().join(&path)).with_context(|| format!("cannot remove `{path}`"))?;
        println!("removed {path}");
    }
    if configuration_reference()? {
        written += 1;
        println!("wrote {CONFIGURATION}");
    }
    println!("generate: {} files, {written} written", artefacts.len() + 1);
    Ok(())
}

/// Writes the page that only the binary can make; says whether it changed.
fn configuration_reference() -> Result<bool> {
    let arguments = ["run", "--quiet", "--package", "gantry", "--", "config-reference"];
    let output = workspace::cargo().args(arguments).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "`gantry config-reference` failed; everything else is written");
    workspace::write(CONFIGURATION, &String::from_utf8(output.stdout).context("the reference is not text")?)
}

/// Findings for `check`: files that are missing, stale or left over.
pub(crate) fn stale() -> Result<Vec<String>> {
    let artefacts = artefacts()?;
    let mut found = Vec::new();
    for artefact in &artefacts {
        match workspace::read(&artefact.path)? {
            None => found.push(format!("`{}` is missing: run `cargo xtask generate`", artefact.path)),
            Some(text) if text != artefact.text => {
                found.push(format!("`{}` is stale: run `cargo xtask generate`", artefact.path));
            }
            Some(_) => {}
        }
    }
    found
        .extend(leftovers(&artefacts)?.into_iter().map(|path| format!("`{path}` is about a code that does not exist")));
    Ok(found)
}

fn artefacts() -> Result<Vec<Artefact>> {
    let mut all = error_pages::pages();
    all.push(json("schemas/tool-manifest.schema.json", contract::manifest::manifest_schema())?);
    all.push(json("schemas/openapi.json", &server::openapi())?);
    Ok(all)
}

fn json(path: &str, value: &Value) -> Result<Artefact> {
    let text = serde_json::to_string_pretty(value).with_context(|| format!("`{path}` cannot be written as JSON"))?;
    Ok(Artefact { path: path.into(), text: text + "\n" })
}

/// Pages of codes that are no longer in the table.
fn leftovers(artefacts: &[Artefact]) -> Result<Vec<String>> {
    let pages = workspace::files()?.into_iter().map(|file| file.path);
    let pages = pages.filter(|path| path.starts_with(error_pages::FOLDER));
    Ok(pages.filter(|path| artefacts.iter().all(|artefact| artefact.path != *path)).collect())
}
