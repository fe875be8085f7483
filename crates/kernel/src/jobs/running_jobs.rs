//! What this process is doing at the moment, so that it can be told to stop.

use std::collections::HashMap;
use std::sync::Mutex;

use base::MutexExt as _;
use ports::job_store::JobKey;
use tokio_util::sync::CancellationToken;

/// Why a job was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhyStop {
    /// Somebody does not want it any more.
    Asked,
    /// The process ends, or has lost its lease.
    Leaving,
}

#[derive(Debug)]
struct Entry {
    cancellation: CancellationToken,
    why: Option<WhyStop>,
}

/// The jobs in hand. As many as may run at once.
#[derive(Debug, Default)]
pub(crate) struct RunningJobs(Mutex<HashMap<JobKey, Entry>>);

impl RunningJobs {
    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<JobKey, Entry>> {
        self.0.lock_unpoisoned()
    }

    /// Notes a job and the token that ends it.
    pub(crate) fn begin(&self, key: &JobKey, cancellation: CancellationToken) {
        self.entries().insert(key.clone(), Entry { cancellation, why: None });
    }

    /// Why a job was told to stop, if this is one of them and it was.
    pub(crate) fn why_stopped(&self, key: &JobKey) -> Option<WhyStop> {
        self.entries().get(key).and_then(|entry| entry.why)
    }

    /// Forgets it, and says why it was told to stop, if it was.
    pub(crate) fn end(&self, key: &JobKey) -> Option<WhyStop> {
        self.entries().remove(key).and_then(|entry| entry.why)
    }

    /// Somebody does not want it any more.
    pub(crate) fn cancel(&self, key: &JobKey) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.why.get_or_insert(WhyStop::Asked);
            entry.cancellation.cancel();
        }
    }

    /// The process ends, or has lost its lease.
    pub(crate) fn leave(&self) {
        for entry in self.entries().values_mut() {
            entry.why.get_or_insert(WhyStop::Leaving);
            entry.cancellation.cancel();
        }
    }
}
