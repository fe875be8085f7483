//! Real servers for tests: started on a free port of loopback, with data of their own, and gone when the test is.
//!
//! The programs come from `cargo xtask test`, which installs them; here they are only found and started. A server that
//! cannot be started is an error and never a reason to leave a test out.
//!
//! Not here: what is in the servers (the tests), MCP servers with tools (`tests/mcp`, `xtask::conformance`, `bench::mcp`).

#![expect(
    clippy::disallowed_methods,
    reason = "starts servers for tests and waits by the machine's clock: no ports to go through"
)]

mod folder;
mod guarded;
mod line;
pub mod mcp;
mod nobody;
mod pgbouncer;
mod port;
mod postgres;
mod redis;

pub use folder::{FOLDER_VARIABLE, folder, is_root, kit};
pub use guarded::GuardedServer;
pub use line::LoopbackLine;
pub use pgbouncer::PgBouncer;
pub use port::{free_port, lasting_port};
pub use postgres::PostgresServer;
pub use redis::RedisServer;
