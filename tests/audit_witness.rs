//! Witnesses of the audit log against the real binary: they are told every checkpoint, and whatever is wrong with one, the
//! log goes on and says so.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Gantry, PATIENCE, Start, gantry, run, wait_for};

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
    for words in ["does not answer; the log goes on", "did not answer well", "takes nothing"] {
        wait_for(words, || gantry.log().contains(words).then_some(()));
    }
    assert!(gantry.stop().success());
}
