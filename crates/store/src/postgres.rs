//! The store of many instances: one PostgreSQL database, which all of them write. (STORE-001…014, DESIGN §4, §5)
//!
//! ```text
//!  one statement ──────▶ pool ──▶ BEGIN, whose rows, statement, COMMIT in one round trip
//!  many callers' writes ▶ together ─▶ pool ──▶ the same, for all of them at once
//!  several statements ─▶ pool ──▶ transaction, tried again when the server says that it lost a race
//! ```
//!
//! Invariants
//! - PG-1: an answered write is committed. A commit whose answer was lost is an error and is not repeated here.
//! - PG-2: no state lives in a connection: whatever a pooler hands out (PgBouncer in transaction mode) will do, so there are
//!   no prepared statements, no session settings and no session locks.
//! - PG-3: every statement runs for one tenant or, named as such, for the whole system; the server's row level security
//!   holds it to that.
//! - PG-4: leases and windows are measured by the server's clock, which all instances share.
//!
//! What faces `sqlite/` has its file names and the order of its functions. Only here are what a server over the network asks for
//! (`address`, `tls`, `pool`, `transaction`, `statement`, `stored_text`, `rights`, `grouped_writes`, `ledger/{groups,doubts}`,
//! `transfer/load`) and what many instances share (`instances`, `presence`, `bus`, `installation`, `archive`, `log_heads`);
//! `tests/same_files.rs` has the reasons and holds us to it.
//!
//! Not here: when a database is refused (`open`), its shape (`migrations`), the statements (a module for each port).

mod access;
mod address;
mod archive;
mod breaker_history;
mod bus;
mod checkpoints;
mod columns;
mod faults;
mod grouped_writes;
mod index;
mod installation;
mod instances;
mod jobs;
mod ledger;
mod log_heads;
mod migrations;
mod open;
mod pool;
mod presence;
mod quarantine;
mod registry;
mod rights;
mod sealed_texts;
mod search;
mod statement;
mod stored_text;
mod tls;
mod tool_health;
mod transaction;
mod transfer;
mod upstreams;
mod usage;
mod vectors;
mod version_use;
mod webhooks;
mod workflow_runs;

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use ports::clock::Clock;

pub use address::{password_has_raw_signs, root_certificates, with_root_certificates, without_password};
pub use bus::PostgresBus;
use grouped_writes::Together;
#[cfg(test)]
pub(crate) use migrations::STEPS;
pub use open::PostgresOpenError;
use pool::Pool;
pub use pool::PoolNumbers;
use rights::Use;
pub use transfer::{PostgresDump, PostgresLoad};

use crate::SchemaSteps;
use crate::time::StoreTime;

/// What can be chosen when a store is opened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Most connections of this instance.
    pub connections_max: usize,
    /// How long a caller waits for a connection, a new one included.
    pub connection_wait: Duration,
    /// How long one statement may take.
    pub statement_max: Duration,
    /// For tests: what leases and windows are measured by in the place of the server's clock.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            connections_max: 16,
            connection_wait: Duration::from_secs(5),
            statement_max: Duration::from_secs(10),
            clock: None,
        }
    }
}

/// A store in a PostgreSQL database.
#[derive(Debug)]
pub struct PostgresStore {
    pool: Pool,
    /// `None`: the server's clock.
    time: Option<StoreTime>,
    /// Who this is on the change bus, once it listens; 0 before.
    instance: AtomicI64,
    doubts: Arc<ledger::Doubts>,
    claims: Together<ledger::Claims>,
    settlements: Together<ledger::Settlements>,
}

impl PostgresStore {
    /// The mark of the newest shape of the database that this program knows.
    pub fn shapes_known() -> u32 {
        migrations::known().unsigned_abs()
    }

    /// Connects, refuses what cannot work, and migrates the database if need be.
    pub async fn open(url: &str, options: &PostgresOptions) -> Result<Self, PostgresOpenError> {
        let pool = open::connect(url, options).await?;
        open::refuse_unfinished(&pool).await?;
        rights::refuse_too_few(&pool, Use::Serving).await?;
        rights::refuse_if_steps_cannot_be_taken(&pool).await?;
        migrations::migrate_to(&pool, None).await?;
        index::bring_up_to_date(&pool).await?;
        let time = options.clock.clone().map(|clock| StoreTime::starting(Some(clock)));
        let doubts = Arc::new(ledger::Doubts::default());
        let claims = ledger::Claims { pool: pool.clone(), doubts: Arc::clone(&doubts) };
        let settlements = ledger::Settlements { pool: pool.clone() };
        Ok(Self {
            pool,
            time,
            instance: AtomicI64::new(0),
            doubts,
            claims: Together::new(claims, options.connection_wait),
            settlements: Together::new(settlements, options.connection_wait),
        })
    }

    /// How far the database has been migrated; looks only. Refuses what is no whole store, whatever steps were taken.
    pub async fn steps(url: &str, options: &PostgresOptions) -> Result<SchemaSteps, PostgresOpenError> {
        Self::look(url, options, Use::Reading).await
    }

    /// The same for somebody who wants to know whether a server could work with it.
    pub async fn examine(url: &str, options: &PostgresOptions) -> Result<SchemaSteps, PostgresOpenError> {
        Self::look(url, options, Use::Serving).await
    }

    async fn look(url: &str, options: &PostgresOptions, purpose: Use) -> Result<SchemaSteps, PostgresOpenError> {
        let pool = open::reach(url, options).await?;
        let looked = async {
            open::refuse_unfinished(&pool).await?;
            rights::refuse_too_few(&pool, purpose).await?;
            if purpose == Use::Serving {
                rights::refuse_if_steps_cannot_be_taken(&pool).await?;
            }
            migrations::steps(&pool).await
        };
        let steps = looked.await;
        pool.close().await;
        steps
    }

    /// Numbers for metrics.
    pub fn connections(&self) -> PoolNumbers {
        self.pool.connections()
    }

    /// Takes no more work and closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// The present by which leases and windows are judged: `NULL` for the server's own, see [`statement::NOW`].
    fn now(&self) -> Option<i64> {
        self.time.as_ref().map(|time| time.now().0)
    }
}
