//! What is different for a server that only does jobs: what it says when it is ready, and which store it needs.
//!
//! Not here: which doors it has (`server`), that it has none for calls (`[server] worker_only`).

use std::path::Path;

use crate::config::GantryConfig;
use crate::data_dir::RunningServer;
use crate::failure::CommandFailure;
use crate::printer::{Printer, TextStyle};

/// Does this server do jobs and nothing else?
pub(super) fn is_worker_only(config: &GantryConfig) -> bool {
    config.server.limits.probes_only
}

/// A file has one writer: a worker on it would have the jobs of nobody, whether a server uses the file or not.
pub(super) fn refuse_without_others(config: &GantryConfig) -> Result<(), CommandFailure> {
    if !is_worker_only(config) || config.store.database().is_some() {
        return Ok(());
    }
    Err(CommandFailure::new("a worker does the jobs of other servers, and a SQLite store has none beside it").hint(
        "a server on SQLite does its jobs itself, as many at once as `[jobs] concurrency` says. Workers need PostgreSQL: \
         `gantry migrate copy`, then `[store] url` for all of them",
    ))
}

/// What it says when it is ready.
pub(super) fn greeting(printer: &Printer, running: &RunningServer, data_dir: &Path, config: &GantryConfig) -> String {
    let (url, dim) = (&running.url, |text: &str| printer.on_stderr(text, TextStyle::Dim));
    let title = printer.on_stderr(&format!("Gantry {} works", running.version), TextStyle::Bold);
    format!(
        "{title}, {jobs} jobs at once, and takes no calls\n  {health}  {url}/health\n  {data}  {data_dir}\n",
        jobs = config.jobs.concurrency,
        health = dim("health"),
        data = dim("data  "),
        data_dir = data_dir.display(),
    )
}
