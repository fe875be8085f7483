//! Three servers that are one: real PostgreSQL, real Redis, three real binaries, and everything that happens to machines and
//! the lines between them. What is asserted is what docs/postgres.md, docs/shared-state.md and docs/crashes.md promise.
//!
//! Effects are counted outside of all servers, in a file that the tools write to.

mod changes;
mod checkpoints;
mod clocks;
mod deaths;
mod lifecycle;
mod partitions;
mod pauses;
mod rolling_upgrade;
mod service;
mod shared_limits;
mod site;
