//! Black-box tests: the real `gantry` binary, started on a free port with a data directory of its own, spoken to as its
//! users do. One binary for all of them, because linking is what costs.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test crate")]
#![expect(clippy::disallowed_methods, reason = "tests start processes and wait by the machine's clock")]

mod audit;
mod audit_archive;
mod audit_sinks;
mod audit_witness;
mod authentication;
mod authorization;
mod backup;
mod bad_input;
mod begun_again;
mod calls;
mod checkpoints;
mod cluster;
mod command_line;
mod container;
mod crash;
mod crash_effects;
mod crew;
mod database_slips;
mod delegated_owners;
mod delegated_rights;
mod deployment;
mod effects;
mod ends_of_life;
mod escape;
mod fairness;
mod faults;
mod first_minute;
mod health_of_servers;
mod http_server;
mod identity;
mod jobs;
mod json_rpc;
mod lifecycle;
mod mcp;
mod mcp_stdio;
mod members;
mod offered_things;
mod one_installation;
mod outgrowing;
mod output_policy;
mod policy_context;
mod rare_codes;
mod recorded_calls;
mod refusals;
mod registry;
mod replicas;
mod resilience;
mod sandbox;
mod sealed_jobs;
mod secrecy;
mod service_failures;
mod shared_servers;
mod start_up;
mod support;
mod telemetry;
mod tenant_servers;
mod tenants;
mod tls;
mod tool_folders;
mod visibility;
mod webhooks;
mod whole_answers;
