//! What the kernel needs from the outside, one trait per concern, each named for the need and not for the product; and the values
//! that these traits speak of.
//!
//! The kernel uses the ports and the adapters implement them, and neither knows the other: a change in the kernel rebuilds no
//! store. The doc comment of each method is its contract: ordering, atomicity, what "not found" means, who bounds the wait. What
//! must be atomic is one method; no transaction handle crosses a port.
//!
//! A value belongs here if a trait names it, or if an adapter must reckon with it exactly as the kernel does (the machine of a
//! breaker, the permissions of a version). Everything here is data and pure functions.
//!
//! Not here: what the kernel does with any of it (`kernel`), places that many share (`fair_places`).

pub mod access_store;
pub mod actor;
pub mod audit_log;
pub mod audit_sink;
pub mod breaker_history;
pub mod call_deadline;
pub mod call_insights;
pub mod call_out;
pub mod change_bus;
pub mod checkpoint_store;
pub mod clock;
pub mod did_resolver;
pub mod entropy;
pub mod event_announcer;
pub mod executor;
pub mod health_store;
pub mod installation_store;
pub mod job_entrance;
pub mod job_store;
pub mod key_source;
pub mod key_vault;
pub mod latency;
pub mod ledger;
pub mod lifecycle;
pub mod log_heads;
pub mod observer;
pub mod offerings;
pub mod permissions;
pub mod policy_engine;
pub mod presence;
pub mod program_log;
pub mod record_archive;
pub mod redactor;
pub mod registry_store;
pub mod resilience;
pub mod resolved_limits;
pub mod saved_state;
pub mod sealed_texts;
pub mod secret_source;
pub mod server_administration;
pub mod shared_state;
pub mod tool_companion;
pub mod tool_folders;
pub mod tool_origin;
pub mod tool_search;
pub mod tool_version;
pub mod upstream_spans;
pub mod upstream_store;
pub mod usage_store;
pub mod vector_store;
pub mod version_use;
pub mod webhook_store;
pub mod workflow_runs;
