//! Witnesses of the audit log against the real binary: they are told every checkpoint, and whatever is wrong with one, the
//! log goes on and says so.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Gantry, PATIENCE, STORE_KEY, Start, gantry, run, wait_for};

/// Never answers.
const SILENT: u16 = 0;

/// An HTTP server that answers as it is told to, and keeps what it was told.
struct Witness {
    address: String,
    status: Arc<AtomicU16>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Witness {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/checkpoints", listener.local_addr().unwrap());
        let (status, told): (_, Arc<Mutex<Vec<String>>>) = (Arc::new(AtomicU16::new(200)), Arc::default());
        let (answering, kept) = (Arc::clone(&status), Arc::clone(&told));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (mut text, mut buffer) = (String::new(), [0; 4_096]);
                // A note ends in the line of its signature.
                while !text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.contains("\n\n\u{2014} ")) {
                    match stream.read(&mut buffer) {
                        Ok(count) if count > 0 => text.push_str(&String::from_utf8_lossy(&buffer[..count])),
                        _ => break,
                    }
                }
                kept.lock().unwrap().push(text);
                match answering.load(Ordering::SeqCst) {
                    // Nothing is said, and nothing is closed before the other side is.
                    SILENT => drop(std::thread::spawn(move || stream.read_to_end(&mut Vec::new()))),
                    status => {
                        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                        let _ = stream.write_all(head.as_bytes());
                    }
                }
            }
        });
        Self { address, status, told }
    }

    fn heard(&self) -> usize {
        self.told.lock().unwrap().len()
    }
}

/// A call, and a checkpoint that covers it.
async fn signed_call(gantry: &Gantry) -> String {
    let answer = gantry.invoke("calculator", json!({ "expression": "1 + 1" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let head = gantry.get("/v1/audit/checkpoint").await;
    assert_eq!(head.status, 200, "{}", head.text);
    head.text
}

#[tokio::test]
async fn a_witness_elsewhere_is_told_checkpoints_and_stops_nothing_whatever_it_does() {
    let witness = Witness::open();
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let gantry_ = Start::new().data(&data).env("GANTRY_AUDIT__WITNESS_URL", &witness.address).run().await;
    signed_call(&gantry_).await;
    let told = wait_for("the witness hears a checkpoint", || witness.told.lock().unwrap().last().cloned());
    assert!(told.starts_with("POST /checkpoints ") && told.contains("text/plain"), "{told}");
    let note = told.split_once("\r\n\r\n").unwrap().1;
    let kept = home.path().join("kept");
    std::fs::write(&kept, note).unwrap();

    for (status, words) in [(500, "did not answer well"), (SILENT, "did not answer well")] {
        witness.status.store(status, Ordering::SeqCst);
        let (heard, said) = (witness.heard(), gantry_.log().matches(words).count());
        let start = Instant::now();
        // As many as the witness can be behind, and then some.
        for _ in 0..20 {
            signed_call(&gantry_).await;
        }
        // It has ten seconds for each, and would be asked four times.
        assert!(start.elapsed() < Duration::from_secs(200), "calls do not wait for the witness");
        wait_for("the witness is asked", || (witness.heard() > heard).then_some(()));
        wait_for("the log tells", || (gantry_.log().matches(words).count() > said).then_some(()));
    }
    // On a slow machine the witness may have kept up so far: then more is said than it can hear.
    let start = Instant::now();
    while !gantry_.log().contains("is too slow") {
        assert!(start.elapsed() < PATIENCE, "what is left out is told");
        signed_call(&gantry_).await;
    }
    assert!(gantry_.stop().success());
    // What it has kept proves that the log was not rolled back, and nothing of its trouble is in the log.
    let report = run(gantry(&data).args(["audit", "verify", "--checkpoint", kept.to_str().unwrap()])).ok().out();
    assert!(report.starts_with("whole: "), "{report}");
}

#[tokio::test]
async fn a_witness_that_is_away_or_hangs_stops_nothing() {
    let home = tempfile::tempdir().unwrap();
    let hung = home.path().join("hung");
    // A pipe that nobody reads: opening it for writing does not come back.
    assert!(Command::new("mkfifo").arg(&hung).status().unwrap().success());
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let away = format!("http://{}/", nobody.local_addr().unwrap());
    drop(nobody);
    let gantry = Start::new()
        .env("GANTRY_AUDIT__WITNESS_FILE", hung.to_str().unwrap())
        .env("GANTRY_AUDIT__WITNESS_URL", away)
        .run()
        .await;
    let start = Instant::now();
    for _ in 0..40 {
        signed_call(&gantry).await;
    }
    assert!(start.elapsed() < PATIENCE, "nothing waits for a witness more than once");
    // A checkpoint is new if the record of the call was there in time, so there may have been fewer than calls.
    for words in ["does not answer; the log goes on", "did not answer well", "takes nothing"] {
        let start = Instant::now();
        while !gantry.log().contains(words) {
            assert!(start.elapsed() < PATIENCE, "{words}");
            signed_call(&gantry).await;
        }
    }
    assert!(gantry.stop().success());
}

#[tokio::test]
async fn instances_are_witnesses_of_each_other() {
    let (postgres, home) = (test_servers::PostgresServer::start().unwrap(), tempfile::tempdir().unwrap());
    let url = postgres.database().unwrap();
    let places = ["one", "other"].map(|name| home.path().join(name));
    let server = |at: usize| {
        Start::new().data(&places[at]).env("GANTRY_STORE__URL", &url).env("GANTRY_STORE__SEAL_KEY", STORE_KEY).run()
    };
    let (log, others) = (places[0].join("audit"), places[1].join("audit"));

    // What it will be put back to, everything in step.
    let one = server(0).await;
    assert_eq!(one.invoke("calculator", json!({ "expression": "1" })).await.status, 200);
    assert!(one.stop().success());
    let former = home.path().join("former");
    assert!(Command::new("cp").arg("-a").args([&log, &former]).status().unwrap().success());

    let (one, other) = (server(0).await, server(1).await);
    for number in 0..5 {
        assert_eq!(one.invoke("calculator", json!({ "expression": format!("{number}") })).await.status, 200);
    }
    let size = |note: &str| note.lines().nth(1).and_then(|line| line.parse::<u64>().ok());
    let now = one.get("/v1/audit/checkpoint").await.body["checkpoint"].as_str().and_then(size).expect("a checkpoint");
    wait_for("the other instance to write it down", || {
        let origin = audit_origin(&log)?;
        let seen = heads_seen(&others, &origin).into_iter().filter_map(|note| size(&note)).max()?;
        (seen >= now).then_some(())
    });
    assert!(one.stop().success());
    assert!(other.stop().success());

    let verify = |more: &[&str]| {
        let mut command = gantry(&places[0]);
        run(command.args(["audit", "verify", "--dir", log.to_str().unwrap()]).args(more))
    };
    let against = ["--against", others.to_str().unwrap()];
    assert_eq!(verify(&against).code(), 0);

    std::fs::remove_dir_all(&log).unwrap();
    std::fs::rename(&former, &log).unwrap();
    assert_eq!(verify(&[]).code(), 0, "by itself it cannot tell");
    let found = verify(&against);
    assert_eq!(found.code(), 1, "{}", found.out());
    assert!(found.out().contains("NOT whole"), "{}", found.out());
    let nobody = verify(&["--against", log.to_str().unwrap()]);
    assert!(nobody.err().contains("says nothing of this log"), "{}", nobody.err());

    // And whoever goes on with it hears of it.
    let one = server(0).await;
    wait_for("a word about it", || one.log().contains("AUDIT_LOG_ROLLED_BACK").then_some(()));
}

/// Whose log it is.
fn audit_origin(dir: &std::path::Path) -> Option<String> {
    let mark: serde_json::Value = serde_json::from_slice(&std::fs::read(dir.join("log.json")).ok()?).ok()?;
    Some(mark["origin"].as_str()?.to_owned())
}

/// What a log says of another one, as notes.
fn heads_seen(dir: &std::path::Path, origin: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("audit-000001.jsonl")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let heads = lines.filter_map(|line| line["heads"].as_array().cloned()).flatten();
    heads.filter(|head| head["origin"] == origin).filter_map(|head| Some(head["note"].as_str()?.to_owned())).collect()
}
