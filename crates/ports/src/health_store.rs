//! What is kept of the health of tools over a restart: the last score, what is usual, and what is raised. (OBS-008)
//!
//! One row per version, replaced as a whole. Losing rows costs an hour of learning and nothing else.

use std::fmt;

use async_trait::async_trait;
use contract::event_name::EventName;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;
use crate::tool_version::VersionKey;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertRule {
    ToolDegraded,
    LatencyRegression,
    TimeoutClassMismatch,
    /// A version answers with what its manifest does not allow (OBS-011).
    OutputSchemaViolation,
    /// A version answers with what cannot be read (OBS-011).
    OutputCorruption,
    ApprovalQueueBacklog,
}

impl AlertRule {
    /// The rules about one version of a tool.
    pub const OF_TOOLS: [Self; 5] = [
        Self::ToolDegraded,
        Self::LatencyRegression,
        Self::TimeoutClassMismatch,
        Self::OutputSchemaViolation,
        Self::OutputCorruption,
    ];

    /// Every rule.
    pub const ALL: [Self; 6] = [
        Self::ToolDegraded,
        Self::LatencyRegression,
        Self::TimeoutClassMismatch,
        Self::OutputSchemaViolation,
        Self::OutputCorruption,
        Self::ApprovalQueueBacklog,
    ];

    /// The name on the wire, in the log and in the store.
    pub fn as_str(self) -> &'static str {
        let name = match self {
            Self::ToolDegraded => EventName::ToolDegraded,
            Self::LatencyRegression => EventName::LatencyRegression,
            Self::TimeoutClassMismatch => EventName::TimeoutClassMismatch,
            Self::OutputSchemaViolation => EventName::ToolOutputSchemaViolation,
            Self::OutputCorruption => EventName::ToolOutputCorruption,
            Self::ApprovalQueueBacklog => EventName::ApprovalQueueBacklog,
        };
        name.as_str()
    }

    /// The rule of a name.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.as_str() == word)
    }
}

/// What is kept of one version.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthRecord {
    pub key: VersionKey,
    /// The last one; `None` without calls.
    pub score: Option<f64>,
    /// Calls in the window at that time.
    pub calls: u64,
    pub baseline_p99_ms: f64,
    pub baseline_windows: u32,
    /// What is raised, and since when.
    pub raised: Vec<(AlertRule, UnixMillis)>,
    pub at: UnixMillis,
}

/// Keeps it.
#[async_trait]
pub trait HealthStore: Send + Sync + fmt::Debug {
    /// Replaces the rows of these versions, all of them or none. Versions that are not named keep theirs.
    async fn keep_health(&self, records: &[HealthRecord]) -> Result<(), StoreError>;

    /// The newest rows, at most so many, the newest first.
    async fn health(&self, most: usize) -> Result<Vec<HealthRecord>, StoreError>;
}
