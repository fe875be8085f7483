//! Moving whole stores: a backup comes back as it was, and a copy in PostgreSQL is what SQLite held.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gantry_store::conformance::sample_manifest;
use gantry_store::postgres::{PostgresOpenError, PostgresOptions, PostgresStore};
use gantry_store::sqlite::{self, SqliteStore};
use gantry_store::transfer::{
    MoveError, PostgresDump, PostgresLoad, ReplaceError, RowSum, SqliteSource, back_up, check_backup, copy_to_postgres,
    put_in_place, read_line, write_line,
};
use ports::usage_store::{Day, Days, UsageBatch, UsageStore};
use ports::webhook_store::WebhookStore;
use rusqlite::Connection;
use test_servers::PostgresServer;
use uuid::Uuid;

/// One server for all tests of this program. It ends with the program.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start().unwrap());

/// So many invocations are copied.
const INVOCATIONS: u64 = 100_000;

fn options() -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.connections_max = 4;
    options.connection_wait = Duration::from_secs(60);
    options.statement_max = Duration::from_secs(120);
    options
}

fn pairs(number: u128, count: u64) -> UsageBatch {
    let tool = |name: &str| name.parse().unwrap();
    let key = ("acme".parse().unwrap(), Day(1), tool("aaa"), tool("bbb"));
    let id = Uuid::from_u128(number);
    UsageBatch { id, rows: Vec::new(), latencies: Vec::new(), pairs: vec![(key, count)], wishes: Vec::new() }
}

/// Rows of every type and every difference between the stores. The numbers are those of the loop.
const ROWS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 3 UNION ALL SELECT i + 1 FROM n WHERE i < 1502)
    INSERT INTO checkpoints SELECT printf('c%05d', i), 'acme', printf('i%04d', i / 3), 'ann', 'aaa', '1.0.0', 'micro',
        iif(i % 2, 'ä \"quoted\" \\ ' || i, NULL), NULL, i, iif(i % 3, printf('c%05d', i - i % 3), NULL), i % 3 <> 0, '1.0', i % 2, 3, 3,
        randomblob(32), randomblob(32), 0, 10 - i % 3, iif(i % 5, i, NULL), randomblob(i % 100) FROM n;
    INSERT INTO webhook_deliveries (seq, tenant_id, id, webhook_id, event, body, state, round, attempts, created_at)
        VALUES (7, 'acme', 'd1', 'w1', 'job.done', '{\"a\": 1}', 'pending', 1, 1, 5),
               (9, 'acme', 'd2', 'w1', 'job.done', '{}', 'pending', 1, 0, 6);
    INSERT INTO webhook_attempts VALUES (7, 1, 1, 5, 500, 12, 'status');
    INSERT INTO claims VALUES ('k', 'h', 99);
    INSERT INTO usage VALUES ('acme', 3, 'aaa', 'ann', '', 1, 2, 3, 4, 5, 6, 7, 8, 9, 10);
    INSERT INTO tool_health VALUES ('acme', 'aaa', '1.0.0', 0.1, 3, 41.625, 2, '[]', 8),
                                   ('acme', 'bbb', '1.0.0', NULL, 3, 1e300, 2, '[[\"x\",1]]', 8);
    INSERT INTO tool_definitions VALUES (1, 'local', 'aaa', NULL, 'n', 'd', 'p', 'native', '1.0.0',
        '2026-01-01T00:00:00.123Z', '2026-01-01T00:00:00.456Z');
    INSERT INTO tool_versions (tenant_id, tool_id, version, version_text, manifest, digest, published_at, published_by)
        VALUES ('local', 'aaa', '1.0.0', '1.0.0+x', 'MANIFEST', 'x', '2026-01-01T00:00:00.000Z', 'me');
    INSERT INTO access_tenants VALUES ('acme', 'Acme', NULL, '[]', 1);
    INSERT INTO access_policies VALUES ('', 1, 'permit', '2026-01-01T00:00:00.000Z', 'me'),
                                       ('', 2, 'forbid', '2026-01-01T00:00:00.000Z', 'me');
    UPDATE store_numbers SET value = 17 WHERE name = 'access_epoch';
    INSERT INTO upstream_servers VALUES ('acme', 's', '{}', '2026-01-01T00:00:00.000Z', 'me');
    INSERT INTO upstream_pins (tenant_id, server, upstream_tool, tool_id, state, findings, seen_at)
        VALUES ('acme', 's', 't', 'acme.t', 'quarantined', '[]', '2026-01-01T00:00:00.000Z');
    INSERT INTO jobs (seq, tenant_id, id, kind, label, subject, digest, priority, state, rank, attempts_max, dedupe_key,
                      dedupe_until, progress, phase, created_at, due_at)
        VALUES (3, 'acme', 'j1', 'call', 'l', 'ann', 'x', 5, 'queued', 1, 3, 'key', 9, 0.5, 'half \"way\"', 1, 1);
    INSERT INTO job_bodies VALUES (3, '{}', NULL);
    INSERT INTO job_events VALUES (3, 1, 1, 'queued', '{}');
    INSERT INTO workflow_runs (tenant_id, id, workflow, idempotency_key, input, state, created_at)
        VALUES ('acme', 'r1', 'wf', 'key', '{}', 'pending', 1);
";

/// As many invocations as [`INVOCATIONS`].
const CALLS: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO ledger (invocation_id, trace_id, tenant_id, subject, tool_id, tool_version, side_effect_policy, scope, key,
                        holds_key, parameters_digest, window_seconds, owner_id, fence, state, begun_at, settled_at, outcome)
        SELECT printf('%08d', i), 't', 'acme', 'ann', 'aaa', '1.0.0', 'once', 's', 'k' || i, 1, 'd', 60, 'o', i, 'done',
               '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:01.000Z', '{\"n\":' || i || '}' FROM n;
";

async fn sqlite_with_rows(directory: &Path) -> PathBuf {
    let path = directory.join("gantry.db");
    SqliteStore::open(&path, &sqlite::SqliteOptions::default()).unwrap().close().await;
    // Written by hand: not in the order, nor with the spaces, that the store would write.
    let manifest = serde_json::to_string_pretty(&sample_manifest("aaa", "1.0.0+x", "n", "d")).unwrap();
    Connection::open(&path).unwrap().execute_batch(&ROWS.replace("MANIFEST", &manifest)).unwrap();
    path
}

async fn sums(path: &Path) -> Vec<(String, RowSum)> {
    let sums = SqliteSource::lock(path).unwrap().sums().await.unwrap();
    sums.into_iter().map(|of| (of.table, of.sum)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_of_sqlite_is_of_one_moment_while_others_write_and_comes_back_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = sqlite_with_rows(directory.path()).await;
    let before = sums(&path).await;
    let copy = directory.path().join("copy.db");
    back_up(&path, &copy).unwrap();
    assert_eq!(sums(&copy).await, before, "nobody wrote");
    let store = std::sync::Arc::new(SqliteStore::open(&path, &sqlite::SqliteOptions::default()).unwrap());
    let (ended, writer) = (std::sync::Arc::new(AtomicBool::new(false)), std::sync::Arc::clone(&store));
    let writing = tokio::spawn({
        let ended = std::sync::Arc::clone(&ended);
        async move {
            let mut number = 0;
            while !ended.load(Ordering::Relaxed) {
                number += 1;
                // Each batch is one transaction over two tables.
                writer.add_usage(&pairs(number, 1)).await.unwrap();
            }
            number
        }
    });
    let live = directory.path().join("live.db");
    let (from, to) = (path.clone(), live.clone());
    tokio::task::spawn_blocking(move || back_up(&from, &to)).await.unwrap().unwrap();
    ended.store(true, Ordering::Relaxed);
    assert!(writing.await.unwrap() > 0);
    store.close().await;
    let connection = Connection::open(&live).unwrap();
    let (named, counted): (i64, i64) = connection
        .query_row(
            "SELECT (SELECT count(*) FROM usage_batches), coalesce((SELECT count FROM usage_pairs), 0)",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    assert_eq!(named, counted, "of one moment");
    drop(connection);
    back_up(&path, &copy).unwrap_err();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(&live).unwrap()) & 0o777, 0o600);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_put_in_place_only_where_nobody_is_and_nothing_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = sqlite_with_rows(directory.path()).await;
    let (before, copy) = (sums(&path).await, directory.path().join("copy.db"));
    back_up(&path, &copy).unwrap();
    check_backup(&copy).unwrap();
    assert!(matches!(put_in_place(&copy, &path, false, "1"), Err(ReplaceError::Exists { .. })));
    let store = SqliteStore::open(&path, &sqlite::SqliteOptions::default()).unwrap();
    assert!(matches!(
        put_in_place(&copy, &path, true, "1"),
        Err(ReplaceError::Open(sqlite::SqliteOpenError::InUse { .. }))
    ));
    store.add_usage(&pairs(1, 1)).await.unwrap();
    store.close().await;
    let aside = put_in_place(&copy, &path, true, "1").unwrap().unwrap();
    assert_eq!(sums(&path).await, before);
    assert_ne!(sums(&aside).await, before, "what was there is still there");
    let fresh = directory.path().join("new/gantry.db");
    back_up(&path, &copy).unwrap();
    assert_eq!(put_in_place(&copy, &fresh, false, "2").unwrap(), None);
    assert_eq!(sums(&fresh).await, before);
    std::fs::write(directory.path().join("text.db"), "no database").unwrap();
    check_backup(&directory.path().join("text.db")).unwrap_err();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_in_postgresql_holds_what_sqlite_held_and_goes_on_where_it_was_broken_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = sqlite_with_rows(directory.path()).await;
    Connection::open(&path).unwrap().execute_batch(CALLS).unwrap();
    let known = SqliteSource::lock(&path).unwrap().tables().unwrap().len();
    let url = SERVER.database().unwrap();
    let opened = SqliteStore::open(&path, &sqlite::SqliteOptions::default()).unwrap();
    let refused = copy_to_postgres(&path, &url, &options(), &mut |_| {}).await;
    assert!(matches!(refused, Err(MoveError::Sqlite(sqlite::SqliteOpenError::InUse { .. }))), "a server uses it");
    opened.close().await;
    // Broken off in the middle: the future is dropped after a few batches.
    let seen = std::sync::atomic::AtomicU64::new(0);
    let enough = tokio::sync::Notify::new();
    {
        let mut progress = |progress: gantry_store::transfer::TransferProgress<'_>| {
            seen.store(progress.rows, Ordering::Relaxed);
            if progress.rows >= 700 {
                enough.notify_one();
            }
        };
        let options = options();
        let copy = copy_to_postgres(&path, &url, &options, &mut progress);
        tokio::select! {
            biased;
            () = enough.notified() => {}
            done = copy => panic!("it was too quick: {done:?}"),
        }
    }
    assert!(seen.load(Ordering::Relaxed) >= 700);
    let half = PostgresStore::open(&url, &options()).await;
    assert!(matches!(half, Err(PostgresOpenError::Unfinished)));
    // Nor is half a store backed up, or called up to date.
    let dump = PostgresDump::begin(&url, &options()).await;
    assert!(matches!(dump, Err(MoveError::Postgres(PostgresOpenError::Unfinished))), "{dump:?}");
    let steps = PostgresStore::steps(&url, &options()).await;
    assert!(matches!(steps, Err(PostgresOpenError::Unfinished)), "{steps:?}");
    assert!(matches!(PostgresLoad::check(&url, &options(), "other").await, Err(MoveError::OtherCopy)));
    let other = directory.path().join("other.db");
    SqliteStore::open(&other, &sqlite::SqliteOptions::default()).unwrap().close().await;
    assert!(matches!(copy_to_postgres(&other, &url, &options(), &mut |_| {}).await, Err(MoveError::OtherCopy)));
    let mut last = 0;
    let copied = copy_to_postgres(&path, &url, &options(), &mut |progress| last = progress.rows).await.unwrap();
    assert!(copied.resumed);
    assert_eq!(copied.tables.len(), known);
    let rows = |name: &str| copied.tables.iter().find(|of| of.table == name).map(|of| of.sum.rows());
    assert_eq!((rows("checkpoints"), rows("webhook_deliveries"), rows("tool_health")), (Some(1_500), Some(2), Some(2)));
    assert_eq!(rows("ledger"), Some(INVOCATIONS));
    assert_eq!(last, copied.tables.iter().map(|of| of.sum.rows()).sum::<u64>(), "the bar comes to its end");
    let store = PostgresStore::open(&url, &options()).await.unwrap();
    assert!(store.claim("k", "other", Duration::ZERO).await.unwrap(), "its window was over");
    // Numbers go on after the highest one.
    store.add_usage(&pairs(1, 1)).await.unwrap();
    let days = Days { from: Day(0), to: Day(9) };
    assert_eq!(store.pairs(&"acme".parse().unwrap(), days, 9).await.unwrap().len(), 1);
    let database = url.rsplit('/').next().unwrap();
    let next = SERVER.sql(database, "SELECT nextval(pg_get_serial_sequence('webhook_deliveries', 'seq'))").unwrap();
    assert_eq!(next, "10");
    store.close().await;
    assert!(matches!(copy_to_postgres(&path, &url, &options(), &mut |_| {}).await, Err(MoveError::NotEmpty)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_on_the_way_is_found_by_the_digests() {
    let directory = tempfile::tempdir().unwrap();
    let path = sqlite_with_rows(directory.path()).await;
    let url = SERVER.database().unwrap();
    let database = url.rsplit('/').next().unwrap().to_owned();
    let mut changed = false;
    let mut meddle = |progress: gantry_store::transfer::TransferProgress<'_>| {
        if progress.doing == "comparing" && !changed {
            changed = true;
            SERVER.sql(&database, "UPDATE webhook_deliveries SET body = '{\"a\": 2}' WHERE seq = 7").unwrap();
        }
    };
    match copy_to_postgres(&path, &url, &options(), &mut meddle).await {
        Err(MoveError::Differs { table, .. }) => assert_eq!(table, "webhook_deliveries"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(PostgresStore::open(&url, &options()).await, Err(PostgresOpenError::Unfinished)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dump_of_postgresql_is_of_one_moment_and_comes_back_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = sqlite_with_rows(directory.path()).await;
    let (from, to) = (SERVER.database().unwrap(), SERVER.database().unwrap());
    assert!(matches!(
        PostgresDump::begin(&from, &options()).await,
        Err(MoveError::Postgres(PostgresOpenError::NoStore))
    ));
    copy_to_postgres(&path, &from, &options(), &mut |_| {}).await.unwrap();
    let store = PostgresStore::open(&from, &options()).await.unwrap();
    let mut dump = PostgresDump::begin(&from, &options()).await.unwrap();
    // What comes after the moment is not in it.
    store.add_usage(&pairs(1, 1)).await.unwrap();
    let mut load = PostgresLoad::begin(&to, &options(), Some(dump.steps()), "mark").await.unwrap();
    let mut rows_total = 0;
    for table in dump.tables().to_vec() {
        let names: Vec<String> = table.columns.iter().map(|column| column.name.clone()).collect();
        let target = load.with_columns(&table.name, &names).unwrap();
        let (mut sum, mut done) = (RowSum::default(), 0);
        dump.open(&table).await.unwrap();
        loop {
            let rows = dump.fetch(&table).await.unwrap();
            if rows.is_empty() {
                break;
            }
            // As in a file.
            let rows: Vec<_> = rows.iter().map(|row| read_line(&write_line(row)).unwrap()).collect();
            rows.iter().for_each(|row| sum.add(row));
            done += u64::try_from(rows.len()).unwrap();
            load.write(&target, rows, done, &[]).await.unwrap();
        }
        rows_total += done;
        assert_eq!(load.sum(&target).await.unwrap(), sum, "{}", table.name);
        assert!(table.name != "usage_batches" || sum.rows() == 0);
    }
    assert_eq!(dump.count().await.unwrap(), rows_total);
    dump.end().await;
    load.finish().await.unwrap();
    let restored = PostgresStore::open(&to, &options()).await.unwrap();
    assert!(restored.add_usage(&pairs(1, 1)).await.unwrap());
    let newer = PostgresLoad::begin(&to, &options(), Some(1_000), "mark").await;
    assert!(matches!(newer, Err(MoveError::Newer { found: 1_000, .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_that_no_step_has_made_are_left_alone() {
    let url = SERVER.database().unwrap();
    PostgresStore::open(&url, &options()).await.unwrap().close().await;
    let sql = |statement: &str| SERVER.sql(url.rsplit('/').next().unwrap(), statement).unwrap();
    let tables = async || {
        let dump = PostgresDump::begin(&url, &options()).await.unwrap();
        let names: Vec<String> = dump.tables().iter().map(|table| table.name.clone()).collect();
        dump.count().await.unwrap();
        dump.end().await;
        names
    };
    let ours = tables().await;
    assert!(ours.contains(&"ledger".to_owned()) && !ours.contains(&"installation_secrets".to_owned()), "{ours:?}");
    // One of the same role, one of another whom we may not even read, and one that refers to ours.
    sql("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t OWNER TO gantry; CREATE TABLE of_another (secret text);
         CREATE TABLE notes (seq bigint REFERENCES jobs (seq)); INSERT INTO of_another VALUES ('x')");
    assert_eq!(tables().await, ours);
    assert!(matches!(PostgresLoad::check(&url, &options(), "mark").await, Err(MoveError::NotEmpty)));
    // A backup that would lack what a newer release has made is not made.
    sql("INSERT INTO gantry_steps (step, digest, oldest) VALUES (4711, 'x', 0)");
    let newer = PostgresDump::begin(&url, &options()).await;
    assert!(matches!(newer, Err(MoveError::Postgres(PostgresOpenError::Newer { found: 4711, .. }))), "{newer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_only_read_what_is_in_a_backup_makes_one() {
    let url = SERVER.database().unwrap();
    PostgresStore::open(&url, &options()).await.unwrap().close().await;
    let database = url.rsplit('/').next().unwrap();
    SERVER.sql("postgres", "CREATE ROLE archivist LOGIN").unwrap();
    let archivist = url.replacen("gantry@", "archivist@", 1);
    let refused = PostgresDump::begin(&archivist, &options()).await.map(drop).unwrap_err().to_string();
    assert!(refused.contains("GRANT SELECT ON ALL TABLES IN SCHEMA public TO archivist"), "{refused}");
    let grant =
        "GRANT SELECT ON ALL TABLES IN SCHEMA public TO archivist; REVOKE ALL ON installation_secrets FROM archivist";
    SERVER.sql(database, grant).unwrap();
    PostgresDump::begin(&archivist, &options()).await.unwrap().end().await;
}
