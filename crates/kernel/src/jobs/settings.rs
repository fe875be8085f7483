//! How jobs are done: every bound and wait of them has its name here.

use std::time::Duration;

use contract::manifest::Manifest;

use crate::ports::job_store::QueueBounds;

/// Shortest window in which an idempotency key means the same call.
const DEDUPE_WINDOW_MIN: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings.
#[derive(Debug, Clone, PartialEq)]
pub struct JobsSettings {
    /// Jobs that this process does at once.
    pub concurrency: usize,
    /// Running jobs of one tenant, in all processes.
    pub running_per_tenant: u32,
    /// How much may wait.
    pub bounds: QueueBounds,
    /// The largest payload of one job.
    pub payload_bytes_max: usize,
    /// How often a job that may be repeated is started, unless its tool says otherwise.
    pub attempts_max: u32,
    /// The pause before the second attempt is up to this long, and doubles with each.
    pub backoff_first: Duration,
    pub backoff_max: Duration,
    /// For how long the caller's word holds: a job that has not begun by then is not begun.
    pub max_age: Duration,
    /// How long this process may be silent before its jobs are given to others.
    pub lease: Duration,
    /// Is no other process working on the same store? Then the jobs of former processes are taken over at once.
    pub alone: bool,
    /// How often the queue is looked at without being told.
    pub poll: Duration,
    /// How long running jobs have to end at shutdown.
    pub drain: Duration,
    /// For how long ended jobs are kept, and those that somebody should look at.
    pub retention: Duration,
    pub dead_retention: Duration,
    /// How long a caller is kept waiting before its call goes on in the background.
    pub promote_after: Duration,
    /// Calls that go on in the background at once.
    pub promoted_max: usize,
}

impl Default for JobsSettings {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            concurrency: 8,
            running_per_tenant: 8,
            bounds: QueueBounds { per_tenant: 20_000, total: 200_000 },
            payload_bytes_max: 4 * 1024 * 1024,
            attempts_max: 3,
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(300),
            max_age: DAY,
            lease: Duration::from_secs(30),
            alone: true,
            poll: Duration::from_secs(1),
            drain: Duration::from_secs(10),
            retention: DAY * 7,
            dead_retention: DAY * 30,
            promote_after: Duration::from_secs(20),
            promoted_max: 256,
        }
    }
}

/// For how long a key of this tool means the same call: twice what a call can take, and a day at least.
pub(super) fn dedupe_window(manifest: &Manifest) -> Duration {
    DEDUPE_WINDOW_MIN.max(Duration::from_millis(manifest.timeout_max_ms()) * 2)
}
