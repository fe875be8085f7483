//! Hostile tools against the real binary: nothing gets out. The suite is that of `cargo xtask escape`; it is built in
//! here from the same files, so that the command and the test cannot differ.
//!
//! Not here: what the probes do (`escape/`), and what a sandboxed tool *may* do (`tool_folders`).

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::support;

#[path = "../crates/xtask/src/escape/bare.rs"]
mod bare;
#[path = "../crates/xtask/src/escape/canary.rs"]
mod canary;
#[path = "../crates/xtask/src/escape/gateway.rs"]
mod gateway;
#[path = "../crates/xtask/src/escape/registry.rs"]
mod registry;
#[path = "../crates/xtask/src/escape/stage.rs"]
mod stage;
#[path = "../crates/xtask/src/escape/suite.rs"]
mod suite;
#[path = "../crates/xtask/src/escape/table.rs"]
mod table;
#[path = "../crates/xtask/src/escape/traces.rs"]
mod traces;
#[path = "../crates/xtask/src/escape/verdict.rs"]
mod verdict;

use registry::ProbeIsolation;
use suite::SuitePlan;
use table::SuiteTally;

fn plan(isolations: &[ProbeIsolation]) -> SuitePlan {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../escape");
    let binary = PathBuf::from(support::binary());
    SuitePlan { folder, binary, isolations: isolations.to_vec(), only: None, bare: false, rehearse: false }
}

/// Bombs of two suites at once would be a test of the machine.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// All are blocked, and none of them because the server did not run it.
fn nothing_gets_out(isolation: ProbeIsolation) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let report = suite::run(&plan(&[isolation])).unwrap();
    let (tally, text) = (SuiteTally::of(&report), table::render(&report));
    assert_eq!((tally.escaped, tally.unclear), (0, 0), "{text}");
    assert!(tally.is_good(), "{text}");
    assert_eq!(tally.refused, 0, "{text}");
}

#[test]
fn nothing_gets_out_of_the_process_sandbox() {
    nothing_gets_out(ProbeIsolation::Process);
}

#[test]
fn nothing_gets_out_of_gvisor() {
    nothing_gets_out(ProbeIsolation::Gvisor);
}

#[test]
fn nothing_gets_out_of_a_wasm_component() {
    nothing_gets_out(ProbeIsolation::Wasm);
}

#[test]
fn every_harmless_probe_gets_what_it_wants_where_there_is_no_sandbox() {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    // Only root has all that the probes are after; for others their failure would say nothing about them.
    let report = suite::run(&SuitePlan { bare: root, ..plan(&[]) }).unwrap();
    assert_eq!(SuiteTally::of(&report).useless, 0, "{}", table::render(&report));
}

#[test]
fn the_suite_sees_an_escape_when_there_is_one() {
    let only = |id: &str| SuitePlan { only: Some(id.into()), rehearse: true, ..plan(&[ProbeIsolation::Process]) };
    for id in ["read_host_file", "loopback_of_the_host", "daemon_outlives_the_call"] {
        let report = suite::run(&only(id)).unwrap();
        assert_eq!(SuiteTally::of(&report).escaped, 1, "{}", table::render(&report));
    }
    // A component has no way round its sandbox; it is given what it must not get.
    // Of that it gets what nobody may, so what is root's alone stays so.
    let private = if rustix::process::geteuid().is_root() { 0 } else { 1 };
    let probes = [("read_host_file", 1), ("read_private_host_file", private), ("write_world_writable_host_dir", 1)];
    for (id, escaped) in probes {
        let report = suite::run(&SuitePlan { isolations: vec![ProbeIsolation::Wasm], ..only(id) }).unwrap();
        assert_eq!(SuiteTally::of(&report).escaped, escaped, "{}", table::render(&report));
    }
}
