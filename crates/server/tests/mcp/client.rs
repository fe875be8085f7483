//! A small HTTP/1.1 client that can read an answer piece by piece, as events come.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Nothing the server says takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
pub(crate) const NEW: &str = "2026-07-28";

/// One request in the making.
#[derive(Clone)]
pub(crate) struct Ask {
    address: SocketAddr,
    path: String,
    method: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

/// An answer whose head has been read.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    stream: TcpStream,
    read: Vec<u8>,
    text: String,
    ended: bool,
}

impl Ask {
    pub(crate) fn new(address: SocketAddr, path: &str) -> Self {
        let host = ("host".to_owned(), address.to_string());
        Self { address, path: path.to_owned(), method: "POST".to_owned(), headers: vec![host], body: None }
    }

    pub(crate) fn method(mut self, method: &str) -> Self {
        self.method = method.to_owned();
        self
    }

    /// Sets a header; an empty value takes it away.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.retain(|(known, _)| known != name);
        if !value.is_empty() {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn body(self, body: &str) -> Self {
        let mut ask = self.header("content-type", "application/json");
        if !ask.headers.iter().any(|(name, _)| name == "accept") {
            ask = ask.header("accept", "application/json, text/event-stream");
        }
        ask.body = Some(body.to_owned());
        ask
    }

    /// A message of an older revision.
    pub(crate) fn old(self, id: u64, method: &str, params: &Value) -> Self {
        self.body(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())
    }

    /// A message of the present revision, with everything it has to say about itself.
    pub(crate) fn new_style(self, id: u64, method: &str, mut params: Value, capabilities: &Value) -> Self {
        let mut meta = params.get("_meta").cloned().unwrap_or_else(|| json!({}));
        meta["io.modelcontextprotocol/protocolVersion"] = json!(NEW);
        meta["io.modelcontextprotocol/clientCapabilities"] = capabilities.clone();
        meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "test", "version": "1" });
        params["_meta"] = meta;
        let named = ["name", "uri", "taskId"]
            .into_iter()
            .find_map(|name| params.get(name))
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned();
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string();
        self.header("mcp-protocol-version", NEW).header("mcp-method", method).header("mcp-name", &named).body(&body)
    }

    pub(crate) async fn send(self) -> Reply {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        let body = self.body.unwrap_or_default();
        text += &format!("content-length: {}\r\n\r\n{body}", body.len());
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        Reply::read_head(stream).await
    }

    /// Sends and expects one JSON document, whether it comes alone or as the last event of a stream.
    pub(crate) async fn message(self) -> Value {
        let mut reply = self.send().await;
        reply.last().await
    }
}

impl Reply {
    async fn read_head(mut stream: TcpStream) -> Self {
        let mut read = Vec::new();
        let reading = async {
            loop {
                if let Some(at) = read.windows(4).position(|w| w == b"\r\n\r\n") {
                    return at + 4;
                }
                assert!(stream.read_buf(&mut read).await.unwrap() > 0, "the server closes without an answer");
            }
        };
        let end = tokio::time::timeout(PATIENCE, reading).await.expect("the server answers in time");
        let head = String::from_utf8(read.drain(..end).collect()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Self { status, headers, stream, read, text: String::new(), ended: false }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|media| media.starts_with("text/event-stream"))
    }

    /// More of the body; false at its end.
    async fn more(&mut self) -> bool {
        if self.ended {
            return false;
        }
        if self.header("transfer-encoding") != Some("chunked") {
            let length: usize = self.header("content-length").map_or(0, |value| value.parse().unwrap());
            while self.read.len() < length {
                assert!(self.stream.read_buf(&mut self.read).await.unwrap() > 0, "the answer broke off");
            }
            self.text += std::str::from_utf8(&self.read).unwrap();
            self.ended = true;
            return true;
        }
        loop {
            if let Some(at) = self.read.windows(2).position(|w| w == b"\r\n") {
                let size = usize::from_str_radix(std::str::from_utf8(&self.read[..at]).unwrap().trim(), 16).unwrap();
                let whole = at + 2 + size + 2;
                if self.read.len() >= whole {
                    self.text += std::str::from_utf8(&self.read[at + 2..at + 2 + size]).unwrap();
                    self.read.drain(..whole);
                    self.ended = size == 0;
                    return !self.ended;
                }
            }
            if !matches!(self.stream.read_buf(&mut self.read).await, Ok(n) if n > 0) {
                self.ended = true;
                return false;
            }
        }
    }

    /// The whole body.
    pub(crate) async fn body(&mut self) -> String {
        let reading = async { while self.more().await {} };
        tokio::time::timeout(PATIENCE, reading).await.expect("the answer ends in time");
        self.text.clone()
    }

    /// The next message of a stream; `None` at its end.
    pub(crate) async fn event(&mut self) -> Option<Value> {
        let reading = async {
            loop {
                while let Some(at) = self.text.find("\n\n") {
                    let event: String = self.text.drain(..at + 2).collect();
                    let data: String =
                        event.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect();
                    if !data.is_empty() {
                        return Some(serde_json::from_str(&data).unwrap());
                    }
                }
                if !self.more().await {
                    return None;
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.expect("the server says something in time")
    }

    /// The only document, or the last event.
    pub(crate) async fn last(&mut self) -> Value {
        if !self.is_stream() {
            let body = self.body().await;
            return serde_json::from_str(&body).unwrap_or_else(|_| panic!("{} no JSON: {body}", self.status));
        }
        let mut last = Value::Null;
        while let Some(event) = self.event().await {
            last = event;
        }
        last
    }
}
