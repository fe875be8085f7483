//! The audit log from outside: records are searched, proven, exported and checked with the real binary, and what somebody
//! did to the files is found and named.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gantry, Start, gantry, run};

/// The records of the calls, once they can be read.
async fn calls(gantry: &Gantry, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let page = gantry.get("/v1/audit?action=invocation_finished&tool=calculator").await;
        assert_eq!(page.status, 200, "{}", page.text);
        let records = page.body["records"].as_array().unwrap().clone();
        if records.len() >= count || Instant::now() > deadline {
            return records;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn records_are_searched_proven_exported_and_verified() {
    let folder = tempfile::tempdir().unwrap();
    let witness = folder.path().join("witness");
    let data = folder.path().join("data");
    let start = || Start::new().data(&data).env("GANTRY_AUDIT__WITNESS_FILE", witness.to_str().unwrap());
    let server = start().run().await;
    for number in 0..3 {
        server.invoke("calculator", json!({ "expression": format!("{number} + 1") })).await;
    }
    let records = calls(&server, 3).await;
    assert_eq!(records.len(), 3);
    let record = &records[0];
    assert_eq!((&record["decision"], &record["side_effects"]), (&json!("allow"), &json!("pure")));
    assert!(record["result_digest"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(record["result_summary"], json!({ "type": "object", "count": 3 }));
    assert_eq!(record["declared_effects"], Value::Null, "it declares none");
    assert_eq!(record["principal_seq"].as_u64().unwrap(), records[1]["principal_seq"].as_u64().unwrap() + 1);

    // A proof is checked with the public key alone; another tenant's people get none.
    let head = server.get("/v1/audit/checkpoint").await;
    let key = head.body["key"].as_str().unwrap().to_owned();
    let id = record["id"].as_str().unwrap();
    let proof = server.get(&format!("/v1/audit/proof/{id}")).await;
    let file = folder.path().join("proof.json");
    std::fs::write(&file, &proof.text).unwrap();
    let file = file.to_str().unwrap();
    let proven = server.cli(&["--json", "audit", "verify", "--proof", file, "--key", &key]).ok().json();
    assert_eq!((&proven["proven"], &proven["record"]["id"]), (&json!(true), &json!(id)));
    std::fs::write(file, proof.text.replace("calculator", "calculatOr")).unwrap();
    assert_eq!(server.cli(&["audit", "verify", "--proof", file, "--key", &key]).code(), 1);
    let chief = server.mint(json!({ "sub": "chief", "tenant": "globex", "roles": ["admin"] })).await;
    let theirs = server.request(Method::GET, &format!("/v1/audit/proof/{id}"), Some(&chief), None).await;
    assert_eq!(theirs.refusal(), (404, "E3702"));
    let theirs = server.request(Method::GET, "/v1/audit", Some(&chief), None).await;
    assert_eq!(theirs.body["records"], json!([]));
    let named = server.request(Method::GET, "/v1/audit?tenant=local", Some(&chief), None).await;
    assert_eq!(named.refusal(), (403, "E3206"));

    // Tail shows what was just done; the stopped server's log is whole, and so is an export of it.
    let tail = server.cli(&["audit", "tail", "-n", "3", "--tool", "calculator"]).ok().out();
    assert_eq!(tail.lines().count(), 3, "{tail}");
    assert!(server.stop().success());
    let report = run(gantry(&data).args(["--json", "audit", "verify", "--key", &key])).ok().json();
    assert_eq!((&report["whole"], &report["records"]), (&json!(true), &report["covered"]));
    let out = folder.path().join("export.jsonl");
    let out = out.to_str().unwrap();
    run(gantry(&data).args(["audit", "export", "--from", "2", "--out", out])).ok();
    run(gantry(&data).args(["audit", "verify", "--export", out, "--key", &key])).ok();
    let events = run(gantry(&data).args(["audit", "export", "--format", "cloudevents"])).ok().out();
    assert!(events.lines().any(|event| event.contains("\"type\":\"ai.agent.tool.succeeded\"")), "{events}");

    // Somebody changes a record, and somebody else takes the end away.
    let log = data.join("audit/audit-000001.jsonl");
    let good = std::fs::read_to_string(&log).unwrap();
    std::fs::write(&log, good.replacen("calculator", "calculatOr", 1)).unwrap();
    let report = run(gantry(&data).args(["--json", "audit", "verify", "--key", &key]));
    assert_eq!((report.code(), &report.json()["faults"][0]["fault"]), (1, &json!("changed")));
    let short: String = good.lines().take(2).map(|line| format!("{line}\n")).collect();
    std::fs::write(&log, short).unwrap();
    let kept = witness.to_str().unwrap();
    let report = run(gantry(&data).args(["audit", "verify", "--key", &key, "--checkpoint", kept]));
    assert!(report.out().contains("truncated: the log has 2 records"), "{}", report.out());
    // And a server adds nothing to it.
    let refused = run(&mut start().command(&data));
    assert!(
        refused.code() != 0 && refused.err().contains("does not agree with its own checkpoints"),
        "{}",
        refused.err()
    );
}

#[tokio::test]
async fn the_key_is_changed_while_the_server_runs_and_both_verify_the_whole_log() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Start::new().data(&data).run().await;
    server.invoke("calculator", json!({ "expression": "1 + 1" })).await;
    let key = async || server.get("/v1/audit/checkpoint").await.body["key"].as_str().unwrap().to_owned();
    let former = key().await;
    let chief = server.mint(json!({ "sub": "chief", "tenant": "globex", "roles": ["admin"] })).await;
    let refused = server.request(Method::POST, "/v1/audit/rotate-key", Some(&chief), Some(json!({}))).await;
    assert_eq!(refused.refusal(), (403, "E3206"), "the log is the installation's");
    let next = server.cli(&["--json", "audit", "rotate-key"]).ok().json()["key"].as_str().unwrap().to_owned();
    assert_ne!(next, former);
    server.invoke("calculator", json!({ "expression": "2 + 2" })).await;
    calls(&server, 2).await;
    assert_eq!(key().await, next);
    assert!(server.stop().success());
    for key in [&former, &next] {
        let report = run(gantry(&data).args(["--json", "audit", "verify", "--key", key])).ok().json();
        assert_eq!(report["whole"], json!(true), "{report}");
    }
    // Without a server it is done in the files.
    let third = run(gantry(&data).args(["--json", "audit", "rotate-key"])).ok().json();
    assert_ne!(third["key"], json!(next));
    run(gantry(&data).args(["audit", "verify", "--key", &former])).ok();
}
