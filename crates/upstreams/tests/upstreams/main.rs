//! Servers behind Gantry as the kernel and the command line see them: real processes in real sandboxes, real HTTP on this
//! machine, and a server with a switch for every misbehaviour (`tests/servers/misbehaving.py`).

#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test crate")]

mod faults;
mod http;
mod lifecycle;
mod outcomes;
mod rig;
mod stdio;
