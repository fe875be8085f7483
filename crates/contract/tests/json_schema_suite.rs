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
