//! What version managers put before the programs they manage: a small program of the same name that looks up which version is
//! wanted and runs that. Inside a sandbox nothing of the manager is there, so it is looked up here, once.
//!
//! Known are `pyenv`, `rbenv`, `nodenv`, `goenv` (`ROOT/shims`, `ROOT/versions/V/bin`), `asdf` and `mise` (`ROOT/shims`,
//! `ROOT/installs/PLUGIN/V/bin`) and `volta` (`ROOT/bin`, `ROOT/tools/image`). `nvm`, `fnm` and `conda` have no shims.

use std::path::{Path, PathBuf};

use super::{ImportMachine, PathKind};

/// What a file of that name in `PATH` is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shim {
    /// The program itself.
    No,
    /// It would run this.
    LeadsTo(PathBuf),
    /// It would run nothing, or something further on in `PATH`.
    Nowhere,
}

/// Names of files that say for a folder which version is wanted, by the manager's own name.
const VERSION_FILES: [(&str, &str); 4] =
    [("pyenv", ".python-version"), ("nodenv", ".node-version"), ("rbenv", ".ruby-version"), ("goenv", ".go-version")];

/// What is behind a program that was found by its name.
pub(super) fn behind(machine: &dyn ImportMachine, found: &Path, name: &str) -> Shim {
    let Some(folder) = found.parent() else { return Shim::No };
    if folder.ends_with(".volta/bin") {
        return folder.parent().and_then(|root| of_volta(machine, root, name)).map_or(Shim::No, Shim::LeadsTo);
    }
    let Some(root) = folder.parent().filter(|_| folder.ends_with("shims")) else { return Shim::No };
    let manager = root.file_name().map(|name| name.to_string_lossy().trim_start_matches('.').to_ascii_lowercase());
    let manager = manager.unwrap_or_default();
    let managed = if is_there(machine, &root.join("installs")) {
        of_plugins(machine, root, name)
    } else {
        of_versions(machine, root, &manager, name)
    };
    managed.map_or(Shim::Nowhere, Shim::LeadsTo)
}

/// `ROOT/versions/V/bin/NAME`, of the version that is wanted here.
fn of_versions(machine: &dyn ImportMachine, root: &Path, manager: &str, name: &str) -> Option<PathBuf> {
    let own = VERSION_FILES.iter().find(|(of, _)| *of == manager).map(|(_, file)| *file);
    let variable = machine.variable(&format!("{}_VERSION", manager.to_ascii_uppercase()));
    let wanted = variable
        .or_else(|| own.and_then(|file| nearest_text(machine, file)))
        .or_else(|| machine.text(&root.join("version")))?;
    let installed = machine.entries(&root.join("versions"));
    for version in wanted.split([':', ' ', '\n', '\r', '\t']).filter(|version| !version.is_empty()) {
        let exact = root.join("versions").join(version);
        // `3.11` is the newest of them.
        let newest = installed.iter().filter(|one| {
            let name = one.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            name.strip_prefix(version).is_some_and(|rest| rest.starts_with('.'))
        });
        let newest = newest.max_by_key(|one| numbers(one));
        let found = std::iter::once(&exact).chain(newest).map(|one| one.join("bin").join(name));
        if let Some(program) = found.into_iter().find(|path| is_file(machine, path)) {
            return Some(program);
        }
    }
    None
}

/// `ROOT/installs/PLUGIN/V/bin/NAME`, of the version that `.tool-versions` names, or the newest there is.
fn of_plugins(machine: &dyn ImportMachine, root: &Path, name: &str) -> Option<PathBuf> {
    let wanted = nearest_text(machine, ".tool-versions").unwrap_or_default();
    let named = |plugin: &str, version: &str| {
        wanted.lines().any(|line| {
            let mut words = line.split_whitespace();
            words.next() == Some(plugin) && words.any(|word| word == version)
        })
    };
    let mut newest: Option<(bool, Vec<u64>, PathBuf)> = None;
    for plugin in machine.entries(&root.join("installs")) {
        for version in machine.entries(&plugin) {
            let program = version.join("bin").join(name);
            if !is_file(machine, &program) {
                continue;
            }
            let text =
                |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let found = (named(&text(&plugin), &text(&version)), numbers(&version), program);
            if newest.as_ref().is_none_or(|known| (found.0, &found.1) > (known.0, &known.1)) {
                newest = Some(found);
            }
        }
    }
    newest.map(|(_, _, program)| program)
}

/// `ROOT/tools/image/node/V/bin/NAME`, of the version that is the user's own.
fn of_volta(machine: &dyn ImportMachine, root: &Path, name: &str) -> Option<PathBuf> {
    let platform: serde_json::Value =
        serde_json::from_str(&machine.text(&root.join("tools/user/platform.json"))?).ok()?;
    let version = platform.pointer("/node/runtime")?.as_str()?;
    let program = root.join("tools/image/node").join(version).join("bin").join(name);
    is_file(machine, &program).then_some(program)
}

/// A file of this name in the folder the configuration is for, above it, or in the home.
fn nearest_text(machine: &dyn ImportMachine, name: &str) -> Option<String> {
    let folder = machine.folder();
    let home = machine.variable("HOME").map(PathBuf::from);
    let above = folder.iter().flat_map(|folder| folder.ancestors()).chain(home.as_deref());
    above.map(|folder| folder.join(name)).find_map(|file| machine.text(&file))
}

/// The numbers in the name of a version, to compare by.
fn numbers(path: &Path) -> Vec<u64> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
}

fn is_file(machine: &dyn ImportMachine, path: &Path) -> bool {
    machine.kind(path) == Some(PathKind::File)
}

fn is_there(machine: &dyn ImportMachine, path: &Path) -> bool {
    machine.kind(path) == Some(PathKind::Folder)
}
