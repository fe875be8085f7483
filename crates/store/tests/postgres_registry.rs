//! The PostgreSQL adapter: registry, search, access and upstreams against the suites every adapter must pass, on a real
//! server, and what is only true of a database that many instances share.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "test crate, which waits by the machine's clock"
)]

#[path = "postgres_registry/bus.rs"]
mod bus;
#[path = "postgres_registry/faults.rs"]
mod faults;
#[path = "postgres_registry/instances.rs"]
mod instances;
#[path = "postgres_registry/tenants.rs"]
mod tenants;
#[path = "postgres_registry/tls.rs"]
mod tls;

use std::sync::{Arc, LazyLock};

use gantry_store::conformance::{Adapter, AnyStore, SteppedClock};
use gantry_store::memory::MemoryStore;
use gantry_store::postgres::{Options, PostgresStore};
use kernel::ports::access_store::AccessStore;
use kernel::ports::checkpoint_store::CheckpointStore;
use kernel::ports::clock::Clock;
use kernel::ports::health_store::HealthStore;
use kernel::ports::job_store::JobStore;
use kernel::ports::ledger::Ledger;
use kernel::ports::upstream_store::UpstreamStore;
use kernel::ports::usage_store::UsageStore;
use kernel::ports::webhook_store::WebhookStore;
use kernel::ports::workflow_runs::WorkflowRuns;
use test_servers::Postgres;

/// One server for all tests of this program. It ends with the program.
static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start().unwrap());

struct InDatabase {
    store: Arc<PostgresStore>,
    clock: Arc<SteppedClock>,
    url: String,
    /// What the suites of this program do not ask for.
    rest: Arc<MemoryStore>,
}

#[async_trait::async_trait]
impl Adapter for InDatabase {
    fn store(&self) -> Arc<dyn AnyStore> {
        Arc::clone(&self.store) as Arc<dyn AnyStore>
    }

    fn access(&self) -> Arc<dyn AccessStore> {
        Arc::clone(&self.store) as Arc<dyn AccessStore>
    }

    fn upstreams(&self) -> Arc<dyn UpstreamStore> {
        Arc::clone(&self.store) as Arc<dyn UpstreamStore>
    }

    fn jobs(&self) -> Arc<dyn JobStore> {
        Arc::clone(&self.rest) as Arc<dyn JobStore>
    }

    fn webhooks(&self) -> Arc<dyn WebhookStore> {
        Arc::clone(&self.rest) as Arc<dyn WebhookStore>
    }

    fn runs(&self) -> Arc<dyn WorkflowRuns> {
        Arc::clone(&self.rest) as Arc<dyn WorkflowRuns>
    }

    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.rest) as Arc<dyn Ledger>
    }

    fn clock(&self) -> Arc<SteppedClock> {
        Arc::clone(&self.clock)
    }

    fn checkpoints(&self) -> Arc<dyn CheckpointStore> {
        Arc::clone(&self.rest) as Arc<dyn CheckpointStore>
    }

    fn usage(&self) -> Arc<dyn UsageStore> {
        Arc::clone(&self.rest) as Arc<dyn UsageStore>
    }

    fn health(&self) -> Arc<dyn HealthStore> {
        Arc::clone(&self.rest) as Arc<dyn HealthStore>
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Arc::new(PostgresStore::open(&self.url, &options(&self.clock)).await.unwrap());
    }
}

fn options(clock: &Arc<SteppedClock>) -> Options {
    let mut options = Options::default();
    // Many tests run at once on one server, which a busy machine may make wait.
    options.connections_max = 4;
    options.connection_wait = std::time::Duration::from_secs(60);
    options.statement_max = std::time::Duration::from_secs(60);
    options.clock = Some(Arc::clone(clock) as Arc<dyn Clock>);
    options
}

async fn open_at(url: &str) -> Arc<PostgresStore> {
    Arc::new(PostgresStore::open(url, &options(&Arc::default())).await.unwrap())
}

async fn open() -> InDatabase {
    let clock = Arc::<SteppedClock>::default();
    let url = SERVER.database().unwrap();
    let store = Arc::new(PostgresStore::open(&url, &options(&clock)).await.unwrap());
    InDatabase { store, clock, url, rest: Arc::default() }
}

mod access {
    gantry_store::access_suite!(super::open);
}

mod registry {
    gantry_store::registry_suite!(super::open);
}

mod search {
    gantry_store::search_suite!(super::open);
}

mod upstreams {
    gantry_store::upstreams_suite!(super::open);
}
