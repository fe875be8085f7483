//! The names of alerts and events that people and programs wait for. (OBS-007, OBS-009, OBS-011)
//!
//! One table, so that a name is written in one way in the log, in webhooks, in answers and in rules of Prometheus. Only what
//! something can raise is in it: a name nobody raises is a promise nobody keeps.
//!
//! Not here: when they are raised (the kernel, `upstreams`), and who is told.

/// A name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventName {
    /// More calls of a version fail than may.
    ToolDegraded,
    /// The p99 of a version is far above what is usual for it.
    LatencyRegression,
    /// More calls of a version take longer than its class allows than may.
    TimeoutClassMismatch,
    /// More approvals wait, and for longer, than may.
    ApprovalQueueBacklog,
    /// Another timeout class would do; comes with `TimeoutClassMismatch`.
    ReclassifyTimeout,
    /// A result is not what the manifest promises.
    ToolOutputSchemaViolation,
    /// A tool answered with what cannot be read as a result at all.
    ToolOutputCorruption,
    /// A server behind Gantry describes a tool in a way that cannot be taken in.
    InvalidToolSchema,
    /// Nobody has used a deprecated version for a week.
    DeprecationMigrationComplete,
    /// Somebody still uses a deprecated version.
    DeprecationMigrationProgress,
    /// A deprecated version could be removed by its date, but somebody still uses it.
    DeprecationRemovalBlocked,
    /// A version was removed.
    ToolVersionRemoved,
}

impl EventName {
    /// Every name.
    pub const ALL: [Self; 12] = [
        Self::ToolDegraded,
        Self::LatencyRegression,
        Self::TimeoutClassMismatch,
        Self::ApprovalQueueBacklog,
        Self::ReclassifyTimeout,
        Self::ToolOutputSchemaViolation,
        Self::ToolOutputCorruption,
        Self::InvalidToolSchema,
        Self::DeprecationMigrationComplete,
        Self::DeprecationMigrationProgress,
        Self::DeprecationRemovalBlocked,
        Self::ToolVersionRemoved,
    ];

    /// As it is written everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolDegraded => "ToolDegraded",
            Self::LatencyRegression => "LatencyRegression",
            Self::TimeoutClassMismatch => "TimeoutClassMismatch",
            Self::ApprovalQueueBacklog => "ApprovalQueueBacklog",
            Self::ReclassifyTimeout => "RECLASSIFY_TIMEOUT",
            Self::ToolOutputSchemaViolation => "TOOL_OUTPUT_SCHEMA_VIOLATION",
            Self::ToolOutputCorruption => "TOOL_OUTPUT_CORRUPTION",
            Self::InvalidToolSchema => "INVALID_TOOL_SCHEMA",
            Self::DeprecationMigrationComplete => "DEPRECATION_MIGRATION_COMPLETE",
            Self::DeprecationMigrationProgress => "DEPRECATION_MIGRATION_PROGRESS",
            Self::DeprecationRemovalBlocked => "DEPRECATION_REMOVAL_BLOCKED",
            Self::ToolVersionRemoved => "TOOL_VERSION_REMOVED",
        }
    }
}

impl std::fmt::Display for EventName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_name_is_there_once_and_is_a_word() {
        let names: HashSet<&str> = EventName::ALL.iter().map(|name| name.as_str()).collect();
        assert_eq!(names.len(), EventName::ALL.len());
        assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_alphabetic() || c == '_')));
    }
}
