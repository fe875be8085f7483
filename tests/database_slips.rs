//! What people do wrong on the way to PostgreSQL and Redis, and what they are told: which database, why, and what to do, by
//! every command alike and never with the password.

use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use serde_json::{Value, json};
use test_servers::{PostgresServer, RedisServer, free_port};

use crate::support::{Ran, Start, gantry, run, wait_for};

/// The password of all addresses.
const PASSWORD: &str = "hunter2";
/// Enough rows that a copy of them can be broken off.
const MANY_ROWS: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000)
    INSERT INTO usage_batches SELECT 'batch' || i, i FROM n";

/// A store in a file, closed.
async fn filled(data: &Path) {
    let server = Start::new().data(data).run().await;
    server.invoke("calculator", json!({ "expression": "1 + 1" })).await;
    server.stop();
}

/// What every command that opens a database says of this one.
fn said_of(data: &Path, url: &str, backup: &Path) -> Vec<(&'static str, Ran)> {
    let to = data.join("new.tar.gz");
    let (backup, to) = (backup.to_str().unwrap(), to.to_str().unwrap());
    let asked = |args: &[&str]| run(gantry(data).args(args).env("GANTRY_STORE__URL", url));
    vec![
        ("serve", asked(&["serve", "--listen", "127.0.0.1:0"])),
        ("status", asked(&["migrate", "status"])),
        ("backup", asked(&["backup", "--to", to])),
        ("restore", asked(&["restore", backup, "--force"])),
        ("copy", run(gantry(data).args(["migrate", "copy", "--to", url]))),
    ]
}

#[tokio::test]
async fn every_command_says_which_database_it_cannot_use_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    filled(&data).await;
    let postgres = PostgresServer::start().unwrap();
    let (url, backup) = (postgres.database().unwrap(), folder.path().join("backup.tar.gz"));
    run(gantry(&data).args(["migrate", "copy", "--to", &url])).ok();
    run(gantry(&data).args(["backup", "--store", &url, "--to", backup.to_str().unwrap()])).ok();
    let (port, closed) = (postgres.port(), free_port().unwrap());
    let secret = format!("gantry:{PASSWORD}");
    for (url, place, words) in [
        (format!("postgres://{secret}@127.0.0.1:{closed}/d"), format!("gantry@127.0.0.1:{closed}/d"), "refused"),
        (format!("postgres://{secret}@127.0.0.1:{port}/nope"), format!("127.0.0.1:{port}/nope"), "does not exist"),
        (format!("postgres://nobody:{PASSWORD}@127.0.0.1:{port}/d"), "nobody@127".to_owned(), "\"nobody\""),
        (format!("postgres://{secret}@nowhere.invalid/d"), "nowhere.invalid/d".to_owned(), "address information"),
        (format!("postgres://{secret}@127.0.0.1:{port}/d?foo=bar"), format!("{port}/d"), "unknown option `foo`"),
        (format!("postgres://{secret}@x@127.0.0.1:{port}/d"), format!("gantry@127.0.0.1:{port}/d"), "%40"),
        (format!("postgres://{secret}#x@127.0.0.1:{closed}/d"), format!("{closed}/d"), "%23"),
    ] {
        for (command, ran) in said_of(&data, &url, &backup) {
            let said = format!("{}{}", ran.out(), ran.err());
            assert_eq!(ran.code(), 1, "{command} {place}: {said}");
            assert!(said.contains(&place) && said.contains(words), "{command} {place}: {said}");
            assert!(!said.contains(PASSWORD), "{command} {place}: {said}");
        }
        let doctor = run(gantry(&data).args(["doctor"]).env("GANTRY_STORE__URL", &url));
        assert!(doctor.code() == 1 && doctor.out().contains(words), "{}", doctor.out());
        assert!(!doctor.out().contains(PASSWORD), "{}", doctor.out());
    }
    assert!(!data.join("new.tar.gz").exists(), "nothing half-made is left behind");
    for to in ["mysql://root:hunter2@h/d", "sqlite:x.db"] {
        let refused = run(gantry(&data).args(["migrate", "copy", "--to", to]));
        assert_eq!(refused.code(), 2);
        let said = refused.err();
        assert!(said.contains("--to must be postgres://") && !said.contains(PASSWORD), "{said}");
    }
}

#[tokio::test]
async fn tables_of_others_stay_out_of_a_backup_and_one_role_without_rights_is_told_the_grant() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    filled(&data).await;
    let postgres = PostgresServer::start().unwrap();
    let (url, empty) = (postgres.database().unwrap(), postgres.database().unwrap());
    let database = url.rsplit('/').next().unwrap();
    run(gantry(&data).args(["migrate", "copy", "--to", &url])).ok();
    postgres.sql(database, "CREATE TABLE t (id int); INSERT INTO t VALUES (1); CREATE ROLE clerk LOGIN").unwrap();
    let file = folder.path().join("backup.tar.gz");
    let path = file.to_str().unwrap();
    run(gantry(&data).args(["backup", "--store", &url, "--to", path])).ok();
    run(gantry(&folder.path().join("new")).args(["restore", path, "--store", &empty])).ok();

    let clerk = url.replacen("gantry@", "clerk@", 1);
    for command in [["serve", "--listen", "127.0.0.1:0"].as_slice(), &["doctor"]] {
        let refused = run(gantry(&data).args(command).env("GANTRY_STORE__URL", &clerk));
        let said = format!("{}{}", refused.out(), refused.err());
        assert_eq!(refused.code(), 1, "{said}");
        let grant = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO clerk";
        assert!(said.contains(grant), "{said}");
    }
    // A folder that is not there is no backup that is there.
    let missing = folder.path().join("missing/backup.tar.gz");
    let refused = run(gantry(&data).args(["backup", "--store", &url, "--to", missing.to_str().unwrap()]));
    assert_eq!(refused.code(), 1);
    assert!(refused.err().contains("make its folder first"), "{}", refused.err());
    // Everything that is in the way, at once.
    let refused = run(gantry(&data).args(["restore", path, "--store", &url]));
    assert_eq!(refused.code(), 1);
    for word in ["not empty", "CREATE DATABASE", "audit", "--force"] {
        assert!(refused.err().contains(word), "{word}: {}", refused.err());
    }
    let forced = run(gantry(&data).args(["restore", path, "--store", &url, "--force"]));
    assert!(forced.code() == 1 && forced.err().contains("not empty"), "{}", forced.err());
    assert!(data.join("audit").is_dir(), "nothing was moved aside");
}

#[tokio::test]
async fn a_copy_that_was_broken_off_says_so_and_what_is_there_then_is_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    filled(&data).await;
    Connection::open(data.join("gantry.db")).unwrap().execute_batch(MANY_ROWS).unwrap();
    let postgres = PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let database = url.rsplit('/').next().unwrap();
    let copying = gantry(&data)
        .args(["migrate", "copy", "--to", &url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("some rows to be there", || {
        let rows = postgres.sql(database, "SELECT rows FROM gantry_copy WHERE name = 'usage_batches'").ok()?;
        (!rows.is_empty()).then_some(())
    });
    let sent = Command::new("kill").args(["-INT", &copying.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = copying.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("broken off") && said.contains("same command"), "{said}");

    let configured = |args: &[&str]| run(gantry(&data).args(args).env("GANTRY_STORE__URL", &url));
    let file = folder.path().join("half.tar.gz");
    for args in [
        ["migrate", "status"].as_slice(),
        &["migrate", "up"],
        &["backup", "--to", file.to_str().unwrap()],
        &["serve", "--listen", "127.0.0.1:0"],
        &["doctor"],
    ] {
        let refused = configured(args);
        let said = format!("{}{}", refused.out(), refused.err());
        assert!(refused.code() == 1 && said.contains("was not finished"), "{args:?}: {said}");
    }
    assert!(!file.exists());
    let copied = run(gantry(&data).args(["--json", "migrate", "copy", "--to", &url])).ok().json();
    assert_eq!(copied["resumed"], json!(true));
    assert!(configured(&["migrate", "status"]).ok().out().contains("up to date"));
}

#[tokio::test]
async fn a_binary_starts_beside_a_newer_release_unless_that_one_says_that_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let postgres = PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let database = url.rsplit('/').next().unwrap();
    let start = || Start::new().data(&data).env("GANTRY_STORE__URL", url.as_str());
    start().run().await.stop();
    let newer = |step: i32, oldest: i32| {
        let insert = format!("INSERT INTO gantry_steps (step, digest, oldest) VALUES ({step}, 'x', {oldest})");
        postgres.sql(database, &insert).unwrap();
    };
    let configured = |args: &[&str]| run(gantry(&data).args(args).env("GANTRY_STORE__URL", &url));
    newer(4711, 0);
    let server = start().run().await;
    assert_eq!(server.invoke("calculator", json!({ "expression": "6 * 7" })).await.status, 200);
    server.stop();
    assert!(configured(&["migrate", "status"]).ok().out().contains("can work beside"));
    let file = folder.path().join("backup.tar.gz");
    let backup = configured(&["backup", "--to", file.to_str().unwrap()]);
    assert!(backup.code() == 1 && backup.err().contains("newer Gantry"), "it would lack something: {}", backup.err());
    newer(4712, 4712);
    for args in [["serve", "--listen", "127.0.0.1:0"].as_slice(), &["migrate", "status"], &["doctor"]] {
        let refused = configured(args);
        let said = format!("{}{}", refused.out(), refused.err());
        assert!(refused.code() == 1 && said.contains("upgrade this binary"), "{args:?}: {said}");
    }
}

/// The line of `gantry doctor` about this, with its status.
fn doctored(data: &Path, url: &str) -> (String, String) {
    let patience = ("GANTRY_SHARED_STATE__OPERATION_TIMEOUT_MS", "10000");
    let mut command = gantry(data);
    let ran = run(command.args(["--json", "doctor"]).env("GANTRY_SHARED_STATE__URL", url).env(patience.0, patience.1));
    assert!(!ran.out().contains(PASSWORD), "{}", ran.out());
    let report = ran.json();
    let line =
        report["checks"].as_array().unwrap().iter().find(|check| check["check"] == json!("shared state")).unwrap();
    let text = |member: &str| line[member].as_str().unwrap_or_default().to_owned();
    assert_eq!(ran.code(), i32::from(text("status") == "failed"), "{report}");
    (text("status"), format!("{} {}", text("detail"), text("fix")))
}

#[test]
fn the_doctor_looks_at_redis() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let address = |redis: &RedisServer, user: &str| format!("redis://{user}127.0.0.1:{}/", redis.port());
    let judged = |redis: &RedisServer, user: &str, status: &str, words: &[&str]| {
        let (found, said) = doctored(&data, &address(redis, user));
        assert_eq!(found, status, "{said}");
        assert!(words.iter().all(|word| said.contains(word)), "{words:?}: {said}");
    };
    let mut plain = RedisServer::start().unwrap();
    let here = format!("127.0.0.1:{}", plain.port());
    judged(&plain, "", "ok", &[&here, "Redis 7", "takes what is written"]);
    plain.kill();
    judged(&plain, "", "failed", &[&here, "cannot be reached", "refused"]);
    let closed = RedisServer::start_with(&["--requirepass", PASSWORD]).unwrap();
    judged(&closed, &format!(":{PASSWORD}@"), "ok", &["Redis 7"]);
    judged(&closed, ":another@", "failed", &["credentials", "password"]);
    judged(&closed, "", "failed", &["credentials"]);
    let full = RedisServer::start_with(&["--maxmemory", "1", "--maxmemory-policy", "noeviction"]).unwrap();
    judged(&full, "", "failed", &["out of memory", "maxmemory"]);
    let forgetful = RedisServer::start_with(&["--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"]).unwrap();
    judged(&forgetful, "", "warning", &["allkeys-lru", "noeviction"]);
    let cluster = RedisServer::start_with(&["--cluster-enabled", "yes"]).unwrap();
    judged(&cluster, "", "failed", &["cluster"]);
    let report: Value = run(gantry(&data).args(["--json", "doctor"])).json();
    assert!(report.to_string().contains("in memory"), "{report}");
}
