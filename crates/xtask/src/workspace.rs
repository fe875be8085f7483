//! Where the workspace is, which files it has, and what cargo says about it.
//!
//! Files are found by walking, not by asking git, so that the rules hold for a source archive as well and for a file
//! before it is first committed. What is never ours to judge is left out by name: build output, version control, data
//! directories, and the public data sets under `testdata/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Folders that hold nothing of ours, wherever they are.
const NOT_OURS: [&str; 5] = ["target", ".git", ".gantry", "testdata", "__pycache__"];
/// Folders deeper than this are a mistake or a loop.
const DEPTH_MAX: usize = 16;

/// The root folder, known from where this package was built.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// The cargo that runs us, so that all parts of one run are built by one toolchain.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.current_dir(root());
    // What cargo tells a program it runs is not for the next cargo: build scripts that look at such words would take it for
    // a change, and everything that depends on them would be built again.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(is_about_this_package) {
            command.env_remove(name);
        }
    }
    command
}

fn is_about_this_package(variable: &str) -> bool {
    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|prefix| variable.starts_with(prefix))
        || matches!(variable, "CARGO_CRATE_NAME" | "CARGO_PRIMARY_PACKAGE" | "OUT_DIR")
}

/// Builds something and says where it is.
pub(crate) fn built(what: &[&str], name: &str) -> Result<PathBuf> {
    let output = cargo()
        .arg("build")
        .args(what)
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo")?;
    ensure!(output.status.success(), "`{name}` does not build");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut built = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter_map(|line| {
        let is_it = line.pointer("/target/name").and_then(Value::as_str) == Some(name);
        is_it.then(|| line.get("executable")?.as_str().map(PathBuf::from)).flatten()
    });
    built.next_back().with_context(|| format!("cargo built no `{name}`"))
}

/// One text file.
pub(crate) struct SourceFile {
    /// Relative to the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Every text file of the workspace, ordered by path. Files that are not UTF-8 are not text.
pub(crate) fn files() -> Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    walk(root(), 0, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn walk(folder: &Path, depth: usize, found: &mut Vec<SourceFile>) -> Result<()> {
    if depth > DEPTH_MAX {
        bail!("folders are nested deeper than {DEPTH_MAX} at `{}`", shown(folder));
    }
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot list `{}`", shown(folder)))? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if kind.is_dir() && !NOT_OURS.iter().any(|skipped| name == *skipped) {
            walk(&entry.path(), depth + 1, found)?;
        }
        // A file can vanish between listing and reading (editors do that); then there is nothing to judge.
        if kind.is_file()
            && let Ok(text) = std::fs::read_to_string(entry.path())
        {
            found.push(SourceFile { path: shown(&entry.path()), text });
        }
    }
    Ok(())
}

/// A path as people of the project know it: relative to the root.
pub(crate) fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// A file of the workspace by its path relative to the root; `None` when it is not there.
pub(crate) fn read(path: &str) -> Result<Option<String>> {
    match std::fs::read_to_string(root().join(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{path}`")),
    }
}

/// Writes a file of the workspace, making its folder. Says whether anything changed.
pub(crate) fn write(path: &str, text: &str) -> Result<bool> {
    if read(path)?.as_deref() == Some(text) {
        return Ok(false);
    }
    let place = root().join(path);
    if let Some(folder) = place.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder of `{path}`"))?;
    }
    std::fs::write(place, text).with_context(|| format!("cannot write `{path}`"))?;
    Ok(true)
}

/// `cargo metadata` without the dependencies' own packages.
pub(crate) fn metadata() -> Result<Value> {
    let output = cargo().args(["metadata", "--format-version=1", "--no-deps"]).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata answered something that is not JSON")
}

/// Where builds go.
pub(crate) fn target_folder() -> Result<PathBuf> {
    let metadata = metadata()?;
    let folder = metadata.get("target_directory").and_then(Value::as_str).context("cargo metadata names no target")?;
    Ok(PathBuf::from(folder))
}
