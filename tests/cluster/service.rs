//! A service behind tools: an HTTP server on loopback that speaks the protocol of model servers, fails as long as it is told
//! to, and keeps those who ask waiting as long as it is told to.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::support::manifest;

pub(super) struct Service {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    asked: AtomicUsize,
    fails: AtomicBool,
    holds: watch::Sender<bool>,
}

impl Service {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            asked: AtomicUsize::new(0),
            fails: AtomicBool::new(false),
            holds: watch::Sender::new(false),
        });
        let serving = Arc::clone(&shared);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(answer(stream, Arc::clone(&serving)));
            }
        });
        Self { address, shared }
    }

    pub(super) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    pub(super) fn fail(&self, fails: bool) {
        self.shared.fails.store(fails, Ordering::SeqCst);
    }

    pub(super) fn hold(&self, holds: bool) {
        self.shared.holds.send_replace(holds);
    }

    /// A tool that asks it.
    pub(super) fn tool() -> Value {
        manifest(json!({
            "tool_id": "ask", "name": "Ask the service", "timeout_class": "long_running", "external_service": "thinker",
            "parameters": { "type": "object", "properties": { "problem": { "type": "string" } }, "required": ["problem"] },
            "result_schema": { "type": "object", "additionalProperties": true },
            "execution": { "type": "builtin", "handler": "deep_reasoning" },
            "retry_policy": { "max_attempts": 1 },
        }))
    }
}

async fn answer(mut stream: TcpStream, shared: Arc<Shared>) {
    let (mut request, mut chunk) = (Vec::new(), [0; 4096]);
    // The request is JSON in one piece; its end is the end of the object.
    while !request.ends_with(b"}") {
        match stream.read(&mut chunk).await {
            Ok(count @ 1..) => request.extend_from_slice(&chunk[..count]),
            _ => return,
        }
    }
    shared.asked.fetch_add(1, Ordering::SeqCst);
    // The sender lives as long as the test.
    let _ = shared.holds.subscribe().wait_for(|holds| !holds).await;
    let completion = json!({ "model": "test-model", "usage": { "total_tokens": 7 },
        "choices": [{ "message": { "role": "assistant", "content": "because" } }] });
    let (status, body) = if shared.fails.load(Ordering::SeqCst) {
        ("500 Internal Server Error", "{}".to_owned())
    } else {
        ("200 OK", completion.to_string())
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n");
    // Whoever has gone away does not want it.
    let _ = stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).await;
}
