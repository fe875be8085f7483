//! What a tool *is*: manifest, versions, schemas, side-effect classes, the error table and the envelopes of a call.
//!
//! Pure by rule: no I/O, no clock, no randomness, no async. Everything here is a function of what is handed in, which is
//! why doors, kernel, CLI and tests can share it without dragging each other along.

pub mod canonical;
pub mod compat;
pub mod cost;
pub mod envelope;
pub mod error;
pub mod event_name;
pub mod guard;
pub mod hex;
pub mod idempotency;
pub mod ids;
pub mod json;
pub mod license;
pub mod manifest;
pub mod money;
pub mod nearest;
pub mod schema;
pub mod trace_context;
pub mod version;
