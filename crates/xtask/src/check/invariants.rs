//! Ids of invariants (`ABC-1`) belong to one crate each, so that a reader who meets `(ABC-1)` finds one sentence and not two.
//!
//! An id is defined by an item of a list in a comment: `- ABC-1: what always holds`. Two files of one crate may define the same
//! one, where they are two forms of the same thing (the two databases of `store`).
//!
//! Not here: whether an invariant holds. Tests say that.

use std::collections::BTreeMap;

use crate::workspace::SourceFile;

/// Ids that more than one crate defines.
pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let mut crates: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for file in files {
        let Some((name, rest)) = file.path.strip_prefix("crates/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        if rest.starts_with("src/") && rest.ends_with(".rs") {
            for id in file.text.lines().filter_map(defined) {
                crates.entry(id).or_default().entry(name).or_insert(&file.path);
            }
        }
    }
    crates
        .into_iter()
        .filter(|(_, crates)| crates.len() > 1)
        .map(|(id, crates)| {
            let list: Vec<_> = crates.into_values().map(|path| format!("`{path}`")).collect();
            format!("the invariant `{id}` is defined in {}; give one of them an id of its own", list.join(" and "))
        })
        .collect()
}

/// The id that a line of a comment defines.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let item = line.strip_prefix("//! - ").or_else(|| line.strip_prefix("/// - "))?;
    let (id, _) = item.split_once(':')?;
    let (word, number) = id.split_once('-')?;
    let is_word = word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_word && is_number).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn an_id_of_two_crates_is_a_finding_and_one_of_two_files_is_none() {
        let ours = file("crates/a/src/x.rs", "//! - EXE-1: nothing runs twice.\n");
        let same = file("crates/a/src/y.rs", "//! - EXE-1: nothing runs twice.\n");
        let theirs = file("crates/b/src/z.rs", "/// - EXE-1: another thing.\n");
        let test = file("crates/c/tests/t.rs", "//! - EXE-1: not a definition.\n");
        assert!(findings(&[ours, same, test]).is_empty());
        let ours = file("crates/a/src/x.rs", "//! - EXE-1: nothing runs twice.\n");
        let found = findings(&[ours, theirs]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`EXE-1`") && found[0].contains("crates/b/src/z.rs"), "{found:?}");
    }

    #[test]
    fn only_items_that_begin_with_an_id_define_one() {
        for (line, id) in [
            ("//! - JOBS-1: a call is durable.", Some("JOBS-1")),
            ("    /// - IDEM-12: once.", Some("IDEM-12")),
            ("//! see JOBS-1: there", None),
            ("//! - A-1: one letter is a list of letters", None),
            ("//! - UTF-8 without a colon", None),
            ("// - JOBS-1: a comment inside of a function", None),
        ] {
            assert_eq!(defined(line), id, "{line}");
        }
    }
}
