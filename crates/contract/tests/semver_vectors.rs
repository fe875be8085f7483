//! npm's own fixtures: versions, ranges, comparisons and increments must come out as `semver` has them in strict mode.
//!
//! Rows that ask for loose mode are counted, not run: loose mode guesses at malformed input, and we do not want it.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test crate")]

use std::collections::BTreeMap;

use gantry_contract::version::{FirstNumber, Prereleases, Version, VersionBump, VersionPart, VersionRange};
use serde_json::Value;

const ROWS: &str = include_str!("../../../testdata/vectors/semver_dev.jsonl");

/// Rows of the file that ask for loose mode.
const LOOSE_ROWS: usize = 23;

#[test]
fn every_strict_row_comes_out_as_in_npm() {
    let (mut ran, mut loose, mut wrong) = (BTreeMap::<String, usize>::new(), 0, Vec::new());
    for line in ROWS.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let (set, case) = (row["set"].as_str().unwrap(), row["case"].as_array().unwrap());
        if is_loose(set, options(set, case)) {
            loose += 1;
            continue;
        }
        *ran.entry(set.to_owned()).or_default() += 1;
        if let Err(found) = check(set, case) {
            wrong.push(format!("{set} {}: {found}", row["case"]));
        }
    }
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(loose, LOOSE_ROWS);
    assert_eq!(ran.values().sum::<usize>() + loose, ROWS.lines().count());
    assert_eq!(ran.len(), 15, "sets that ran: {ran:?}");
}

/// The options column, which is not in the same place in every set.
fn options<'a>(set: &str, case: &'a [Value]) -> &'a Value {
    let column = match set {
        "increments" | "comparator-intersection" | "range-intersection" => 3,
        "valid-versions" => 6,
        _ => 2,
    };
    // The reason of an invalid version stands where others have their options, and the options behind it.
    let column = if matches!(set, "invalid-versions" | "truncations") { 3 } else { column };
    case.get(column).unwrap_or(&Value::Null)
}

/// `true` alone or a true `loose` member, with JavaScript's idea of truth. For comparators that intersect, a plain
/// `true` means "include pre-releases" instead.
fn is_loose(set: &str, options: &Value) -> bool {
    match options {
        Value::Object(members) => match members.get("loose") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(loose)) => *loose,
            Some(Value::Number(number)) => number.as_f64() != Some(0.0),
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(_) | Value::Object(_)) => true,
        },
        Value::Bool(yes) => *yes && set != "comparator-intersection",
        Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => false,
    }
}

fn prereleases(options: &Value) -> Prereleases {
    let all = *options == true || options["includePrerelease"] == true;
    if all { Prereleases::Always } else { Prereleases::OnRequest }
}

fn expect(holds: bool, found: impl std::fmt::Debug) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{found:?}")) }
}

fn check(set: &str, case: &[Value]) -> Result<(), String> {
    let text = |column: usize| case.get(column).and_then(Value::as_str);
    let version = |column: usize| text(column).and_then(|text| Version::parse_npm(text).ok());
    let range = |column: usize, options: &Value| {
        text(column).and_then(|text| VersionRange::parse_with(text, prereleases(options)).ok())
    };
    let options = options(set, case);
    let matched = || range(0, options).zip(version(1)).is_some_and(|(range, version)| range.matches(&version));
    let beside = |ask: fn(&VersionRange, &Version) -> bool| ask(&range(0, options).unwrap(), &version(1).unwrap());
    match set {
        "comparisons" => expect(version(0).unwrap() > version(1).unwrap(), "not greater"),
        "equality" => expect(version(0).unwrap() == version(1).unwrap(), "not equal"),
        "valid-versions" => check_valid(&version(0).ok_or("refused")?, case),
        "invalid-versions" => expect(version(0).is_none(), version(0)),
        "range-include" => expect(matched(), "not matched"),
        "range-exclude" => expect(!matched(), "matched"),
        "range-parse" => {
            let found = range(0, options).map(|range| range.to_string());
            expect(found.as_deref() == text(1), found)
        }
        "range-intersection" | "comparator-intersection" => {
            let (left, right) = (range(0, options).unwrap(), range(1, options).unwrap());
            let found = (left.intersects(&right), right.intersects(&left));
            let wanted = case[2].as_bool().unwrap();
            expect(found == (wanted, wanted), found)
        }
        "version-gt-range" => expect(beside(VersionRange::is_below), "not below"),
        "version-not-gt-range" => expect(!beside(VersionRange::is_below), "below"),
        "version-lt-range" => expect(beside(VersionRange::is_above), "not above"),
        "version-not-lt-range" => expect(!beside(VersionRange::is_above), "above"),
        "increments" => {
            let first = match case.get(5) {
                Some(Value::Bool(false)) => FirstNumber::Absent,
                Some(Value::String(one)) if one == "1" => FirstNumber::One,
                _ => FirstNumber::Zero,
            };
            let found = version(0)
                .zip(text(1).and_then(|step| step.parse::<VersionBump>().ok()))
                .and_then(|(version, step)| version.bump(step, text(4), first).ok())
                .map(|version| version.to_string());
            expect(found.as_deref() == text(2), found)
        }
        "truncations" => {
            let found = version(0).and_then(|version| match text(1)? {
                "major" => Some(version.truncate(VersionPart::Major)),
                "minor" => Some(version.truncate(VersionPart::Minor)),
                "patch" => Some(version.truncate(VersionPart::Patch)),
                // Truncating to a pre-release part leaves all numbers and the tag.
                step => step.starts_with("pre").then(|| version.without_build()),
            });
            let found = found.map(|version| version.to_string());
            expect(found.as_deref() == text(2), found)
        }
        unknown => panic!("no rule for the set {unknown}"),
    }
}

fn check_valid(version: &Version, case: &[Value]) -> Result<(), String> {
    let joined = |column: &Value| {
        let parts = column.as_array().unwrap().iter();
        parts.map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned)).collect::<Vec<_>>().join(".")
    };
    let numbers = (case[1].as_u64(), case[2].as_u64(), case[3].as_u64());
    let found = (Some(version.major()), Some(version.minor()), Some(version.patch()));
    let texts = (joined(&case[4]), joined(&case[5]));
    expect(numbers == found && texts == (version.prerelease().into(), version.build().into()), version)
}
