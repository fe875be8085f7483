//! The MCP door from outside: the real accept loop on port 0, a real kernel over the in-memory store, and raw TCP for a
//! client, so that nothing between the test and the wire is kinder than the world is.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test crate: helpers may be as blunt as tests"
)]

mod calls;
mod client;
mod doorstep;
mod lazy;
mod lists;
mod questions;
mod relay;
mod resource_reads;
mod sessions;
mod shelf;
mod stage;
mod stdio;
mod tasks;
mod unread;
