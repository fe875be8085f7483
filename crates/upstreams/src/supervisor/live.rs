//! A server that is there, and how many use it.
//!
//! Invariants
//! - LIVE-1: once a server is closing nobody begins anything on it; what has begun ends, or the patience does.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use executors::process::scrub::SecretScrubber;
use executors::process::session::ScrubbedCompanion;
use ports::clock::Clock;
use ports::tool_companion::ToolCompanion;
use tokio::sync::Notify;

use crate::connection::{ServerConnection, StopGrace, within};
use crate::starter::StartedServer;

/// A connection in use.
#[derive(Debug)]
pub(crate) struct LiveConnection {
    pub(crate) connection: ServerConnection,
    pub(crate) scrubber: Arc<SecretScrubber>,
    /// On the monotonic clock.
    pub(crate) started: Duration,
    usage: Mutex<Usage>,
    quiet: Notify,
    clock: Arc<dyn Clock>,
}

#[derive(Debug)]
struct Usage {
    running: usize,
    watched: usize,
    closing: bool,
    last: Duration,
}

/// Somebody uses it. Dropping this is the end of that.
#[derive(Debug)]
pub(crate) struct InUse {
    live: Arc<LiveConnection>,
}

/// Somebody waits for what it says. Dropping this is the end of that.
#[derive(Debug)]
pub(crate) struct WatchedResource {
    live: Arc<LiveConnection>,
}

impl Drop for WatchedResource {
    fn drop(&mut self) {
        let now = self.live.clock.monotonic();
        let mut usage = self.live.usage();
        usage.watched = usage.watched.saturating_sub(1);
        usage.last = now;
    }
}

impl InUse {
    /// The server itself, whoever uses it.
    pub(crate) fn live(&self) -> &Arc<LiveConnection> {
        &self.live
    }
}

impl LiveConnection {
    pub(crate) fn new(started: StartedServer, clock: Arc<dyn Clock>) -> Arc<Self> {
        let now = clock.monotonic();
        let usage = Mutex::new(Usage { running: 0, watched: 0, closing: false, last: now });
        let StartedServer { connection, scrubber } = started;
        Arc::new(Self { connection, scrubber, started: now, usage, quiet: Notify::new(), clock })
    }

    /// A companion that hears nothing of this server's secrets.
    pub(crate) fn discreet(&self, companion: &Arc<dyn ToolCompanion>) -> Arc<dyn ToolCompanion> {
        if self.scrubber.is_empty() {
            return Arc::clone(companion);
        }
        Arc::new(ScrubbedCompanion::new(Arc::clone(companion), Arc::clone(&self.scrubber)))
    }

    /// Somebody waits for what the server says by itself: it is not idle then. It does not hold up its end.
    pub(crate) fn watched(self: &Arc<Self>) -> WatchedResource {
        self.usage().watched += 1;
        WatchedResource { live: Arc::clone(self) }
    }

    /// LIVE-1: `None` if it is on its way out.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<InUse> {
        let mut usage = self.usage();
        if usage.closing || !self.connection.is_open() {
            return None;
        }
        usage.running += 1;
        drop(usage);
        Some(InUse { live: Arc::clone(self) })
    }

    pub(crate) fn running(&self) -> usize {
        self.usage().running
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.started)
    }

    /// How long nobody has used it.
    pub(crate) fn idle_for(&self) -> Duration {
        let usage = self.usage();
        if usage.running + usage.watched > 0 {
            Duration::ZERO
        } else {
            self.clock.monotonic().saturating_sub(usage.last)
        }
    }

    /// Begins to close it if nobody uses it.
    pub(crate) fn close_if_unused(&self) -> bool {
        let mut usage = self.usage();
        usage.closing |= usage.running + usage.watched == 0;
        usage.closing
    }

    /// Lets those who use it finish, then ends it.
    pub(crate) async fn drain(&self, patience: Duration, ending: StopGrace) {
        self.usage().closing = true;
        let quiet = async {
            loop {
                let notified = self.quiet.notified();
                if self.running() == 0 || !self.connection.is_open() {
                    return;
                }
                tokio::select! {
                    () = notified => {}
                    () = self.connection.ended() => return,
                }
            }
        };
        if within(&*self.clock, patience, quiet).await.is_none() {
            tracing::warn!(running = self.running(), "a server is ended with calls on it");
        }
        self.connection.close(ending).await;
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock_unpoisoned()
    }
}

impl std::ops::Deref for InUse {
    type Target = LiveConnection;
    fn deref(&self) -> &LiveConnection {
        &self.live
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let now = self.live.clock.monotonic();
        let mut usage = self.live.usage();
        usage.running = usage.running.saturating_sub(1);
        usage.last = now;
        let quiet = usage.running == 0;
        drop(usage);
        if quiet {
            self.live.quiet.notify_one();
        }
    }
}
