//! Vectors in the database itself: the index that answers, whose rows it shows, and roles that may not make it.

use std::time::{Duration, Instant};

use contract::canonical::Digest;
use contract::ids::{TenantId, ToolId};
use gantry_store::postgres::PostgresStore;
use ports::vector_store::{
    BATCH_MAX, Embedding, NEAREST_MAX, NearestQuery, Neighbour, NeighbourScope, VectorRecord, VectorSpace, VectorStore,
};
use test_servers::PostgresServer;
use tokio_postgres::{Client, NoTls};

use super::{SERVER, open_at};

const WIDTH: usize = 8;
const DEADLINE: Duration = Duration::from_secs(60);

fn space() -> VectorSpace {
    VectorSpace::new("a-model", WIDTH).unwrap()
}

/// Directions that go once around, in small steps.
fn embedding(number: u32) -> Embedding {
    let angle = f64::from(number) / 2000.0;
    #[expect(clippy::cast_possible_truncation, reason = "numbers between -1 and 1")]
    let numbers: Vec<f32> = (1..=8).map(|factor: u32| (angle * f64::from(factor)).sin() as f32 + 0.01).collect();
    Embedding::new(&numbers).unwrap()
}

async fn fill(store: &PostgresStore, tenant: &str, numbers: std::ops::Range<u32>) {
    let records: Vec<VectorRecord> = numbers
        .map(|number| VectorRecord {
            tool: format!("demo.tool{number:05}").parse::<ToolId>().unwrap(),
            digest: Digest::of_bytes(b"text"),
            embedding: embedding(number),
        })
        .collect();
    for batch in records.chunks(BATCH_MAX) {
        store.put(&space(), &tenant.parse().unwrap(), batch).await.unwrap();
    }
}

async fn nearest(store: &PostgresStore, tenant: &str, to: u32, limit: usize) -> Vec<Neighbour> {
    let (tenant, to): (TenantId, _) = (tenant.parse().unwrap(), embedding(to));
    store
        .nearest(&space(), NearestQuery { tenant: &tenant, to: &to, among: NeighbourScope::Visible, limit })
        .await
        .unwrap()
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// How often indexes of spaces have been used.
async fn uses(client: &Client) -> i64 {
    let sql = "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes
               WHERE indexrelname LIKE 'vectors\\_of\\_space\\_%'";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn many_vectors_are_found_by_the_index_and_few_by_measuring() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    store.open_space(&space()).await.unwrap();
    fill(&store, "acme", 0..3000).await;
    fill(&store, "small", 0..20).await;
    let client = connect(&url).await;
    client.batch_execute("ANALYZE vectors").await.unwrap();
    assert_eq!(nearest(&store, "small", 2500, 10).await.len(), 10);
    store.close().await;
    // The server counts what a connection did at its end at the latest.
    assert_eq!(uses(&client).await, 0, "a small tenant does not ask the index");

    let store = open_at(&url).await;
    let found = nearest(&store, "acme", 2500, 10).await;
    // The graph is made by chance and shows neighbours, not surely the nearest; directions of near numbers are near.
    let best: u32 = found.first().unwrap().tool.as_str().trim_start_matches("demo.tool").parse().unwrap();
    assert!(best.abs_diff(2500) <= 50, "{best} is far off");
    store.close().await;
    let begun = Instant::now();
    while uses(&client).await == 0 {
        assert!(begun.elapsed() < DEADLINE, "the index is not used");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_level_security_does_not_keep_the_planner_from_the_index() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    store.open_space(&space()).await.unwrap();
    fill(&store, "acme", 0..3000).await;
    let client = connect(&url).await;
    client.batch_execute("ANALYZE vectors; BEGIN; SET LOCAL gantry.tenant = 'acme'").await.unwrap();
    let query = format!("{:?}", embedding(7).numbers());
    let explain = format!(
        "EXPLAIN SELECT tool_id FROM vectors AS found
         WHERE space_key = (SELECT space_key FROM vector_spaces) AND tenant_id IN ('acme', 'local')
         ORDER BY embedding::vector({WIDTH}) <=> '{query}'::vector({WIDTH}) LIMIT 26"
    );
    let key: i64 = client.query_one("SELECT space_key FROM vector_spaces", &[]).await.unwrap().get(0);
    for (statement, uses_index) in
        [(explain.replace("(SELECT space_key FROM vector_spaces)", &key.to_string()), true), (explain, false)]
    {
        let plan = client.query(&statement, &[]).await.unwrap();
        let plan: String = plan.iter().map(|row| row.get::<_, String>(0) + "\n").collect();
        assert_eq!(plan.contains(&format!("Index Scan using vectors_of_space_{key}")), uses_index, "{plan}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_beside_a_greater_one_is_not_starved_by_the_index() {
    let url = SERVER.database().unwrap();
    let store = open_at(&url).await;
    store.open_space(&space()).await.unwrap();
    // More than are measured one by one, and all of them behind four thousand nearer ones of somebody else.
    fill(&store, "great", 0..4000).await;
    fill(&store, "acme", 4000..5100).await;
    for limit in [10, NEAREST_MAX] {
        let found = nearest(&store, "acme", 100, limit).await;
        assert_eq!(found.len(), limit);
        assert!(found.iter().all(|one| one.tenant.as_str() == "acme"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_may_not_make_indexes_measures_all_and_goes_on() {
    let url = SERVER.database().unwrap();
    open_at(&url).await.close().await;
    let owner = connect(&PostgresServer::as_superuser(&url)).await;
    let guest = format!("guest_{}", std::process::id());
    owner
        .batch_execute(&format!(
            "CREATE ROLE {guest} LOGIN PASSWORD 'guest' NOSUPERUSER;
             GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {guest};
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {guest}"
        ))
        .await
        .unwrap();
    let host = url.rsplit_once('@').map_or("", |(_, rest)| rest);
    let store = open_at(&format!("postgres://{guest}:guest@{host}")).await;
    store.open_space(&space()).await.unwrap();
    store.open_space(&space()).await.unwrap();
    fill(&store, "acme", 0..1100).await;
    assert_eq!(nearest(&store, "acme", 500, 1).await.first().unwrap().tool.as_str(), "demo.tool00500");
    assert!(store.drop_space(&space()).await.unwrap());
    assert_eq!(store.spaces().await.unwrap(), []);
    store.close().await;
    owner.batch_execute(&format!("DROP OWNED BY {guest}; DROP ROLE {guest}")).await.unwrap();
}
