//! Carries a conversation on standard input and output to the `/mcp` of a running server, message by message.
//!
//! The messages are not understood more than needed: which revision one belongs to, whether it begins a session, whether it
//! cancels another. Everything the server says goes out as it came.
//!
//! Bounds: [`AT_ONCE`] messages on their way, [`LINE_BYTES_MAX`] per line, [`OUT_MAX`] answers that wait to be written.
//!
//! Not here: retries of calls. A call whose connection died may have run; the client is told so and decides.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};

use crate::failure::Failure;

/// Messages on their way at the same time.
const AT_ONCE: usize = 64;
/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Longest event of a stream that is read.
const EVENT_BYTES_MAX: usize = 64 << 20;
/// Answers that wait to be written. At the limit the server is read no further.
const OUT_MAX: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The first revision without sessions.
const MODERN: &str = "2026-07-28";

/// One conversation.
struct Relay {
    http: reqwest::Client,
    url: String,
    token: String,
    session: Mutex<Session>,
    out: mpsc::Sender<String>,
    /// Requests on their way, by id, for cancellation.
    running: Mutex<HashMap<String, AbortHandle>>,
}

#[derive(Debug, Default, Clone)]
struct Session {
    id: Option<String>,
    version: Option<String>,
}

/// Runs until the client closes its side.
pub(super) async fn run(base: &str, token: &str, toolset: Option<&str>) -> Result<(), Failure> {
    let http = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .map_err(|_| Failure::new("the HTTP client cannot be set up on this machine"))?;
    let url = toolset.map_or_else(|| format!("{base}/mcp"), |name| format!("{base}/mcp/{name}"));
    let (out, mut lines) = mpsc::channel::<String>(OUT_MAX);
    let relay = Arc::new(Relay {
        http,
        url,
        token: token.to_owned(),
        session: Mutex::default(),
        out,
        running: Mutex::default(),
    });
    let writing = tokio::spawn(async move {
        let mut stdout = tokio::io::stdout();
        while let Some(line) = lines.recv().await {
            if stdout.write_all(line.as_bytes()).await.is_err() || stdout.flush().await.is_err() {
                return;
            }
        }
    });
    let mut tasks = JoinSet::new();
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut input = BufReader::new(tokio::io::stdin());
    while let Some(line) = next_line(&mut input).await? {
        let Ok(message) = serde_json::from_slice::<Value>(&line) else {
            relay.say(&json!({ "jsonrpc": "2.0", "id": null, "error": { "code": -32700, "message": "this line is not JSON" } })).await;
            continue;
        };
        if relay.cancels(&message) {
            continue;
        }
        // A session must be there before anything else is sent in it.
        if message.get("method").and_then(Value::as_str) == Some("initialize") {
            relay.carry(&message).await;
            if relay.now().id.is_some() {
                let listening = Arc::clone(&relay);
                tasks.spawn(async move { listening.listen().await });
            }
            continue;
        }
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
        let (carrying, id) = (Arc::clone(&relay), id_of(&message));
        let task = tasks.spawn(async move {
            carrying.carry(&message).await;
            if let Some(id) = id_of(&message) {
                carrying.running().remove(&id);
            }
            drop(slot);
        });
        if let Some(id) = id {
            relay.running().insert(id, task);
        }
        while tasks.try_join_next().is_some() {}
    }
    relay.end().await;
    tasks.shutdown().await;
    drop(relay);
    // Whatever is still to be written is, as far as the client reads it.
    let _ = writing.await;
    Ok(())
}

/// The next line, without its end; `None` at the end of input.
async fn next_line(input: &mut BufReader<tokio::io::Stdin>) -> Result<Option<Vec<u8>>, Failure> {
    loop {
        let mut line = Vec::new();
        let read = (&mut *input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) => return Ok(None),
            Ok(_)
                if line.last() != Some(&b'\n')
                    && u64::try_from(line.len()).is_ok_and(|bytes| bytes >= LINE_BYTES_MAX) =>
            {
                return Err(Failure::new("the client has sent a line that is too long"));
            }
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(_) => return Ok(Some(line)),
            Err(error) => return Err(Failure::new(format!("standard input cannot be read: {error}"))),
        }
    }
}

impl Relay {
    fn now(&self) -> Session {
        self.session.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn running(&self) -> std::sync::MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn say(&self, message: &Value) {
        // Nobody reads any more: the conversation is at its end.
        let _ = self.out.send(format!("{message}\n")).await;
    }

    /// Over HTTP a request of the present revision is cancelled by closing its stream.
    fn cancels(&self, message: &Value) -> bool {
        let cancelled = message.get("method").and_then(Value::as_str) == Some("notifications/cancelled");
        if !cancelled || self.now().id.is_some() {
            return false;
        }
        let id = message.pointer("/params/requestId").map(Value::to_string);
        if let Some(task) = id.and_then(|id| self.running().remove(&id)) {
            task.abort();
        }
        true
    }

    /// Sends one message and gives out what comes back.
    async fn carry(&self, message: &Value) {
        if let Err(why) = self.carried(message).await
            && let Some(id) = message.get("id")
            && message.get("method").is_some()
        {
            let error = json!({ "code": -32603, "message": why });
            self.say(&json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
        }
    }

    async fn carried(&self, message: &Value) -> Result<(), String> {
        let response =
            self.request(message).send().await.map_err(|_| {
                "the connection to the Gantry server broke: whether the call ran is not known".to_owned()
            })?;
        if let Some(id) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
            self.session.lock().unwrap_or_else(PoisonError::into_inner).id = Some(id.to_owned());
        }
        let media = response.headers().get("content-type").and_then(|media| media.to_str().ok()).unwrap_or_default();
        match media.split(';').next().unwrap_or_default() {
            "text/event-stream" => self.events(response).await,
            "application/json" => {
                let body: Value = response.json().await.map_err(|_| "the server's answer broke off".to_owned())?;
                self.learn(&body);
                self.say(&body).await;
                Ok(())
            }
            _ if response.status().is_success() => Ok(()),
            _ => {
                let status = response.status();
                let problem: Value = response.json().await.unwrap_or_default();
                let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("no reason given");
                Err(format!("the Gantry server refused ({status}): {detail}"))
            }
        }
    }

    fn request(&self, message: &Value) -> reqwest::RequestBuilder {
        let mut request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("accept", "application/json, text/event-stream")
            .json(message);
        let text = |pointer: &str| message.pointer(pointer).and_then(Value::as_str);
        let version =
            message.pointer("/params/_meta").and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion"));
        if let Some(version) = version.and_then(Value::as_str) {
            request = request.header("mcp-protocol-version", version);
            if version >= MODERN {
                request = request.header("mcp-method", text("/method").unwrap_or_default());
                if let Some(name) = text("/params/name").or_else(|| text("/params/uri")) {
                    request = request.header("mcp-name", name);
                }
                return request;
            }
        }
        let session = self.now();
        if let Some(id) = session.id {
            request = request.header("mcp-session-id", id);
        }
        match (session.version, version) {
            (Some(version), None) => request.header("mcp-protocol-version", version),
            _ => request,
        }
    }

    /// Which revision the two have agreed on.
    fn learn(&self, message: &Value) {
        if let Some(version) = message.pointer("/result/protocolVersion").and_then(Value::as_str) {
            self.session.lock().unwrap_or_else(PoisonError::into_inner).version = Some(version.to_owned());
        }
    }

    /// Gives out the messages of a stream until it ends.
    async fn events(&self, mut response: reqwest::Response) -> Result<(), String> {
        let broken = || "the server's stream broke off: whether the call ran is not known".to_owned();
        let mut text: Vec<u8> = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|_| broken())? {
            text.extend_from_slice(&piece);
            while let Some(at) = text.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = text.drain(..at + 2).collect();
                if let Some(message) = message_of(&event) {
                    self.learn(&message);
                    self.say(&message).await;
                }
            }
            if text.len() > EVENT_BYTES_MAX {
                return Err("the server sends more than fits into one message".to_owned());
            }
        }
        Ok(())
    }

    /// What the server says without being asked, for as long as the session lasts.
    async fn listen(&self) {
        let session = self.now();
        let (Some(id), Some(version)) = (session.id, session.version) else { return };
        let asking = self
            .http
            .get(&self.url)
            .bearer_auth(&self.token)
            .header("accept", "text/event-stream")
            .header("mcp-session-id", id)
            .header("mcp-protocol-version", version);
        if let Ok(response) = asking.send().await
            && response.status().is_success()
        {
            // A stream that ends is no loss: answers come on streams of their own.
            let _ = self.events(response).await;
        }
    }

    /// Says good-bye, so that the server need not wait for the session to grow old.
    async fn end(&self) {
        let session = self.now();
        if let Some(id) = session.id {
            let ending = self.http.delete(&self.url).bearer_auth(&self.token).header("mcp-session-id", id);
            let ending = match session.version {
                Some(version) => ending.header("mcp-protocol-version", version),
                None => ending,
            };
            let _ = tokio::time::timeout(CONNECT_TIMEOUT, ending.send()).await;
        }
    }
}

/// The message in one event.
fn message_of(event: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(event).ok()?;
    let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim_start).collect();
    serde_json::from_str(&data.join("\n")).ok()
}

/// The id of a request, as text: `1` and `"1"` are two.
fn id_of(message: &Value) -> Option<String> {
    message.get("method")?;
    message.get("id").map(Value::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_its_data_whatever_stands_around_it() {
        assert_eq!(message_of(b"id: 1\ndata: {\"a\":1}\n\n"), Some(json!({ "a": 1 })));
        assert_eq!(message_of(b"data: {\"a\":\ndata: 1}\n\n"), Some(json!({ "a": 1 })));
        assert_eq!(message_of(b": keep-alive\n\n"), None);
        assert_eq!(message_of(b"data: \nretry: 3000\n\n"), None);
    }

    #[test]
    fn only_requests_have_an_id_to_be_cancelled_by() {
        assert_eq!(id_of(&json!({ "id": 1, "method": "ping" })).as_deref(), Some("1"));
        assert_eq!(id_of(&json!({ "id": "1", "method": "ping" })).as_deref(), Some("\"1\""));
        assert_eq!(id_of(&json!({ "id": 1, "result": {} })), None);
        assert_eq!(id_of(&json!({ "method": "notifications/initialized" })), None);
    }
}
