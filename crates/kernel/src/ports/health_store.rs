//! What is kept of the health of tools over a restart: the last score, what is usual, and what is raised. (OBS-008)
//!
//! One row per version, replaced as a whole. Losing rows costs an hour of learning and nothing else.

use std::fmt;

use async_trait::async_trait;

use super::clock::UnixMillis;
use super::registry_store::StoreError;
use crate::health::VersionKey;
use crate::health::alerts::AlertRule;

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
