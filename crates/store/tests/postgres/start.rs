//! Instances that start together on one database: steps are taken once, and the first secret wins.

use std::sync::Arc;

use gantry_store::conformance::SteppedClock;
use gantry_store::postgres::PostgresStore;
use ports::installation_store::InstallationStore as _;

use super::{SERVER, options};

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

#[tokio::test(flavor = "multi_thread")]
async fn of_instances_that_bring_a_secret_one_wins_and_all_know_it() {
    let url = SERVER.database().unwrap();
    let clock = Arc::<SteppedClock>::default();
    let store = Arc::new(PostgresStore::open(&url, &options(&clock)).await.unwrap());
    let bringing = (0..8).map(|number| {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.keep("signing_key", &format!("key {number}")).await.unwrap() })
    });
    let mut kept = Vec::new();
    for brought in bringing.collect::<Vec<_>>() {
        kept.push(brought.await.unwrap());
    }
    let first = kept.first().unwrap().clone();
    assert!(kept.iter().all(|one| *one == first), "{kept:?}");
    assert!(!store.replace("signing_key", "another", "x").await.unwrap());
    assert!(store.replace("signing_key", &first, "next").await.unwrap());
    let secrets = store.secrets().await.unwrap();
    assert_eq!(secrets.get("signing_key").map(String::as_str), Some("next"));
}
