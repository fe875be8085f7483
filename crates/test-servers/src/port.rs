//! Ports for servers that want to be told theirs.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

/// Ports that the system does not give to others by itself.
const LASTING: std::ops::Range<u16> = 20_000..32_000;

/// A port of loopback that nobody listens on at the moment. Somebody may until it is used: callers try again.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot ask for a free port")?;
    Ok(listener.local_addr().context("cannot read the port")?.port())
}

/// The same, but of those that stay free while nobody is told of them: for a server that ends and comes back.
pub fn lasting_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Programs that run at once begin at different places.
    let start = std::process::id().wrapping_mul(7_919);
    for _ in LASTING {
        let step = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % u32::from(LASTING.end - LASTING.start);
        let port = LASTING.start + u16::try_from(step).context("a port is larger than ports are")?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free")
}
