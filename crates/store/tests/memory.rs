//! The in-memory fake against the suite, so that tests of other crates stand on the same ground as production.

use std::sync::Arc;

use gantry_store::conformance::{Adapter, AnyStore, SteppedClock};
use gantry_store::memory::MemoryStore;
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

struct Kept(Arc<MemoryStore>, Arc<SteppedClock>);

#[async_trait::async_trait]
impl Adapter for Kept {
    fn store(&self) -> Arc<dyn AnyStore> {
        Arc::clone(&self.0) as Arc<dyn AnyStore>
    }

    fn access(&self) -> Arc<dyn AccessStore> {
        Arc::clone(&self.0) as Arc<dyn AccessStore>
    }

    fn upstreams(&self) -> Arc<dyn UpstreamStore> {
        Arc::clone(&self.0) as Arc<dyn UpstreamStore>
    }

    fn jobs(&self) -> Arc<dyn JobStore> {
        Arc::clone(&self.0) as Arc<dyn JobStore>
    }

    fn webhooks(&self) -> Arc<dyn WebhookStore> {
        Arc::clone(&self.0) as Arc<dyn WebhookStore>
    }

    fn runs(&self) -> Arc<dyn WorkflowRuns> {
        Arc::clone(&self.0) as Arc<dyn WorkflowRuns>
    }

    fn ledger(&self) -> Arc<dyn Ledger> {
        Arc::clone(&self.0) as Arc<dyn Ledger>
    }

    fn clock(&self) -> Arc<SteppedClock> {
        Arc::clone(&self.1)
    }

    fn checkpoints(&self) -> Arc<dyn CheckpointStore> {
        Arc::clone(&self.0) as Arc<dyn CheckpointStore>
    }

    fn usage(&self) -> Arc<dyn UsageStore> {
        Arc::clone(&self.0) as Arc<dyn UsageStore>
    }

    fn health(&self) -> Arc<dyn HealthStore> {
        Arc::clone(&self.0) as Arc<dyn HealthStore>
    }

    fn vectors(&self) -> Arc<dyn VectorStore> {
        Arc::clone(&self.0) as Arc<dyn VectorStore>
    }

    async fn reopen(&mut self) {}
}

async fn open() -> Kept {
    let clock = Arc::<SteppedClock>::default();
    let store = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    Kept(Arc::new(store), clock)
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

async fn open_archive() -> Arc<dyn kernel::ports::record_archive::RecordArchive> {
    Arc::new(MemoryStore::new())
}

mod archive {
    gantry_store::archive_suite!(super::open_archive);
}

async fn open_heads() -> Arc<dyn kernel::ports::log_heads::LogHeads> {
    Arc::new(MemoryStore::new())
}

mod log_heads {
    gantry_store::log_heads_suite!(super::open_heads);
}
