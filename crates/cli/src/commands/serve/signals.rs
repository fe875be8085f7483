//! SIGTERM and SIGINT: the first asks for an orderly end, the second for an end at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use crate::failure::CommandFailure;

/// How many signals have come.
pub(super) struct Signals {
    count: watch::Receiver<u32>,
}

impl Signals {
    /// Starts listening; from here on signals no longer end the process by themselves.
    pub(super) fn listen() -> Result<Self, CommandFailure> {
        let open =
            |kind| signal(kind).map_err(|error| CommandFailure::new(format!("signals cannot be listened to: {error}")));
        let (terminate, interrupt) = (open(SignalKind::terminate())?, open(SignalKind::interrupt())?);
        let (told, count) = watch::channel(0);
        tokio::spawn(count_them(terminate, interrupt, told));
        Ok(Self { count })
    }

    /// Completes with the first signal.
    pub(super) fn first(&self) -> impl Future<Output = ()> + Send + 'static {
        reached(self.count.clone(), 1)
    }

    /// Completes with the second signal.
    pub(super) fn second(&mut self) -> impl Future<Output = ()> + Send + 'static {
        reached(self.count.clone(), 2)
    }
}

async fn reached(mut count: watch::Receiver<u32>, wanted: u32) {
    if count.wait_for(|count| *count >= wanted).await.is_err() {
        // The counting task has gone with the runtime; nobody will signal any more.
        std::future::pending::<()>().await;
    }
}

async fn count_them(mut terminate: Signal, mut interrupt: Signal, told: watch::Sender<u32>) {
    loop {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        told.send_modify(|count| *count = count.saturating_add(1));
        tracing::info!("signal received");
    }
}
