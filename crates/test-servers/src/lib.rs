//! Real servers for tests: started on a free port of loopback, with data of their own, and gone when the test is.
//!
//! The programs come from `cargo xtask test`, which installs them; here they are only found and started. A server that
//! cannot be started is an error and never a reason to leave a test out.
//!
//! Not here: what is in the servers (the tests), MCP servers (`tests/mcp`).

#![expect(
    clippy::disallowed_methods,
    reason = "starts servers for tests and waits by the machine's clock: no ports to go through"
)]

mod folder;
mod guarded;
mod port;
mod postgres;

pub use folder::kit;
pub use guarded::Guarded;
pub use port::free_port;
pub use postgres::Postgres;
