//! Files that comments name are there: `` `resolution.rs` `` in a comment is a pointer, and one that leads nowhere costs every reader
//! who follows it.
//!
//! A pointer is the end of a path of the repository: `` `webhooks/announce.rs` `` is found wherever such a file is.
//!
//! Not here: links between documented items (rustdoc refuses those), pages (`architecture`).

use std::collections::BTreeSet;

use crate::workspace::SourceFile;

/// Pointers in comments that lead nowhere.
pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let mut ends: BTreeSet<&str> = BTreeSet::new();
    for file in files {
        ends.insert(&file.path);
        ends.extend(file.path.match_indices('/').filter_map(|(at, _)| file.path.get(at + 1..)));
    }
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs")) {
        for (number, line) in file.text.lines().enumerate() {
            for pointer in pointers(line).filter(|pointer| !ends.contains(pointer)) {
                let at = number + 1;
                found.push(format!("`{}:{at}` points to `{pointer}`, and there is no such file", file.path));
            }
        }
    }
    found
}

/// What a line of comment has in backticks that is the name of a Rust file.
fn pointers(line: &str) -> impl Iterator<Item = &str> {
    let comment = line.trim_start().strip_prefix("//").unwrap_or_default();
    comment.split('`').skip(1).step_by(2).filter(|word| {
        let is_path =
            word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-/.".contains(&byte));
        is_path && word.ends_with(".rs") && *word != ".rs" && !word.contains("..")
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_pointer_to_a_file_that_was_renamed_is_a_finding() {
        let there = file("crates/a/src/jobs/resolution.rs", "");
        let text = "//! See `resolution.rs`, `jobs/resolution.rs` and `resolving.rs`.\nlet path = \"`x.rs`\";\n";
        let found = findings(&[there, file("crates/a/src/lib.rs", text)]);
        assert_eq!(found, ["`crates/a/src/lib.rs:1` points to `resolving.rs`, and there is no such file"]);
    }

    #[test]
    fn placeholders_and_endings_are_no_pointers() {
        for line in ["// `NAME.rs` is made", "// a file `.rs`", "// `foo::bar` and `*.rs`", "code(); `x.rs`"] {
            assert_eq!(pointers(line).count(), 0, "{line}");
        }
        assert_eq!(pointers("    /// in `a/b.rs` and `c.rs`").collect::<Vec<_>>(), ["a/b.rs", "c.rs"]);
    }
}
