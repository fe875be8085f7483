//! `cargo xtask check`: the rules of the project that no compiler knows.
//!
//! Each rule is a function from the workspace to findings, with its own file and its own tests. Findings are sentences
//! that name the file and the remedy; all rules are run before the verdict, because whoever broke two wants to hear both.
//!
//! Not here: what rustc and clippy can say themselves (the lint table of the root `Cargo.toml`).

mod architecture;
mod clients;
mod codes;
mod decisions;
mod dependencies;
mod headers;
mod invariants;
mod layers;
mod lengths;
mod names;
mod pointers;
mod words;

use std::process::ExitCode;

use anyhow::Result;
use serde_json::Value;

use crate::generate;
use crate::workspace::{self, SourceFile};

/// What the rules look at: read once, judged by all.
struct World {
    files: Vec<SourceFile>,
    metadata: Value,
}

/// A rule's name and its function; findings are sentences.
type Rule = (&'static str, fn(&World) -> Result<Vec<String>>);

const RULES: [Rule; 12] = [
    ("layers", |world| layers::findings(&world.files, &world.metadata)),
    ("architecture", |world| architecture::findings(&world.files)),
    ("headers", |world| Ok(headers::findings(&world.files))),
    ("invariants", |world| Ok(invariants::findings(&world.files))),
    ("names", |world| Ok(names::findings(&world.files))),
    ("pointers", |world| Ok(pointers::findings(&world.files))),
    ("dependencies", |world| dependencies::findings(&world.files, &world.metadata)),
    ("generated", |_| generate::stale()),
    ("codes", |world| Ok([codes::findings(&world.files), codes::unmet(&world.files)].concat())),
    ("decisions", |world| Ok(decisions::findings(&world.files))),
    ("clients", |world| Ok(clients::findings(&world.files))),
    ("words", |world| words::findings(&world.files)),
];

/// The command: fails when any rule has a finding. Long files and untested codes are only remarked upon.
pub(crate) fn run() -> Result<ExitCode> {
    let world = World { files: workspace::files()?, metadata: workspace::metadata()? };
    let mut broken = 0_usize;
    for (name, rule) in RULES {
        for finding in rule(&world)? {
            broken += 1;
            println!("{name}: {finding}");
        }
    }
    for remark in lengths::remarks(&world.files) {
        println!("warning: {remark}");
    }
    println!("check: {} rules, {} files, {broken} findings", RULES.len(), world.files.len());
    Ok(if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A file for the tests of the rules.
#[cfg(test)]
fn file(path: &str, text: &str) -> SourceFile {
    SourceFile { path: path.into(), text: text.into() }
}
