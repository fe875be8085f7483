//! What the kernel needs from the outside, one trait per concern, each named for the need and not for the product.
//!
//! Adapters know the kernel; the kernel knows no adapter. The doc comment of each method is its contract: ordering,
//! atomicity, what "not found" means, who bounds the wait. What must be atomic is one method; no transaction handle
//! crosses a port.

pub mod access_store;
pub mod audit_log;
pub mod audit_sink;
pub mod breaker_history;
pub mod call_deadline;
pub mod call_out;
pub mod change_bus;
pub mod checkpoint_store;
pub mod clock;
pub mod did_resolver;
pub mod entropy;
pub mod executor;
pub mod health_store;
pub mod installation_store;
pub mod job_entrance;
pub mod job_store;
pub mod key_source;
pub mod key_vault;
pub mod ledger;
pub mod log_heads;
pub mod observer;
pub mod offerings;
pub mod policy_engine;
pub mod presence;
pub mod program_log;
pub mod record_archive;
pub mod redactor;
pub mod registry_store;
pub mod sealed_texts;
pub mod secret_source;
pub mod server_administration;
pub mod shared_state;
pub mod tool_companion;
pub mod tool_folders;
pub mod tool_origin;
pub mod tool_search;
pub mod upstream_store;
pub mod usage_store;
pub mod vector_store;
pub mod version_use;
pub mod webhook_store;
pub mod workflow_runs;
