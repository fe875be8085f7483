//! The end of the audit log, where nothing signed speaks for a record yet: what somebody else has put there while the server was
//! stopped is refused and never signed, what a killed server has written is kept and told.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};

use crate::support::{Start, gantry, run, wait_for};

fn log_file(data: &Path) -> PathBuf {
    data.join("audit/audit-000001.jsonl")
}

fn records(data: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log_file(data)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The last record once more, with the next number: as good as somebody without the key can make it.
fn forged(data: &Path) -> String {
    let mut last = records(data).pop().unwrap();
    let next = last["seq"].as_u64().unwrap() + 1;
    let log = last["id"].as_str().unwrap().split_once('-').unwrap().0.to_owned();
    last["id"] = json!(format!("{log}-{next}"));
    last["note"] = json!("forged");
    let members = last.as_object_mut().unwrap();
    members.remove("seq");
    let rest = last.to_string();
    format!("{{\"seq\":{next},{}\n", rest.strip_prefix('{').unwrap())
}

fn append(path: &Path, text: &str) {
    OpenOptions::new().create(true).append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// A data directory whose server has answered a call and was stopped in order.
async fn stopped(data: &Path) {
    let server = Start::new().data(data).run().await;
    assert_eq!(server.invoke("calculator", json!({ "expression": "1 + 1" })).await.status, 200);
    assert!(server.stop().success());
}

/// A server that is ended with the test, should it have started.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended by itself, as it should.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server does not start, and says this.
fn refused(data: &Path, words: &str) {
    let said = data.with_extension("refusal");
    let mut command = Start::new().command(data);
    command.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
    let mut server = Started(command.spawn().unwrap());
    let pid = server.0.id();
    let ended = wait_for("a refusal, or a start", || {
        let announced = fs::read_to_string(data.join("server.json")).ok();
        let info = announced.and_then(|text| serde_json::from_str::<Value>(&text).ok()).unwrap_or_default();
        server.0.try_wait().unwrap().map(Some).or_else(|| (info["pid"] == pid).then_some(None))
    });
    let said = fs::read_to_string(&said).unwrap();
    assert!(ended.is_some_and(|status| !status.success()) && said.contains(words), "{said}");
}

#[tokio::test]
async fn a_record_appended_while_the_server_was_stopped_is_refused_and_set_aside_but_never_signed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    stopped(&data).await;
    let (own, line) = (fs::read(log_file(&data)).unwrap(), forged(&data));
    append(&log_file(&data), &line);
    refused(&data, "holds 1 line(s)");
    // And a file of its own after it.
    append(&data.join("audit/audit-000002.jsonl"), "no record at all\n");
    refused(&data, "holds 2 line(s)");
    refused(&data, "gantry audit set-aside");
    let report = run(gantry(&data).args(["--json", "audit", "verify"]));
    assert_eq!(report.code(), 1);
    assert!(report.out().contains("added_after_end"), "{}", report.out());

    assert_eq!(run(gantry(&data).args(["--json", "audit", "set-aside"])).ok().json()["lines"], json!(2));
    let kept = fs::read_to_string(data.join("audit/quarantine-000001.jsonl")).unwrap();
    assert_eq!(kept, format!("{line}no record at all\n"), "nothing is lost");
    assert!(fs::read(log_file(&data)).unwrap().starts_with(&own));
    let server = Start::new().data(&data).run().await;
    assert_eq!(server.invoke("calculator", json!({ "expression": "2 + 2" })).await.status, 200);
    assert!(server.stop().success());
    let told: Vec<Value> =
        records(&data).into_iter().filter(|record| record["action"] == "log_tail_set_aside").collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["set_aside"]["file"], json!("quarantine-000001.jsonl"));
    assert_eq!(told[0]["set_aside"]["bytes"], json!(kept.len()));
    assert!(records(&data).iter().all(|record| record["note"] != "forged"));
    let report = run(gantry(&data).args(["audit", "verify"])).ok();
    assert!(report.out().contains("set aside"), "{}", report.out());
    assert_eq!(run(gantry(&data).args(["--json", "audit", "set-aside"])).ok().json()["lines"], json!(0));
}

#[tokio::test]
async fn a_record_appended_after_a_crash_or_behind_a_deleted_end_is_refused_too() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Start::new().data(&data).run().await;
    assert_eq!(server.invoke("calculator", json!({ "expression": "1 + 1" })).await.status, 200);
    server.kill();
    let (own, line) = (fs::read_to_string(log_file(&data)).unwrap(), forged(&data));
    append(&log_file(&data), &line);
    refused(&data, "holds 1 line(s)");
    fs::write(log_file(&data), own).unwrap();

    // Stopped in order, but somebody takes the last word away, so that it looks like a crash.
    stopped(&data).await;
    let notes = fs::read_to_string(data.join("audit/checkpoints")).unwrap();
    let before_the_end = notes.trim_end().rfind("\ngantry-audit/").unwrap() + 1;
    fs::write(data.join("audit/checkpoints"), notes.split_at(before_the_end).0).unwrap();
    let line = forged(&data);
    append(&log_file(&data), &line);
    refused(&data, "holds 1 line(s)");
}

#[tokio::test]
async fn what_a_killed_server_had_written_is_kept_and_the_recovery_is_on_record() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = Start::new().data(&data).run().await;
    let signed = server.get("/v1/audit/checkpoint").await;
    assert_eq!(signed.status, 200, "{}", signed.text);
    let answer = server.invoke("calculator", json!({ "expression": "1 + 1" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    server.kill();
    let before = records(&data);
    let called = before.iter().position(|record| record["tool_id"] == "calculator" && record["status"] == "success");

    let server = Start::new().data(&data).run().await;
    assert!(server.stop().success());
    let after = records(&data);
    assert_eq!(after[..before.len()], before[..], "nothing is lost");
    let told = &after[before.len()];
    assert_eq!(told["action"], json!("log_recovered"), "{told}");
    assert!(told["first_record"].as_u64().unwrap() <= called.unwrap() as u64, "{told}");
    assert_eq!(told["last_record"], json!(before.len() - 1));
    let report = run(gantry(&data).args(["--json", "audit", "verify"])).ok().json();
    assert_eq!(report["recovered"][0]["last"], told["last_record"]);
    assert_eq!(report["recovered"][0]["told_by"], told["seq"]);

    // A stop in order leaves nothing to recover.
    stopped(&data).await;
    assert_eq!(records(&data).iter().filter(|record| record["action"] == "log_recovered").count(), 1);
}

#[tokio::test]
async fn a_record_that_was_removed_or_changed_in_the_middle_stops_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    stopped(&data).await;
    let own = fs::read_to_string(log_file(&data)).unwrap();
    let middle = own.lines().count() / 2;
    let removed: String =
        own.lines().enumerate().filter(|(at, _)| *at != middle).map(|(_, line)| format!("{line}\n")).collect();
    for changed in [removed, own.replacen("calculator", "calculatOr", 1)] {
        fs::write(log_file(&data), changed).unwrap();
        refused(&data, "does not agree with its own checkpoints");
        // What was done can still be named.
        let report = run(gantry(&data).args(["--json", "audit", "verify"]));
        let fault = report.json()["faults"][0]["fault"].clone();
        assert!(fault == "removed" || fault == "changed", "{}", report.out());
    }
    fs::write(log_file(&data), own).unwrap();
    stopped(&data).await;
}
