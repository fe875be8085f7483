//! `ARCHITECTURE.md` names files that are there, and every port.
//!
//! A reader follows the page from file to file; one wrong name, and the rest is not believed either. A path on the page is the end
//! of a file's path, without the `src` in it; a port is a public trait below `crates/ports/src/`.

use anyhow::{Context, Result};
use regex::Regex;

use crate::workspace::SourceFile;

const PAGE: &str = "ARCHITECTURE.md";
const PORTS: &str = "crates/ports/src/";

/// Files that are named and not there, and ports that are there and not named.
pub(super) fn findings(files: &[SourceFile]) -> Result<Vec<String>> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return Ok(vec![format!("`{PAGE}` is missing")]);
    };
    let path =
        Regex::new(r"`((?:[a-z0-9_-]+/)*[a-z0-9_-]+\.rs)`").context("a pattern of this rule does not compile")?;
    let port = Regex::new(r"(?m)^pub trait (\w+)").context("a pattern of this rule does not compile")?;
    let mut found = Vec::new();
    for named in path.captures_iter(&page.text).filter_map(|captures| captures.get(1)).map(|named| named.as_str()) {
        let is_it = |path: &str| path == named || path.strip_suffix(named).is_some_and(|before| before.ends_with('/'));
        if !files.iter().any(|file| is_it(&file.path) || is_it(&file.path.replace("/src/", "/"))) {
            found.push(format!("`{PAGE}` names `{named}`, which is not there: name the file that has its place"));
        }
    }
    for file in files.iter().filter(|file| file.path.starts_with(PORTS)) {
        for name in port.captures_iter(&file.text).filter_map(|captures| captures.get(1)).map(|name| name.as_str()) {
            if !page.text.contains(&format!("`{name}`")) {
                found.push(format!(
                    "`{PAGE}` does not name the port `{name}` of `{}`: put it into its group",
                    file.path
                ));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn files_that_are_not_there_and_ports_that_are_not_named_are_found() {
        let page = "`kernel/src/jobs.rs`, `jobs/promotion.rs`, `kernel/jobs.rs`, `gone.rs`. The port `Clock`.";
        let files = [
            file(PAGE, page),
            file("crates/kernel/src/jobs.rs", ""),
            file("crates/kernel/src/jobs/promotion.rs", ""),
            file("crates/kernel/src/bygone.rs", ""),
            file("crates/ports/src/clock.rs", "pub trait Clock: Send {\n}\npub trait Calendar {}\n"),
        ];
        let found = findings(&files).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found.iter().any(|one| one.contains("`gone.rs`")) && found.iter().any(|one| one.contains("`Calendar`"))
        );
    }
}
