//! The service whose effects are counted: an MCP server on loopback that answers each call as the test says.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Answer, Gantry, Start};

/// What the server says to one call.
#[derive(Clone)]
pub(super) struct Says {
    status: &'static str,
    /// Where it says to go on.
    location: Option<&'static str>,
    /// `ID` stands for the id of the request.
    pub(super) body: &'static str,
}

/// Does the work.
pub(super) const DONE: Says = Says {
    status: "200 OK",
    location: None,
    body: r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"paid":true},"resultType":"complete"}}"#,
};

/// An MCP server elsewhere.
pub(super) struct Bank {
    url: String,
    pub(super) counter: Arc<Counter>,
}

/// What the server and the test share.
#[derive(Default)]
pub(super) struct Counter {
    /// What it says next; once there is nothing, it does what it is asked for.
    pub(super) next: Mutex<VecDeque<Says>>,
    /// The parameters of every call that has come in.
    pub(super) calls: Mutex<Vec<Value>>,
    /// It speaks a revision with sessions (2025-11-25).
    pub(super) has_sessions: bool,
    /// What is at any other address.
    pub(super) elsewhere: Mutex<&'static str>,
    /// Calls come in, and are not answered.
    pub(super) is_closed: AtomicBool,
}

impl Bank {
    pub(super) async fn open() -> Self {
        Self::with(Counter::default()).await
    }

    pub(super) async fn with(counter: Counter) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let bank = Self { url, counter: Arc::new(counter) };
        let counter = Arc::clone(&bank.counter);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&counter)));
            }
        });
        bank
    }

    /// A Gantry with this server behind it. Nobody has said what its tool does, so it must not happen twice.
    pub(super) async fn behind_gantry(&self) -> Gantry {
        self.behind(Start::new()).await
    }

    pub(super) async fn behind(&self, start: Start) -> Gantry {
        self.reached(start, json!({ "type": "http", "url": self.url })).await
    }

    /// The same, with tokens that another place gives.
    pub(super) async fn behind_with(&self, start: Start, oauth: Value) -> Gantry {
        self.reached(start, json!({ "type": "http", "url": self.url, "oauth": oauth })).await
    }

    async fn reached(&self, start: Start, reach: Value) -> Gantry {
        let gantry = start.env("GANTRY_EGRESS__OPEN_NETWORKS", "127.0.0.0/8").run().await;
        let spec = json!({ "reach": reach });
        let answer = gantry.request(Method::PUT, "/v1/servers/bank", Some(&gantry.token), Some(spec)).await;
        assert_eq!(answer.status, 200, "{}\n{}", answer.text, gantry.log());
        gantry
    }

    pub(super) fn says(&self, status: &'static str, body: &'static str) {
        self.counter.next.lock().unwrap().push_back(Says { status, location: None, body });
    }

    pub(super) fn redirects(&self, status: &'static str, location: &'static str) {
        self.counter.next.lock().unwrap().push_back(Says { status, location: Some(location), body: "{}" });
    }

    pub(super) fn calls(&self) -> usize {
        self.counter.calls.lock().unwrap().len()
    }

    /// Bills that came in to be paid.
    pub(super) fn bills(&self) -> usize {
        self.counter.calls.lock().unwrap().iter().filter(|call| call["name"] == "pay").count()
    }

    /// Calls come in, and are not answered until it opens.
    pub(super) fn is_closed(&self, is_closed: bool) {
        self.counter.is_closed.store(is_closed, Ordering::SeqCst);
    }
}

/// One request of a connection.
async fn serve(stream: TcpStream, counter: Arc<Counter>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).await.ok()?;
    let is_ours = line.starts_with("POST /mcp ");
    // Who listens for what belongs to no request hears that there is no such thing.
    let elsewhere = if line.contains(" /mcp ") { "405 Method Not Allowed" } else { *counter.elsewhere.lock().unwrap() };
    line.clear();
    while stream.read_line(&mut line).await.ok()? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    if !is_ours {
        let answer = format!("HTTP/1.1 {elsewhere}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await.ok()?;
        return stream.shutdown().await.ok();
    }
    let request: Value = serde_json::from_slice(&body).ok()?;
    let answers = |result: Value| {
        let result = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        ("200 OK".to_owned(), result.to_string())
    };
    let mut header = String::new();
    let (status, body) = match request["method"].as_str()? {
        "tools/call" => {
            counter.calls.lock().unwrap().push(request["params"].clone());
            // Until it opens, or whoever asks goes away.
            while counter.is_closed.load(Ordering::SeqCst) {
                tokio::select! {
                    _ = stream.read_line(&mut line) => return None,
                    () = tokio::time::sleep(Duration::from_millis(10)) => {}
                }
            }
            let says = counter.next.lock().unwrap().pop_front().unwrap_or(DONE);
            header = says.location.map(|to| format!("location: {to}\r\n")).unwrap_or_default();
            (says.status.to_owned(), says.body.replace("ID", &request["id"].to_string()))
        }
        "server/discover" if counter.has_sessions => {
            let error = json!({ "code": -32601, "message": "what?" });
            ("200 OK".to_owned(), json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }).to_string())
        }
        "initialize" => {
            "mcp-session-id: counter-1\r\n".clone_into(&mut header);
            answers(json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "bank", "version": "1" } }))
        }
        "notifications/initialized" => ("202 Accepted".to_owned(), String::new()),
        "tools/list" => answers(json!({ "resultType": "complete", "tools": [
            { "name": "pay", "description": "Pays a bill.", "inputSchema": { "type": "object" } },
            { "name": "look", "description": "Shows the account.", "inputSchema": { "type": "object" } }] })),
        _ => answers(json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} }, "serverInfo": { "name": "bank", "version": "1" } })),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\n{header}content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

pub(super) async fn pay(gantry: &Gantry, key: &str) -> Answer {
    let call = json!({ "tool_id": "bank.pay", "parameters": { "bill": 7 },
        "execution_options": { "idempotency_key": key } });
    gantry.post("/v1/tools/invoke", call).await
}
