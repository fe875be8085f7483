//! Two servers on one PostgreSQL: what was done at one is found by asking the other. (AUD-014, STORE-004)

use serde_json::{Value, json};
use test_servers::PostgresServer;

use crate::support::{Gantry, PATIENCE, STORE_KEY, Start};

async fn server(url: &str) -> Gantry {
    Start::new()
        .env("GANTRY_STORE__URL", url)
        .env("GANTRY_STORE__SEAL_KEY", STORE_KEY)
        .env("GANTRY_STORE__CONNECTION_WAIT_SECONDS", "60")
        .run()
        .await
}

fn records(page: &Value) -> &Vec<Value> {
    page["records"].as_array().unwrap()
}

/// The first page of this search that has a record.
async fn until_found(gantry: &Gantry, path: &str) -> Value {
    let start = std::time::Instant::now();
    loop {
        let answer = gantry.get(path).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        if !records(&answer.body).is_empty() {
            return answer.body;
        }
        assert!(start.elapsed() < PATIENCE, "{path}: {}", answer.text);
    }
}

#[tokio::test]
async fn a_call_at_one_server_is_found_by_asking_the_other() {
    let postgres = PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let (one, other) = (server(&url).await, server(&url).await);
    let called = one.invoke("calculator", json!({ "expression": "1+1" })).await;
    assert_eq!(called.status, 200, "{}", called.text);
    let trace = called.body["trace_id"].as_str().unwrap().to_owned();

    let search = format!("/v1/audit?trace_id={trace}&action=invocation_finished");
    let page = until_found(&other, &search).await;
    let record = &records(&page)[0];
    assert_eq!((&record["tool_id"], &record["status"]), (&json!("calculator"), &json!("success")));
    let log = record["log"].as_str().unwrap();
    assert!(record["id"].as_str().unwrap().starts_with(log), "{record}");
    let own = other.get(&format!("{search}&scope=instance")).await;
    assert!(records(&own.body).is_empty(), "{}", own.text);
    let at_home = one.get(&format!("{search}&scope=instance")).await;
    assert_eq!(records(&at_home.body).len(), 1, "{}", at_home.text);

    // Pages go on over both logs, each record once.
    let mut ids = std::collections::BTreeSet::new();
    let (mut path, mut seen) = ("/v1/audit?scope=all&limit=2".to_owned(), 0);
    loop {
        let page = other.get(&path).await;
        assert_eq!(page.status, 200, "{}", page.text);
        seen += records(&page.body).len();
        ids.extend(records(&page.body).iter().map(|record| record["id"].as_str().unwrap().to_owned()));
        let Some(next) = page.body["next"].as_str() else { break };
        path = format!("/v1/audit?scope=all&limit=2&before={next}");
    }
    assert_eq!(ids.len(), seen);
    let logs: std::collections::BTreeSet<&str> = ids.iter().filter_map(|id| id.split('-').next()).collect();
    assert_eq!(logs.len(), 2, "{ids:?}");

    for (query, code) in [("scope=both", "E3004"), ("before=5", "E3004"), ("from=yesterday", "E3004")] {
        let refused = other.get(&format!("/v1/audit?{query}")).await;
        assert_eq!(refused.code(), code, "{query}");
    }
    let metrics = one.get("/metrics").await.text;
    assert!(metrics.contains(r#"gantry_audit_sink_delivered_records_total{sink="record_archive"}"#), "{metrics}");
}

#[tokio::test]
async fn without_a_shared_store_there_is_no_archive_to_search() {
    let gantry = Gantry::start().await;
    assert_eq!(gantry.get("/v1/audit?scope=all").await.code(), "E3010");
    assert_eq!(gantry.get("/v1/audit").await.status, 200);
}
