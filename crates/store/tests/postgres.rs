//! The PostgreSQL adapter, on a real server: the suites every adapter must pass, directly and once more through PgBouncer, and
//! what is only true of a database that many instances share.
//!
//! Not here: tests that harm a server, and processes that are paused (`postgres_faults`).
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test crate, which waits by the machine's clock"
)]

#[path = "postgres/bus.rs"]
mod bus;
#[path = "postgres/calls.rs"]
mod calls;
#[path = "postgres/faults.rs"]
mod faults;
#[path = "postgres/instances.rs"]
mod instances;
#[path = "postgres/pooled.rs"]
mod pooled;
#[path = "postgres/records.rs"]
mod records;
#[path = "postgres/start.rs"]
mod start;
#[path = "postgres/tenants.rs"]
mod tenants;
#[path = "postgres/tls.rs"]
mod tls;
#[path = "postgres/vectors.rs"]
mod vector_index;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gantry_store::conformance::{SteppedClock, StoreAdapter};
use gantry_store::postgres::{PostgresOptions, PostgresStore};
use ports::clock::Clock;
use ports::log_heads::LogHeads;
use test_servers::{PgBouncer, PostgresServer};

/// One server for all tests of this program. It ends with the program.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start().unwrap());

/// The same server by transactions that may each have another connection.
static POOLER: LazyLock<PgBouncer> = LazyLock::new(|| PgBouncer::start(&SERVER).unwrap());

struct InDatabase {
    store: Arc<PostgresStore>,
    clock: Arc<SteppedClock>,
    url: String,
}

#[async_trait::async_trait]
impl StoreAdapter for InDatabase {
    type Store = PostgresStore;

    fn whole(&self) -> &Arc<PostgresStore> {
        &self.store
    }

    fn clock(&self) -> Arc<SteppedClock> {
        Arc::clone(&self.clock)
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Arc::new(PostgresStore::open(&self.url, &options(&self.clock)).await.unwrap());
    }
}

fn options(clock: &Arc<SteppedClock>) -> PostgresOptions {
    let mut options = PostgresOptions::default();
    // Many tests run at once on one server, which a busy machine may make wait.
    options.connections_max = 4;
    options.connection_wait = Duration::from_secs(60);
    options.statement_max = Duration::from_secs(60);
    options.clock = Some(Arc::clone(clock) as Arc<dyn Clock>);
    options
}

/// Names the database of an address.
fn database(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

async fn open_at(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, &options(&Arc::default())).await.unwrap())
}

async fn adapter_at(url: String) -> InDatabase {
    let clock = Arc::<SteppedClock>::default();
    let store = Arc::new(PostgresStore::open(&url, &options(&clock)).await.unwrap());
    InDatabase { store, clock, url }
}

async fn open() -> InDatabase {
    adapter_at(SERVER.database().unwrap()).await
}

async fn open_pooled() -> InDatabase {
    adapter_at(POOLER.through(&SERVER.database().unwrap())).await
}

/// Two instances on one database.
async fn two() -> [Arc<PostgresStore>; 2] {
    let first = open().await;
    let second = PostgresStore::open(&first.url, &options(&first.clock)).await.unwrap();
    [first.store, Arc::new(second)]
}

gantry_store::every_suite!(directly, crate::open);

async fn open_heads() -> Arc<dyn LogHeads> {
    open().await.store
}

mod log_heads {
    gantry_store::log_heads_suite!(super::open_heads);
}

mod sealed_texts {
    gantry_store::sealed_texts_suite!(crate::open);
}
gantry_store::every_suite!(through_pgbouncer, crate::open_pooled);
