//! Error codes are neither dead nor invented: a code whose capability is built occurs in product code.
//!
//! The error table says what each part of the product can answer. A row that nothing produces would be a promise in the
//! documentation that no caller ever meets. Codes of capabilities that are not built are marked reserved on their pages.

use contract::error::{ErrorCode, TABLE};

use crate::workspace::SourceFile;

/// Codes that nothing produces.
pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let product: Vec<&str> =
        files.iter().filter(|file| is_product(&file.path)).map(|file| shipped(&file.text)).collect();
    let produced = |code: ErrorCode| {
        let name = format!("ErrorCode::{code}");
        product.iter().any(|text| text.contains(&name))
    };
    let built = TABLE.iter().filter(|row| row.capability.is_built());
    built
        .filter(|row| !produced(row.code))
        .map(|row| {
            format!(
                "{} ({}) is produced nowhere: use it, or move it to a capability that is not built",
                row.code, row.meaning
            )
        })
        .collect()
}

/// Codes of this release that no black-box test speaks of, in one line; a remark, because some faults cannot be staged.
pub(super) fn remarks(files: &[SourceFile]) -> Option<String> {
    let tests: Vec<&str> =
        files.iter().filter(|file| file.path.starts_with("tests/")).map(|file| file.text.as_str()).collect();
    let built = TABLE.iter().filter(|row| row.capability.is_built()).map(|row| row.code.as_str());
    let unmet: Vec<&str> = built.filter(|code| !tests.iter().any(|text| text.contains(code))).collect();
    (!unmet.is_empty()).then(|| format!("no black-box test meets {}", unmet.join(", ")))
}

/// Source of the product: not the table itself, not this crate, not tests.
fn is_product(path: &str) -> bool {
    let in_source = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
    let table = path.starts_with("crates/contract/src/error");
    let test = path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/conformance");
    in_source && !table && !test && !path.starts_with("crates/xtask/")
}

/// The part of a file before its tests; by the order of files here, tests come last.
fn shipped(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn named(files: &[SourceFile], code: &str) -> bool {
        findings(files).iter().any(|finding| finding.starts_with(code))
    }

    #[test]
    fn a_code_counts_only_where_the_product_uses_it() {
        let user =
            "fn f() { g(ErrorCode::E3301) }\n#[cfg(test)]\nmod tests { const C: ErrorCode = ErrorCode::E3302; }\n";
        let files = [
            file("crates/kernel/src/phases/validate.rs", user),
            file("crates/contract/src/error/table.rs", "ErrorCode::E3303"),
            file("crates/server/tests/doors.rs", "ErrorCode::E3305"),
            file("crates/xtask/src/main.rs", "ErrorCode::E3401"),
        ];
        assert!(!named(&files, "E3301"));
        for code in ["E3302", "E3303", "E3305", "E3401"] {
            assert!(named(&files, code), "{code}");
        }
    }

    #[test]
    fn codes_of_capabilities_that_are_not_built_are_not_asked_for() {
        let reserved = TABLE.iter().find(|row| !row.capability.is_built()).map(|row| row.code.as_str());
        if let Some(code) = reserved {
            assert!(!named(&[], code), "{code}");
        }
    }

    #[test]
    fn codes_without_a_black_box_test_are_remarked_upon() {
        let remark =
            remarks(&[file("tests/calls.rs", "\"E3301\""), file("crates/server/tests/a.rs", "E3302")]).unwrap();
        assert!(!remark.contains("E3301") && remark.contains("E3302"), "{remark}");
    }
}
