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

/// Codes of work to come: nothing answers them yet, whoever knows how to read them.
const TO_COME: &[&str] = &[
    "E3106", "E3209", "E3412", "E3604", "E3802", "E3851", "E3852", "E3853", "E3854", "E3855", "E3856", "E3857",
    "E3901", "E3907",
];

/// Codes behind a bound that is met first, so that nobody outside gets to them: a test of the crate that gives them does. Room for
/// records is there for every call that is let in (E3803).
const BEHIND_BOUNDS: &[&str] = &["E3803"];

/// Codes that no test meets (TEST-019): each has a black-box test, or stands in the list of those to come, and not both.
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
        match (met(code), TO_COME.contains(&code)) {
            (true, false) | (false, true) => {}
            (false, false) => found.push(format!(
                "{code} ({}) is met by no black-box test: write one, or name it in the list of check/codes.rs",
                row.meaning
            )),
            (true, true) => found.push(format!("{code} is met by a black-box test: take it out of the list")),
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
    fn codes_of_capabilities_that_are_not_built_are_not_asked_for() {
        let reserved = TABLE.iter().find(|row| !row.capability.is_built()).map(|row| row.code.as_str());
        if let Some(code) = reserved {
            assert!(!named(&[], code), "{code}");
        }
    }

    #[test]
    fn a_code_without_a_test_is_found_unless_it_is_named() {
        let calls = "\"E3301\" \"E3106\"\n    // E3405 is hard to bring about.\n";
        let found = unmet(&[file("tests/calls.rs", calls), file("crates/server/tests/a.rs", "E3302")]);
        let about = |code: &str| found.iter().any(|finding| finding.starts_with(code));
        assert!(!about("E3301") && !about("E3604"));
        for code in ["E3302", "E3106", "E3409", "E3405"] {
            assert!(about(code), "{code}: {found:?}");
        }
    }
}
