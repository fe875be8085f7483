//! This very program once more, or an older build of it, as a server on loopback that something is measured against or through.
//!
//! A process of its own, as the product is, so that neither takes the other's time. It says where it listens in its first
//! line, and does not outlive its handle.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

/// A running server; stopped when dropped.
pub(super) struct Neighbour {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Neighbour {
    /// Starts this program with these arguments, and waits until it has said where it listens.
    pub(super) fn start(arguments: &[&str]) -> Result<Self> {
        Self::start_build(&std::env::current_exe().context("this program does not know where it is")?, arguments)
    }

    /// The same with this program as another commit has it.
    pub(super) fn start_build(program: &Path, arguments: &[&str]) -> Result<Self> {
        let name = arguments.first().copied().unwrap_or_default();
        let child = Command::new(program)
            .args(arguments)
            // Held open: some end when it does.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start `{name}`"))?;
        // From here on the handle owns the process, so that no way out leaves it running.
        let mut neighbour = Self { child, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let mut line = String::new();
        if let Some(output) = neighbour.child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        neighbour.address = line.trim().parse().with_context(|| format!("`{name}` did not say where it listens"))?;
        Ok(neighbour)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to stop.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
