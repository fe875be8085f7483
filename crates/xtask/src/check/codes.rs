//! Error codes are neither dead nor invented, and their pages say what is true: a code whose capability is built occurs in
//! product code, and one whose capability is not built occurs nowhere.
//!
//! The error table says what each part of the product can answer. A row that nothing produces would be a promise in the
//! documentation that no caller ever meets; a page that says "reserved" of a code that callers meet would be a lie.

use contract::error::{ErrorCode, TABLE};

use crate::workspace::SourceFile;

/// Codes that are said to be produced and are not, and codes that are produced and said not to be.
pub(super) fn findings(files: &[SourceFile]) -> Vec<String> {
    let product: Vec<(&str, &str)> = files
        .iter()
        .filter(|file| is_product(&file.path))
        .map(|file| (file.path.as_str(), shipped(&file.text)))
        .collect();
    let place_of = |code: ErrorCode| {
        let name = format!("ErrorCode::{code}");
        product.iter().find(|(_, text)| text.contains(&name)).map(|(path, _)| *path)
    };
    let mut found = Vec::new();
    for row in TABLE {
        match (row.capability.is_built(), place_of(row.code)) {
            (true, Some(_)) | (false, None) => {}
            (true, None) => found.push(format!(
                "{} ({}) is produced nowhere: use it, or move it to a capability that is not built",
                row.code, row.meaning
            )),
            (false, Some(path)) => found.push(format!(
                "{} ({}) occurs in {path}, and its page says that no release answers with it: say in \
                 `Capability::is_built` that its capability is built, or move it to one that is",
                row.code, row.meaning
            )),
        }
    }
    found
}

/// Codes behind a bound that is met first, so that nobody outside gets to them: a test of the crate that gives them does. Room for
/// records is there for every call that is let in (E3803).
const BEHIND_BOUNDS: &[&str] = &["E3803"];

/// Codes that no test meets (TEST-019): each of a capability that is built has a black-box test, and no other has.
pub(super) fn unmet(files: &[SourceFile]) -> Vec<String> {
    // What a comment says of a code shows nothing.
    let says = |file: &SourceFile, code: &str| {
        file.text.lines().any(|line| line.contains(code) && !line.trim_start().starts_with("//"))
    };
    let is_place = |path: &str, code: &str| match BEHIND_BOUNDS.contains(&code) {
        true => path.starts_with("crates/") && path.contains("/tests"),
        false => path.starts_with("tests/"),
    };
    let met = |code: &str| files.iter().any(|file| is_place(&file.path, code) && says(file, code));
    let mut found = Vec::new();
    for row in TABLE {
        let code = row.code.as_str();
        match (met(code), row.capability.is_built()) {
            (true, true) | (false, false) => {}
            (false, true) => found.push(format!("{code} ({}) is met by no black-box test: write one", row.meaning)),
            (true, false) => found.push(format!("{code} is met by a black-box test, and its capability is not built")),
        }
    }
    found
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
    fn a_reserved_code_is_not_asked_for_and_is_found_where_it_is_used() {
        let reserved = TABLE.iter().find(|row| !row.capability.is_built()).map(|row| row.code.as_str());
        if let Some(code) = reserved {
            assert!(!named(&[], code), "{code}");
            let user = file("crates/kernel/src/invoke.rs", &format!("fn f() {{ g(ErrorCode::{code}) }}"));
            let found = findings(&[user]);
            let told = found.iter().find(|finding| finding.starts_with(code)).unwrap();
            assert!(told.contains("crates/kernel/src/invoke.rs"), "{told}");
        }
    }

    #[test]
    fn a_code_without_a_test_is_found_and_a_test_of_a_reserved_one() {
        let calls = "\"E3301\" \"E3106\"\n    // E3405 is hard to bring about.\n";
        let found = unmet(&[file("tests/calls.rs", calls), file("crates/server/tests/a.rs", "E3302")]);
        let about = |code: &str| found.iter().any(|finding| finding.starts_with(code));
        assert!(!about("E3301") && !about("E3604"));
        for code in ["E3302", "E3106", "E3409", "E3405"] {
            assert!(about(code), "{code}: {found:?}");
        }
    }
}
