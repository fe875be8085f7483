//! Access in a file: rows that make no sense, writers that would rewrite history, a full disk, counting under load.
#![expect(clippy::unwrap_used, reason = "test crate")]

use std::path::Path;
use std::sync::Arc;

use gantry_store::sqlite::{SqliteOptions, SqliteStore};
use ports::access_store::{
    AccessStore, Activation, AgentRecord, BudgetSpending, PolicyRecord, Revocation, RevokedIssuers, RevokedTokens,
    TenantRecord,
};
use ports::clock::UnixMillis;
use ports::registry_store::StoreError;
use rusqlite::Connection;

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, &SqliteOptions::default()).unwrap()
}

/// A closed file with one record of each kind.
async fn make_file(path: &Path) {
    let store = open(path);
    let (tenant, agent) = ("acme".parse().unwrap(), "did:key:zOne".parse().unwrap());
    let by = "admin".parse().unwrap();
    let record = TenantRecord { tenant, name: "Acme".to_owned(), visibility: None, tools: vec![], enabled: true };
    store.put_tenants(std::slice::from_ref(&record)).await.unwrap();
    let record = AgentRecord { tenant: record.tenant, agent, document: None, added_at: UnixMillis(1), added_by: by };
    store.put_agents(std::slice::from_ref(&record)).await.unwrap();
    let tool = "demo.*".parse().unwrap();
    let (tenant, agent) = (record.tenant, record.agent);
    let active = Activation {
        id: "7d444840-9dc0-41d1-b245-5ffdce74fad2".parse().unwrap(),
        tenant,
        agent,
        tool,
        enabled: true,
        overrides: policy::PolicyOverrides::default(),
        created_at: UnixMillis(1),
        updated_at: UnixMillis(1),
    };
    store.put_activations(std::slice::from_ref(&active)).await.unwrap();
    let (tenant, by, at) = (Some(active.tenant), record.added_by, UnixMillis(1));
    let policies = PolicyRecord { tenant, version: 1, text: "// none".to_owned(), added_at: at, added_by: by };
    store.add_policies(&policies).await.unwrap().unwrap();
    let what = RevokedTokens::Subject(policies.tenant.unwrap(), active.agent);
    store
        .revoke(&Revocation { what, issuers: RevokedIssuers::All, at, by: policies.added_by, needless_from: None })
        .await
        .unwrap();
    store.spend(&[BudgetSpending { token: "token".to_owned(), calls_max: 9 }]).await.unwrap().unwrap();
    store.close().await;
}

#[tokio::test]
async fn rows_that_make_no_sense_are_reported_and_never_left_out() {
    for damage in [
        "UPDATE access_activations SET overrides = '{'",
        "UPDATE access_activations SET overrides = '{\"timeout\": 5}'",
        "UPDATE access_activations SET overrides = '[]'",
        "UPDATE access_activations SET overrides = '{\"timeout_seconds\": -5}'",
        "UPDATE access_activations SET tool = 'demo.w*'",
        "UPDATE access_activations SET agent = 'two words'",
        "UPDATE access_tenants SET tools = '[\"de*\"]'",
        "UPDATE access_tenants SET tools = 'demo'",
        "UPDATE access_tenants SET visibility = 'sometimes'",
        "UPDATE access_tenants SET tenant_id = ''",
        "UPDATE access_agents SET added_at = 'yesterday'",
        "UPDATE access_agents SET agent = ''",
        "UPDATE access_policies SET version = -1",
        "UPDATE access_policies SET added_at = 'Z'",
        "UPDATE access_revocations SET kind = 'everybody'",
        "UPDATE access_revocations SET revoked_at = ''",
        "UPDATE store_numbers SET value = -1 WHERE name = 'access_epoch'",
        "DELETE FROM store_numbers WHERE name = 'access_epoch'",
    ] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gantry.db");
        make_file(&path).await;
        let connection = Connection::open(&path).unwrap();
        connection
            .execute_batch("DROP TRIGGER access_policies_never_change; PRAGMA ignore_check_constraints = ON;")
            .unwrap();
        assert_eq!(connection.execute(damage, []).unwrap(), 1, "{damage}");
        connection.close().unwrap();
        let error = open(&path).load().await.err();
        let error = error.unwrap_or_else(|| panic!("read in spite of: {damage}"));
        assert!(matches!(error, StoreError::Corrupt(_)), "{damage}: {error:?}");
        assert_eq!(error.to_string(), "the store holds data that cannot be read");
    }
}

#[tokio::test]
async fn the_tables_refuse_what_the_program_never_writes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    make_file(&path).await;
    let connection = Connection::open(&path).unwrap();
    for sql in [
        "UPDATE access_policies SET text = 'permit(principal, action, resource);'",
        "DELETE FROM access_policies",
        "DELETE FROM access_revocations",
        "INSERT INTO access_policies VALUES ('acme', 3, '', '2026-01-01T00:00:00.000Z', 'me')",
        "INSERT INTO access_policies VALUES ('acme', 1, '', '2026-01-01T00:00:00.000Z', 'me')",
        "INSERT INTO access_revocations VALUES ('subject', '', 'me', '2026-01-01T00:00:00.000Z', 'me')",
        "INSERT INTO access_revocations VALUES ('token', '', 'me', '2026-01-01T00:00:00.000Z', 'me')",
        "UPDATE access_activations SET overrides = '{'",
        "UPDATE access_activations SET enabled = 2",
        "UPDATE access_tenants SET visibility = 'sometimes'",
        "UPDATE access_tenants SET tools = '{}'",
        "UPDATE access_spending SET calls = -1",
    ] {
        connection.execute(sql, []).unwrap_err();
    }
    drop(connection);
    assert_eq!(open(&path).load().await.unwrap().epoch, 5);
}

#[tokio::test]
async fn a_change_that_finds_the_disk_full_leaves_nothing_and_the_epoch_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    make_file(&path).await;
    let store = open(&path);
    store.set_bytes_max(0).await.unwrap();
    let (tenant, added_by) = (None, "admin".parse().unwrap());
    let text = "// a long text\n".repeat(100_000);
    let record = PolicyRecord { tenant, version: 1, text, added_at: UnixMillis(2), added_by };
    let error = store.add_policies(&record).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    let state = store.load().await.unwrap();
    assert_eq!((state.epoch, state.policies.len()), (5, 1));
    store.set_bytes_max(1 << 30).await.unwrap();
    assert_eq!(store.add_policies(&record).await.unwrap(), Some(6));
}

#[tokio::test]
async fn a_reader_beside_the_writer_sees_changes_and_makes_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gantry.db");
    make_file(&path).await;
    let (writer, reader) = (open(&path), SqliteStore::open_read_only(&path).unwrap());
    assert_eq!(writer.put_tenants(&[]).await.unwrap(), 6);
    assert_eq!(reader.load().await.unwrap().epoch, 6);
    assert!(matches!(reader.put_tenants(&[]).await, Err(StoreError::Unavailable(_))));
    let spending = [BudgetSpending { token: "token".to_owned(), calls_max: 9 }];
    assert!(matches!(reader.spend(&spending).await, Err(StoreError::Unavailable(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_come_together_are_counted_in_few_commits() {
    const CALLS: usize = 500;
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&directory.path().join("gantry.db")));
    let before = store.counters().commits;
    let calls: Vec<_> = (0..CALLS)
        .map(|number| {
            let store = Arc::clone(&store);
            let token = format!("token-{}", number % 7);
            tokio::spawn(async move { store.spend(&[BudgetSpending { token, calls_max: 1000 }]).await.unwrap() })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let commits = store.counters().commits - before;
    assert!(commits < 125, "{CALLS} calls took {commits} commits");
}
