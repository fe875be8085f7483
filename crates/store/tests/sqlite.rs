//! The SQLite adapter against the suites every adapter must pass.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::path::PathBuf;
use std::sync::Arc;

use gantry_store::conformance::{Adapter, AnyStore, SteppedClock};
use gantry_store::sqlite::{Options, SqliteStore};
use kernel::ports::access_store::AccessStore;
use kernel::ports::checkpoint_store::CheckpointStore;
use kernel::ports::clock::Clock;
use kernel::ports::health_store::HealthStore;
use kernel::ports::job_store::JobStore;
use kernel::ports::ledger::Ledger;
use kernel::ports::upstream_store::UpstreamStore;
use kernel::ports::usage_store::UsageStore;
use kernel::ports::vector_store::VectorStore;
use kernel::ports::webhook_store::WebhookStore;
use kernel::ports::workflow_runs::WorkflowRuns;

struct InFile {
    store: Arc<SqliteStore>,
    clock: Arc<SteppedClock>,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

#[async_trait::async_trait]
impl Adapter for InFile {
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
        Arc::clone(&self.store) as Arc<dyn JobStore>
    }

    fn webhooks(&self) -> Arc<dyn WebhookStore> {
        Arc::clone(&self.store) as Arc<dyn WebhookStore>
    }

    fn runs(&self) -> Arc<dyn WorkflowRuns> {
        Arc::clone(&self.store) as Arc<dyn WorkflowRuns>
    }

    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.store) as Arc<dyn Ledger>
    }

    fn clock(&self) -> Arc<SteppedClock> {
        Arc::clone(&self.clock)
    }

    fn checkpoints(&self) -> Arc<dyn CheckpointStore> {
        Arc::clone(&self.store) as Arc<dyn CheckpointStore>
    }

    fn usage(&self) -> Arc<dyn UsageStore> {
        Arc::clone(&self.store) as Arc<dyn UsageStore>
    }

    fn health(&self) -> Arc<dyn HealthStore> {
        Arc::clone(&self.store) as Arc<dyn HealthStore>
    }

    fn vectors(&self) -> Arc<dyn VectorStore> {
        Arc::clone(&self.store) as Arc<dyn VectorStore>
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Arc::new(SqliteStore::open(&self.path, &options(&self.clock)).unwrap());
    }
}

fn options(clock: &Arc<SteppedClock>) -> Options {
    let mut options = Options::default();
    options.clock = Some(Arc::clone(clock) as Arc<dyn Clock>);
    options
}

async fn open() -> InFile {
    let directory = tempfile::tempdir().unwrap();
    let clock = Arc::<SteppedClock>::default();
    let path = directory.path().join("gantry.db");
    let store = Arc::new(SqliteStore::open(&path, &options(&clock)).unwrap());
    InFile { store, clock, path, _directory: directory }
}

mod access {
    gantry_store::access_suite!(super::open);
}

mod ledger {
    gantry_store::ledger_suite!(super::open);
}

mod jobs {
    gantry_store::jobs_suite!(super::open);
}

mod checkpoints {
    gantry_store::checkpoints_suite!(super::open);
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

mod webhooks {
    gantry_store::webhooks_suite!(super::open);
}

mod usage {
    gantry_store::usage_suite!(super::open);
}

mod vectors {
    gantry_store::vectors_suite!(super::open);
}
