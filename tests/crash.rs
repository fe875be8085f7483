//! `kill -9` under load: nothing that was acknowledged is lost, and the file is whole.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Start, client, manifest};

/// How often the server is killed.
const KILLS: usize = 50;
/// Concurrent writers.
const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_kills_under_load_lose_no_acknowledged_registration() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let acknowledged = Arc::new(Mutex::new(BTreeSet::<String>::new()));
    let deprecated = Arc::new(Mutex::new(BTreeSet::<String>::new()));
    let next = Arc::new(AtomicUsize::new(0));

    for round in 0..KILLS {
        let gantry = Start::new().data(&data).run().await;
        let before = acknowledged.lock().unwrap().len();
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                let (url, token) = (gantry.url.clone(), gantry.token.clone());
                let (acknowledged, deprecated, next) =
                    (Arc::clone(&acknowledged), Arc::clone(&deprecated), Arc::clone(&next));
                tokio::spawn(async move {
                    let http = client();
                    let post = |path: String, body: String| {
                        http.post(format!("{url}{path}"))
                            .bearer_auth(&token)
                            .header("content-type", "application/json")
                            .body(body)
                            .send()
                    };
                    loop {
                        let id = format!("tool_{}", next.fetch_add(1, Ordering::SeqCst));
                        let document = manifest(json!({ "tool_id": id, "namespace": "crash" })).to_string();
                        // Whatever is not answered was not acknowledged.
                        let Ok(response) = post("/v1/tools/register".into(), document).await else { return };
                        assert_eq!(response.status(), 201);
                        acknowledged.lock().unwrap().insert(format!("crash.{id}"));
                        let Ok(response) = post(format!("/v1/tools/crash.{id}/deprecate"), "{}".into()).await else {
                            return;
                        };
                        assert_eq!(response.status(), 200);
                        deprecated.lock().unwrap().insert(format!("crash.{id}"));
                    }
                })
            })
            .collect();
        // The moment of death is some acknowledgements away, a different number each round.
        let enough = before + 3 + (round * 7) % 23;
        let start = Instant::now();
        while acknowledged.lock().unwrap().len() < enough {
            assert!(start.elapsed() < crate::support::PATIENCE, "no progress under load");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        gantry.kill();
        for writer in writers {
            writer.await.unwrap();
        }
    }

    let gantry = Start::new().data(&data).run().await;
    let mut found = BTreeSet::new();
    let mut found_deprecated = BTreeSet::new();
    for page in 1.. {
        let answer = gantry.get(&format!("/v1/tools?page={page}&page_size=200")).await;
        let tools = answer.body["tools"].as_array().unwrap().clone();
        if tools.is_empty() {
            break;
        }
        for tool in tools {
            let id = tool["tool_id"].as_str().unwrap().to_owned();
            if tool["lifecycle_state"] == "deprecated" {
                found_deprecated.insert(id.clone());
            }
            found.insert(id);
        }
    }
    let acknowledged = acknowledged.lock().unwrap();
    let lost: Vec<_> = acknowledged.difference(&found).collect();
    assert!(lost.is_empty(), "{} acknowledged registrations are lost: {lost:?}", lost.len());
    let deprecated = deprecated.lock().unwrap();
    let lost: Vec<_> = deprecated.difference(&found_deprecated).collect();
    assert!(lost.is_empty(), "{} acknowledged deprecations are lost: {lost:?}", lost.len());
    assert!(acknowledged.len() >= KILLS * 3);
    assert!(gantry.stop().success());

    let database = rusqlite::Connection::open(data.join("gantry.db")).unwrap();
    let verdict: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}
