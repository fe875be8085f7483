//! Backups with the real binary: made while the server runs, brought back, and refused where they must be; and a store that
//! goes from SQLite to PostgreSQL and through a backup of it.

use std::path::Path;

use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};
use test_servers::PostgresServer;

use crate::support::{Start, gantry, run};

#[tokio::test]
async fn a_backup_made_under_a_running_server_comes_back_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (data, new) = (folder.path().join("data"), folder.path().join("new"));
    let file = folder.path().join("backup.tar.gz");
    let path = file.to_str().unwrap();
    let server = Start::new().data(&data).run().await;
    for number in 0..3 {
        server.invoke("calculator", json!({ "expression": format!("{number} + 1") })).await;
    }
    let tenants = json!({ "tenants": [{ "tenant": "globex", "enabled": true }] });
    let put = server.request(Method::PUT, "/v1/tenants", Some(&server.token), Some(tenants)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let made = server.cli(&["--json", "backup", "--to", path, "--with-keys"]).ok().json();
    assert!(made["bytes"].as_u64().unwrap() > 0, "{made}");
    // Never over another one, and nothing half-made is left behind.
    assert_eq!(server.cli(&["backup", "--to", path]).code(), 1);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 2, "the data directory and the backup");
    let refused = server.cli(&["restore", path, "--force"]);
    assert_eq!(refused.code(), 1);
    assert!(refused.err().contains("running"), "{}", refused.err());
    server.stop();

    let there = run(gantry(&data).args(["restore", path]));
    assert_eq!(there.code(), 1);
    assert!(there.err().contains("--force"), "{}", there.err());
    let forced = run(gantry(&data).args(["--json", "restore", path, "--force"])).ok().json();
    assert!(forced["moved_aside"].as_array().unwrap().len() >= 2, "{forced}");
    run(gantry(&new).args(["restore", path])).ok();
    for place in [&data, &new] {
        run(gantry(place).args(["audit", "verify"])).ok();
        let server = Start::new().data(place).run().await;
        let tenants = server.get("/v1/tenants").await;
        assert!(tenants.text.contains("globex"), "{}", tenants.text);
        server.invoke("calculator", json!({ "expression": "1 + 1" })).await;
        server.stop();
        run(gantry(place).args(["audit", "verify"])).ok();
    }
}

#[tokio::test]
async fn a_backup_of_a_running_server_has_every_record_of_what_was_answered_before() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Start::new().data(&data).run().await;
    // More than one, because each signs.
    for number in 1..=2 {
        for _ in 0..3 {
            assert_eq!(server.invoke("calculator", json!({ "expression": "1 + 1" })).await.status, 200);
        }
        let file = folder.path().join(format!("backup-{number}.tar.gz"));
        let made = server.cli(&["--json", "backup", "--to", file.to_str().unwrap()]).ok().json();
        let member = "audit/audit-000001.jsonl";
        let archive = std::process::Command::new("tar").args(["xzOf", file.to_str().unwrap(), member]).output();
        let lines = String::from_utf8(archive.unwrap().stdout).unwrap();
        let calls = lines.lines().filter(|line| line.contains("\"action\":\"invocation_finished\"")).count();
        assert_eq!(calls, 3 * number, "{lines}");
        assert_eq!(made["audit_records"], json!(lines.lines().count()));
    }
    server.stop();
}

#[tokio::test]
async fn what_is_no_backup_or_a_damaged_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (data, new) = (folder.path().join("data"), folder.path().join("new"));
    let file = folder.path().join("backup.tar.gz");
    let server = Start::new().data(&data).run().await;
    server.cli(&["backup", "--to", file.to_str().unwrap()]).ok();
    server.stop();
    let whole = std::fs::read(&file).unwrap();
    let cut = whole[..whole.len() - 40].to_vec();
    let mut changed = whole;
    // Many bytes: a single one may say nothing, such as how far back the same zeros are.
    let middle = changed.len() / 2;
    changed[middle..middle + 64].iter_mut().for_each(|byte| *byte ^= 1);
    for bytes in [cut, changed, b"something else".to_vec(), Vec::new()] {
        std::fs::write(&file, bytes).unwrap();
        let refused = run(gantry(&new).args(["restore", file.to_str().unwrap()]));
        assert_eq!(refused.code(), 1, "{}", refused.err());
        assert!(!new.join("gantry.db").exists());
    }
    let usage = run(gantry(&new).args(["backup", "--store", "mysql://root:hunter2@h/d"]));
    assert_eq!(usage.code(), 2);
    assert!(!usage.err().contains("hunter2"));
}

/// Copies the store. Tables that the other side does not have are taken out of the file first.
fn copy(data: &Path, to: &str) -> Value {
    loop {
        let ran = run(gantry(data).args(["--json", "migrate", "copy", "--to", to]));
        let said = ran.err();
        let unknown = said.split_once("table `").and_then(|(_, rest)| rest.split_once("` has no counterpart there"));
        let Some((table, _)) = unknown else { return ran.ok().json() };
        let connection = Connection::open(data.join("gantry.db")).unwrap();
        connection.execute_batch(&format!("PRAGMA foreign_keys = OFF; DROP TABLE \"{table}\"")).unwrap();
    }
}

/// The rows and digests of a backup's tables.
fn digests(file: &Path) -> Value {
    let archive = std::process::Command::new("tar").args(["xzOf", file.to_str().unwrap(), "digests.json"]).output();
    serde_json::from_slice::<Value>(&archive.unwrap().stdout).unwrap()["tables"].take()
}

#[tokio::test]
async fn a_store_goes_to_postgresql_and_through_a_backup_of_it_unchanged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Start::new().data(&data).run().await;
    server.invoke("calculator", json!({ "expression": "1 + 1" })).await;
    let tenants = json!({ "tenants": [{ "tenant": "globex", "enabled": true }] });
    let put = server.request(Method::PUT, "/v1/tenants", Some(&server.token), Some(tenants)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let postgres = PostgresServer::start().unwrap();
    let (first, second) = (postgres.database().unwrap(), postgres.database().unwrap());
    let busy = server.cli(&["migrate", "copy", "--to", &first]);
    assert_eq!(busy.code(), 1, "{}", busy.out());
    server.stop();
    Connection::open(data.join("gantry.db"))
        .unwrap()
        .execute_batch("INSERT INTO claims VALUES ('k', 'h', 9); INSERT INTO usage_batches VALUES ('b', 1);")
        .unwrap();
    let copied = copy(&data, &first);
    assert_eq!(copied["tables"]["claims"]["rows"], json!(1));
    let again = run(gantry(&data).args(["migrate", "copy", "--to", &first]));
    assert!(again.err().contains("not empty"), "{}", again.err());

    let (one, two) = (folder.path().join("one.tar.gz"), folder.path().join("two.tar.gz"));
    run(gantry(&data).args(["backup", "--store", &first, "--to", one.to_str().unwrap()])).ok();
    let new = folder.path().join("new");
    let restore = |place: &str| run(gantry(&new).args(["restore", one.to_str().unwrap(), "--store", place]));
    restore(&second).ok();
    assert!(restore(&second).err().contains("--force"), "the audit log is there");
    run(gantry(&new).args(["backup", "--store", &second, "--to", two.to_str().unwrap()])).ok();
    let tables = digests(&one);
    // The one put in, and what the server counted by itself.
    assert!(tables["usage_batches"]["rows"].as_u64() >= Some(1), "{tables}");
    assert_eq!(tables, digests(&two));
    let wrong = run(gantry(&new).args(["restore", one.to_str().unwrap(), "--store", "sqlite:x.db", "--force"]));
    assert_eq!(wrong.code(), 2);
}
