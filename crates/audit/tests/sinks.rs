//! The suite of sinks against the file sink and the HTTP sink, the latter in each of its modes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test crate")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use gantry_audit::conformance::{QuickClock, SinkReceiver};
use gantry_audit::sinks::RecordSink;
use gantry_audit::sinks::file::{FileRotation, FileSink};
use gantry_audit::sinks::http::{HttpMode, HttpSink};
use ports::call_out::{CallAnswer, CallOut, CallOutError, CallsOut};
use ports::secret_source::NoSecrets;
use serde_json::{Map, Value};

/// A directory that can be taken away.
struct Folder {
    dir: tempfile::TempDir,
}

impl Folder {
    fn place(&self) -> PathBuf {
        self.dir.path().join("out")
    }
}

#[async_trait]
impl SinkReceiver for Folder {
    async fn sink(&self) -> Arc<dyn RecordSink> {
        let rotation = FileRotation { bytes: 20_000, compress: false, ..FileRotation::default() };
        Arc::new(FileSink::new(self.place(), rotation, Arc::new(QuickClock::default())))
    }

    async fn fail(&self) {
        std::fs::rename(self.place(), self.dir.path().join("away")).unwrap();
        std::fs::write(self.place(), "in its place").unwrap();
    }

    async fn recover(&self) {
        std::fs::remove_file(self.place()).unwrap();
        std::fs::rename(self.dir.path().join("away"), self.place()).unwrap();
    }

    async fn events(&self) -> Vec<Value> {
        let files: BTreeMap<PathBuf, String> = std::fs::read_dir(self.place())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
            .collect();
        files.values().flat_map(|text| text.lines()).map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// An HTTP server that can be away, and of whose answers every seventh is lost.
#[derive(Debug, Default)]
struct Wire {
    down: AtomicBool,
    /// Since it was away for the first time.
    loses_answers: AtomicBool,
    requests: AtomicUsize,
    taken: Mutex<Vec<Value>>,
}

struct Server {
    wire: Arc<Wire>,
    mode: HttpMode,
}

#[async_trait]
impl CallsOut for Wire {
    fn check(&self, _: &str) -> Result<(), CallOutError> {
        Ok(())
    }

    async fn post(&self, call: CallOut<'_>) -> Result<CallAnswer, CallOutError> {
        if self.down.load(Ordering::Relaxed) {
            return Err(CallOutError::NotConnected);
        }
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let header =
            |name: &str| call.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        let body: Value = serde_json::from_slice(call.body).unwrap();
        let events = match header("content-type").unwrap() {
            "application/cloudevents-batch+json; charset=utf-8" => body.as_array().unwrap().clone(),
            "application/cloudevents+json; charset=utf-8" => vec![body],
            "application/json" => vec![whole(call.headers, body)],
            other => panic!("{other}"),
        };
        self.taken.lock().unwrap().extend(events);
        if self.loses_answers.load(Ordering::Relaxed) && request % 7 == 6 {
            return Err(CallOutError::BrokenOff);
        }
        Ok(CallAnswer { status: 202, body: Vec::new(), took: Duration::ZERO, retry_after: None })
    }
}

/// The event of a request in binary mode.
fn whole(headers: &[(&str, String)], data: Value) -> Value {
    let mut event = Map::new();
    for (name, value) in headers {
        assert!(value.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{name}: {value}");
        let name = if *name == "content-type" { Some("datacontenttype") } else { name.strip_prefix("ce-") };
        let decoded = value.replace("%22", "\"").replace("%20", " ").replace("%25", "%");
        event.extend(name.map(|name| (name.to_owned(), Value::String(decoded))));
    }
    event.insert("data".to_owned(), data);
    Value::Object(event)
}

#[async_trait]
impl SinkReceiver for Server {
    async fn sink(&self) -> Arc<dyn RecordSink> {
        Arc::new(HttpSink {
            url: "https://siem.example/events".into(),
            mode: self.mode,
            secret_header: None,
            calls: Arc::clone(&self.wire) as _,
            secrets: Arc::new(NoSecrets),
            clock: Arc::new(QuickClock::default()),
        })
    }

    async fn fail(&self) {
        self.wire.down.store(true, Ordering::Relaxed);
        self.wire.loses_answers.store(true, Ordering::Relaxed);
    }

    async fn recover(&self) {
        self.wire.down.store(false, Ordering::Relaxed);
    }

    async fn events(&self) -> Vec<Value> {
        self.wire.taken.lock().unwrap().clone()
    }
}

mod file {
    async fn open() -> super::Folder {
        super::Folder { dir: tempfile::tempdir().unwrap() }
    }

    gantry_audit::sink_suite!(open);
}

mod http_batched {
    async fn open() -> super::Server {
        super::Server { wire: super::Arc::default(), mode: super::HttpMode::Batched }
    }

    gantry_audit::sink_suite!(open);
}

mod http_structured {
    async fn open() -> super::Server {
        super::Server { wire: super::Arc::default(), mode: super::HttpMode::Structured }
    }

    gantry_audit::sink_suite!(open);
}

mod http_binary {
    async fn open() -> super::Server {
        super::Server { wire: super::Arc::default(), mode: super::HttpMode::Binary }
    }

    gantry_audit::sink_suite!(open);
}
