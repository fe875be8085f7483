//! Every third party has its reason: one row in `docs/dependencies.md` for each line of `[workspace.dependencies]`.
//!
//! The other way round as well: a row without a dependency, or a dependency nobody uses, is a leftover.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::SourceFile;

const REASONS: &str = "docs/dependencies.md";

/// Dependencies without a reason, reasons without a dependency, dependencies without a user.
pub(super) fn findings(files: &[SourceFile], metadata: &Value) -> Result<Vec<String>> {
    let text = |path: &str| files.iter().find(|file| file.path == path).map(|file| file.text.as_str());
    let declared = third_parties(text("Cargo.toml").context("there is no `Cargo.toml` at the root")?)?;
    let Some(page) = text(REASONS) else { return Ok(vec![format!("`{REASONS}` is missing")]) };
    let explained = rows(page);
    let used = used(metadata);

    let mut found = Vec::new();
    found.extend(
        declared
            .difference(&explained)
            .map(|name| format!("`{name}` has no row in `{REASONS}` (`| \\`{name}\\` | …`)")),
    );
    found.extend(
        explained.difference(&declared).map(|name| format!("`{REASONS}` explains `{name}`, which is no dependency")),
    );
    found.extend(declared.difference(&used).map(|name| format!("no crate uses `{name}`: take it out of `Cargo.toml`")));
    Ok(found)
}

/// The names of `[workspace.dependencies]` that come from elsewhere.
fn third_parties(manifest: &str) -> Result<BTreeSet<String>> {
    let manifest: toml::Table = toml::from_str(manifest).context("the root `Cargo.toml` is not TOML")?;
    let table = manifest.get("workspace").and_then(|w| w.get("dependencies")).and_then(toml::Value::as_table);
    let table = table.context("the root `Cargo.toml` has no [workspace.dependencies]")?;
    Ok(table.iter().filter(|(_, value)| value.get("path").is_none()).map(|(name, _)| name.clone()).collect())
}

/// The names in rows such as ``| `serde` | what for | … |``.
fn rows(page: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let cell = line.trim().strip_prefix('|')?.split('|').next()?.trim();
        cell.strip_prefix('`')?.strip_suffix('`').map(str::to_owned)
    };
    page.lines().filter_map(name).collect()
}

fn used(metadata: &Value) -> BTreeSet<String> {
    let packages = metadata.get("packages").and_then(Value::as_array).into_iter().flatten();
    let dependencies = packages.filter_map(|package| package.get("dependencies").and_then(Value::as_array)).flatten();
    dependencies.filter_map(|dependency| dependency.get("name").and_then(Value::as_str).map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;
    use serde_json::json;

    const MANIFEST: &str = "[workspace.dependencies]\ncontract = { path = \"crates/contract\" }\nserde = \"1.0\"\nhttp = { version = \"1\" }\n";

    fn check(page: &str, used: &[&str]) -> Vec<String> {
        let dependencies: Vec<Value> = used.iter().map(|name| json!({ "name": name })).collect();
        let files = [file("Cargo.toml", MANIFEST), file(REASONS, page)];
        findings(&files, &json!({ "packages": [{ "dependencies": dependencies }] })).unwrap()
    }

    #[test]
    fn reasons_and_dependencies_match_one_to_one() {
        let page = "# Dependencies\n\n| crate | for |\n|---|---|\n| `http` | types |\n| `serde` | wire |\n";
        assert_eq!(check(page, &["serde", "http"]), Vec::<String>::new());
    }

    #[test]
    fn a_missing_reason_a_leftover_row_and_an_unused_dependency_are_named() {
        let found = check("| `serde` | wire |\n| `gone` | once |\n", &["serde"]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("`http` has no row"), "{found:?}");
        assert!(found[1].contains("`gone`"), "{found:?}");
        assert!(found[2].contains("no crate uses `http`"), "{found:?}");
    }
}
