//! Running jobs of this process, so that they can be told to stop, and so that a call knows why it was ended.

use std::collections::HashMap;
use std::sync::Mutex;

use base::MutexExt as _;
use ports::job_store::JobKey;
use tokio_util::sync::CancellationToken;

/// Why a job was told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyStop {
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

/// The jobs that this process does at the moment. As many as may run at once.
#[derive(Debug, Default)]
pub struct RunningJobs(Mutex<HashMap<JobKey, Entry>>);

impl RunningJobs {
    fn entries(&self) -> std::sync::MutexGuard<'_, HashMap<JobKey, Entry>> {
        self.0.lock_unpoisoned()
    }

    /// Notes a job and the token that ends it.
    pub fn begin(&self, key: &JobKey, cancellation: CancellationToken) {
        self.entries().insert(key.clone(), Entry { cancellation, why: None });
    }

    /// Why a job was told to stop, if this is one of them and it was.
    pub fn why_stopped(&self, key: &JobKey) -> Option<WhyStop> {
        self.entries().get(key).and_then(|entry| entry.why)
    }

    /// Forgets it, and says why it was told to stop, if it was.
    pub fn end(&self, key: &JobKey) -> Option<WhyStop> {
        self.entries().remove(key).and_then(|entry| entry.why)
    }

    /// Somebody does not want it any more.
    pub fn cancel(&self, key: &JobKey) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.why.get_or_insert(WhyStop::Asked);
            entry.cancellation.cancel();
        }
    }

    /// The process ends, or has lost its lease.
    pub fn leave(&self) {
        for entry in self.entries().values_mut() {
            entry.why.get_or_insert(WhyStop::Leaving);
            entry.cancellation.cancel();
        }
    }
}
