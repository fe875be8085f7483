//! Sinks of the audit log against the real binary: everything that is recorded arrives, in order, though the receiver fails
//! and the server is killed meanwhile; what is wrong with a sink is told and stops no call.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::{Gantry, Start, gantry, run, wait_for};

/// A receiver of batches that answers with the status it is told to.
struct Receiver {
    address: String,
    status: Arc<AtomicU16>,
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Receiver {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (status, requests): (_, Arc<Mutex<Vec<_>>>) = (Arc::new(AtomicU16::new(202)), Arc::default());
        let (answering, kept) = (Arc::clone(&status), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (mut bytes, mut buffer) = (Vec::new(), [0; 65_536]);
                let request = loop {
                    match stream.read(&mut buffer) {
                        Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
                        _ => break None,
                    }
                    if let Some(request) = whole(&bytes) {
                        break Some(request);
                    }
                };
                let status = answering.load(Ordering::SeqCst);
                if let Some(request) = request.filter(|_| status == 202) {
                    kept.lock().unwrap().push(request);
                }
                let _ = stream.write_all(
                    format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").as_bytes(),
                );
            }
        });
        Self { address, status, requests }
    }

    fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Every event that was taken, in the order in which it came.
    fn events(&self) -> Vec<Value> {
        let requests = self.requests.lock().unwrap();
        requests.iter().flat_map(|(_, body)| serde_json::from_str::<Vec<Value>>(body).unwrap()).collect()
    }
}

/// Head and body, once all of it has come.
fn whole(bytes: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let head = head.to_ascii_lowercase();
    let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())?;
    (body.len() >= length).then(|| (head, body.to_owned()))
}

fn sinks_of(receiver: &Receiver, files: &Path) -> String {
    json!([
        { "name": "archive", "kind": "file", "dir": files, "rotate_bytes": 4096, "compress": false },
        {
            "name": "siem", "kind": "http", "url": format!("http://{}/events", receiver.address),
            "allow": [format!("http://{}", receiver.address)], "credential": "siem", "batch_records": 7,
        },
    ])
    .to_string()
}

fn provision(data: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = data.join("secrets").join("local");
    std::fs::create_dir_all(&dir).unwrap();
    for open in [data.to_owned(), data.join("secrets"), dir.clone()] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::write(dir.join("siem"), "Bearer s3cret-of-the-siem\n").unwrap();
    std::fs::set_permissions(dir.join("siem"), std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// What `gantry audit sinks` says about one of them.
fn state(data: &Path, sinks: &str, name: &str) -> Value {
    let shown = run(gantry(data).env("GANTRY_AUDIT__SINKS", sinks).args(["audit", "sinks", "--json"])).ok().json();
    let found = shown["sinks"].as_array().unwrap().iter().find(|sink| sink["name"] == name).unwrap();
    json!({ "records": shown["records"], "sink": found })
}

async fn call(gantry: &Gantry, times: usize) {
    for number in 0..times {
        let answer = gantry.invoke("calculator", json!({ "expression": format!("{number} + 1") })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

/// Without gap, in order of each tenant when repetitions are left out, each a CloudEvent.
fn check(events: &[Value], records: u64) {
    let (mut seen, mut newest) = (BTreeSet::new(), BTreeMap::new());
    for event in events {
        assert_eq!(
            (&event["specversion"], &event["source"]),
            (&json!("1.0"), &json!("tool-execution-layer")),
            "{event}"
        );
        assert!(event["type"].as_str().unwrap().starts_with("ai.agent.tool.") && event["data"].is_object(), "{event}");
        let sequence: u64 = event["sequence"].as_str().unwrap().parse().unwrap();
        if seen.insert(sequence) {
            let before = newest.insert(event["partitionkey"].to_string(), sequence);
            assert!(before < Some(sequence), "{sequence} came after {before:?}");
        }
    }
    assert_eq!(seen, (0..records).collect::<BTreeSet<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_arrives_though_the_receiver_fails_and_the_server_is_killed() {
    let (home, receiver) = (tempfile::tempdir().unwrap(), Receiver::open());
    let (data, files) = (home.path().join("data"), home.path().join("files"));
    std::fs::create_dir(&data).unwrap();
    provision(&data);
    let sinks = sinks_of(&receiver, &files);
    let start = || Start::new().data(&data).env("GANTRY_AUDIT__SINKS", &sinks).run();

    let first = start().await;
    call(&first, 20).await;
    wait_for("some events", || (receiver.events().len() > 5).then_some(()));
    receiver.answer(503);
    call(&first, 20).await;
    wait_for("the failure is shown", || (state(&data, &sinks, "siem")["sink"]["state"] == "failing").then_some(()));
    first.kill();

    let second = start().await;
    call(&second, 5).await;
    receiver.answer(202);
    call(&second, 15).await;
    let (archive, siem) = wait_for("everything is delivered", || {
        let (archive, siem) = (state(&data, &sinks, "archive"), state(&data, &sinks, "siem"));
        (archive["sink"]["lag"] == 0 && siem["sink"]["lag"] == 0).then_some((archive, siem))
    });
    let page = second.get("/metrics").await.text;
    assert!(page.contains("gantry_audit_sink_delivered_records_total{sink=\"siem\"}"), "{page}");
    assert!(second.stop().success());

    let siem = state(&data, &sinks, "siem").max_records(&siem);
    let archive = state(&data, &sinks, "archive").max_records(&archive);
    assert!(siem >= 60, "a record for each call at least: {siem}");
    check(&receiver.events(), siem);
    let mut names: Vec<_> = std::fs::read_dir(&files).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let lines: Vec<Value> = names
        .iter()
        .flat_map(|path| std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    assert!(names.len() > 2, "files are closed by size: {names:?}");
    check(&lines, archive);
    for (head, _) in receiver.requests.lock().unwrap().iter() {
        assert!(head.contains("authorization: bearer s3cret-of-the-siem"), "{head}");
        assert!(head.contains("content-type: application/cloudevents-batch+json"), "{head}");
    }
}

trait Records {
    /// How many records there are at the end, which is no fewer than before.
    fn max_records(&self, before: &Value) -> u64;
}

impl Records for Value {
    fn max_records(&self, before: &Value) -> u64 {
        let (now, then) = (self["records"].as_u64().unwrap(), before["records"].as_u64().unwrap());
        assert_eq!((&self["sink"]["state"], &self["sink"]["lag"]), (&json!("stopped"), &json!(0)), "{self}");
        assert!(now >= then);
        now
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_that_is_refused_halts_visibly_and_stops_no_call() {
    let (home, receiver) = (tempfile::tempdir().unwrap(), Receiver::open());
    let (data, files) = (home.path().join("data"), home.path().join("files"));
    std::fs::create_dir(&data).unwrap();
    provision(&data);
    receiver.answer(401);
    let sinks = sinks_of(&receiver, &files);
    let server = Start::new().data(&data).env("GANTRY_AUDIT__SINKS", &sinks).run().await;
    let halted = wait_for("halted", || {
        let state = state(&data, &sinks, "siem");
        (state["sink"]["state"] == "halted").then_some(state)
    });
    assert_eq!(
        (&halted["sink"]["delivered"], &halted["sink"]["reason"]),
        (&json!(0), &json!("the receiver answers 401"))
    );
    call(&server, 3).await;
    wait_for("the other goes on", || (state(&data, &sinks, "archive")["sink"]["lag"] == 0).then_some(()));
    assert!(server.log().contains("refuses what comes next"), "{}", server.log());
    let shown = run(gantry(&data).env("GANTRY_AUDIT__SINKS", &sinks).args(["audit", "sinks"])).ok().out();
    assert!(shown.contains("halted") && shown.contains("answers 401"), "{shown}");
    assert!(!shown.contains("s3cret") && !server.log().contains("s3cret"));
    assert!(server.stop().success());
}

#[test]
fn a_sink_that_cannot_be_is_refused_at_the_start_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    for (table, word) in [
        (json!({ "name": "k", "kind": "kafka", "brokers": ["127.0.0.1:9092"] }), "--features kafka"),
        (json!({ "name": "h", "kind": "http", "url": "http://127.0.0.1:9/" }), "`allow`"),
        (json!({ "name": "h", "kind": "http", "url": "https://169.254.169.254/" }), "not public"),
        (json!({ "name": "x", "kind": "syslog" }), "file, http, kafka"),
    ] {
        let start = Start::new().env("GANTRY_AUDIT__SINKS", json!([table]).to_string());
        let ran = run(&mut start.command(&data));
        assert!(ran.code() != 0 && ran.err().contains(word), "{table}: {}", ran.err());
    }
}
