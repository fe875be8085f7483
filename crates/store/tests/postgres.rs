//! The PostgreSQL adapter against the suites every adapter must pass, on a real server.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::sync::{Arc, LazyLock};

use gantry_store::conformance::SteppedClock;
use gantry_store::postgres::{Options, PostgresStore};
use kernel::ports::clock::Clock;
use test_servers::Postgres;

/// One server for all tests of this program. It ends with the program.
static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start().unwrap());

fn options(clock: &Arc<SteppedClock>) -> Options {
    let mut options = Options::default();
    // Many tests run at once on one server.
    options.connections_max = 4;
    options.clock = Some(Arc::clone(clock) as Arc<dyn Clock>);
    options
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_start_together_migrate_the_database_once() {
    let url = SERVER.database().unwrap();
    let clock = Arc::<SteppedClock>::default();
    let opening = (0..4).map(|_| {
        let (url, options) = (url.clone(), options(&clock));
        tokio::spawn(async move { PostgresStore::open(&url, &options).await.map(drop) })
    });
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap();
    }
}
