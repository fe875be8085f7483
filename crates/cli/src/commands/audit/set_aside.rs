//! `gantry audit set-aside`: what somebody has written after the end of the log goes into a file of its own, and a record says so.
//!
//! The way back for an operator whose server does not start any more: nothing is deleted, and nothing of it is signed.

use std::sync::Arc;

use serde_json::json;

use crate::audit_log;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::machine::{OsEntropy, SystemClock};
use crate::open_store::OpenStore;

pub(super) async fn run(context: &CommandContext) -> Result<(), CommandFailure> {
    let (data_dir, config) = (context.data_dir(), context.config(Vec::new())?);
    // Held while the audit log is written: a running server must not be written beside.
    let store = OpenStore::open(&config.store, data_dir.path())
        .await
        .map_err(|error| error.hint("stop the server first; nothing was moved"))?;
    let options =
        audit_log::options(&config, data_dir.path(), Arc::new(SystemClock::start()), Arc::new(OsEntropy::open()?));
    let dir = config.audit.dir(data_dir.path());
    let failed = |error: &dyn std::error::Error| CommandFailure::new(error.to_string());
    let lines = audit::set_aside(&dir, &options).map_err(|error| failed(&error))?;
    if lines.is_some() {
        // Opening the log writes the record that names the file.
        let log = audit::FileLog::open(&dir, &options).map_err(|error| failed(&error))?;
        log.close().await.map_err(|error| failed(&error))?;
    }
    store.close().await;
    context.printer.answer(&json!({ "lines": lines.unwrap_or(0) }), |_| match lines {
        Some(lines) => format!("{lines} line(s) set aside beside the log; the server can start again"),
        None => "there is nothing after the end of the log that the server did not write".to_owned(),
    });
    if lines.is_some() {
        context
            .printer
            .note("somebody has written to the audit log: find out who could, and change what they could read");
    }
    Ok(())
}
