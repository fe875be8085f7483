//! `Presence` on PostgreSQL, for instances that share a database and no Redis: one row for each, by the server's clock.
//!
//! Every announcement also forgets those that were gone long ago, so the table is as long as the installation is large.

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::presence::{PRESENT_MAX, Presence, PresenceError, PresentReplica};
use tokio_postgres::Row;

use super::PostgresStore;
use super::columns::{limit, millis, with_clock};
use super::faults::Fault;
use super::statement::{column, int, text};
use super::transaction::Scope;
use crate::stored_row::StoredRow as _;

/// For how long an instance that is gone keeps its row.
const KEPT_FOR: Duration = Duration::from_secs(60 * 60);

#[async_trait]
impl Presence for PostgresStore {
    async fn announce(&self, instance: &str, word: &str, ttl: Duration) -> Result<(), PresenceError> {
        let statement = format!(
            "{}, gone AS (
                 DELETE FROM presence USING clock WHERE until_at < clock.now - $5 AND instance <> $2
             )
             INSERT INTO presence (instance, word, seen_at, until_at) SELECT $2, $3, clock.now, clock.now + $4 FROM clock
             ON CONFLICT (instance) DO UPDATE
             SET word = excluded.word, seen_at = excluded.seen_at, until_at = excluded.until_at",
            with_clock()
        );
        let (now, ttl, kept) = (self.now(), millis(ttl), millis(KEPT_FOR));
        let values = [int(&now), text(&instance), text(&word), int(&ttl), int(&kept)];
        self.pool.execute(Scope::System, &statement, &values).await.map_err(unanswered)?;
        Ok(())
    }

    async fn present(&self) -> Result<Vec<PresentReplica>, PresenceError> {
        let statement = format!(
            "{} SELECT instance, word, seen_at FROM presence, clock WHERE until_at > clock.now ORDER BY instance LIMIT $2",
            with_clock()
        );
        let (now, most) = (self.now(), limit(PRESENT_MAX));
        let rows = self.pool.query(Scope::System, &statement, &[int(&now), int(&most)]).await.map_err(unanswered)?;
        rows.iter().map(present).collect::<Result<_, Fault>>().map_err(unanswered)
    }
}

fn present(row: &Row) -> Result<PresentReplica, Fault> {
    let seen_ms = u64::saturating_from(row.time("seen_at")?.0);
    Ok(PresentReplica { replica: column(row, "instance")?, word: column(row, "word")?, seen_ms })
}

fn unanswered(fault: impl Into<Fault>) -> PresenceError {
    PresenceError(Box::new(ports::registry_store::StoreError::from(fault.into())))
}
