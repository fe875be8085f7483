//! Many sandboxed calls at once: every one is right, and how many there are a second.
//!
//! Beside it, as many bare shells kept running at once by as many threads: what the machine can start at all.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde::Serialize;
use serde_json::json;
use tokio::task::JoinSet;

use super::peers::Program;
use super::tools::{SHELL_TOOL, ToolServer};
use crate::load::{Connection, Traffic};

/// Calls that run at once.
const AT_ONCE: usize = 64;

/// What came of it.
#[derive(Serialize)]
pub(super) struct Burst {
    pub(super) at_once: usize,
    pub(super) calls: usize,
    pub(super) errors: usize,
    /// What the first error said.
    pub(super) first_error: Option<String>,
    pub(super) per_second: f64,
    /// Bare shells a second, as many at once.
    pub(super) bare_per_second: f64,
}

/// `each` calls on every connection.
pub(super) async fn measure(tool_server: &ToolServer, each: usize) -> Result<Burst> {
    let traffic = tool_server.traffic(SHELL_TOOL, &json!({}));
    let address = tool_server.server.address;
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..AT_ONCE {
        let traffic = traffic.clone();
        tasks.spawn(async move {
            let (mut errors, mut left) = (Vec::new(), each);
            while left > 0 {
                // A connection is of no use after an error, so each time it is another.
                let failed = calls(address, &traffic, &mut left).await.err();
                errors.extend(failed.map(|error| format!("{error:#}")));
            }
            errors
        });
    }
    let mut errors = Vec::new();
    while let Some(part) = tasks.join_next().await {
        errors.append(&mut part.context("a connection's task died")?);
    }
    let taken = start.elapsed().as_secs_f64();
    let script = tool_server.script(SHELL_TOOL, "main.sh");
    let bare_per_second =
        tokio::task::spawn_blocking(move || bare(&script, each)).await.context("the threads died")??;
    let calls = AT_ONCE * each;
    let right = calls.saturating_sub(errors.len());
    Ok(Burst {
        at_once: AT_ONCE,
        calls,
        errors: errors.len(),
        first_error: errors.into_iter().next(),
        per_second: count(right) / taken,
        bare_per_second,
    })
}

/// Calls until there is none left or one goes wrong.
async fn calls(address: SocketAddr, traffic: &Traffic, left: &mut usize) -> Result<()> {
    let connection = Connection::open(address).await;
    let Ok(mut connection) = connection else {
        *left -= 1;
        return connection.map(drop);
    };
    while *left > 0 {
        *left -= 1;
        connection.timed(traffic).await?;
    }
    Ok(())
}

/// Bare shells a second.
fn bare(script: &Path, each: usize) -> Result<f64> {
    let shell = Program::new("/bin/sh", &[script.to_str().context("a path that is no text")?]);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let run = || (0..each).try_for_each(|_| shell.once().map(drop));
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(run)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread died"))?)
    })?;
    Ok(count(AT_ONCE * each) / start.elapsed().as_secs_f64())
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}
