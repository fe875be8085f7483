//! The in-memory fake against the suite, so that tests of other crates stand on the same ground as production.

use std::sync::Arc;

use gantry_store::conformance::{SteppedClock, StoreAdapter};
use gantry_store::memory::MemoryStore;
use ports::clock::Clock;

struct Kept(Arc<MemoryStore>, Arc<SteppedClock>);

#[async_trait::async_trait]
impl StoreAdapter for Kept {
    type Store = MemoryStore;

    fn whole(&self) -> &Arc<MemoryStore> {
        &self.0
    }

    fn clock(&self) -> Arc<SteppedClock> {
        Arc::clone(&self.1)
    }

    async fn reopen(&mut self) {}
}

async fn open() -> Kept {
    let clock = Arc::<SteppedClock>::default();
    let store = MemoryStore::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    Kept(Arc::new(store), clock)
}

gantry_store::every_suite!(suites, crate::open);

async fn open_archive() -> Arc<dyn ports::record_archive::RecordArchive> {
    Arc::new(MemoryStore::new())
}

mod archive {
    gantry_store::archive_suite!(super::open_archive);
}

async fn open_heads() -> Arc<dyn ports::log_heads::LogHeads> {
    Arc::new(MemoryStore::new())
}

mod log_heads {
    gantry_store::log_heads_suite!(super::open_heads);
}
