//! Row level security: what the database itself keeps apart, whatever a statement says.

use contract::canonical::Digest;
use gantry_store::conformance::{new_version_of, sample_manifest};
use gantry_store::postgres::PostgresStore;
use ports::access_store::{
    AccessStore, AgentRecord, PolicyRecord, Revocation, RevokedIssuers, RevokedTokens, TenantRecord,
};
use ports::clock::UnixMillis;
use ports::registry_store::{PublishOutcome, RegistryStore};
use ports::tool_search::ToolSearch;
use ports::upstream_store::{ServerRecord, UpstreamStore};
use ports::vector_store::{Embedding, VectorRecord, VectorSpace, VectorStore};
use serde_json::json;
use tokio_postgres::{Client, NoTls};

use super::{SERVER, open_at};

/// Something of a tenant in every table.
async fn furnish(store: &PostgresStore, tenant: &str) {
    let manifest = sample_manifest("demo.sample", "1.0.0", "A sample", "Does what samples do.");
    assert_eq!(store.publish(new_version_of(tenant, manifest)).await.unwrap(), PublishOutcome::New);
    let (tenant, by, at) = (tenant.parse().unwrap(), "admin".parse().unwrap(), UnixMillis(1));
    let record = |document| AgentRecord { tenant, agent: "one".parse().unwrap(), document, added_at: at, added_by: by };
    let agent = record(None);
    let (tenant, by) = (agent.tenant.clone(), agent.added_by.clone());
    store.put_agents(std::slice::from_ref(&agent)).await.unwrap();
    let activation = ports::access_store::Activation {
        // Another for each tenant: ids are unique.
        id: uuid::Uuid::from_u128(tenant.as_str().bytes().fold(1, |id, byte| (id << 8) | u128::from(byte))),
        tenant: tenant.clone(),
        agent: agent.agent.clone(),
        tool: "*".parse().unwrap(),
        enabled: true,
        overrides: policy::PolicyOverrides::default(),
        created_at: at,
        updated_at: at,
    };
    store.put_activations(&[activation]).await.unwrap();
    let whole =
        TenantRecord { tenant: tenant.clone(), name: String::new(), visibility: None, tools: vec![], enabled: true };
    store.put_tenants(&[whole]).await.unwrap();
    for owner in [None, Some(tenant.clone())] {
        let policies =
            PolicyRecord { tenant: owner, version: 1, text: String::new(), added_at: at, added_by: by.clone() };
        store.add_policies(&policies).await.unwrap();
    }
    let what = RevokedTokens::Subject(tenant.clone(), agent.agent.clone());
    store
        .revoke(&Revocation { what, issuers: RevokedIssuers::All, at, by: by.clone(), needless_from: None })
        .await
        .unwrap();
    let space = VectorSpace::new("a-model", 2).unwrap();
    store.open_space(&space).await.unwrap();
    let vector = VectorRecord {
        tool: "demo.sample".parse().unwrap(),
        digest: Digest::of_bytes(b"text"),
        embedding: Embedding::new(&[1.0, 2.0]).unwrap(),
    };
    store.put(&space, &tenant, &[vector]).await.unwrap();
    let server = ServerRecord { tenant, name: "files".to_owned(), spec: json!({}), added_at: at, added_by: by };
    store.put_server(&server, &[]).await.unwrap();
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn count(client: &Client, tenant: &str, table: &str) -> i64 {
    client.batch_execute(&format!("BEGIN; SET LOCAL gantry.tenant = '{tenant}'")).await.unwrap();
    let row = client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap();
    client.batch_execute("ROLLBACK").await.unwrap();
    row.get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_another_tenant_neither_sees_nor_writes_a_row() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    furnish(&store, "acme").await;
    let client = connect(&url).await;
    let tables = client
        .query(
            "SELECT relname::text, EXISTS (
                 SELECT 1 FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'tenant_id')
             FROM pg_class WHERE relrowsecurity AND relforcerowsecurity ORDER BY 1",
            &[],
        )
        .await
        .unwrap();
    let tables: Vec<(String, bool)> = tables.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert!(tables.len() >= 13, "{tables:?}");
    let mut seen = 0;
    for (table, has_tenant) in &tables {
        let own = count(&client, "acme", table).await;
        seen += i64::from(own > 0);
        assert_eq!(count(&client, "zeta", table).await, 0, "{table}");
        assert_eq!(count(&client, "", table).await, 0, "{table} without a tenant");
        assert!(count(&client, "*", table).await >= own, "{table}");
        // What belongs to the whole installation has no tenant to be put in another's place.
        let stolen = has_tenant.then(|| format!("UPDATE {table} SET tenant_id = 'zeta'"));
        for change in [format!("DELETE FROM {table}")].into_iter().chain(stolen) {
            client.batch_execute("BEGIN; SET LOCAL gantry.tenant = 'zeta'").await.unwrap();
            assert_eq!(client.execute(&change, &[]).await.unwrap(), 0, "{change}");
            client.batch_execute("COMMIT").await.unwrap();
        }
        assert_eq!(count(&client, "acme", table).await, own, "{table}");
    }
    assert!(seen >= 12, "too few tables have a row to see");
    client.batch_execute("BEGIN; SET LOCAL gantry.tenant = 'zeta'").await.unwrap();
    let forged = "INSERT INTO access_agents (tenant_id, agent, added_at, added_by) VALUES ('acme', 'two', 1, 'x')";
    let refused = client.execute(forged, &[]).await.unwrap_err();
    assert_eq!(refused.code(), Some(&tokio_postgres::error::SqlState::INSUFFICIENT_PRIVILEGE));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_called_like_everybody_gets_nothing() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    furnish(&store, "acme").await;
    let star = "*".parse().unwrap();
    assert!(store.search(&star, "samples", 10).await.unwrap().is_empty());
    assert!(!store.remove_server(&star, "files").await.unwrap());
    let manifest = sample_manifest("demo.other", "1.0.0", "Another", "Does what others do.");
    store.publish(new_version_of("*", manifest)).await.unwrap_err();
}
