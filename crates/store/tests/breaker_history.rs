//! What became of breakers, kept by every store alike: in memory, in a file, in a database that two instances share.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use contract::ids::TenantId;
use gantry_store::memory::MemoryStore;
use gantry_store::{postgres, sqlite};
use ports::breaker_history::{BreakerHistory, HistoryPlace, HistoryQuery};
use ports::clock::UnixMillis;
use ports::resilience::{BreakerMode, BreakerReason, ExceededThreshold};
use ports::shared_state::{BreakerKey, BreakerTransition, PastTransition};
use test_servers::PostgresServer;

/// One server for all tests of this program. It ends with the program.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start().unwrap());

const NOON: u64 = 1_768_435_200_123;

fn transition(breaker: &str, at_ms: u64, epoch: u64) -> BreakerTransition {
    let reason = if epoch.is_multiple_of(2) {
        BreakerReason::Recovered
    } else {
        BreakerReason::Exceeded(ExceededThreshold::FailurePercent(37.5))
    };
    let change = PastTransition { at_ms, from: BreakerMode::Closed, to: BreakerMode::Open, reason, epoch };
    BreakerTransition { key: breaker.parse().unwrap(), change }
}

fn all() -> HistoryQuery {
    HistoryQuery { limit: 100, ..HistoryQuery::default() }
}

async fn names(store: &dyn BreakerHistory, query: &HistoryQuery) -> Vec<(String, u64)> {
    let kept = store.kept_transitions(query).await.unwrap();
    kept.iter().map(|transition| (transition.key.to_string(), transition.change.epoch)).collect()
}

/// Each transition once, whoever writes it and how often; the newest first.
async fn keeps_each_once(one: &dyn BreakerHistory, other: &dyn BreakerHistory) {
    assert!(names(one, &all()).await.is_empty());
    let first = [transition("mail", NOON, 11), transition("acme/mail@a:1", NOON + 5, 12)];
    one.keep_transitions(&first).await.unwrap();
    let both = [transition("mail", NOON, 11), transition("mail", NOON + 9, 13)];
    let (mine, theirs) = tokio::join!(one.keep_transitions(&both), other.keep_transitions(&both));
    mine.unwrap();
    theirs.unwrap();
    let expected = vec![transition("mail", NOON + 9, 13), first[1].clone(), first[0].clone()];
    assert_eq!(one.kept_transitions(&all()).await.unwrap(), expected);
    assert_eq!(other.kept_transitions(&all()).await.unwrap(), expected);
    // The same number at another time is of another life of the breaker.
    one.keep_transitions(&[transition("mail", NOON + 10, 11)]).await.unwrap();
    assert_eq!(names(one, &all()).await.len(), 4);
}

/// Tenants, services with all of their endpoints, and pages.
async fn answers_what_is_asked(store: &dyn BreakerHistory) {
    let breakers = ["mail", "mail@a:1", "mail@b:1", "mailer", "acme/mail", "acme/mail@a:1", "x%2Fy"];
    let kept: Vec<BreakerTransition> =
        (1_u64..).zip(breakers).map(|(n, breaker)| transition(breaker, NOON + n / 3, n)).collect();
    store.keep_transitions(&kept).await.unwrap();
    let of = |breaker: &str| HistoryQuery { of: Some(breaker.parse::<BreakerKey>().unwrap()), ..all() };
    for (breaker, expected) in [
        ("mail", vec![3, 2, 1]),
        ("mail@a:1", vec![2]),
        ("acme/mail", vec![6, 5]),
        ("mailer", vec![4]),
        ("x%2Fy", vec![7]),
        ("nobody", vec![]),
    ] {
        let epochs: Vec<u64> = names(store, &of(breaker)).await.into_iter().map(|(_, epoch)| epoch).collect();
        assert_eq!(epochs, expected, "{breaker}");
    }
    let acme: TenantId = "acme".parse().unwrap();
    let of_acme = names(store, &HistoryQuery { tenant: Some(acme), ..all() }).await;
    assert_eq!(of_acme.iter().map(|(_, epoch)| *epoch).collect::<Vec<_>>(), [6, 5]);

    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let page = store.kept_transitions(&HistoryQuery { before, limit: 2, ..all() }).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some(HistoryPlace::of(last).to_string().parse().unwrap());
        seen.extend(page.iter().map(|transition| transition.change.epoch));
    }
    assert_eq!(seen, [7, 6, 5, 4, 3, 2, 1]);
}

/// What is old goes, the oldest first and no more at once than is asked for.
async fn forgets_what_is_old(store: &dyn BreakerHistory) {
    let kept: Vec<BreakerTransition> = (1..=5).map(|n| transition("mail", NOON + n, n)).collect();
    store.keep_transitions(&kept).await.unwrap();
    let before = UnixMillis(i64::try_from(NOON + 4).unwrap());
    assert_eq!(store.forget_transitions(before, 2).await.unwrap(), 2);
    assert_eq!(names(store, &all()).await.len(), 3);
    assert_eq!(store.forget_transitions(before, 2).await.unwrap(), 1);
    assert_eq!(store.forget_transitions(before, 2).await.unwrap(), 0);
    assert_eq!(names(store, &all()).await.iter().map(|(_, epoch)| *epoch).collect::<Vec<_>>(), [5, 4]);
}

fn file() -> (tempfile::TempDir, sqlite::SqliteStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = sqlite::SqliteStore::open(&folder.path().join("store.db"), &sqlite::SqliteOptions::default()).unwrap();
    (folder, store)
}

async fn two_instances() -> [postgres::PostgresStore; 2] {
    let mut options = postgres::PostgresOptions::default();
    options.connections_max = 3;
    options.connection_wait = Duration::from_secs(60);
    options.statement_max = Duration::from_secs(60);
    let url = SERVER.database().unwrap();
    let first = postgres::PostgresStore::open(&url, &options).await.unwrap();
    [first, postgres::PostgresStore::open(&url, &options).await.unwrap()]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transition_is_kept_once() {
    let memory = MemoryStore::new();
    keeps_each_once(&memory, &memory).await;
    let (_folder, file) = file();
    keeps_each_once(&file, &file).await;
    let [one, other] = two_instances().await;
    keeps_each_once(&one, &other).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transitions_are_found_by_tenant_breaker_and_page() {
    answers_what_is_asked(&MemoryStore::new()).await;
    answers_what_is_asked(&file().1).await;
    answers_what_is_asked(&two_instances().await[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_transitions_are_forgotten() {
    forgets_what_is_old(&MemoryStore::new()).await;
    forgets_what_is_old(&file().1).await;
    forgets_what_is_old(&two_instances().await[0]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transitions_outlive_the_process() {
    let (folder, store) = file();
    store.keep_transitions(&[transition("mail", NOON, 1)]).await.unwrap();
    store.close().await;
    drop(store);
    let store = sqlite::SqliteStore::open(&folder.path().join("store.db"), &sqlite::SqliteOptions::default()).unwrap();
    assert_eq!(names(&store, &all()).await, [("mail".to_owned(), 1)]);
    let _store: Arc<dyn BreakerHistory> = Arc::new(store);
}
