//! State of one client at the door: of its session if it is an older one, of its request otherwise.
//!
//! Not here: who it is, which each request shows anew ([`McpVisit`](super::McpVisit)).

#![expect(deprecated, reason = "newer revisions have no logging, but older clients ask for it and may have it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use rmcp::model::LoggingLevel;

use super::detached_calls::DetachedCalls;
use crate::door::Door;

/// Levels as they are kept; 0 is none.
const LEVELS: [LoggingLevel; 8] = [
    LoggingLevel::Debug,
    LoggingLevel::Info,
    LoggingLevel::Notice,
    LoggingLevel::Warning,
    LoggingLevel::Error,
    LoggingLevel::Critical,
    LoggingLevel::Alert,
    LoggingLevel::Emergency,
];

/// One client, and the door it came to.
#[derive(Debug)]
pub(crate) struct ClientState {
    pub(crate) door: Arc<Door>,
    /// What an older client wants to hear of, for its session.
    log_level: AtomicU8,
    /// Its calls that only a message cancels.
    pub(crate) lasting: DetachedCalls,
}

impl ClientState {
    pub(crate) fn new(door: Arc<Door>) -> Self {
        Self { door, log_level: AtomicU8::new(0), lasting: DetachedCalls::default() }
    }

    pub(crate) fn log_level(&self) -> Option<LoggingLevel> {
        usize::from(self.log_level.load(Ordering::Relaxed)).checked_sub(1).and_then(|at| LEVELS.get(at)).copied()
    }

    pub(crate) fn set_log_level(&self, level: LoggingLevel) {
        let at = LEVELS.iter().position(|known| *known == level).unwrap_or_default();
        self.log_level.store(u8::try_from(at + 1).unwrap_or_default(), Ordering::Relaxed);
    }
}
