//! A decision that is named can be read, and the list of decisions has each of them.
//!
//! Comments and pages give their reason as `(decision 0042)`. A number without a page behind it is a reason that nobody can
//! look up; a page that the list does not have is one that nobody finds.

use std::collections::BTreeSet;

use crate::workspace::SourceFile;

const FOLDER: &str = "docs/decisions/";
const LIST: &str = "docs/decisions/README.md";
/// How a text names one.
const NAMED: &str = "decision ";
const DIGITS: usize = 4;

pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let pages: BTreeSet<&str> = files.iter().filter_map(|file| number(file.path.strip_prefix(FOLDER)?)).collect();
    let list = files.iter().find(|file| file.path == LIST).map_or("", |file| file.text.as_str());
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs") || file.path.ends_with(".md")) {
        for missing in named(&file.text).filter(|number| !pages.contains(number)) {
            found.push(format!(
                "{}: there is no decision {missing} in {FOLDER}: write it, or name the right one",
                file.path
            ));
        }
    }
    let unlisted = pages.into_iter().filter(|number| !list.contains(&format!("[{number}](")));
    found.extend(unlisted.map(|number| format!("{LIST}: decision {number} has no row: add one")));
    found
}

/// The numbers that a text names.
fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split(NAMED).skip(1).filter_map(number)
}

/// Four digits at the beginning, and no fifth.
fn number(text: &str) -> Option<&str> {
    let number = text.get(..DIGITS)?;
    let is_whole = !text.get(DIGITS..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    (is_whole && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_decision_that_is_named_has_a_page_and_a_row() {
        let page = || file("docs/decisions/0001-rooms.md", "# 0001: Rooms");
        let list = || file(LIST, "| [0001](0001-rooms.md) | Rooms |");
        let user = |text: &str| file("crates/kernel/src/invoke.rs", text);
        assert_eq!(findings(&[page(), list(), user("//! why (decision 0001), and decision 12 of somebody")]), [""; 0]);
        let missing = findings(&[page(), list(), user("// (decision 0002)")]);
        assert_eq!(missing.len(), 1);
        assert!(missing[0].contains("no decision 0002"), "{missing:?}");
        let unlisted = findings(&[page(), file(LIST, "nothing")]);
        assert!(unlisted.len() == 1 && unlisted[0].contains("0001"), "{unlisted:?}");
    }
}
