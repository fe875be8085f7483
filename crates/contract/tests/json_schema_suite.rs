//! The official JSON Schema test suite, draft 2020-12, required part: every case, with the linear-time pattern engine.
//!
//! The count is asserted so that a case cannot get lost with a moved file. Documents the suite calls remote are handed in:
//! nothing here listens on port 1234.

#![expect(clippy::unwrap_used, reason = "test crate")]

use std::fs;
use std::path::{Path, PathBuf};

use gantry_contract::schema::{CompiledSchema, SchemaLimits};
use serde_json::Value;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/json_schema").join(name)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut work = vec![folder.to_path_buf()];
    while let Some(folder) = work.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                work.push(path);
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn every_case_of_the_required_suite_passes() {
    let remotes = folder("remotes");
    let documents: Vec<(String, Value)> = files(&remotes)
        .iter()
        // Other drafts have folders of their own; in this draft nothing refers to them.
        .filter(|path| {
            !["draft3", "draft4", "draft6", "draft7", "draft2019-09", "v1"]
                .iter()
                .any(|draft| path.starts_with(remotes.join(draft)))
        })
        .map(|path| {
            (format!("http://localhost:1234/{}", path.strip_prefix(&remotes).unwrap().to_str().unwrap()), read(path))
        })
        .collect();
    let mut cases = 0;
    let mut failures = Vec::new();
    for path in files(&folder("tests/draft2020-12")) {
        for group in read(&path).as_array().unwrap() {
            let compiled = CompiledSchema::plain(&group["schema"], &SchemaLimits::default(), &documents);
            for case in group["tests"].as_array().unwrap() {
                cases += 1;
                let passed = match &compiled {
                    Ok(compiled) => compiled.check(&case["data"]).is_ok() == case["valid"].as_bool().unwrap(),
                    Err(_) => false,
                };
                if !passed {
                    failures.push(format!(
                        "{}: {}: {} {:?}",
                        path.file_name().unwrap().to_str().unwrap(),
                        group["description"],
                        case["description"],
                        compiled.as_ref().err()
                    ));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {cases} cases fail:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(cases, 1_299);
}

/// Cases of an older draft: how many were answered, and how many could not be because the schema is not admitted.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    right: usize,
    not_admitted: usize,
}

/// The required cases of an older draft, read as a tool's result schema that names its draft.
fn older(draft: &str, address: &str) -> (Tally, Vec<String>) {
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for path in files(&folder("tests").join(draft)) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name == "format.json" {
            // Formats are asserted in schemas of tools and not in these cases.
            continue;
        }
        for group in read(&path).as_array().unwrap() {
            let mut schema = group["schema"].clone();
            if let Some(members) = schema.as_object_mut() {
                members.entry("$schema").or_insert_with(|| address.into());
            }
            let compiled = CompiledSchema::output(&schema, &SchemaLimits::default());
            for case in group["tests"].as_array().unwrap() {
                match &compiled {
                    Err(errors) => {
                        // Not for its draft, but for what no draft is allowed.
                        let reasons = [
                            "is outside this schema",
                            "only allowed at the top",
                            "leads back to itself",
                            "only JSON Schema",
                        ];
                        let known = errors.0.iter().any(|one| reasons.iter().any(|part| one.message.contains(part)));
                        if known {
                            tally.not_admitted += 1;
                        } else {
                            wrong.push(format!("{name}: {}: {} {errors:?}", group["description"], case["description"]));
                        }
                    }
                    Ok(compiled) if compiled.check(&case["data"]).is_ok() == case["valid"].as_bool().unwrap() => {
                        tally.right += 1;
                    }
                    Ok(_) => wrong.push(format!("{name}: {}: {}", group["description"], case["description"])),
                }
            }
        }
    }
    (tally, wrong)
}

#[test]
fn every_case_of_the_older_drafts_is_answered_right_or_its_schema_is_refused_for_a_reason_of_every_draft() {
    let expected = [("draft4", 553, 29), ("draft6", 744, 41), ("draft7", 776, 49), ("draft2019-09", 1_037, 108)];
    let found = expected.map(|(draft, ..)| {
        let address = match draft {
            "draft4" => "http://json-schema.org/draft-04/schema#",
            "draft6" => "http://json-schema.org/draft-06/schema#",
            "draft7" => "http://json-schema.org/draft-07/schema#",
            _ => "https://json-schema.org/draft/2019-09/schema",
        };
        let (tally, wrong) = older(draft, address);
        assert!(wrong.is_empty(), "{draft}: {} cases are wrong:\n{}", wrong.len(), wrong.join("\n"));
        (draft, tally.right, tally.not_admitted)
    });
    assert_eq!(found, expected);
}
