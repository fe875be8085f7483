//! `cargo xtask generate`: files that follow from the product's own types, and the test that they still do.
//!
//! They are committed, because people read them on the web and editors fetch the schemas; they are generated, because a
//! second copy of the truth written by hand is a lie waiting to happen. `check` compares, `generate` writes.
//!
//! `docs/configuration.md` and the schema of `gantry.toml` are made by the `gantry` binary itself, which alone knows its keys; tests
//! of that package compare them, so `check` does not.

mod error_pages;
mod error_prose;

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;

/// What the binary says of its settings, and how it is asked.
const CONFIGURATION: [(&str, &[&str]); 2] = [
    ("docs/configuration.md", &["config-reference"]),
    ("schemas/gantry.toml.schema.json", &["config-reference", "--schema"]),
];

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
    for (path, arguments) in CONFIGURATION {
        if configuration(path, arguments)? {
            written += 1;
            println!("wrote {path}");
        }
    }
    println!("generate: {} files, {written} written", artefacts.len() + CONFIGURATION.len());
    Ok(())
}

/// Writes a file that only the binary can make; says whether it changed.
fn configuration(path: &str, arguments: &[&str]) -> Result<bool> {
    let run = ["run", "--quiet", "--package", "gantry", "--"];
    let command = &mut workspace::cargo();
    let output = command.args(run).args(arguments).stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "`gantry config-reference` failed; the files before `{path}` are written");
    workspace::write(path, &String::from_utf8(output.stdout).context("the reference is not text")?)
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
