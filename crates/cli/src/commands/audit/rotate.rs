//! `gantry audit rotate-key`: from now on checkpoints are signed with a new key, which a record under the old one names.

use std::sync::Arc;

use serde_json::json;

use crate::audit_log;
use crate::context::Context;
use crate::failure::Failure;
use crate::machine::{OsEntropy, SystemClock};
use crate::open_store::OpenStore;

pub(super) async fn run(context: &Context) -> Result<(), Failure> {
    let (data_dir, config) = (context.data_dir(), context.config(Vec::new())?);
    // Held while the audit log is written: a running server must not be written beside.
    let store = OpenStore::open(&config.store, data_dir.path())
        .await
        .map_err(|error| error.hint("stop the server first; the key was not changed"))?;
    let options =
        audit_log::options(&config, data_dir.path(), Arc::new(SystemClock::start()), Arc::new(OsEntropy::open()?));
    let failed = |error: &dyn std::error::Error| Failure::new(error.to_string()).hint("the key was not changed");
    let log = audit::FileLog::open(&config.audit.dir(data_dir.path()), &options).map_err(|error| failed(&error))?;
    let key = log.rotate_key().await.map_err(|error| failed(&error))?;
    log.close().await.map_err(|error| failed(&error))?;
    store.close().await;
    context.printer.answer(&json!({ "key": key }), |_| key.clone());
    context.printer.note("checkpoints are signed with this key from now on; hand it to whoever verifies the log");
    Ok(())
}
