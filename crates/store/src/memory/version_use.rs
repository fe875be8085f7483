//! `VersionUseStore` without durability: a map of hours.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use ports::tool_version::VersionKey;
use ports::version_use::{Hour, HourOfUse, VersionUse, VersionUseStore};

use super::MemoryStore;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Counted {
    hours: BTreeMap<(VersionKey, Hour), u64>,
    reported: UnixMillis,
}

#[async_trait]
impl VersionUseStore for MemoryStore {
    async fn add_version_use(&self, hours: &[HourOfUse]) -> Result<(), StoreError> {
        let mut counted = self.version_use.lock_unpoisoned();
        for HourOfUse { version, hour, calls } in hours {
            *counted.hours.entry((version.clone(), *hour)).or_default() += calls;
        }
        Ok(())
    }

    async fn version_use(&self, from: Hour) -> Result<VersionUse, StoreError> {
        let counted = self.version_use.lock_unpoisoned();
        let hours = counted.hours.iter().filter(|((_, hour), _)| *hour >= from);
        let hours =
            hours.map(|((version, hour), calls)| HourOfUse { version: version.clone(), hour: *hour, calls: *calls });
        Ok(VersionUse { since: UnixMillis(0), hours: hours.collect() })
    }

    async fn begin_use_report(&self, now: UnixMillis, every: Duration) -> Result<Option<UnixMillis>, StoreError> {
        let mut counted = self.version_use.lock_unpoisoned();
        if counted.reported.plus(every) > now {
            return Ok(None);
        }
        Ok(Some(std::mem::replace(&mut counted.reported, now)))
    }

    async fn forget_version_use(&self, before: Hour) -> Result<(), StoreError> {
        let mut counted = self.version_use.lock_unpoisoned();
        counted.hours.retain(|(_, hour), _| *hour >= before);
        Ok(())
    }
}
