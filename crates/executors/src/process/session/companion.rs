//! What a running tool may tell and ask: progress, its log, checkpoints, documents.
//!
//! Each call has a companion of its own. The session has read and bounded what comes; what it *means* is the companion's
//! business.

use std::fmt;

use async_trait::async_trait;
use contract::error::Refusal;
use serde_json::Value;

/// How far a tool has come, in its own words.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// 0 to 100.
    pub percent: Option<f64>,
    /// The part of the work it is in, for example `download`.
    pub phase: Option<String>,
    pub message: Option<String>,
}

/// How much a line of a tool's log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl LogLevel {
    /// The level of a word; a word that is none is `info`, because a line must not be lost for it.
    pub fn of_word(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "debug" | "trace" => Self::Debug,
            "warn" | "warning" => Self::Warn,
            "error" | "fatal" | "critical" => Self::Error,
            _ => Self::Info,
        }
    }
}

/// Hears and answers one running tool.
#[async_trait]
pub trait Companion: Send + Sync + fmt::Debug {
    /// The tool has come this far. Never waits.
    fn progress(&self, progress: Progress);

    /// A line of the tool's log. Never waits.
    fn log(&self, level: LogLevel, message: &str);

    /// Keeps the tool's state durably under a new id and returns that id.
    async fn checkpoint(&self, name: Option<&str>, state: Value) -> Result<String, Refusal>;

    /// A document that the tool is allowed to see.
    async fn document(&self, id: &str) -> Result<Value, Refusal>;
}
