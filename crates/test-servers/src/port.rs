//! Ports for servers that want to be told theirs.

use std::net::TcpListener;

use anyhow::{Context, Result};

/// A port of loopback that nobody listens on at the moment. Somebody may until it is used: callers try again.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot ask for a free port")?;
    Ok(listener.local_addr().context("cannot read the port")?.port())
}
