//! Error codes are neither dead nor invented, and their pages say what is true: a code that is said to be answered is produced by
//! product code, and one that is said to be reserved occurs nowhere in it.
//!
//! A code in a comment, in a list of codes (`&[ErrorCode] = …`) or in a comparison is read there and not produced.
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
    let producing: Vec<String> = product.iter().map(|(_, text)| produced(text)).collect();
    let place_of = |code: ErrorCode| {
        let name = format!("ErrorCode::{code}");
        product.iter().find(|(_, text)| text.contains(&name)).map(|(path, _)| *path)
    };
    let is_produced = |code: ErrorCode| {
        let name = format!("ErrorCode::{code}");
        producing.iter().any(|text| text.contains(&name))
    };
    let mut found = Vec::new();
    for row in TABLE {
        match (row.capability.is_answered(), place_of(row.code)) {
            (true, Some(_)) if is_produced(row.code) => {}
            (false, None) => {}
            (true, _) => found.push(format!(
                "{} ({}) is produced nowhere: use it, or move it to a capability that is not answered",
                row.code, row.meaning
            )),
            (false, Some(path)) => found.push(format!(
                "{} ({}) occurs in {path}, and its page says that no release answers with it: say in \
                 `Capability::is_answered` that its capability is, or move it to one that is",
                row.code, row.meaning
            )),
        }
    }
    found
}

/// What of a text can produce a code: without comments, lists of codes, comparisons and patterns.
fn produced(text: &str) -> String {
    let mut left = String::new();
    let mut in_list = false;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default();
        let is_in_list = in_list || code.contains("[ErrorCode] =");
        in_list = is_in_list && !code.trim_end().ends_with(';');
        let is_read = ["matches!(", "== ErrorCode::", "!= ErrorCode::"].iter().any(|reads| code.contains(reads));
        let made = match code.split_once("=>") {
            Some((_, made)) => made,
            None if code.trim_start().starts_with("| ErrorCode::") => "",
            None => code,
        };
        if !is_in_list && !is_read {
            left.push_str(made);
            left.push('\n');
        }
    }
    left
}

/// Codes behind a bound that is met first, so that nobody outside gets to them: a test of the crate that gives them does. Room for
/// records is there for every call that is let in (E3803).
const BEHIND_BOUNDS: &[&str] = &["E3803"];

/// Codes that no test meets (TEST-019): each that is answered has a black-box test, and no other has.
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
        match (met(code), row.capability.is_answered()) {
            (true, true) | (false, false) => {}
            (false, true) => found.push(format!("{code} ({}) is met by no black-box test: write one", row.meaning)),
            (true, false) => found.push(format!("{code} is met by a black-box test, and it is said to be reserved")),
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
        let reader = "/// [`ErrorCode::E3301`]\nconst SAID: &[ErrorCode] = &[\n    ErrorCode::E3302,\n];\n\
                      fn f() { a == ErrorCode::E3303; matches!(a, ErrorCode::E3305) }\n\
                      ErrorCode::E3401 => 1,\n    ErrorCode::E3402\n    | ErrorCode::E3404 => ErrorCode::E3407,\n";
        let files_that_read = [file("crates/server/src/openapi.rs", reader)];
        for code in ["E3301", "E3302", "E3303", "E3305", "E3401", "E3404"] {
            assert!(named(&files_that_read, code), "{code} is only read");
        }
        assert!(!named(&files_that_read, "E3407"));
        for code in ["E3302", "E3303", "E3305", "E3401"] {
            assert!(named(&files, code), "{code}");
        }
    }

    #[test]
    fn a_reserved_code_is_not_asked_for_and_is_found_where_it_is_used() {
        let reserved = TABLE.iter().find(|row| !row.capability.is_answered()).map(|row| row.code.as_str());
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
