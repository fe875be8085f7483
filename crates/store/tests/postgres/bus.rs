//! The change bus by `LISTEN` and `NOTIFY`: what the store tells by itself, and what heals when words are lost.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_store::conformance::{new_version, sample_manifest};
use gantry_store::postgres::PostgresStore;
use ports::access_store::{AccessStore, PolicyRecord};
use ports::change_bus::{BusChange, ChangeBus};
use ports::clock::UnixMillis;
use ports::registry_store::RegistryStore;
use tokio::sync::broadcast::Receiver;

use super::{SERVER, open_at};

const PATIENCE: Duration = Duration::from_secs(60);

async fn until(listener: &mut Receiver<BusChange>, wanted: impl Fn(&BusChange) -> bool) {
    let heard = tokio::time::timeout(PATIENCE, async {
        loop {
            if listener.recv().await.is_ok_and(|change| wanted(&change)) {
                return;
            }
        }
    });
    heard.await.unwrap();
}

async fn join(store: &Arc<PostgresStore>) -> Arc<dyn ChangeBus> {
    let bus = Arc::new(store.bus().await.unwrap());
    // Connected: the first thing a line says.
    until(&mut bus.subscribe(), |change| *change == BusChange::Lost).await;
    bus
}

fn cut_lines(url: &str) {
    let database = url.rsplit('/').next().unwrap();
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}' AND query LIKE 'LISTEN%'"
    );
    SERVER.sql("postgres", &cut).unwrap();
}

async fn change_policies(store: &PostgresStore, version: u64) -> u64 {
    let record = PolicyRecord {
        tenant: None,
        version,
        text: String::new(),
        added_at: UnixMillis(1),
        added_by: "admin".parse().unwrap(),
    };
    store.add_policies(&record).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_change_reaches_another_instance_and_the_own_one() {
    let url = SERVER.database().unwrap();
    let (one, other) = (open_at(&url).await, open_at(&url).await);
    let (one, other) = (join(&one).await, join(&other).await);
    let (mut here, mut there) = (one.subscribe(), other.subscribe());
    for change in [
        BusChange::Access { epoch: u64::MAX },
        BusChange::Registry { generation: 7 },
        BusChange::Decisions,
        BusChange::Lost,
    ] {
        one.publish(change.clone()).await;
        until(&mut there, |heard| *heard == change).await;
        until(&mut here, |heard| *heard == change).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_tells_of_its_changes_when_they_commit() {
    let url = SERVER.database().unwrap();
    let (one, other) = (open_at(&url).await, open_at(&url).await);
    let bus = join(&other).await;
    let mut listener = bus.subscribe();
    let epoch = change_policies(&one, 1).await;
    until(&mut listener, |heard| *heard == BusChange::Access { epoch }).await;
    let sample = new_version(sample_manifest("demo.sample", "1.0.0", "A sample tool", "Does what samples do."));
    one.publish(sample).await.unwrap();
    until(&mut listener, |heard| matches!(heard, BusChange::Registry { generation } if *generation > 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_was_cut_is_made_again_and_listeners_are_told() {
    let url = SERVER.database().unwrap();
    let (one, other) = (open_at(&url).await, open_at(&url).await);
    let (speaker, bus) = (join(&one).await, join(&other).await);
    let mut listener = bus.subscribe();
    for round in 1..=3 {
        cut_lines(&url);
        until(&mut listener, |heard| *heard == BusChange::Lost).await;
        speaker.publish(BusChange::Registry { generation: round }).await;
        until(&mut listener, |heard| matches!(heard, BusChange::Registry { .. } | BusChange::Lost)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn numbers_are_looked_at_where_no_word_can_come() {
    let url = SERVER.database().unwrap();
    let (one, other) = (open_at(&url).await, open_at(&url).await);
    let bus = join(&other).await;
    let mut listener = bus.subscribe();
    // As behind a pooler that gives every transaction another connection: the line is there, and silent.
    let name = url.rsplit('/').next().unwrap();
    let mute = "CREATE SCHEMA mute; GRANT USAGE ON SCHEMA mute TO gantry;
                CREATE FUNCTION mute.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT'";
    SERVER.sql(name, mute).unwrap();
    SERVER.sql(name, &format!("ALTER DATABASE {name} SET search_path = mute, pg_catalog, public")).unwrap();
    let cut = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}' AND query NOT LIKE 'LISTEN%'"
    );
    SERVER.sql("postgres", &cut).unwrap();
    let start = Instant::now();
    while let Err(error) = one.ping().await {
        assert!(start.elapsed() < PATIENCE, "{error}");
    }
    let epoch = change_policies(&one, 1).await;
    until(&mut listener, |heard| *heard == BusChange::Access { epoch }).await;
    // What has no number of its own in the store is told as lost.
    let speaker = one.bus().await.unwrap();
    speaker.publish(BusChange::Decisions).await;
    until(&mut listener, |heard| *heard == BusChange::Lost).await;
}
