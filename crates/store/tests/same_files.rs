//! What faces each other in `sqlite/` and `postgres/` has the same file name and the same functions in the same order, so that a
//! diff of the two shows only dialect.
//!
//! The files that only one of them needs are few and each has its reason here; one that is not listed is a mistake.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files that only SQLite needs.
const ONLY_SQLITE: &[(&str, &str)] = &[
    ("backup.rs", "a store is one file, which is copied and put in place as a whole"),
    ("freed_space.rs", "what is deleted is overwritten: PostgreSQL's files are its server's"),
    ("jobs/counters.rs", "counters and events follow each change here; PostgreSQL has triggers and one statement"),
    ("raw_ledger.rs", "what SQLite by itself can do, measured"),
    ("readers.rs", "connections that read beside the one writer; PostgreSQL has a pool"),
    ("vector_functions.rs", "functions of sqlite-vec; PostgreSQL's are an extension of the server"),
    ("writer.rs", "one thread writes the file, for all in groups; PostgreSQL has a pool"),
];
/// Files that only PostgreSQL needs.
const ONLY_POSTGRES: &[(&str, &str)] = &[
    ("address.rs", "the address of a server has parts that the driver does not know"),
    ("archive.rs", "the searchable copy of all audit logs is of many instances"),
    ("archive/reads.rs", "likewise"),
    ("archive/writes.rs", "likewise"),
    ("bus.rs", "instances tell each other what has changed"),
    ("bus/line.rs", "likewise"),
    ("bus/words.rs", "likewise"),
    ("grouped_writes.rs", "many callers' writes in one transaction; SQLite's writer does that by itself"),
    ("installation.rs", "one machine keeps its secrets in its data directory"),
    ("instances.rs", "leases of instances; SQLite has one, whose leases are with the jobs and the ledger"),
    ("ledger/doubts.rs", "answers of a server can be lost on their way"),
    ("ledger/groups.rs", "claims and settlements of many callers in one statement"),
    ("log_heads.rs", "signed heads of the logs of all instances"),
    ("pool.rs", "connections over the network"),
    ("presence.rs", "which instances there are"),
    ("rights.rs", "what the server's role may do; a file has its mode"),
    ("statement.rs", "values with the types of the server"),
    ("stored_text.rs", "text of PostgreSQL has no NUL"),
    ("tls.rs", "connections over the network"),
    ("transaction.rs", "transactions over the network, in few round trips"),
    ("transfer/load.rs", "a database is filled row by row; a file is put in place"),
];

/// The source files of an adapter by their paths below its folder.
fn files(folder: &str) -> BTreeMap<String, PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(folder);
    let (mut found, mut waiting) = (BTreeMap::new(), vec![root.clone()]);
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                found.insert(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned(), path);
            }
        }
    }
    found
}

/// The names of the free functions of a file, in its order. Methods are of types, which each database has its own of.
fn functions(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap();
    let name = |line: &str| {
        let bare = line.split_once(") ").filter(|(word, _)| word.starts_with("pub(")).map_or(line, |(_, rest)| rest);
        let bare = bare.strip_prefix("pub ").unwrap_or(bare);
        let bare = bare.strip_prefix("async ").unwrap_or(bare).strip_prefix("fn ")?;
        Some(bare.split(['(', '<']).next()?.to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[test]
fn both_adapters_have_the_same_files_but_for_those_listed_with_a_reason() {
    let (sqlite, postgres) = (files("sqlite"), files("postgres"));
    assert!(sqlite.len() > 30, "{sqlite:?}");
    let only = |one: &BTreeMap<String, PathBuf>, other: &BTreeMap<String, PathBuf>| {
        one.keys().filter(|name| !other.contains_key(*name)).cloned().collect::<Vec<_>>()
    };
    let named = |list: &[(&str, &str)]| list.iter().map(|(file, _)| (*file).to_owned()).collect::<Vec<_>>();
    assert_eq!(only(&sqlite, &postgres), named(ONLY_SQLITE), "only in `sqlite/`");
    assert_eq!(only(&postgres, &sqlite), named(ONLY_POSTGRES), "only in `postgres/`");
}

#[test]
fn functions_of_one_name_are_in_one_order() {
    let (sqlite, postgres) = (files("sqlite"), files("postgres"));
    let mut faced = 0;
    for (file, path) in &sqlite {
        let Some(facing) = postgres.get(file) else { continue };
        let (ours, theirs) = (functions(path), functions(facing));
        let common = |own: &[String], other: &[String]| {
            own.iter().filter(|name| other.contains(name)).cloned().collect::<Vec<_>>()
        };
        let (left, right) = (common(&ours, &theirs), common(&theirs, &ours));
        assert_eq!(left, right, "`{file}`: `sqlite/` and `postgres/`");
        faced += left.len();
    }
    assert!(faced > 70, "{faced}");
}
