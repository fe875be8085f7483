//! Files that have grown too long to be read in one sitting; a remark, not a fault.

use crate::workspace::SourceFile;

/// Longer files are remarked upon.
const LINES_MAX: usize = 600;

/// Rust files over the limit, longest first.
pub(super) fn remarks(files: &[SourceFile]) -> Vec<String> {
    let rust = files.iter().filter(|file| file.path.ends_with(".rs"));
    let mut long: Vec<(usize, &str)> = rust.map(|file| (file.text.lines().count(), file.path.as_str())).collect();
    long.retain(|(lines, _)| *lines > LINES_MAX);
    long.sort_unstable_by(|a, b| b.cmp(a));
    long.into_iter().map(|(lines, path)| format!("`{path}` has {lines} lines: look for a second noun in it")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn only_files_over_the_limit_are_listed_longest_first() {
        let lines = |count: usize| "x\n".repeat(count);
        let files = [
            file("a.rs", &lines(600)),
            file("b.rs", &lines(601)),
            file("c.rs", &lines(900)),
            file("d.md", &lines(999)),
        ];
        let found = remarks(&files);
        assert!(found.len() == 2 && found[0].contains("`c.rs`") && found[1].contains("`b.rs`"), "{found:?}");
    }
}
