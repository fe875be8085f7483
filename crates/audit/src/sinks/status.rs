//! How a sink is doing, for metrics and for `gantry audit sinks`.
//!
//! The courier writes it to a file beside its cursor whenever it changes, so that it can be read without the server, and
//! also when the server is the one that is in trouble. The file is news, not truth: it need not survive a crash, and where
//! it and the cursor differ, the cursor is right.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ports::clock::UnixMillis;
use serde::{Deserialize, Serialize};

use super::cursor::{replace, text_of};

/// Longest reason that is kept.
const REASON_CHARS_MAX: usize = 500;

/// How a sink is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SinkState {
    /// It takes what it is given.
    Delivering,
    /// It fails at the moment and is tried again with growing pauses.
    Failing,
    /// It refuses for good what comes next; somebody has to look. It is tried again now and then.
    Halted,
    /// Its server has ended in good order.
    Stopped,
}

impl SinkState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Delivering, Self::Failing, Self::Halted, Self::Stopped];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivering => "delivering",
            Self::Failing => "failing",
            Self::Halted => "halted",
            Self::Stopped => "stopped",
        }
    }
}

/// How far a sink is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinkLag {
    /// Records that wait.
    pub records: u64,
    /// Age of the oldest of them.
    pub age: Duration,
}

/// What the file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkStatus {
    pub state: SinkState,
    /// Since when it is in this state.
    pub since: String,
    /// Failures in a row.
    pub failures: u32,
    /// The last of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Hears how sinks are doing. Must not block and must not fail.
pub trait SinkWatcher: Send + Sync + fmt::Debug {
    /// So many records were acknowledged.
    fn delivered(&self, sink: &str, records: u64);
    /// Records were acknowledged, of which the oldest had waited so long.
    fn waited(&self, sink: &str, longest: Duration) {
        // Most who watch something else do not measure it.
        let _ = (sink, longest);
    }
    /// A delivery failed.
    fn failed(&self, sink: &str);
    /// How far it is behind now.
    fn lag(&self, sink: &str, lag: SinkLag);
    /// It is in this state now.
    fn state(&self, sink: &str, state: SinkState);
}

/// Hears everything and keeps nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSinkObserver;

impl SinkWatcher for NoSinkObserver {
    fn delivered(&self, _: &str, _: u64) {}
    fn failed(&self, _: &str) {}
    fn lag(&self, _: &str, _: SinkLag) {}
    fn state(&self, _: &str, _: SinkState) {}
}

/// The file of one sink.
#[derive(Debug)]
pub struct StatusFile {
    dir: PathBuf,
    sink: String,
    last: Option<SinkStatus>,
}

impl StatusFile {
    pub(super) fn new(dir: &Path, sink: &str) -> Self {
        Self { dir: dir.to_owned(), sink: sink.to_owned(), last: None }
    }

    /// What the file of a sink says; `None` if there is none or it cannot be understood.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn peek(dir: &Path, sink: &str) -> io::Result<Option<SinkStatus>> {
        match text_of(dir, sink, "status") {
            Ok(text) => Ok(serde_json::from_str(&text).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes it down if it is news. A status that cannot be written is no reason not to deliver.
    pub(super) fn note(&mut self, state: SinkState, failures: u32, reason: Option<&str>, now: UnixMillis) {
        let since = match &self.last {
            Some(last) if last.state == state => last.since.clone(),
            _ => now.to_string(),
        };
        let reason = reason.map(|reason| reason.chars().take(REASON_CHARS_MAX).collect());
        let status = SinkStatus { state, since, failures, reason };
        if self.last.as_ref() == Some(&status) {
            return;
        }
        let written = serde_json::to_string(&status)
            .map_err(io::Error::from)
            .and_then(|text| replace(&self.dir, &self.sink, "status", &text, false));
        if let Err(error) = written {
            tracing::debug!(sink = self.sink, %error, "the status of a sink of the audit log cannot be written");
        }
        self.last = Some(status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_keeps_the_time_it_began() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = StatusFile::new(dir.path(), "siem");
        file.note(SinkState::Failing, 1, Some("no connection"), UnixMillis(1000));
        file.note(SinkState::Failing, 2, Some(&"x".repeat(9000)), UnixMillis(2000));
        let status = StatusFile::peek(dir.path(), "siem").unwrap().unwrap();
        assert_eq!((status.state, status.failures), (SinkState::Failing, 2));
        assert_eq!(status.since, UnixMillis(1000).to_string());
        assert_eq!(status.reason.unwrap().len(), REASON_CHARS_MAX);
        file.note(SinkState::Delivering, 0, None, UnixMillis(3000));
        assert_eq!(StatusFile::peek(dir.path(), "siem").unwrap().unwrap().since, UnixMillis(3000).to_string());
        assert_eq!(StatusFile::peek(dir.path(), "other").unwrap(), None);
    }
}
