//! `cargo xtask conformance`: the official MCP suites against Gantry, as server and as client.
pub(crate) mod fixture;
