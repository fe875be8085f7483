//! The egress gate and its proxy over real sockets, all on loopback. Names are resolved by resolvers of the tests, so
//! nothing is asked of any network.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test crate")]

mod gate;
mod names;
mod plain;
mod refusals;
mod socks;
mod stage;
mod tunnels;
