//! The SQLite adapter against the suites every adapter must pass.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::path::PathBuf;
use std::sync::Arc;

use gantry_store::conformance::{SteppedClock, StoreAdapter};
use gantry_store::sqlite::{SqliteOptions, SqliteStore};
use ports::clock::Clock;

struct InFile {
    store: Arc<SqliteStore>,
    clock: Arc<SteppedClock>,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

#[async_trait::async_trait]
impl StoreAdapter for InFile {
    type Store = SqliteStore;

    fn whole(&self) -> &Arc<SqliteStore> {
        &self.store
    }

    fn clock(&self) -> Arc<SteppedClock> {
        Arc::clone(&self.clock)
    }

    async fn reopen(&mut self) {
        self.store.close().await;
        self.store = Arc::new(SqliteStore::open(&self.path, &options(&self.clock)).unwrap());
    }
}

fn options(clock: &Arc<SteppedClock>) -> SqliteOptions {
    let mut options = SqliteOptions::default();
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

gantry_store::every_suite!(suites, crate::open);

mod sealed_texts {
    gantry_store::sealed_texts_suite!(crate::open);
}
