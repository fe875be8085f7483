//! Names that say nothing, or mean two things: catch-all files, files named by a gerund, and one type name in two crates.
//!
//! A newcomer finds a file by the noun it is about, and a type by the word of the field. `utilities` and `running` are neither, and
//! a `Verdict` that means something else in each crate has to be looked up each time.
//!
//! Not here: whether a name is a good one. That is read.

use std::collections::BTreeMap;

use crate::workspace::SourceFile;

const REFUSED: [&str; 6] = ["util.rs", "helpers.rs", "common.rs", "types.rs", "manager.rs", "mod.rs"];

/// Files that end like a gerund and are none, with the reason.
const NOUNS: &[(&str, &str)] = &[("deep_reasoning.rs", "the id of a built-in tool")];

/// Type names that crates share on purpose, with the reason.
const SHARED: &[(&str, &str)] = &[];

const KINDS: [&str; 5] = ["struct ", "enum ", "trait ", "type ", "union "];

/// Files with such names, and types.
pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if REFUSED.contains(&name) {
            found.push(format!(
                "`{}` has a name that says nothing; name it for the thing in it (`foo.rs` + `foo/`)",
                file.path
            ));
        }
        if name.ends_with("ing.rs") && !NOUNS.iter().any(|(noun, _)| *noun == name) {
            found.push(format!(
                "`{}` is named by a gerund; name it for the thing in it, or by the verb of its one function",
                file.path
            ));
        }
    }
    found.extend(shared_types(files));
    found
}

/// Names of types that more than one crate shows to all of itself or to others.
fn shared_types(files: &[SourceFile]) -> impl Iterator<Item = String> {
    let mut places: BTreeMap<&str, BTreeMap<&str, &str>> = BTreeMap::new();
    for file in files {
        let Some((name, rest)) = file.path.strip_prefix("crates/").and_then(|path| path.split_once('/')) else {
            continue;
        };
        if rest.starts_with("src/") && rest.ends_with(".rs") {
            for defined in file.text.lines().filter_map(visible_type) {
                places.entry(defined).or_default().entry(name).or_insert(&file.path);
            }
        }
    }
    places
        .into_iter()
        .filter(|(name, crates)| crates.len() > 1 && !SHARED.iter().any(|(shared, _)| shared == name))
        .map(|(name, crates)| {
            let list: Vec<_> = crates.into_values().map(|path| format!("`{path}`")).collect();
            format!("`{name}` is a type of its own in {}; give each the word for what it is", list.join(" and "))
        })
}

/// The name that a line defines for its whole crate, or for others.
fn visible_type(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) "))?;
    let name = KINDS.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(name.len());
    name.get(..end).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn empty_names_are_refused_and_speaking_ones_are_not() {
        for path in ["crates/a/src/util.rs", "crates/a/src/b/mod.rs", "types.rs"] {
            assert_eq!(findings(&[file(path, "")]).len(), 1, "{path}");
        }
        for path in ["crates/a/src/futile.rs", "crates/a/src/utility_bill.rs", "crates/util.rs/x.rs"] {
            assert!(findings(&[file(path, "")]).is_empty(), "{path}");
        }
    }

    #[test]
    fn a_file_is_not_named_by_a_gerund() {
        assert_eq!(findings(&[file("crates/a/src/running.rs", ""), file("tests/moving.rs", "")]).len(), 2);
        assert!(
            findings(&[file("crates/a/src/builtin/deep_reasoning.rs", ""), file("docs/tracing.md", "")]).is_empty()
        );
    }

    #[test]
    fn a_type_name_that_crates_show_belongs_to_one_of_them() {
        let ours = file("crates/a/src/x.rs", "pub struct Verdict;\npub(crate) enum Outcome {}\nstruct Inner;\n");
        let theirs =
            file("crates/b/src/y.rs", "pub(crate) trait Verdict<T> {}\npub(super) struct Outcome;\npub struct Inner;");
        let tests = file("crates/b/tests/z.rs", "pub struct Outcome;");
        let found = findings(&[ours, theirs, tests]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`Verdict`") && found[0].contains("crates/a/src/x.rs"), "{found:?}");
    }
}
