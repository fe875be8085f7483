//! The kernel through its public door, with time, randomness, tools, outside authorities and the audit log held in the
//! test's hand. `test_kernel` builds it; the files here are stories.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test crate")]
#![expect(clippy::needless_pass_by_value, reason = "`json!` at the call reads better without an ampersand")]

mod access;
mod agreement;
mod checkpoints;
mod door;
mod failover;
mod identity;
mod ledger;
mod offerings;
mod rate_limits;
mod resilience;
mod stale_results;
mod untrusted;
mod way_of_a_call;
