//! A small MCP server at an address, in the process of the test: one tool, whose description the test decides.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Runs until the runtime of the test ends.
pub(crate) struct HttpServer {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    asked: AtomicUsize,
    /// Calls that are never answered.
    held: AtomicUsize,
    /// What it says about its tool.
    description: Mutex<String>,
    /// Where it sends whoever asks, if it does.
    elsewhere: Option<String>,
}

impl HttpServer {
    pub(crate) async fn start() -> Self {
        Self::with(Shared { description: Mutex::new("Says hello.".into()), ..Shared::default() }).await
    }

    /// One that only points elsewhere.
    pub(crate) async fn redirecting(to: String) -> Self {
        Self::with(Shared { elsewhere: Some(to), ..Shared::default() }).await
    }

    async fn with(shared: Shared) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shared) = (listener.local_addr().unwrap(), Arc::new(shared));
        let served = Arc::clone(&shared);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let served = Arc::clone(&served);
                tokio::spawn(async move { serve(stream, &served).await });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// The description of this server for `PUT /v1/servers/{name}`.
    pub(crate) fn spec(&self) -> Value {
        json!({ "reach": { "type": "http", "url": self.url() } })
    }

    /// Requests so far.
    pub(crate) fn asked(&self) -> usize {
        self.shared.asked.load(Ordering::SeqCst)
    }

    /// Calls so far that asked never to be answered (`{"hold": true}`).
    pub(crate) fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// From now on it describes its tool so.
    pub(crate) fn says(&self, description: &str) {
        *self.shared.description.lock().unwrap() = description.to_owned();
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) {
    let Some((head, body)) = request(&mut stream).await else { return };
    shared.asked.fetch_add(1, Ordering::SeqCst);
    if body["method"] == "tools/call" && body["params"]["arguments"]["hold"] == true {
        shared.held.fetch_add(1, Ordering::SeqCst);
        // Until whoever asks has had enough.
        let _gone = stream.read(&mut [0; 1]).await;
        return;
    }
    let answer = match (&shared.elsewhere, head.starts_with("POST")) {
        (Some(to), _) => format!("HTTP/1.1 307 Temporary Redirect\r\nlocation: {to}\r\n{}", ended("")),
        (None, true) => answered(&body, shared),
        (None, false) => format!("HTTP/1.1 405 Method Not Allowed\r\n{}", ended("")),
    };
    // Whoever has gone away does not want it.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Head and body.
async fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let (mut read, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return Some((head.to_owned(), serde_json::from_str(body).unwrap_or(Value::Null)));
            }
        }
        match stream.read(&mut chunk).await {
            Ok(n @ 1..) => read.extend_from_slice(&chunk[..n]),
            _ => return None,
        }
    }
}

fn answered(message: &Value, shared: &Shared) -> String {
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            json!({ "protocolVersion": "2025-06-18", "capabilities": { "tools": {}, "resources": {}, "prompts": {} },
            "serverInfo": { "name": "hello", "version": "1" } })
        }
        "tools/list" => json!({ "tools": [{ "name": "hello", "inputSchema": { "type": "object" },
            "description": *shared.description.lock().unwrap() }] }),
        "tools/call" => json!({ "content": [{ "type": "text", "text": "hello" }] }),
        "resources/list" => json!({ "resources": [{ "uri": "note://1", "name": "one" }] }),
        "resources/templates/list" => json!({ "resourceTemplates": [] }),
        "prompts/list" => json!({ "prompts": [{ "name": "greet" }] }),
        "resources/read" => json!({ "contents": [{ "uri": message["params"]["uri"], "mimeType": "application/json",
            "text": json!({ "email": "ada@example.org", "note": "buy milk" }).to_string() }] }),
        "prompts/get" => {
            json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "greet Ada" } }] })
        }
        "ping" => json!({}),
        _ if message.get("id").is_none() => return format!("HTTP/1.1 202 Accepted\r\n{}", ended("")),
        _ => {
            let error = json!({ "code": -32601, "message": "no such method" });
            let body = json!({ "jsonrpc": "2.0", "id": message["id"], "error": error }).to_string();
            return format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{}", ended(&body));
        }
    };
    let body = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }).to_string();
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{}", ended(&body))
}

fn ended(body: &str) -> String {
    format!("content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}
