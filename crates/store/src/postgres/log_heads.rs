//! `LogHeads` on PostgreSQL: one row per log, which only grows.

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::log_heads::{HEADS_MAX, HeadReport, LogHead, LogHeads};
use ports::registry_store::StoreError;
use tokio_postgres::Row;

use super::PostgresStore;
use super::columns::limit;
use super::faults::Fault;
use super::statement::{column, int, text};
use super::transaction::Scope;

#[async_trait]
impl LogHeads for PostgresStore {
    async fn tell(&self, head: &LogHead) -> Result<HeadReport, StoreError> {
        Ok(tell(self, head).await?)
    }

    async fn heads(&self) -> Result<Vec<LogHead>, StoreError> {
        Ok(heads(self).await?)
    }
}

async fn tell(store: &PostgresStore, head: &LogHead) -> Result<HeadReport, Fault> {
    let write = "INSERT INTO log_heads AS kept (origin, size, root, note) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (origin) DO UPDATE
                 SET size = excluded.size, root = excluded.root, note = excluded.note
                 WHERE kept.size < excluded.size";
    let size = i64::saturating_from(head.size);
    let values = [text(&head.origin), int(&size), text(&head.root), text(&head.note)];
    if store.pool.execute(Scope::System, write, &values).await? > 0 {
        return Ok(HeadReport::Kept);
    }
    // Rows of this table are never taken away, so the one that was in the way is still there, or has grown.
    let read = "SELECT origin, size, root, note FROM log_heads WHERE origin = $1";
    let rows = store.pool.query(Scope::System, read, &[text(&head.origin)]).await?;
    let kept = rows.first().map(head_of).transpose()?;
    Ok(match kept {
        Some(kept) if (kept.size, &kept.root) != (head.size, &head.root) => HeadReport::Contradicted(kept),
        _ => HeadReport::Known,
    })
}

async fn heads(store: &PostgresStore) -> Result<Vec<LogHead>, Fault> {
    let sql = "SELECT origin, size, root, note FROM log_heads ORDER BY origin LIMIT $1";
    let rows = store.pool.query(Scope::System, sql, &[int(&limit(HEADS_MAX))]).await?;
    rows.iter().map(head_of).collect()
}

fn head_of(row: &Row) -> Result<LogHead, Fault> {
    let size: i64 = column(row, "size")?;
    Ok(LogHead {
        origin: column(row, "origin")?,
        size: u64::saturating_from(size),
        root: column(row, "root")?,
        note: column(row, "note")?,
    })
}
