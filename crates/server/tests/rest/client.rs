//! A small HTTP/1.1 client that hides nothing.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// No answer of the server takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Client {
    stream: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The E-code of a refusal, `-` for everything else.
    pub(crate) fn code(&self) -> String {
        if self.header("content-type") != Some("application/problem+json") {
            return "-".to_owned();
        }
        self.json()["error"]["code"].as_str().unwrap_or("?").to_owned()
    }
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), read: Vec::new() }
    }

    /// Writes as much as the server takes; a server that hangs up early is not a failure of the client.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn close_own_side(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// The next answer, or `None` if the server closes without one.
    pub(crate) async fn reply_if_any(&mut self, to_head: bool) -> Option<Reply> {
        tokio::time::timeout(PATIENCE, self.read_reply(to_head)).await.expect("the server answers in time")
    }

    pub(crate) async fn reply(&mut self) -> Reply {
        self.reply_if_any(false).await.expect("the server answers before it closes")
    }

    /// Completes when the server has closed the connection.
    pub(crate) async fn closed(&mut self) {
        let reading = async { while matches!(self.stream.read_buf(&mut self.read).await, Ok(n) if n > 0) {} };
        tokio::time::timeout(PATIENCE, reading).await.expect("the server closes in time");
    }

    async fn read_reply(&mut self, to_head: bool) -> Option<Reply> {
        let head_end = loop {
            if let Some(at) = self.read.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if !matches!(self.stream.read_buf(&mut self.read).await, Ok(n) if n > 0) {
                return None;
            }
        };
        let head = String::from_utf8(self.read.drain(..head_end).collect()).unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut reply = Reply { status, headers, body: Vec::new() };
        let length: usize = reply.header("content-length").map_or(0, |value| value.parse().unwrap());
        let length = if to_head { 0 } else { length };
        while self.read.len() < length {
            assert!(self.stream.read_buf(&mut self.read).await.unwrap() > 0, "the answer broke off");
        }
        reply.body = self.read.drain(..length).collect();
        Some(reply)
    }
}

/// The text of a request with a form for a body.
pub(crate) fn form(path: &str, fields: &[(&str, &str)], header: &str) -> String {
    let mut body = form_urlencoded::Serializer::new(String::new());
    body.extend_pairs(fields);
    let body = body.finish();
    let kind = "content-type: application/x-www-form-urlencoded";
    format!("POST {path} HTTP/1.1\r\nhost: gantry\r\n{header}{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// The text of a request. A body is announced as JSON.
pub(crate) fn request(method: &str, path: &str, token: Option<&str>, body: Option<&str>) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: gantry\r\n");
    if let Some(token) = token {
        text += &format!("authorization: Bearer {token}\r\n");
    }
    if let Some(body) = body {
        text += &format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    } else {
        text += "\r\n";
    }
    text
}
