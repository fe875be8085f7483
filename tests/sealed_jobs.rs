//! What goes into calls in the background is nowhere in clear at rest: not in the database, not in a backup, and of a job that
//! is done nothing is kept.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};
use test_servers::PostgresServer;

use crate::support::{Gantry, PATIENCE, Start, gantry, run};

const PLANTED: &str = "planted-parameter-7f3a91";

fn write_tools(folder: &Path) {
    for (name, script) in [("works", "cat > /dev/null; echo '{}'"), ("fails", "cat > /dev/null; exit 3")] {
        let tool = folder.join(name);
        std::fs::create_dir_all(&tool).unwrap();
        let manifest = json!({
            "tool_id": name, "namespace": "t", "version": "1.0.0", "name": name,
            "description": "Takes a word.", "provider": "Test", "protocol": "native",
            "side_effect_policy": "pure", "timeout_class": "standard",
            "parameters": { "type": "object", "properties": { "word": { "type": "string" } } }, "result_schema": {},
            "execution": { "type": "process", "command": ["sh", "-c", script] },
        });
        std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
    }
}

async fn submit(server: &Gantry, tool: &str) -> String {
    let options = json!({ "async_mode": true });
    let body = json!({ "tool_id": tool, "parameters": { "word": PLANTED }, "execution_options": options });
    let answer = server.request(Method::POST, "/v1/tools/invoke", Some(&server.token), Some(body)).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    answer.body["invocation_id"].as_str().unwrap().to_owned()
}

async fn until_ended(server: &Gantry, id: &str) -> Value {
    let start = std::time::Instant::now();
    loop {
        let body = server.get(&format!("/v1/invocations/{id}")).await.body;
        if !["pending", "running"].contains(&body["status"].as_str().unwrap()) {
            return body;
        }
        assert!(start.elapsed() < PATIENCE, "{id} has not ended: {body}");
    }
}

/// Is the word in a file of this folder, as it is?
fn is_readable_below(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return is_readable_below(&path);
        }
        let bytes = std::fs::read(&path).unwrap_or_default();
        bytes.windows(PLANTED.len()).any(|window| window == PLANTED.as_bytes())
    })
}

#[tokio::test]
async fn parameters_of_jobs_are_sealed_in_the_store_gone_when_done_and_sealed_in_backups() {
    let home = tempfile::tempdir().unwrap();
    let (data, tools, new) = (home.path().join("data"), home.path().join("tools"), home.path().join("new"));
    write_tools(&tools);
    let start = || Start::new().arg("--tools").arg(tools.to_str().unwrap()).arg("--unsandboxed-processes");
    let server = start().data(&data).run().await;
    let (works, fails) = (submit(&server, "t.works").await, submit(&server, "t.fails").await);
    assert_eq!(until_ended(&server, &works).await["status"], "success");
    until_ended(&server, &fails).await;
    let backup = home.path().join("backup.tar.gz");
    server.cli(&["backup", "--to", backup.to_str().unwrap(), "--with-keys"]).ok();
    server.stop();
    let key = data.join("keys/store.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);

    // The audit log shows parameters, redacted; the store shows none.
    for name in ["gantry.db", "gantry.db-wal"] {
        let bytes = std::fs::read(data.join(name)).unwrap_or_default();
        assert!(!bytes.windows(PLANTED.len()).any(|window| window == PLANTED.as_bytes()), "{name} has it in clear");
    }
    let database = Connection::open(data.join("gantry.db")).unwrap();
    let payload = |id: &str| -> String {
        let sql = "SELECT payload FROM jobs JOIN job_bodies USING (seq) WHERE id = ?1";
        database.query_row(sql, [id], |row| row.get(0)).unwrap()
    };
    assert_eq!(payload(&works), "null", "what is done needs no parameters");
    assert!(payload(&fails).starts_with("\"gantry-sealed:"), "what failed can be begun again");
    drop(database);

    // Brought back elsewhere, with its key, a failed job can still be begun again.
    run(gantry(&new).args(["restore", backup.to_str().unwrap()])).ok();
    assert!(!is_readable_below(&new.join("keys")));
    let server = start().data(&new).run().await;
    let again = server.post(&format!("/v1/invocations/{fails}/retry"), json!({})).await;
    assert!(again.status < 300, "{}", again.text);
    server.stop();
}

#[tokio::test]
async fn jobs_from_before_the_seal_are_read_and_sealed() {
    let home = tempfile::tempdir().unwrap();
    let (data, tools) = (home.path().join("data"), home.path().join("tools"));
    write_tools(&tools);
    let start = || Start::new().data(&data).arg("--tools").arg(tools.to_str().unwrap()).arg("--unsandboxed-processes");
    let server = start().run().await;
    let fails = submit(&server, "t.fails").await;
    until_ended(&server, &fails).await;
    server.stop();
    // As an earlier release has left it.
    let id = "0190f3c2-7b1a-7c3d-9e4f-000000000001";
    let former = json!({ "request": { "tool_id": "t.works", "tool_version": "1.0.0", "invocation_id": id,
            "parameters": { "word": PLANTED } }, "word": PLANTED });
    let database = Connection::open(data.join("gantry.db")).unwrap();
    let changed = database.execute(
        "UPDATE job_bodies SET payload = ?1 WHERE seq = (SELECT seq FROM jobs WHERE id = ?2)",
        [former.to_string(), fails.clone()],
    );
    assert_eq!(changed.unwrap(), 1);
    // What it has deleted is on pages that are free.
    let spare = format!("{PLANTED} ").repeat(1_000);
    database.execute_batch("PRAGMA secure_delete = OFF; CREATE TABLE spare (text TEXT)").unwrap();
    database.execute("INSERT INTO spare VALUES (?1)", [&spare]).unwrap();
    database.execute_batch("DROP TABLE spare").unwrap();
    database.execute("DELETE FROM store_numbers WHERE name = 'freed_space_overwritten'", []).unwrap();
    drop(database);
    let is_in = |name: &str| {
        let bytes = std::fs::read(data.join(name)).unwrap_or_default();
        bytes.windows(PLANTED.len()).any(|window| window == PLANTED.as_bytes())
    };
    assert!(is_in("gantry.db"), "what was in clear is in the file");
    let server = start().run().await;
    let payload = || -> String {
        let database = Connection::open(data.join("gantry.db")).unwrap();
        let sql = "SELECT payload FROM jobs JOIN job_bodies USING (seq) WHERE id = ?1";
        database.query_row(sql, [&fails], |row| row.get(0)).unwrap()
    };
    crate::support::wait_for("the seal", || payload().starts_with("\"gantry-sealed:").then_some(()));
    // Not in the row only: nowhere in the file, nor in the log beside it, while the server still runs.
    crate::support::wait_for("the overwriting", || (!is_in("gantry.db") && !is_in("gantry.db-wal")).then_some(()));
    server.stop();
    assert!(!is_in("gantry.db") && !is_in("gantry.db-wal"));
}

#[tokio::test]
async fn a_shared_store_is_sealed_by_default_and_what_is_not_is_said_and_in_no_backup() {
    let postgres = PostgresServer::start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let (data, tools) = (home.path().join("data"), home.path().join("tools"));
    write_tools(&tools);
    let url = postgres.database().unwrap();
    let start = || {
        let start = Start::new().data(&data).arg("--tools").arg(tools.to_str().unwrap());
        start.arg("--unsandboxed-processes").env("GANTRY_STORE__URL", &url)
    };
    let server = start().run().await;
    let fails = submit(&server, "t.fails").await;
    until_ended(&server, &fails).await;
    assert!(!server.log().contains("are readable in the database"), "{}", server.log());
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let payloads = || postgres.sql(name, "SELECT payload FROM job_bodies").unwrap();
    assert!(payloads().contains("gantry-sealed:") && !payloads().contains(PLANTED), "{}", payloads());
    server.stop();

    // As an earlier release has left it.
    let former = json!({ "word": PLANTED }).to_string();
    postgres.sql(name, &format!("UPDATE job_bodies SET payload = '{former}'")).unwrap();
    let insert = "INSERT INTO installation_secrets (name, value) VALUES ('webhook_root', '";
    let root = std::fs::read_to_string(data.join("webhook.key")).unwrap();
    postgres.sql(name, &format!("DELETE FROM installation_secrets; {insert}{}')", root.trim())).unwrap();
    std::fs::remove_file(data.join("keys/store.key")).unwrap();
    let server = start().run().await;
    assert!(server.log().contains("are readable in the database"), "{}", server.log());
    let doctor = run(gantry(&data).args(["--json", "doctor"]).env("GANTRY_STORE__URL", &url)).json();
    let seal = doctor["checks"].as_array().unwrap().iter().find(|check| check["check"] == "seal").unwrap();
    assert_eq!(seal["status"], "warning", "{seal}");
    assert!(payloads().contains(PLANTED), "an upgrade locks nobody out");
    server.stop();
    let backup = home.path().join("backup.tar.gz");
    let made = run(gantry(&data).args(["--json", "backup", "--store", &url, "--to", backup.to_str().unwrap()])).json();
    assert_eq!(made["parameters_left_out"], 1, "{made}");
    let unpacked = home.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let mut tar = std::process::Command::new("tar");
    assert!(tar.args(["xzf", backup.to_str().unwrap(), "store"]).current_dir(&unpacked).status().unwrap().success());
    assert!(!is_readable_below(&unpacked), "parameters are in the backup in clear");
}

#[tokio::test]
async fn parameters_that_were_never_sealed_are_in_no_backup_of_a_file() {
    let home = tempfile::tempdir().unwrap();
    let (data, tools) = (home.path().join("data"), home.path().join("tools"));
    write_tools(&tools);
    let start = Start::new().data(&data).arg("--tools").arg(tools.to_str().unwrap()).arg("--unsandboxed-processes");
    let server = start.run().await;
    let fails = submit(&server, "t.fails").await;
    until_ended(&server, &fails).await;
    server.stop();
    let database = Connection::open(data.join("gantry.db")).unwrap();
    database.execute("UPDATE job_bodies SET payload = ?1", [json!({ "word": PLANTED }).to_string()]).unwrap();
    drop(database);
    let backup = home.path().join("backup.tar.gz");
    let made = run(gantry(&data).args(["--json", "backup", "--to", backup.to_str().unwrap()])).json();
    assert_eq!(made["parameters_left_out"], 1, "{made}");
    let unpacked = home.path().join("unpacked");
    std::fs::create_dir(&unpacked).unwrap();
    let mut tar = std::process::Command::new("tar");
    assert!(tar.args(["xzf", backup.to_str().unwrap()]).current_dir(&unpacked).status().unwrap().success());
    std::fs::remove_dir_all(unpacked.join("audit")).unwrap();
    assert!(!is_readable_below(&unpacked), "parameters are in the backup in clear");
}
