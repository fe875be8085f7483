//! Black-box tests: the real `gantry` binary, started on a free port with a data directory of its own, spoken to as its
//! users do. One binary for all of them, because linking is what costs.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test crate")]
#![expect(clippy::disallowed_methods, reason = "tests start processes and wait by the machine's clock")]

mod audit;
mod audit_archive;
mod audit_sinks;
mod audit_witness;
mod authorization;
mod backup;
mod bad_input;
mod calls;
mod checkpoints;
mod cluster;
mod command_line;
mod crash;
mod crash_effects;
mod crew;
mod database_slips;
mod deployment;
mod escape;
mod faults;
mod first_minute;
mod identity;
mod jobs;
mod lifecycle;
mod mcp;
mod mcp_stdio;
mod one_installation;
mod outgrowing;
mod refusals;
mod registry;
mod replicas;
mod resilience;
mod sandbox;
mod secrecy;
mod start_up;
mod support;
mod telemetry;
mod tenants;
mod tool_folders;
mod webhooks;
