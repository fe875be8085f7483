//! `gantry audit rotate-key`: from now on checkpoints are signed with a new key, which a record under the old one names.
//!
//! A running server does it itself; without one it is done in the files, which are held meanwhile.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::audit_log;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::machine::{OsEntropy, SystemClock};
use crate::open_store::OpenStore;

pub(super) async fn run(context: &CommandContext) -> Result<(), CommandFailure> {
    let key = match context.data_dir().running_server() {
        Some(_) => by_the_server(context).await?,
        None => in_the_files(context).await?,
    };
    context.printer.answer(&json!({ "key": key }), |_| key.clone());
    context.printer.note("checkpoints are signed with this key from now on; hand it to whoever verifies the log");
    Ok(())
}

/// The server that holds the directory does it, and goes on.
async fn by_the_server(context: &CommandContext) -> Result<String, CommandFailure> {
    let answer = context.client()?.post("/v1/audit/rotate-key", &json!({})).await?;
    let key = answer.get("key").and_then(Value::as_str).map(ToOwned::to_owned);
    key.ok_or_else(|| CommandFailure::new("the server did not say which key it signs with from now on"))
}

async fn in_the_files(context: &CommandContext) -> Result<String, CommandFailure> {
    let (data_dir, config) = (context.data_dir(), context.config(Vec::new())?);
    // Held while the audit log is written: a running server must not be written beside.
    let store = OpenStore::open(&config.store, data_dir.path())
        .await
        .map_err(|error| error.hint("stop the server first; the key was not changed"))?;
    let options =
        audit_log::options(&config, data_dir.path(), Arc::new(SystemClock::start()), Arc::new(OsEntropy::open()?));
    let failed = |error: &dyn std::error::Error| CommandFailure::new(error.to_string()).hint("the key was not changed");
    let log = audit::FileLog::open(&config.audit.dir(data_dir.path()), &options).map_err(|error| failed(&error))?;
    let key = log.rotate_key().await.map_err(|error| failed(&error))?;
    log.close().await.map_err(|error| failed(&error))?;
    store.close().await;
    Ok(key)
}
