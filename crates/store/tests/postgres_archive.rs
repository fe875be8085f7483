//! The archive of records on PostgreSQL: its suite, and what is only true of a database with months that many instances fill.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use gantry_store::conformance::archive::record;
use gantry_store::postgres::{PostgresOptions, PostgresStore};
use ports::record_archive::{AppendOutcome, ArchiveQuery, RecordArchive, Retention, moment_of};
use test_servers::PostgresServer;
use tokio_postgres::{Client, NoTls};

/// One server for all tests of this program. It ends with the program.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start().unwrap());

async fn open_at(url: &str) -> Arc<PostgresStore> {
    let mut options = PostgresOptions::default();
    // Many tests run at once on one server, on a machine that may be busy.
    options.connections_max = 3;
    options.connection_wait = Duration::from_secs(60);
    options.statement_max = Duration::from_secs(60);
    Arc::new(PostgresStore::open(url, &options).await.unwrap())
}

async fn open() -> Arc<dyn RecordArchive> {
    open_at(&SERVER.database().unwrap()).await
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

mod archive {
    gantry_store::archive_suite!(super::open);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_months_that_are_asked_for_are_read() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    let months: Vec<String> = (1..=12).map(|month| format!("2027-{month:02}")).chain(["2028-01".to_owned()]).collect();
    let records: Vec<_> = (0..).zip(&months).map(|(seq, month)| record(seq, &format!("{month}-15"), "acme")).collect();
    assert_eq!(store.append("aa", &records).await.unwrap(), AppendOutcome::Written(13));
    assert_eq!(store.stats().await.unwrap().months.len(), 26);
    let client = connect(&url).await;
    client.batch_execute("SET gantry.tenant = '*'").await.unwrap();
    for (table, time) in [("audit_records", "at"), ("tool_invocations", "completed_at")] {
        let (from, to) = (moment_of("2027-05").unwrap().0, moment_of("2027-07").unwrap().0);
        let sql = format!(
            "EXPLAIN SELECT * FROM {table} WHERE tenant_id = 'acme' AND {time} >= {from} AND {time} < {to}
             ORDER BY {time} DESC, log DESC, seq DESC LIMIT 50"
        );
        let plan: Vec<String> = client.query(&sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        let read: Vec<&String> = months.iter().filter(|month| plan.contains(&month.replace('-', "_"))).collect();
        assert_eq!(read, [&months[4], &months[5]], "{plan}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_that_append_and_keep_house_at_once_write_everything_once() {
    let url = SERVER.database().unwrap();
    let stores = [open_at(&url).await, open_at(&url).await];
    let batch: Arc<Vec<_>> =
        Arc::new((0..60).map(|seq| record(seq, &format!("2027-{:02}-15", seq % 12 + 1), "acme")).collect());
    let kept = Retention { audit: Some(Duration::from_hours(24 * 4_000)), invocations: None };
    let mut tasks = Vec::new();
    for store in &stores {
        // Both bring both logs: one of its own, and one that another brings at the same moment.
        for log in ["aa", "bb"] {
            let (store, batch) = (Arc::clone(store), Arc::clone(&batch));
            tasks.push(tokio::spawn(async move {
                for at in 0..6 {
                    let appended = store.append(log, &batch[at * 10..at * 10 + 10]).await.unwrap();
                    assert!(matches!(appended, AppendOutcome::Written(_)), "{appended:?}");
                }
            }));
        }
        let store = Arc::clone(store);
        tasks.push(tokio::spawn(async move {
            store.provide(moment_of("2027-06").unwrap()).await.unwrap();
            store.retain(&kept, moment_of("2027-06").unwrap()).await.unwrap();
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let query = ArchiveQuery { limit: 500, ..ArchiveQuery::default() };
    assert_eq!(stores[0].search(&query).await.unwrap().records.len(), 120);
    assert_eq!(stores[1].stats().await.unwrap().records, 120);
}

#[tokio::test(flavor = "multi_thread")]
async fn months_are_held_apart_by_tenant_like_the_tables_they_belong_to() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    store.append("aa", &[record(0, "2027-01-15", "acme")]).await.unwrap();
    let client = connect(&url).await;
    let sql = "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p') AND c.relname <> 'gantry_steps'
                   AND (c.relname LIKE 'audit_records%' OR c.relname LIKE 'tool_invocations%' OR c.relname = 'archive_logs')
                   AND NOT (c.relrowsecurity AND c.relforcerowsecurity)";
    assert!(client.query(sql, &[]).await.unwrap().is_empty());
    for (tenant, seen) in [("acme", 1), ("zeta", 0), ("", 0), ("*", 1)] {
        client.batch_execute(&format!("SET gantry.tenant = '{tenant}'")).await.unwrap();
        for table in ["audit_records", "audit_records_2027_01", "tool_invocations", "tool_invocations_2027_01"] {
            let count: i64 = client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0);
            assert_eq!(count, seen, "{table} as `{tenant}`");
        }
    }
}
