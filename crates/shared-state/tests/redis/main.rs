//! The suites of shared state against a real Redis, and everything that can happen to one.
//!
//! One server serves the suites, each case under a namespace of its own. Tests of faults have servers of their own.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test crate")]

mod changes;
mod faults;
mod reference;
mod server;
mod suites;
mod together;
