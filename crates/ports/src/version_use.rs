//! How often versions that end are still called, counted by all instances together. (REG-012, REG-013)
//!
//! Calls are counted by the hour and only ever added to. What is brought twice because an answer got lost counts twice: that
//! nobody uses a version any more must never be told too early, and too late does no harm.
//!
//! Not here: what follows from the numbers (`insights`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;
use crate::tool_version::VersionKey;

/// An hour in UTC, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(pub i64);

impl Hour {
    /// The hour of a moment.
    pub fn of(time: UnixMillis) -> Self {
        Self(time.0.div_euclid(3_600_000))
    }
}

/// Calls of one version in one hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HourOfUse {
    pub version: VersionKey,
    pub hour: Hour,
    pub calls: u64,
}

/// What was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionUse {
    /// Since when calls are counted in this store.
    pub since: UnixMillis,
    /// In no order that means anything.
    pub hours: Vec<HourOfUse>,
}

/// Counts calls of versions that end.
#[async_trait]
pub trait VersionUseStore: Send + Sync + fmt::Debug {
    /// Adds calls, durably, all of them or none.
    async fn add_version_use(&self, hours: &[HourOfUse]) -> Result<(), StoreError>;

    /// Everything that was counted from this hour on, of every tenant.
    async fn version_use(&self, from: Hour) -> Result<VersionUse, StoreError>;

    /// Leave to report, given to one instance in this span: `Some` with the time of the report before (zero if there was
    /// none), `None` if somebody has reported in it already.
    async fn begin_use_report(&self, now: UnixMillis, every: Duration) -> Result<Option<UnixMillis>, StoreError>;

    /// Forgets everything before this hour.
    async fn forget_version_use(&self, before: Hour) -> Result<(), StoreError>;
}
