//! The REST door from outside: the real accept loop on port 0, a real kernel over the in-memory store, and raw TCP for a
//! client, so that nothing between the test and the wire is kinder than the world is.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test crate: helpers may be as blunt as tests"
)]

mod access;
mod affordances;
mod authorization;
mod bad_input;
mod checkpoints;
mod client;
mod document;
mod exchange;
mod post_office;
mod shutdown;
mod slow_clients;
mod stage;
mod stories;
mod tokens;
mod usage;
mod webhooks;
