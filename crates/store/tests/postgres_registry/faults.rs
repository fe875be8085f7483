//! What goes wrong with a database: before the first statement, in the middle of work, and with its shape.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_store::postgres::{OpenError, Options, PostgresStore};
use kernel::ports::registry_store::{RegistryStore, StoreError};
use tokio_postgres::NoTls;

use super::{SERVER, open_at};

const PATIENCE: Duration = Duration::from_secs(60);

/// Names the last database of an address.
fn database(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

async fn until_it_works(store: &PostgresStore) {
    let start = Instant::now();
    while let Err(error) = store.ping().await {
        assert!(start.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn refusal(url: &str) -> OpenError {
    let mut options = Options::default();
    options.connection_wait = Duration::from_secs(30);
    PostgresStore::open(url, &options).await.map(drop).unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_refused_without_the_password() {
    let port = test_servers::free_port().unwrap();
    let error = refusal(&format!("postgres://gantry:hunter2@127.0.0.1:{port}/gantry")).await;
    assert!(matches!(error, OpenError::Unreachable(_)), "{error:?}");
    let mut texts = vec![error.to_string(), format!("{error:?}")];
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        texts.push(cause.to_string());
        source = cause.source();
    }
    assert!(texts.iter().all(|text| !text.contains("hunter2")), "{texts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_is_none_is_refused() {
    for url in ["postgres://h:port/d", "postgres://h/d?sslmode=verify-ca", "postgres://h/d?nonsense=1"] {
        assert!(matches!(refusal(url).await, OpenError::Address(_)), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_extension_is_refused_with_the_statement_to_run() {
    let url = SERVER.bare_database().unwrap();
    // Whoever may not make extensions, as most owners of tables in real installations.
    SERVER.sql("postgres", "CREATE ROLE tenant_of_a_flat LOGIN").unwrap();
    let error = refusal(&url.replacen("gantry@", "tenant_of_a_flat@", 1)).await;
    assert!(matches!(error, OpenError::NoVector(_)), "{error:?}");
    assert!(error.to_string().contains("CREATE EXTENSION vector"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shape_of_another_build_is_refused() {
    let url = SERVER.database().unwrap();
    drop(open_at(&url).await);
    let sql = |statement: &str| SERVER.sql(database(&url), statement).unwrap();
    sql("UPDATE gantry_steps SET digest = 'sha256:edited' WHERE step = 2");
    assert!(matches!(refusal(&url).await, OpenError::OtherStep { step: 2 }));
    sql("DELETE FROM gantry_steps");
    let error = refusal(&url).await;
    assert!(matches!(error, OpenError::Step { step: 1, .. }), "{error:?}");
    let url = SERVER.database().unwrap();
    drop(open_at(&url).await);
    SERVER.sql(database(&url), "INSERT INTO gantry_steps (step, digest) VALUES (4711, 'x')").unwrap();
    assert!(matches!(refusal(&url).await, OpenError::Newer { found: 4711, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_all_connections_taken_says_so_and_recovers() {
    let url = SERVER.database().unwrap();
    let mut options = Options::default();
    (options.connections_max, options.connection_wait) = (2, Duration::from_millis(300));
    let store = Arc::new(PostgresStore::open(&url, &options).await.unwrap());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; LOCK TABLE store_numbers IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let stuck: Vec<_> = (0..2)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.ping().await })
        })
        .collect();
    let start = Instant::now();
    while store.connections().used < 2 {
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let error = store.ping().await.unwrap_err();
    let StoreError::Unavailable(cause) = &error else { panic!("{error:?}") };
    assert!(cause.to_string().contains("all connections"), "{cause}");
    client.batch_execute("ROLLBACK").await.unwrap();
    for ping in stuck {
        ping.await.unwrap().unwrap();
    }
    store.ping().await.unwrap();
    assert!(store.connections().used == 0 && store.connections().idle <= store.connections().max);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_were_cut_are_replaced() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    for _ in 0..5 {
        let cut =
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}'", database(&url));
        SERVER.sql("postgres", &cut).unwrap();
        until_it_works(&store).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_has_become_read_only_is_left_for_the_next() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    let set = |value: &str| {
        let name = database(&url);
        SERVER.sql("postgres", &format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}")).unwrap();
        let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
        SERVER.sql("postgres", &cut).unwrap();
    };
    set("on");
    let start = Instant::now();
    // The first may only find its connection cut.
    while !store.ping().await.is_err_and(|error| format!("{error:?}").contains("read-only")) {
        assert!(start.elapsed() < PATIENCE);
    }
    RegistryStore::load(&*store).await.unwrap();
    SERVER.sql("postgres", &format!("ALTER DATABASE {} RESET default_transaction_read_only", database(&url))).unwrap();
    // Nobody cuts anything now: a connection that has met a read-only server is not used again.
    until_it_works(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_counted_without_taking_any() {
    let url = SERVER.database().unwrap();
    let before = PostgresStore::steps(&url, &Options::default()).await.unwrap();
    assert!(before.taken == 0 && before.known > 3, "{before:?}");
    assert_eq!(PostgresStore::steps(&url, &Options::default()).await.unwrap(), before, "looking changes nothing");
    drop(open_at(&url).await);
    assert_eq!(PostgresStore::steps(&url, &Options::default()).await.unwrap().missing(), 0);
    // Whoever runs the server need not be allowed to change the shape of the database.
    let name = database(&url);
    SERVER.sql(name, "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE caretaker LOGIN").unwrap();
    SERVER.sql(name, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO caretaker").unwrap();
    open_at(&url.replacen("gantry@", "caretaker@", 1)).await.ping().await.unwrap();
}
