//! What PgBouncer in transaction mode changes beside the suites: words of changes do not come through it, and it may go.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_store::postgres::PostgresStore;
use ports::access_store::{AccessStore, AgentRecord};
use ports::change_bus::{BusChange, ChangeBus};
use ports::clock::UnixMillis;
use test_servers::PgBouncer;
use tokio::sync::broadcast::Receiver;

use super::{POOLER, SERVER, database, open_at};

const PATIENCE: Duration = Duration::from_secs(60);

/// A while in which a change is heard of, unless it is one of the first.
const A_WHILE: Duration = Duration::from_secs(5);

async fn hears(listener: &mut Receiver<BusChange>, within: Duration, wanted: impl Fn(&BusChange) -> bool) -> bool {
    let heard = tokio::time::timeout(within, async {
        loop {
            if listener.recv().await.is_ok_and(|change| wanted(&change)) {
                return;
            }
        }
    });
    heard.await.is_ok()
}

fn access_since(epoch: u64) -> impl Fn(&BusChange) -> bool {
    move |heard| matches!(heard, BusChange::Access { epoch: heard } if *heard >= epoch)
}

fn agent(name: &str) -> AgentRecord {
    AgentRecord {
        tenant: "acme".parse().unwrap(),
        agent: name.parse().unwrap(),
        document: None,
        added_at: UnixMillis(1),
        added_by: "admin".parse().unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_known_through_the_pooler_by_the_numbers_and_without_it_by_words_too() {
    let url = SERVER.database().unwrap();
    let pooled = POOLER.through(&url);
    assert_ne!(url, pooled);
    let (one, other, direct) = (open_at(&pooled).await, open_at(&pooled).await, open_at(&url).await);
    let (bus, beside) = (other.bus().await.unwrap(), direct.bus().await.unwrap());
    let (mut listener, mut beside) = (bus.subscribe(), beside.subscribe());
    // What is changed before a bus has read the numbers of the start is told as lost, perhaps before anybody listens. So
    // something is changed until it is heard of.
    for listener in [&mut listener, &mut beside] {
        let start = Instant::now();
        loop {
            let epoch = one.put_agents(&[agent("first")]).await.unwrap();
            if hears(listener, A_WHILE, access_since(epoch)).await {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "nothing is heard of changes");
        }
    }
    for round in 0..3 {
        let epoch = one.put_agents(&[agent(&format!("agent-{round}"))]).await.unwrap();
        for listener in [&mut listener, &mut beside] {
            assert!(hears(listener, PATIENCE, access_since(epoch)).await);
        }
    }
    // What has no number of its own in the store is told as lost.
    let speaker = one.bus().await.unwrap();
    speaker.publish(BusChange::Decisions).await;
    assert!(hears(&mut listener, PATIENCE, |heard| matches!(heard, BusChange::Lost | BusChange::Decisions)).await);
}

/// Writes until told to stop, and names what was acknowledged.
async fn write(store: Arc<PostgresStore>, writer: usize, stop: Arc<std::sync::atomic::AtomicBool>) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if stop.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        let name = format!("agent-{writer}-{number}");
        match store.put_agents(&[agent(&name)]).await {
            Ok(_) => acknowledged.push(name),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
    acknowledged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_that_was_acknowledged_is_lost_when_connections_are_reset_or_the_primary_becomes_read_only() {
    let mut pooler = PgBouncer::start(&SERVER).unwrap();
    let url = SERVER.database().unwrap();
    let name = database(&url).to_owned();
    let store = open_at(&pooler.through(&url)).await;
    let stop = Arc::default();
    let writers: Vec<_> =
        (0..3).map(|writer| tokio::spawn(write(Arc::clone(&store), writer, Arc::clone(&stop)))).collect();
    let written = || -> u64 { SERVER.sql(&name, "SELECT count(*) FROM access_agents").unwrap().parse().unwrap() };
    let progress = async || {
        let (start, before) = (Instant::now(), written());
        while written() <= before + 10 {
            assert!(start.elapsed() < PATIENCE, "nothing is written any more");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    progress().await;
    for fault in ["reset", "read-only", "reset"] {
        if fault == "reset" {
            // Every connection through it ends in the middle of whatever it is in.
            pooler.signal("KILL").unwrap();
            pooler.stop();
            pooler.start_again().unwrap();
        } else {
            let set = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
            let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
            SERVER.sql("postgres", &set).unwrap();
            SERVER.sql("postgres", &cut).unwrap();
            let start = Instant::now();
            while !store
                .put_agents(&[agent("witness")])
                .await
                .is_err_and(|error| format!("{error:?}").contains("read-only"))
            {
                assert!(start.elapsed() < PATIENCE, "nobody notices");
            }
            SERVER.sql("postgres", &format!("ALTER DATABASE {name} RESET default_transaction_read_only")).unwrap();
            // The pooler keeps its own connections to what was the primary; an operator makes it let them go.
            SERVER.sql("postgres", &cut).unwrap();
        }
        progress().await;
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for writer in writers {
        for agent in writer.await.unwrap() {
            let found = SERVER.sql(&name, &format!("SELECT count(*) FROM access_agents WHERE agent = '{agent}'"));
            assert_eq!(found.unwrap(), "1", "{agent} is lost");
        }
    }
}
