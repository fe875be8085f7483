//! File names that say nothing are refused: whatever is in `util.rs` has a name of its own.

use crate::workspace::SourceFile;

const REFUSED: [&str; 6] = ["util.rs", "helpers.rs", "common.rs", "types.rs", "manager.rs", "mod.rs"];

/// Files with such names.
pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let named = |file: &&SourceFile| REFUSED.contains(&file.path.rsplit('/').next().unwrap_or_default());
    files
        .iter()
        .filter(named)
        .map(|file| {
            format!("`{}` has a name that says nothing; name it for the thing in it (`foo.rs` + `foo/`)", file.path)
        })
        .collect()
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
}
