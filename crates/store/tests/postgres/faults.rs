//! What goes wrong with a database: before the first statement, in the middle of work, and with its shape.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gantry_store::postgres::{PostgresOpenError, PostgresOptions, PostgresStore};
use ports::access_store::{AccessStore as _, BudgetSpending};
use ports::registry_store::{RegistryStore, StoreError};
use tokio_postgres::NoTls;

use super::{SERVER, database, open_at};

const PATIENCE: Duration = Duration::from_secs(60);

async fn until_it_works(store: &PostgresStore) {
    let start = Instant::now();
    while let Err(error) = store.ping().await {
        assert!(start.elapsed() < PATIENCE, "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn refusal(url: &str) -> PostgresOpenError {
    let mut options = PostgresOptions::default();
    options.connection_wait = Duration::from_secs(30);
    PostgresStore::open(url, &options).await.map(drop).unwrap_err()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_is_refused_without_the_password() {
    let port = test_servers::free_port().unwrap();
    let error = refusal(&format!("postgres://gantry:hunter2@127.0.0.1:{port}/gantry")).await;
    assert!(matches!(error, PostgresOpenError::Unreachable(_)), "{error:?}");
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
        let error = refusal(url).await;
        assert!(matches!(error, PostgresOpenError::Address(Some(_))), "{url}");
    }
    // What the library takes for an option is a part of the password: it is not named.
    let error = refusal("postgres://a:p@ss?secret=1@h/d").await;
    assert!(matches!(error, PostgresOpenError::Address(None)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_extension_is_refused_with_the_statement_to_run() {
    let url = SERVER.bare_database().unwrap();
    // Whoever may not make extensions, as most owners of tables in real installations.
    SERVER.sql("postgres", "CREATE ROLE tenant_of_a_flat LOGIN").unwrap();
    let error = refusal(&url.replacen("gantry@", "tenant_of_a_flat@", 1)).await;
    assert!(matches!(error, PostgresOpenError::NoVector(_)), "{error:?}");
    assert!(error.to_string().contains("CREATE EXTENSION vector"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_with_too_few_rights_is_told_which_and_how_to_give_them() {
    let url = SERVER.database().unwrap();
    let sql = |statement: &str| SERVER.sql(database(&url), statement).unwrap();
    sql("CREATE ROLE \"a clerk\" LOGIN");
    let clerk = url.replacen("gantry@", "a%20clerk@", 1);
    let error = refusal(&clerk).await;
    assert!(matches!(error, PostgresOpenError::MayNotMake { .. }), "{error:?}");
    assert!(error.to_string().contains("`GRANT USAGE, CREATE ON SCHEMA public TO \"a clerk\"`"), "{error}");
    sql("REVOKE USAGE ON SCHEMA public FROM PUBLIC");
    assert!(matches!(refusal(&clerk).await, PostgresOpenError::MayNotMake { .. }), "not even the schema");
    sql("GRANT USAGE ON SCHEMA public TO PUBLIC");
    // The owner makes the tables, as `gantry migrate up` does; then the clerk needs rights on them.
    drop(open_at(&url).await);
    for given in ["", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO \"a clerk\""] {
        sql(given);
        let error = refusal(&clerk).await;
        assert!(matches!(error, PostgresOpenError::Rights { .. }), "{error:?}");
        let said = error.to_string();
        assert!(said.contains("more tables"), "{said}");
        let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO \"a clerk\"";
        assert!(said.contains(&format!("`{grant}`")), "{said}");
    }
    let examined = PostgresStore::examine(&clerk, &PostgresOptions::default()).await;
    assert!(matches!(examined, Err(PostgresOpenError::Rights { .. })), "{examined:?}");
    PostgresStore::steps(&clerk, &PostgresOptions::default()).await.unwrap();
    sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO \"a clerk\"");
    open_at(&clerk).await.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shape_of_another_build_is_refused() {
    let url = SERVER.database().unwrap();
    drop(open_at(&url).await);
    let sql = |statement: &str| SERVER.sql(database(&url), statement).unwrap();
    sql("UPDATE gantry_steps SET digest = 'sha256:edited' WHERE step = 2");
    assert!(matches!(refusal(&url).await, PostgresOpenError::OtherStep { step: 2 }));
    sql("DELETE FROM gantry_steps");
    let error = refusal(&url).await;
    assert!(matches!(error, PostgresOpenError::Step { step: 1, .. }), "{error:?}");
    let url = SERVER.database().unwrap();
    drop(open_at(&url).await);
    let newer = |step: i32, oldest: i32| {
        let insert = format!("INSERT INTO gantry_steps (step, digest, oldest) VALUES ({step}, 'x', {oldest})");
        SERVER.sql(database(&url), &insert).unwrap();
    };
    // A newer release that this one can work beside: an instance of this one may be started again.
    newer(4711, 0);
    open_at(&url).await.ping().await.unwrap();
    let steps = PostgresStore::steps(&url, &PostgresOptions::default()).await.unwrap();
    assert_eq!((steps.missing(), steps.unknown()), (0, 4711 - steps.known));
    newer(4712, 4712);
    let steps = PostgresStore::steps(&url, &PostgresOptions::default()).await;
    assert!(matches!(steps, Err(PostgresOpenError::Newer { found: 4712, .. })), "{steps:?}");
    let error = refusal(&url).await;
    assert!(matches!(error, PostgresOpenError::Newer { found: 4712, .. }), "{error:?}");
    assert!(error.to_string().contains("upgrade this binary"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_all_connections_taken_says_so_and_recovers() {
    let url = SERVER.database().unwrap();
    let mut options = PostgresOptions::default();
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
    let before = PostgresStore::steps(&url, &PostgresOptions::default()).await.unwrap();
    assert!(before.taken == 0 && before.known > 3, "{before:?}");
    assert_eq!(
        PostgresStore::steps(&url, &PostgresOptions::default()).await.unwrap(),
        before,
        "looking changes nothing"
    );
    drop(open_at(&url).await);
    assert_eq!(PostgresStore::steps(&url, &PostgresOptions::default()).await.unwrap().missing(), 0);
    // Whoever runs the server need not be allowed to change the shape of the database.
    let name = database(&url);
    SERVER.sql(name, "REVOKE CREATE ON SCHEMA public FROM PUBLIC; CREATE ROLE caretaker LOGIN").unwrap();
    SERVER.sql(name, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO caretaker").unwrap();
    open_at(&url.replacen("gantry@", "caretaker@", 1)).await.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_release_migrates_what_an_older_one_has_made() {
    for taken in [5, 11, OLD_NUMBERS.len()] {
        check_migration_from(taken).await;
    }
}

/// The steps as databases were made by when PostgreSQL's had numbers of their own: the n-th left a row with `step` n.
const OLD_NUMBERS: [&str; 25] = [
    "registry",
    "search",
    "access",
    "upstreams",
    "ledger",
    "jobs",
    "workflow_runs",
    "checkpoints",
    "webhooks",
    "usage",
    "health",
    "installation",
    "presence",
    "archive",
    "vectors",
    "breaker_history",
    "log_heads",
    "lifecycle",
    "job_flows",
    "checkpoint_attempts",
    "call_owners",
    "activation_identity",
    "job_interruptions",
    "revocation_issuers",
    "quarantine_tenants",
];

async fn check_migration_from(taken: usize) {
    let url = SERVER.database().unwrap();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    let file_of = |name: &&str| {
        let is_named =
            |file: &&PathBuf| file.file_name().unwrap().to_str().unwrap().get(5..) == Some(&format!("{name}.sql"));
        files.iter().find(is_named).unwrap()
    };
    // As a release with the first steps only would have left it.
    let mut statements = "SET ROLE gantry; BEGIN; SET LOCAL gantry.tenant = '*';
        CREATE TABLE gantry_steps (step integer PRIMARY KEY, digest text NOT NULL, oldest integer NOT NULL DEFAULT 0,
                                   taken_at timestamptz NOT NULL DEFAULT now());"
        .to_owned();
    for (step, file) in (1..).zip(OLD_NUMBERS.iter().take(taken).map(file_of)) {
        let text = std::fs::read_to_string(file).unwrap();
        let digest = contract::canonical::Digest::of_bytes(text.as_bytes());
        statements =
            format!("{statements}\n{text}\n;INSERT INTO gantry_steps (step, digest) VALUES ({step}, '{digest}');");
    }
    SERVER.sql(database(&url), &format!("{statements} COMMIT")).unwrap();
    let before = PostgresStore::steps(&url, &PostgresOptions::default()).await.unwrap();
    assert_eq!(usize::try_from(before.taken).unwrap(), taken);
    let opening: Vec<_> = (0..4)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open_at(&url).await.ping().await })
        })
        .collect();
    for opened in opening {
        opened.await.unwrap().unwrap();
    }
    assert_eq!(PostgresStore::steps(&url, &PostgresOptions::default()).await.unwrap().missing(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_was_broken_off_is_undone_and_taken_again() {
    let mut server = test_servers::PostgresServer::start().unwrap();
    for whole_server in [false, true] {
        let url = server.database().unwrap();
        // In the middle of the steps, one takes for ever. The servers of tests answer before a commit is on the disk, and this
        // one has to outlive its server.
        let hold = "SET synchronous_commit = on;
                    CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql AS $$
                    BEGIN
                        IF to_regclass('usage_costs') IS NOT NULL THEN PERFORM pg_sleep(3600); END IF;
                    END $$;
                    CREATE EVENT TRIGGER hold ON ddl_command_end EXECUTE FUNCTION hold()";
        server.sql(database(&url), hold).unwrap();
        let opening = tokio::spawn({
            let url = url.clone();
            async move { PostgresStore::open(&url, &super::options(&Arc::default())).await.map(drop) }
        });
        let asleep =
            format!("SELECT pid FROM pg_stat_activity WHERE datname = '{}' AND wait_event = 'PgSleep'", database(&url));
        let start = Instant::now();
        while server.sql("postgres", &asleep).unwrap().is_empty() {
            assert!(start.elapsed() < PATIENCE, "nobody migrates");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if whole_server {
            server.signal("KILL").unwrap();
            server.stop();
            // Those who served the dead one take a moment to notice.
            while let Err(error) = server.start_again() {
                assert!(start.elapsed() < PATIENCE * 2, "{error}");
            }
        } else {
            server.sql("postgres", &format!("SELECT pg_terminate_backend(pid) FROM ({asleep}) AS it")).unwrap();
        }
        let error = opening.await.unwrap().unwrap_err();
        assert!(matches!(error, PostgresOpenError::Step { .. }), "{error:?}");
        assert_eq!(PostgresStore::steps(&url, &PostgresOptions::default()).await.unwrap().taken, 0, "all or nothing");
        server.sql(database(&url), "DROP EVENT TRIGGER hold").unwrap();
        open_at(&url).await.ping().await.unwrap();
        assert_eq!(PostgresStore::steps(&url, &PostgresOptions::default()).await.unwrap().missing(), 0);
    }
}

/// A connection of a test's own.
async fn beside(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// Waits until a connection to the database waits for another one's lock.
async fn until_one_waits(url: &str) {
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = '{}' AND wait_event_type = 'Lock'",
        database(url)
    );
    let start = Instant::now();
    while SERVER.sql("postgres", &waiting).unwrap() == "0" {
        assert!(start.elapsed() < PATIENCE, "nobody waits");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_could_not_be_serialized_is_tried_again() {
    let url = SERVER.database().unwrap();
    drop(open_at(&url).await);
    let strict = format!("ALTER DATABASE {} SET default_transaction_isolation = 'repeatable read'", database(&url));
    SERVER.sql("postgres", &strict).unwrap();
    let store = open_at(&url).await;
    store.ping().await.unwrap();
    let other = beside(&test_servers::PostgresServer::as_superuser(&url)).await;
    other.batch_execute("BEGIN; UPDATE store_numbers SET value = value + 100").await.unwrap();
    let pinging = tokio::spawn(async move { store.ping().await });
    until_one_waits(&url).await;
    // It has taken its view of the database, and waits for a row that is now another one.
    other.batch_execute("COMMIT").await.unwrap();
    pinging.await.unwrap().unwrap();
    let undone = format!("SELECT xact_rollback FROM pg_stat_database WHERE datname = '{}'", database(&url));
    let start = Instant::now();
    while SERVER.sql("postgres", &undone).unwrap() == "0" {
        assert!(start.elapsed() < PATIENCE, "nothing was undone");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_victim_of_a_deadlock_is_tried_again() {
    let url = SERVER.database().unwrap();
    // Whoever waits longest finds the deadlock; the other one has much more patience.
    SERVER.sql("postgres", &format!("ALTER DATABASE {} SET deadlock_timeout = '8s'", database(&url))).unwrap();
    let store = open_at(&url).await;
    let spending = |tokens: &[&str]| -> Vec<BudgetSpending> {
        tokens.iter().map(|token| BudgetSpending { token: (*token).to_owned(), calls_max: 5 }).collect()
    };
    store.spend(&spending(&["a", "b"])).await.unwrap().unwrap();
    let other = beside(&test_servers::PostgresServer::as_superuser(&url)).await;
    // Locked only: what is being changed would be waited for before anything is held.
    let lock = |token: &str| format!("SELECT FROM access_spending WHERE token = '{token}' FOR UPDATE");
    other.batch_execute("SET deadlock_timeout = '50s'").await.unwrap();
    other.batch_execute(&format!("BEGIN; {}", lock("b"))).await.unwrap();
    let both = spending(&["a", "b"]);
    let spent = tokio::spawn(async move { store.spend(&both).await });
    until_one_waits(&url).await;
    other.batch_execute(&format!("{}; COMMIT", lock("a"))).await.unwrap();
    spent.await.unwrap().unwrap().unwrap();
    let counted = format!("SELECT deadlocks FROM pg_stat_database WHERE datname = '{}'", database(&url));
    let start = Instant::now();
    while SERVER.sql("postgres", &counted).unwrap() != "1" {
        assert!(start.elapsed() < PATIENCE, "there was no deadlock");
    }
}
