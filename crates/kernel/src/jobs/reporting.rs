//! From what a tool says about its progress to what is kept of it: the newest word, at most one every [`REPORT_EVERY`].

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use contract::error::Refusal;
use tokio::sync::Notify;

use super::Jobs;
use crate::ports::companion::{Answer, Audience, LogLevel, Progress, Question, nobody_to_ask};
use crate::ports::job_store::{Fence, JobKey, Written};

/// Reports of one job are written no more often.
const REPORT_EVERY: Duration = Duration::from_millis(250);

/// Hears one job.
#[derive(Debug, Default)]
pub(super) struct Reporter {
    newest: Mutex<Option<(Option<f64>, Option<String>)>>,
    said: Notify,
}

impl Reporter {
    /// Replaces what was said before and not written yet.
    pub(super) fn note(&self, percent: Option<f64>, phase: Option<String>) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let (had_percent, had_phase) = newest.take().unwrap_or_default();
        *newest = Some((percent.or(had_percent), phase.or(had_phase)));
        drop(newest);
        self.said.notify_one();
    }

    fn take(&self) -> Option<(Option<f64>, Option<String>)> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Writes reports for as long as it is polled. Never ends: whoever waits for the work drops it.
    pub(super) async fn write(&self, jobs: &Jobs, key: &JobKey, fence: Fence) {
        loop {
            self.said.notified().await;
            if let Some((percent, phase)) = self.take() {
                match jobs.store.report(key, fence, percent, phase).await {
                    Ok(Written::Kept(_)) => jobs.tell(key),
                    Ok(Written::Fenced) => return std::future::pending().await,
                    // Progress is not worth a failure.
                    Err(error) => tracing::warn!(%error, "progress of a job was not kept"),
                }
            }
            jobs.kernel.clock().sleep(REPORT_EVERY).await;
        }
    }
}

/// A job's tool is heard by its reporter; nobody is there to be asked.
#[async_trait]
impl Audience for Reporter {
    fn progress(&self, progress: &Progress) {
        self.note(progress.percent, progress.phase.clone());
    }

    fn log(&self, _: LogLevel, _: &str) {}

    async fn ask(&self, _: Vec<Question>) -> Result<Vec<Answer>, Refusal> {
        Err(nobody_to_ask())
    }
}
