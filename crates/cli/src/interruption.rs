//! Work that a person breaks off with Ctrl-C, or a machine with SIGTERM, and that has something to say then.
//!
//! Not here: a server that drains (`commands::serve`).

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::CommandFailure;

/// What the work comes to; `None` if it was broken off. It is dropped then, wherever it waits.
pub(crate) async fn unless_interrupted<T>(work: impl Future<Output = T>) -> Result<Option<T>, CommandFailure> {
    let open =
        |kind| signal(kind).map_err(|error| CommandFailure::new(format!("signals cannot be listened to: {error}")));
    let (mut terminate, mut interrupt) = (open(SignalKind::terminate())?, open(SignalKind::interrupt())?);
    Ok(tokio::select! {
        done = work => Some(done),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    })
}
