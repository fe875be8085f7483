//! Which room may know which: the "may depend on" table of `ARCHITECTURE.md`, and the seams of some third parties.
//!
//! The table is data on purpose. A new arrow is a decision, so it changes here, in `ARCHITECTURE.md` and in the commit
//! that needs it, and nowhere by accident; the two copies are compared. Dependencies of tests have a column of their own.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::workspace::SourceFile;

/// The page that shows the table to people.
const PAGE: &str = "ARCHITECTURE.md";

/// What every room may stand on, so the rows do not repeat it.
const BASE: &str = "base";

/// One room of the project.
struct Room {
    name: &'static str,
    may: &'static [&'static str],
    may_in_tests: &'static [&'static str],
}

const ALL: &[&str] = &[
    BASE,
    "contract",
    "policy",
    "fair-places",
    "ports",
    "kernel",
    "jobs",
    "vendor-services",
    "insights",
    "store",
    "shared-state",
    "sandbox",
    "outbound",
    "executors",
    "authorities",
    "audit",
    "kafka-sink",
    "telemetry",
    "redaction",
    "test-kernel",
    "test-servers",
    "scan",
    "affordances",
    "upstreams",
    "server",
    "cli",
    "bench",
    "xtask",
];

#[rustfmt::skip]
const ROOMS: &[Room] = &[
    Room { name: BASE, may: &[], may_in_tests: &[] },
    Room { name: "contract", may: &[], may_in_tests: &[] },
    Room { name: "policy", may: &["contract"], may_in_tests: &[] },
    Room { name: "fair-places", may: &["contract"], may_in_tests: &[] },
    Room { name: "ports", may: &["contract", "policy", "fair-places"], may_in_tests: &[] },
    // Tests of the kernel run on the in-memory store that the conformance suite keeps honest.
    Room { name: "kernel", may: &["contract", "policy", "fair-places", "ports"], may_in_tests: &["test-kernel", "store", "shared-state"] },
    // The kernel knows no queue: whatever is done later comes back to it through `kernel::background_calls`.
    Room { name: "jobs", may: &["contract", "policy", "fair-places", "ports", "kernel"], may_in_tests: &["test-kernel", "store", "shared-state"] },
    // The door of jobs meets it through traits, so that doors and jobs know no vendor.
    Room { name: "vendor-services", may: &["contract", "policy", "ports", "kernel", "jobs"], may_in_tests: &["test-kernel", "store"] },
    // What is learned from calls: the kernel knows the port, and who asks what was learned goes through the kernel.
    Room { name: "insights", may: &["contract", "policy", "ports", "kernel"], may_in_tests: &["store"] },
    // Adapters know the ports and not the kernel, or a change in the kernel would rebuild them.
    Room { name: "store", may: &["contract", "policy", "ports"], may_in_tests: &["kernel", "test-servers"] },
    Room { name: "shared-state", may: &["contract", "ports"], may_in_tests: &["test-servers"] },
    // Usable on its own: it knows programs and what they may have, and nothing of tools.
    Room { name: "sandbox", may: &[], may_in_tests: &[] },
    Room { name: "outbound", may: &["sandbox"], may_in_tests: &[] },
    Room { name: "executors", may: &["contract", "fair-places", "ports", "sandbox", "outbound"], may_in_tests: &["kernel"] },
    Room { name: "authorities", may: &["contract", "policy", "ports", "outbound"], may_in_tests: &[] },
    Room { name: "audit", may: &["contract", "ports"], may_in_tests: &["policy"] },
    // Apart from the other sinks, because of the library it brings.
    Room { name: "kafka-sink", may: &["audit"], may_in_tests: &[] },
    Room { name: "telemetry", may: &["contract", "ports", "outbound"], may_in_tests: &["policy"] },
    Room { name: "redaction", may: &[], may_in_tests: &["contract"] },
    Room { name: "test-kernel", may: &["contract", "policy", "ports", "kernel", "store", "shared-state", "redaction"], may_in_tests: &[] },
    Room { name: "test-servers", may: &[], may_in_tests: &[] },
    Room { name: "scan", may: &[], may_in_tests: &[] },
    Room { name: "affordances", may: &["contract"], may_in_tests: &[] },
    // It publishes what it imports, and withdraws it: through the kernel.
    Room { name: "upstreams", may: &["contract", "policy", "fair-places", "ports", "kernel", "sandbox", "outbound", "executors", "scan", "redaction"], may_in_tests: &["store", "shared-state", "policy"] },
    Room { name: "server", may: &["contract", "policy", "fair-places", "ports", "kernel", "jobs", "insights", "telemetry", "affordances"], may_in_tests: &["store", "shared-state", "vendor-services"] },
    Room { name: "cli", may: ALL, may_in_tests: ALL },
    Room { name: "bench", may: ALL, may_in_tests: ALL },
    Room { name: "xtask", may: ALL, may_in_tests: ALL },
    Room { name: "tests", may: &[], may_in_tests: ALL },
];

/// Third parties that stop at a seam: outside the rooms named here their types do not exist. Tests are free.
const SEAMS: &[(&str, &[&str])] = &[
    ("anyhow", &["bench", "cli", "test-servers", "xtask"]),
    ("axum", &["server"]),
    ("bs58", &["policy"]),
    ("cedar-policy", &["policy"]),
    ("clap", &["cli"]),
    ("ed25519-dalek", &["audit", "policy"]),
    ("getrandom", &["cli"]),
    ("httparse", &["sandbox"]),
    ("hyper", &["server", "executors", "bench", "test-servers"]),
    ("hyper-util", &["server", "bench", "test-servers"]),
    ("landlock", &["sandbox"]),
    ("libc", &["sandbox"]),
    ("notify", &["cli"]),
    ("p256", &["policy"]),
    ("prometheus-client", &["telemetry"]),
    ("rdkafka", &["kafka-sink"]),
    ("redis", &["shared-state"]),
    ("reqwest", &["outbound", "executors", "authorities", "cli", "telemetry", "upstreams", "xtask"]),
    ("ring", &["policy", "server", "cli", "audit"]),
    ("rmcp", &["server", "upstreams", "xtask"]),
    ("rusqlite", &["store"]),
    ("sqlite-vec", &["store"]),
    ("tiktoken-rs", &["affordances"]),
    ("tokio-postgres", &["store"]),
    ("tokio-rustls", &["executors", "store", "server", "cli"]),
    ("tower", &["server"]),
    ("unicode-security", &["scan"]),
    ("wasmtime", &["executors"]),
    ("wasmtime-wasi", &["executors"]),
    ("wasmtime-wasi-http", &["executors"]),
    ("webpki-roots", &["executors", "store", "cli"]),
];

/// Arrows that the tables do not have.
pub(super) fn findings(files: &[SourceFile], metadata: &Value) -> Result<Vec<String>> {
    let packages = metadata.get("packages").and_then(Value::as_array).context("cargo metadata lists no packages")?;
    let page = files.iter().find(|file| file.path == PAGE).map_or("", |file| file.text.as_str());
    let mut found: Vec<String> = page.lines().filter_map(disagreement).collect();
    for package in packages {
        let from = room_of(package.get("manifest_path").and_then(Value::as_str).unwrap_or_default());
        let Some(room) = ROOMS.iter().find(|room| room.name == from) else {
            found.push(format!(
                "the package in `{from}` is not in the table of rooms; add it with what it may depend on"
            ));
            continue;
        };
        for dependency in package.get("dependencies").and_then(Value::as_array).into_iter().flatten() {
            found.extend(judged(room, dependency));
        }
    }
    Ok(found)
}

fn judged(room: &Room, dependency: &Value) -> Option<String> {
    let in_tests = dependency.get("kind").and_then(Value::as_str) == Some("dev");
    let from = room.name;
    if let Some(path) = dependency.get("path").and_then(Value::as_str) {
        let to = room_of(&format!("{path}/Cargo.toml"));
        // A crate that depends on itself in tests switches on features of its own; that is no arrow.
        let allowed = to == BASE
            || room.may.contains(&to.as_str())
            || (in_tests && (to == from || room.may_in_tests.contains(&to.as_str())));
        let how = if in_tests { "in tests" } else { "at all" };
        return (!allowed).then(|| format!("`{from}` may not depend on `{to}` {how} (the table in check/layers.rs)"));
    }
    let name = dependency.get("name").and_then(Value::as_str)?;
    let (_, rooms) = SEAMS.iter().find(|(seam, _)| *seam == name)?;
    (!in_tests && !rooms.contains(&from)).then(|| {
        format!("`{from}` may not use `{name}`: it stops in {} (the seams in check/layers.rs)", rooms.join(", "))
    })
}

/// What a row of the page, ``| `room` | its job | may depend on |``, says differently from the table here.
fn disagreement(line: &str) -> Option<String> {
    let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
    let [name, _, shown] = cells.as_slice() else { return None };
    let name = name.strip_prefix('`')?.strip_suffix('`')?;
    let room = ROOMS.iter().find(|room| room.name == name)?;
    let agrees = match *shown {
        "–" => room.may.is_empty(),
        "all of the above" => room.may == ALL,
        list => list.split(',').map(|part| part.trim().trim_matches('`')).eq(room.may.iter().copied()),
    };
    (!agrees).then(|| format!("`{PAGE}` and check/layers.rs disagree on what `{name}` may depend on"))
}

/// The room a manifest belongs to: the name of its folder.
fn room_of(manifest_path: &str) -> String {
    let folder = Path::new(manifest_path).parent().and_then(Path::file_name);
    folder.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(room: &str, dependency: &Value) -> Vec<String> {
        let package =
            json!({ "manifest_path": format!("/src/crates/{room}/Cargo.toml"), "dependencies": [dependency] });
        findings(&[], &json!({ "packages": [package] })).unwrap()
    }

    #[test]
    fn arrows_of_the_table_are_allowed_and_all_others_are_named() {
        let arrow = |to: &str, kind: Value| json!({ "name": to, "kind": kind, "path": format!("/src/crates/{to}") });
        let allowed = [
            ("policy", "contract"),
            ("sandbox", "base"),
            ("kernel", "policy"),
            ("authorities", "ports"),
            ("executors", "sandbox"),
            ("cli", "server"),
            ("xtask", "kernel"),
        ];
        for (from, to) in allowed {
            assert_eq!(check(from, &arrow(to, Value::Null)), Vec::<String>::new(), "{from} → {to}");
        }
        let refused = [
            ("contract", "policy"),
            ("base", "contract"),
            ("kernel", "store"),
            ("store", "server"),
            ("store", "kernel"),
            ("ports", "kernel"),
            ("kernel", "authorities"),
            ("kernel", "jobs"),
            ("jobs", "vendor-services"),
            ("server", "vendor-services"),
            ("kernel", "sandbox"),
            ("kernel", "insights"),
            ("sandbox", "contract"),
            ("tests", "cli"),
        ];
        for (from, to) in refused {
            let found = check(from, &arrow(to, Value::Null));
            assert!(found.len() == 1 && found[0].contains(from) && found[0].contains(to), "{from} → {to}: {found:?}");
        }
        assert!(check("server", &arrow("store", "dev".into())).is_empty());
        assert_eq!(check("server", &arrow("store", Value::Null)).len(), 1);
        assert!(check("tests", &arrow("cli", "dev".into())).is_empty());
    }

    #[test]
    fn third_parties_stop_at_their_seam_except_in_tests() {
        let third = |name: &str, kind: Value| json!({ "name": name, "kind": kind, "path": null });
        assert!(check("store", &third("rusqlite", Value::Null)).is_empty());
        assert_eq!(check("kernel", &third("rusqlite", Value::Null)).len(), 1);
        assert!(check("executors", &third("axum", "dev".into())).is_empty());
        assert!(check("kernel", &third("serde", Value::Null)).is_empty());
    }

    #[test]
    fn a_package_nobody_put_into_the_table_is_named() {
        let found =
            findings(&[], &json!({ "packages": [{ "manifest_path": "/src/crates/attic/Cargo.toml" }] })).unwrap();
        assert!(found.len() == 1 && found[0].contains("`attic`"), "{found:?}");
    }

    #[test]
    fn the_page_and_the_table_must_agree() {
        let check = |row: &str| disagreement(row).is_none();
        assert!(check("| `contract` | What a tool is. | – |") && check("| `cli` | The binary. | all of the above |"));
        assert!(check("| `audit` | The log. | contract, ports |"));
        assert!(!check("| `policy` | Rights. | contract, kernel |") && !check("| `kernel` | Phases. | – |"));
        assert!(check("| crate | its one job | may depend on |") && check("any other line"));
    }
}
