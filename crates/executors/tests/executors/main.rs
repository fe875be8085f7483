//! The executors through their port, as the kernel uses them: real manifests, real calls, a real HTTP server and real
//! processes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test crate")]

mod builtin;
mod calls;
mod model;
mod oci;
mod process;
