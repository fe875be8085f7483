//! `RecordArchive` on PostgreSQL: two tables in months, filled by one statement per batch. (STORE-004, AUD-014)
//!
//! A batch goes in with the place its log has reached, in one statement: what was brought before is left out, and a batch
//! that leaves a gap writes nothing. If its month is not there, the months of the batch are made and it is tried once more.
//! Months are made and dropped by functions of the database under one lock, so any number of instances may try.
//!
//! Not here: the statements that write (`writes`) and read (`reads`), when months are dropped (whoever maintains the archive).

mod reads;
mod writes;

use std::collections::BTreeSet;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TenantId};
use ports::clock::UnixMillis;
use ports::record_archive::{
    AppendOutcome, ArchivePage, ArchiveQuery, ArchiveRecord, ArchiveStats, ArchiveTable, InvocationPage,
    InvocationQuery, InvocationRecord, MONTHS_AHEAD, Month, MonthOf, RecordArchive, Retention,
};
use ports::registry_store::StoreError;
use tokio_postgres::error::SqlState;

use super::PostgresStore;
use super::faults::Fault;
use super::statement::{column, int, text, texts};
use super::transaction::Scope;
use crate::stored_row::unreadable;

#[async_trait]
impl RecordArchive for PostgresStore {
    async fn append(&self, log: &str, records: &[ArchiveRecord]) -> Result<AppendOutcome, StoreError> {
        let appended = match writes::append(self, log, records).await {
            Err(fault) if is_missing_month(&fault) => {
                let months: BTreeSet<Month> = records.iter().map(|record| Month::of(record.at)).collect();
                make(self, &months).await?;
                writes::append(self, log, records).await
            }
            other => other,
        };
        Ok(appended?)
    }

    async fn reached(&self, log: &str) -> Result<u64, StoreError> {
        Ok(writes::reached(self, log).await?)
    }

    async fn search(&self, query: &ArchiveQuery) -> Result<ArchivePage, StoreError> {
        Ok(reads::search(self, query).await?)
    }

    async fn invocation(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<InvocationRecord>, StoreError> {
        Ok(reads::invocation(self, tenant, id).await?)
    }

    async fn invocations(&self, query: &InvocationQuery) -> Result<InvocationPage, StoreError> {
        Ok(reads::invocations(self, query).await?)
    }

    async fn provide(&self, now: UnixMillis) -> Result<u64, StoreError> {
        let mut month = Month::of(now);
        let mut months = BTreeSet::from([month]);
        for _ in 0..MONTHS_AHEAD {
            month = month.next();
            months.insert(month);
        }
        Ok(make(self, &months).await?)
    }

    async fn retain(&self, retention: &Retention, now: UnixMillis) -> Result<Vec<MonthOf>, StoreError> {
        let mut dropped = Vec::new();
        for table in ArchiveTable::ALL {
            let Some(kept) = table.kept(retention) else { continue };
            let before = now.0.saturating_sub(i64::saturating_from(kept.as_millis()));
            let name = table.as_str();
            let sql = "SELECT part FROM archive_drop($1, $2) AS part";
            for row in self.pool.query(Scope::System, sql, &[text(&name), int(&before)]).await? {
                dropped.push(MonthOf { table, month: month_in(column(&row, "part")?)? });
            }
        }
        Ok(dropped)
    }

    async fn stats(&self) -> Result<ArchiveStats, StoreError> {
        let logs = "SELECT count(*) AS logs, coalesce(sum(next_seq), 0)::bigint AS records FROM archive_logs";
        let rows = self.pool.query(Scope::System, logs, &[]).await?;
        let mut stats = ArchiveStats::default();
        for row in rows {
            stats.logs = u64::saturating_from(column::<i64>(&row, "logs")?);
            stats.records = u64::saturating_from(column::<i64>(&row, "records")?);
        }
        for table in ArchiveTable::ALL {
            let sql = "SELECT c.relname::text AS part FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                       WHERE i.inhparent = to_regclass($1) ORDER BY 1";
            for row in self.pool.query(Scope::System, sql, &[text(&table.as_str())]).await? {
                stats.months.push(MonthOf { table, month: month_in(column(&row, "part")?)? });
            }
        }
        Ok(stats)
    }
}

/// Makes these months of both tables ready; answers how many were not.
async fn make(store: &PostgresStore, months: &BTreeSet<Month>) -> Result<u64, Fault> {
    let months: Vec<String> = months.iter().map(ToString::to_string).collect();
    let tables = ArchiveTable::ALL.map(ArchiveTable::as_str).to_vec();
    let sql = "SELECT archive_provide(parent, to_date(month, 'YYYY-MM')) AS made
               FROM unnest($1) AS parent, unnest($2) AS month";
    let rows = store.pool.query(Scope::System, sql, &[texts(&tables), texts(&months)]).await?;
    let made = rows.iter().map(|row| column::<bool>(row, "made")).collect::<Result<Vec<_>, _>>()?;
    Ok(made.into_iter().map(u64::from).sum())
}

/// Had a row no partition to go to? The server has one word for this and for broken rules of a table.
fn is_missing_month(fault: &Fault) -> bool {
    matches!(fault, Fault::Postgres(error) if error.code() == Some(&SqlState::CHECK_VIOLATION))
}

/// The month in the name of a partition, its last seven characters.
fn month_in(part: &str) -> Result<Month, Fault> {
    let mut words = part.rsplitn(3, '_');
    let (month, year) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    format!("{year}-{month}").parse().map_err(|_| unreadable("month", part).into())
}
