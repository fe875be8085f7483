//! Files of the repository that the bench reads and writes: descriptions of real tools, sources of examples, the page of results.

use std::path::Path;

use anyhow::{Context, Result};

/// The root folder, known from where this package was built.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// A file by its path relative to the root.
pub(crate) fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(root().join(path)).with_context(|| format!("cannot read `{path}`"))
}

/// Writes a file that is there.
pub(crate) fn write(path: &str, text: &str) -> Result<()> {
    std::fs::write(root().join(path), text).with_context(|| format!("cannot write `{path}`"))
}
