//! Words that must not be in the repository: paths of somebody's machine, and notes about work not done.
//!
//! A note to oneself ages badly in a file; what is missing belongs in the issue tracker or in `docs/decisions/`. The
//! patterns are put together from pieces so that this file passes its own rule.

use anyhow::{Context, Result};
use regex::Regex;

use crate::workspace::SourceFile;

/// Lines that carry such words.
pub(super) fn findings(files: &[SourceFile]) -> Result<Vec<String>> {
    let patterns = patterns()?;
    let mut found = Vec::new();
    for file in files {
        let is_rust = file.path.ends_with(".rs");
        for (number, line) in (1_usize..).zip(file.text.lines()) {
            for (pattern, fault, only_rust) in &patterns {
                if (is_rust || !only_rust) && pattern.is_match(line) {
                    found.push(format!("`{}` line {number} {fault}", file.path));
                }
            }
        }
    }
    Ok(found)
}

/// Pattern, fault, and whether it is about Rust only: a guide may speak of what code may not have.
fn patterns() -> Result<Vec<(Regex, &'static str, bool)>> {
    // An absolute path below a machine's folders, or the last of them by itself; not the tail of a longer path. The bare
    // names of the other two are what a test looks for when it asserts that nothing leaks.
    let machine =
        concat!(r"(^|[^A-Za-z0-9_.*}/-])/((ro", "ot|ho", "me|wo", "rk)/[A-Za-z0-9_.]|wo", r"rk($|[^A-Za-z0-9_/-]))");
    let note = concat!(r"\b(TO", "DO|FIX", "ME|XX", r"X)\b");
    let unfinished = concat!(r"\b(to", "do|unimple", r"mented)!\s*[(\[{]");
    let ignored = concat!(r"#\[\s*igno", "re");
    let compiled = |text: &str| Regex::new(text).context("a pattern of this rule does not compile");
    Ok(vec![
        (compiled(machine)?, "names a path of somebody's machine", false),
        (compiled(note)?, "carries a note about work not done: do it, or write an issue", false),
        (compiled(unfinished)?, "has a placeholder for code", true),
        (compiled(ignored)?, "has a test that is never run", true),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn forbidden_words_are_found_and_their_neighbours_are_not() {
        let join = |parts: &[&str]| parts.concat();
        let refused = [
            join(&["cd /ro", "ot/x"]),
            join(&["\"/ho", "me/jane/.config\""]),
            join(&["see /wo", "rk"]),
            join(&["// TO", "DO: later"]),
            join(&["FIX", "ME"]),
            join(&["to", "do!()"]),
            join(&["unimple", "mented!(\"x\")"]),
            join(&["#[igno", "re]"]),
            join(&["#[igno", "re = \"slow\"]"]),
        ];
        for line in &refused {
            assert_eq!(findings(&[file("a.rs", line)]).unwrap().len(), 1, "{line}");
        }
        let fine = [
            "/v1/workflows/callback",
            "crates/root/x",
            "/rootless",
            "GET /v1/homes",
            "E3XXX",
            "mktemp XXXXXX",
            "a todo list",
            "../work/x",
        ];
        for line in fine {
            assert_eq!(findings(&[file("a.rs", line)]).unwrap(), Vec::<String>::new(), "{line}");
        }
    }

    #[test]
    fn the_line_is_named() {
        let text = ["fine\n", "fine\n", "TO", "DO\n"].concat();
        assert!(findings(&[file("a.md", &text)]).unwrap()[0].contains("`a.md` line 3"));
    }
}
