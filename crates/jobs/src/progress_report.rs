//! From what a tool says about its progress to what is kept of it: the newest word, at most one every [`REPORT_EVERY`].

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use contract::error::Refusal;
use ports::job_store::{FencingToken, JobKey, WriteOutcome};
use ports::tool_companion::{
    CallListener, CallerAnswer, LogLevel, LogNote, LogSeverity, ProtocolEra, QuestionKind, ToolProgress, ToolQuestion,
    nobody_to_ask,
};
use serde_json::Value;
use tokio::sync::Notify;

use super::Jobs;

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
        let mut newest = self.newest.lock_unpoisoned();
        let (had_percent, had_phase) = newest.take().unwrap_or_default();
        *newest = Some((percent.or(had_percent), phase.or(had_phase)));
        drop(newest);
        self.said.notify_one();
    }

    fn take(&self) -> Option<(Option<f64>, Option<String>)> {
        self.newest.lock_unpoisoned().take()
    }

    /// Writes reports for as long as it is polled. Never ends: whoever waits for the work drops it.
    pub(super) async fn write(&self, jobs: &Jobs, key: &JobKey, fence: FencingToken) {
        loop {
            self.said.notified().await;
            if let Some((percent, phase)) = self.take() {
                match jobs.queue.store.report(key, fence, percent, phase).await {
                    Ok(WriteOutcome::Kept(_)) => jobs.queue.changed(key),
                    Ok(WriteOutcome::Fenced) => return std::future::pending().await,
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
impl CallListener for Reporter {
    fn progress(&self, progress: &ToolProgress) {
        self.note(progress.percent, progress.phase.clone());
    }

    fn log(&self, _: LogLevel, _: &str) {}

    async fn ask(&self, _: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        Err(nobody_to_ask())
    }
}

/// Who hears a job: its reporter, and the door it came through if somebody there still listens.
pub(super) fn heard_by(reporter: &Arc<Reporter>, listener: Option<Arc<dyn CallListener>>) -> Arc<dyn CallListener> {
    let reporter = Arc::clone(reporter);
    match listener {
        Some(listener) => Arc::new(Both { reporter, listener }),
        None => reporter,
    }
}

#[derive(Debug)]
struct Both {
    reporter: Arc<Reporter>,
    listener: Arc<dyn CallListener>,
}

/// Both hear how far it is; the listener alone can be asked.
#[async_trait]
impl CallListener for Both {
    fn progress(&self, progress: &ToolProgress) {
        self.reporter.progress(progress);
        self.listener.progress(progress);
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.listener.log(level, message);
    }

    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        self.listener.can_be_asked()
    }

    fn note(&self, note: LogNote) {
        self.listener.note(note);
    }

    fn wanted_log(&self) -> Option<LogSeverity> {
        self.listener.wanted_log()
    }

    fn era(&self) -> Option<ProtocolEra> {
        self.listener.era()
    }

    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        self.listener.ask(questions).await
    }
}
