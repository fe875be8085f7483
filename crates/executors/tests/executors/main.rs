//! The executors through their port, as the kernel uses them: real manifests, real calls, a real HTTP server, real
//! processes and real WASM components.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test crate")]

mod builtin;
mod calls;
mod conversation;
mod guarded_calls;
mod model;
mod oci;
mod process;
mod sandboxed;
mod wasm;
