//! `RecordArchive` without durability: all records in their order, filtered when somebody asks.
//!
//! Months exist as names only: those that were made ready and those that have a record.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;

use async_trait::async_trait;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::record_archive::{
    ARCHIVE_PAGE_MAX, ARCHIVE_SCAN_MAX, AppendOutcome, ArchivePage, ArchivePlace, ArchiveQuery, ArchiveRecord,
    ArchiveStats, ArchiveTable, ArchivedRecord, InvocationPage, InvocationQuery, InvocationRecord, MONTHS_AHEAD, Month,
    MonthOf, RecordArchive, Retention,
};
use ports::registry_store::StoreError;

use super::MemoryStore;

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// The first number of each log that was never brought.
    logs: BTreeMap<String, u64>,
    records: BTreeMap<ArchivePlace, ArchiveRecord>,
    /// The tenant besides, because a call knows only its own.
    calls: BTreeMap<ArchivePlace, (Option<String>, InvocationRecord)>,
    months: BTreeSet<MonthOf>,
}

impl MemoryStore {
    fn kept_archive(&self) -> MutexGuard<'_, Kept> {
        self.archive.lock_unpoisoned()
    }
}

#[async_trait]
impl RecordArchive for MemoryStore {
    async fn append(&self, log: &str, records: &[ArchiveRecord]) -> Result<AppendOutcome, StoreError> {
        let kept = &mut *self.kept_archive();
        let expected = kept.logs.get(log).copied().unwrap_or(0);
        let (Some(first), Some(last)) = (records.first(), records.last()) else { return Ok(AppendOutcome::Written(0)) };
        if first.seq > expected {
            return Ok(AppendOutcome::Gap { expected });
        }
        let mut written = 0;
        for record in records.iter().filter(|record| record.seq >= expected) {
            let place = ArchivePlace { at: record.at, log: log.to_owned(), seq: record.seq };
            for table in ArchiveTable::ALL {
                kept.months.insert(MonthOf { table, month: Month::of(record.at) });
            }
            if let Some(call) = call_of(record, &place) {
                kept.calls.insert(place.clone(), (record.tenant.clone(), call));
            }
            kept.records.insert(place, record.clone());
            written += 1;
        }
        kept.logs.insert(log.to_owned(), expected.max(last.seq.saturating_add(1)));
        Ok(AppendOutcome::Written(written))
    }

    async fn reached(&self, log: &str) -> Result<u64, StoreError> {
        Ok(self.kept_archive().logs.get(log).copied().unwrap_or(0))
    }

    async fn search(&self, query: &ArchiveQuery) -> Result<ArchivePage, StoreError> {
        let kept = self.kept_archive();
        let tenant = query.tenant.as_ref().map(|tenant| tenant.as_str());
        let looked_at = kept.records.iter().rev().filter(|(place, record)| {
            is_within(place, query.from, query.to, query.before.as_ref())
                && wanted(tenant, record.tenant.as_deref())
                && wanted(query.tool.as_deref(), record.tool.as_deref())
                && wanted(query.trace_id.as_deref(), record.trace_id.as_deref())
        });
        let limit = query.limit.clamp(1, ARCHIVE_PAGE_MAX);
        let mut page = ArchivePage::default();
        for (number, (place, record)) in looked_at.enumerate() {
            if page.records.len() == limit || number == ARCHIVE_SCAN_MAX {
                return Ok(page);
            }
            if wanted(query.subject.as_deref(), record.subject.as_deref())
                && wanted(query.action.as_deref(), Some(&record.action))
            {
                page.records.push(ArchivedRecord { place: place.clone(), line: record.line.clone() });
            }
            page.next = Some(place.clone());
        }
        // A full page may have ended with the last record there is; whoever goes on finds none.
        if page.records.len() < limit {
            page.next = None;
        }
        Ok(page)
    }

    async fn invocation(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        let kept = self.kept_archive();
        let mut ends = kept.calls.values().rev();
        let last = ends.find(|(of, call)| of.as_deref() == Some(tenant.as_str()) && call.invocation_id == id);
        Ok(last.map(|(_, call)| call.clone()))
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<InvocationPage, StoreError> {
        let kept = self.kept_archive();
        let fitting = kept.calls.iter().rev().filter(|(place, (tenant, call))| {
            is_within(place, query.from, query.to, query.before.as_ref())
                && tenant.as_deref() == Some(query.tenant.as_str())
                && wanted(query.tool.as_deref(), call.tool.as_deref())
                && wanted(query.agent.as_deref(), call.agent.as_deref())
                && wanted(query.status.as_deref(), Some(&call.ended.status))
        });
        let limit = query.limit.clamp(1, ARCHIVE_PAGE_MAX);
        let calls: Vec<InvocationRecord> = fitting.map(|(_, (_, call))| call.clone()).take(limit).collect();
        let next = calls.last().filter(|_| calls.len() == limit).map(|call| call.place.clone());
        Ok(InvocationPage { calls, next })
    }

    async fn provide(&self, now: UnixMillis) -> Result<u64, StoreError> {
        let kept = &mut *self.kept_archive();
        let (mut month, mut made) = (Month::of(now), 0);
        for _ in 0..=MONTHS_AHEAD {
            for table in ArchiveTable::ALL {
                made += u64::from(kept.months.insert(MonthOf { table, month }));
            }
            month = month.next();
        }
        Ok(made)
    }

    async fn retain(&self, retention: &Retention, now: UnixMillis) -> Result<Vec<MonthOf>, StoreError> {
        let kept = &mut *self.kept_archive();
        let is_past = |of: &MonthOf| of.table.kept(retention).is_some_and(|kept| of.month.is_past(kept, now));
        let dropped: Vec<MonthOf> = kept.months.iter().copied().filter(is_past).collect();
        let is_dropped = |table, place: &ArchivePlace| dropped.contains(&MonthOf { table, month: Month::of(place.at) });
        kept.months.retain(|of| !is_past(of));
        kept.records.retain(|place, _| !is_dropped(ArchiveTable::Audit, place));
        kept.calls.retain(|place, _| !is_dropped(ArchiveTable::Invocations, place));
        Ok(dropped)
    }

    async fn stats(&self) -> Result<ArchiveStats, StoreError> {
        let kept = self.kept_archive();
        Ok(ArchiveStats {
            logs: u64::saturating_from(kept.logs.len()),
            records: kept.logs.values().sum(),
            months: kept.months.iter().copied().collect(),
        })
    }
}

fn call_of(record: &ArchiveRecord, place: &ArchivePlace) -> Option<InvocationRecord> {
    let (ended, invocation_id) = (record.ended.clone()?, record.invocation_id?);
    let took = i64::saturating_from(ended.duration_ms);
    Some(InvocationRecord {
        invocation_id,
        place: place.clone(),
        tool: record.tool.clone(),
        agent: record.subject.clone(),
        invoked_at: UnixMillis(place.at.0.saturating_sub(took)),
        ended,
    })
}

fn wanted(wish: Option<&str>, found: Option<&str>) -> bool {
    wish.is_none() || wish == found
}

fn is_within(
    place: &ArchivePlace,
    from: Option<UnixMillis>,
    to: Option<UnixMillis>,
    before: Option<&ArchivePlace>,
) -> bool {
    from.is_none_or(|from| place.at >= from)
        && to.is_none_or(|to| place.at < to)
        && before.is_none_or(|before| place < before)
}
