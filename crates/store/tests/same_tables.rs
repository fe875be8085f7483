//! What stands in both databases has the same tables and columns in both: what one keeps of a call, a job or a server, the other
//! keeps under the same name, so that a copy from one to the other (`transfer`) and a reader of either know it again.
//!
//! The differences are few and each has its reason here; one that is not listed is a mistake.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use gantry_store::postgres::{PostgresOptions, PostgresStore};
use gantry_store::sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use test_servers::PostgresServer;
use tokio_postgres::NoTls;

/// One server for all tests of this program. It ends with the program.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start().unwrap());

/// Tables that only SQLite has.
const ONLY_SQLITE: &[(&str, &str)] = &[
    ("job_owners", "whoever works there is one process: PostgreSQL has all of them in `instances`"),
    ("ledger_owners", "likewise"),
    ("registry_tenants", "numbers for the keys of the search index"),
];
/// Tables that only PostgreSQL has.
const ONLY_POSTGRES: &[(&str, &str)] = &[
    ("archive_logs", "the searchable copy of all audit logs is of many instances"),
    ("audit_records", "likewise"),
    ("gantry_steps", "SQLite counts its steps in `user_version`"),
    ("installation_secrets", "one machine keeps them in its data directory"),
    ("instances", "one machine has one, and its owners are in `job_owners` and `ledger_owners`"),
    ("log_heads", "signed heads of the logs of all instances"),
    ("presence", "which instances there are"),
    ("search_corpora", "SQLite searches by FTS5, which keeps its own tables"),
    ("search_documents", "likewise"),
    ("search_postings", "likewise"),
    ("tool_invocations", "the archive by calls"),
];
/// Columns that only one of them has: table, column, reason.
const ONLY_SQLITE_COLUMNS: &[(&str, &str, &str)] = &[
    ("job_flows", "ready", "kept by triggers; PostgreSQL counts what is due when it takes jobs"),
    ("job_tenants", "ready", "likewise"),
    ("search_terms", "tenant_key", "the number of `registry_tenants`"),
    ("vectors", "vector_key", "the row id that the index of vectors needs"),
];
const ONLY_POSTGRES_COLUMNS: &[(&str, &str, &str)] = &[
    ("job_bodies", "tenant_id", "row level security is a matter of each row"),
    ("job_events", "tenant_id", "likewise"),
    ("ledger", "claim", "tells an own write from another's after an answer was lost on its way"),
    ("search_terms", "characters", "an index by length for spelling; SQLite reads the terms of its FTS5 index"),
    ("search_terms", "tenant_id", "SQLite has a number for it"),
];

type Tables = BTreeMap<String, BTreeSet<String>>;

/// The tables of an empty SQLite store, without those that SQLite and its search keep for themselves.
async fn of_sqlite() -> Tables {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    SqliteStore::open(&path, &SqliteOptions::default()).unwrap().close().await;
    let connection = Connection::open(&path).unwrap();
    let mut columns = connection
        .prepare(
            "SELECT t.name, c.name FROM pragma_table_list t JOIN pragma_table_info(t.name) c
             WHERE t.schema = 'main' AND t.type = 'table' AND t.name NOT LIKE 'sqlite!_%' ESCAPE '!'",
        )
        .unwrap();
    let rows = columns.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
    grouped(rows.map(Result::unwrap))
}

/// The tables of an empty PostgreSQL store; partitions are parts of theirs.
async fn of_postgres() -> Tables {
    let url = SERVER.database().unwrap();
    PostgresStore::open(&url, &PostgresOptions::default()).await.unwrap().close().await;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let rows = client
        .query(
            "SELECT c.relname::text, a.attname::text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
             WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
               AND a.attnum > 0 AND NOT a.attisdropped",
            &[],
        )
        .await
        .unwrap();
    grouped(rows.iter().map(|row| (row.get(0), row.get(1))))
}

fn grouped(rows: impl Iterator<Item = (String, String)>) -> Tables {
    let mut tables = Tables::new();
    for (table, column) in rows {
        tables.entry(table).or_default().insert(column);
    }
    tables
}

/// Each of the two less the other.
fn apart<'t>(one: impl Iterator<Item = &'t String>, other: &dyn Fn(&str) -> bool) -> Vec<String> {
    one.filter(|name| !other(name)).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn both_databases_have_the_same_tables_and_columns_but_for_those_listed_with_a_reason() {
    let (sqlite, postgres) = (of_sqlite().await, of_postgres().await);
    assert!(sqlite.len() > 20, "{sqlite:?}");
    let named = |list: &[(&str, &str)]| list.iter().map(|(table, _)| (*table).to_owned()).collect::<Vec<_>>();
    assert_eq!(apart(sqlite.keys(), &|name| postgres.contains_key(name)), named(ONLY_SQLITE), "only in SQLite");
    assert_eq!(apart(postgres.keys(), &|name| sqlite.contains_key(name)), named(ONLY_POSTGRES), "only in PostgreSQL");
    let (mut only_sqlite, mut only_postgres) = (Vec::new(), Vec::new());
    for (table, columns) in &sqlite {
        let Some(theirs) = postgres.get(table) else { continue };
        only_sqlite.extend(columns.difference(theirs).map(|column| (table.as_str(), column.as_str())));
        only_postgres.extend(theirs.difference(columns).map(|column| (table.as_str(), column.as_str())));
    }
    let named = |list: &'static [(&str, &str, &str)]| list.iter().map(|(t, c, _)| (*t, *c)).collect::<Vec<_>>();
    assert_eq!(
        (only_sqlite, only_postgres),
        (named(ONLY_SQLITE_COLUMNS), named(ONLY_POSTGRES_COLUMNS)),
        "only in SQLite, only in PostgreSQL"
    );
}
