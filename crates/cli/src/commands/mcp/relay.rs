//! Carries a conversation on standard input and output to the `/mcp` of a running server, message by message.
//!
//! The messages are not understood more than needed: which revision one belongs to, whether it begins a session, whether it
//! cancels another, which arguments of a call have to stand in headers ([`Marked`]). Everything the server says goes out as it
//! came.
//!
//! Bounds: [`AT_ONCE`] messages on their way, [`LINE_BYTES_MAX`] per line, `answers::MESSAGE_BYTES_MAX` per message of the
//! server, [`OUT_MAX`] answers that wait to be written.
//!
//! Invariants
//! - RELAY-1: every request gets an answer, unless the client has taken it back or does not listen any more. If the server
//!   gave none, the answer is an error that says whether the call may have run.
//!
//! Not here: retries of calls. A call whose connection died may have run; the client is told so and decides. Only one that
//! was turned away for want of a header is sent once more, with it.

mod answers;
mod marked;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::backoff::GrowingPause;
use base::{MutexExt as _, SaturatingFrom as _};
use contract::error::ErrorCode;
use contract::json::{self, DEPTH_MAX_CEILING, JsonError, JsonLimits};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{AbortHandle, JoinSet};
use upstreams::headers;

use self::answers::{Messages, json_of, media_of, unsent};
use self::marked::Marked;
use crate::client::ServerClient;
use crate::failure::CommandFailure;

/// Messages on their way at the same time.
const AT_ONCE: usize = 64;
/// Longest line that is read.
const LINE_BYTES_MAX: u64 = 64 << 20;
/// Answers that wait to be written. At the limit the server is read no further.
const OUT_MAX: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long what was asked may still be answered after the client has closed its side, and how long what is then left to be
/// written may take.
const LAST_ANSWERS: Duration = Duration::from_secs(5);
/// The pauses before the stream of notifications is opened again.
const LISTEN_PAUSE: Duration = Duration::from_secs(1);
const LISTEN_PAUSE_MAX: Duration = Duration::from_secs(30);
/// The first revision without sessions.
const MODERN: &str = "2026-07-28";
/// A header is missing, or says something else than the message (2026-07-28).
const HEADER_MISMATCH: i64 = -32020;

/// One conversation.
struct Relay {
    http: reqwest::Client,
    url: String,
    token: String,
    session: Mutex<Session>,
    marked: Marked,
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
pub(super) async fn run(client: &ServerClient, token: &str, toolset: Option<&str>) -> Result<(), CommandFailure> {
    let base = client.base();
    let http = client.connector(AT_ONCE)?;
    let url = toolset.map_or_else(|| format!("{base}/mcp"), |name| format!("{base}/mcp/{name}"));
    let (out, lines) = mpsc::channel::<String>(OUT_MAX);
    let relay = Arc::new(Relay {
        http,
        url,
        token: token.to_owned(),
        session: Mutex::default(),
        marked: Marked::default(),
        out,
        running: Mutex::default(),
    });
    let writing = tokio::spawn(write(lines));
    let (mut tasks, mut listening) = (JoinSet::new(), JoinSet::new());
    let read = relay.read(&mut tasks, &mut listening).await;
    // What was asked is answered, within reason: a client may close its side right after its last question.
    let answered = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(LAST_ANSWERS, answered).await.is_err() {
        tasks.shutdown().await;
    }
    listening.shutdown().await;
    relay.end().await;
    drop(relay);
    // Whatever is still to be written is, as far as the client reads it. If it does not, it has lost nothing it wanted.
    let _ = tokio::time::timeout(LAST_ANSWERS, writing).await;
    read
}

async fn write(mut lines: mpsc::Receiver<String>) {
    let mut stdout = tokio::io::stdout();
    while let Some(line) = lines.recv().await {
        if stdout.write_all(line.as_bytes()).await.is_err() || stdout.flush().await.is_err() {
            return;
        }
    }
}

/// The next line, without its end; `None` at the end of input.
async fn next_line(input: &mut BufReader<tokio::io::Stdin>) -> Result<Option<Vec<u8>>, CommandFailure> {
    loop {
        let mut line = Vec::new();
        let read = (&mut *input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        match read {
            Ok(0) => return Ok(None),
            Ok(_)
                if line.last() != Some(&b'\n')
                    && u64::try_from(line.len()).is_ok_and(|bytes| bytes >= LINE_BYTES_MAX) =>
            {
                return Err(CommandFailure::new("the client has sent a line that is too long"));
            }
            Ok(_) if line.iter().all(u8::is_ascii_whitespace) => {}
            Ok(_) => return Ok(Some(line)),
            Err(error) => return Err(CommandFailure::new(format!("standard input cannot be read: {error}"))),
        }
    }
}

/// What came back for one message.
enum Back {
    /// What there was to say was said.
    Answered,
    /// Nothing; for a notification that is as it should be.
    Nothing,
    /// A header is missing, so it was not executed; with the refusal as the server gave it.
    WantsHeader(Value),
}

impl Relay {
    /// Reads what the client says, until it closes its side.
    async fn read(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        listening: &mut JoinSet<()>,
    ) -> Result<(), CommandFailure> {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let mut input = BufReader::new(tokio::io::stdin());
        while let Some(line) = next_line(&mut input).await? {
            let message = match json::read(&line, &line_limits()) {
                Ok(message) => message,
                Err(error) => {
                    self.say(&not_carried(&line, &error)).await;
                    continue;
                }
            };
            if self.cancels(&message) {
                continue;
            }
            // A session must be there before anything else is sent in it.
            if message.get("method").and_then(Value::as_str) == Some("initialize") {
                self.carry(&message).await;
                if self.now().id.is_some() {
                    let relay = Arc::clone(self);
                    listening.spawn(async move { relay.listen().await });
                }
                continue;
            }
            // The semaphore is never closed.
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break };
            let (relay, id) = (Arc::clone(self), id_of(&message));
            // Held until the entry is there, so that a task that is quick finds what it has to take out.
            let mut running = self.running();
            let task = tasks.spawn(async move {
                relay.carry(&message).await;
                if let Some(id) = id_of(&message) {
                    relay.running().remove(&id);
                }
                drop(slot);
            });
            if let Some(id) = id {
                running.insert(id, task);
            }
            drop(running);
            while tasks.try_join_next().is_some() {}
        }
        Ok(())
    }

    fn now(&self) -> Session {
        self.session.lock_unpoisoned().clone()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, AbortHandle>> {
        self.running.lock_unpoisoned()
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

    /// Sends one message and gives out what comes back (RELAY-1).
    async fn carry(&self, message: &Value) {
        let sent_by = self.marked_of(message);
        let mut back = self.carried(message).await;
        if let Ok(Back::WantsHeader(refusal)) = &back {
            // It was turned away unread, so it may be sent again, once.
            back = match self.learn_marks(message, sent_by).await {
                true => self.carried(message).await,
                false => Ok(Back::WantsHeader(refusal.clone())),
            };
        }
        let why = match back {
            Ok(Back::Answered) => return,
            Ok(Back::WantsHeader(refusal)) => return self.say(&refusal).await,
            Ok(Back::Nothing) => "the Gantry server gave no answer: whether the call ran is not known".to_owned(),
            Err(why) => why,
        };
        if let (Some(id), true) = (message.get("id"), message.get("method").is_some()) {
            let error = json!({ "code": -32603, "message": why });
            self.say(&json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
        } else if message.get("id").is_some() {
            // An answer of the client's. The server that asked finds out by itself that none comes.
            tracing::debug!(why, "an answer of the client was not delivered");
        }
    }

    async fn carried(&self, message: &Value) -> Result<Back, String> {
        let response = self.request(message).send().await.map_err(|error| unsent(&error))?;
        if let Some(id) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
            self.session.lock_unpoisoned().id = Some(id.to_owned());
        }
        let (status, media) = (response.status(), media_of(&response));
        match media.as_str() {
            "text/event-stream" => {
                Ok(if self.events(response, id_of(message)).await? { Back::Answered } else { Back::Nothing })
            }
            "application/json" => {
                let mut body = json_of(response).await?;
                let code = body.pointer("/error/code").and_then(Value::as_i64);
                // A server that refuses before it has read the message leaves its id out; the client waits for it.
                if let (Some(members), Some(id), true) = (body.as_object_mut(), message.get("id"), code.is_some())
                    && members.get("id").is_none_or(Value::is_null)
                {
                    members.insert("id".to_owned(), id.clone());
                }
                if status == reqwest::StatusCode::BAD_REQUEST && code == Some(HEADER_MISMATCH) {
                    return Ok(Back::WantsHeader(body));
                }
                self.learn(&body);
                self.say(&body).await;
                Ok(Back::Answered)
            }
            _ if status.is_success() => Ok(Back::Nothing),
            _ => {
                // Without words the status has to do.
                let problem = json_of(response).await.unwrap_or_default();
                let detail = problem.get("detail").and_then(Value::as_str).unwrap_or("no reason given");
                Err(format!("the Gantry server refused ({status}): {detail}"))
            }
        }
    }

    fn request(&self, message: &Value) -> reqwest::RequestBuilder {
        let request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("accept", "application/json, text/event-stream")
            .json(message);
        let version =
            message.pointer("/params/_meta").and_then(|meta| meta.get("io.modelcontextprotocol/protocolVersion"));
        let version = version.and_then(Value::as_str);
        if let Some(version) = version.filter(|version| *version >= MODERN) {
            let request = request.header("mcp-protocol-version", version);
            let Some(method) = message.get("method").and_then(Value::as_str) else { return request };
            let params = message.get("params").unwrap_or(&Value::Null);
            let schema = self.marked.schema(params.get("name").and_then(Value::as_str));
            return request.headers(headers::standard(method, params, schema.as_deref()));
        }
        let session = self.now();
        let request = match session.id {
            Some(id) => request.header("mcp-session-id", id),
            None => request,
        };
        match version.map(str::to_owned).or(session.version) {
            Some(version) => request.header("mcp-protocol-version", version),
            None => request,
        }
    }

    /// Which revision the two have agreed on, and which tools have arguments that stand in headers.
    fn learn(&self, message: &Value) {
        if let Some(version) = message.pointer("/result/protocolVersion").and_then(Value::as_str) {
            self.session.lock_unpoisoned().version = Some(version.to_owned());
        }
        self.marked.learn(message);
    }

    /// Gives out the messages of a stream until it ends; `true` if the answer to `id` was among them.
    async fn events(&self, response: reqwest::Response, id: Option<String>) -> Result<bool, String> {
        let mut messages = Messages::of(response);
        let mut answered = false;
        while let Some(message) = messages.next().await? {
            answered |= message.get("method").is_none() && message.get("id").map(Value::to_string) == id;
            self.learn(&message);
            self.say(&message).await;
        }
        Ok(answered)
    }

    /// What the server says without being asked, for as long as the session lasts.
    async fn listen(&self) {
        let session = self.now();
        let (Some(id), Some(version)) = (session.id, session.version) else { return };
        let mut pause = GrowingPause::doubling(LISTEN_PAUSE, LISTEN_PAUSE_MAX);
        loop {
            let asking = self
                .http
                .get(&self.url)
                .bearer_auth(&self.token)
                .header("accept", "text/event-stream")
                .header("mcp-session-id", &id)
                .header("mcp-protocol-version", &version);
            match asking.send().await {
                Ok(response) if response.status().is_success() => {
                    pause.reset();
                    // A stream that ends is opened again; answers come on streams of their own.
                    let _ = self.events(response, None).await;
                }
                // There is none, or the session is over.
                Ok(response) if response.status().is_client_error() => return,
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(pause.next_pause()).await;
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
            // A courtesy: a session nobody ends grows old by itself.
            let _ = tokio::time::timeout(CONNECT_TIMEOUT, ending.send()).await;
        }
    }
}

/// The id of a request, as text: `1` and `"1"` are two.
/// As strict as the server about what two parsers could read in two ways, which the server could not see any more; how much
/// is accepted is the server's to say.
fn line_limits() -> JsonLimits {
    let bytes_max = usize::saturating_from(LINE_BYTES_MAX);
    JsonLimits { bytes_max, depth_max: DEPTH_MAX_CEILING, string_bytes_max: bytes_max, nodes_max: usize::MAX }
}

/// What is looked for in a line that is not carried: its numbers may be more than can be held.
#[derive(serde::Deserialize)]
struct OnlyId {
    id: Option<Value>,
}

/// The answer to a line that is not carried, with the id of its request where one can be told.
fn not_carried(line: &[u8], error: &JsonError) -> Value {
    let id = serde_json::from_slice::<OnlyId>(line).ok().and_then(|message| message.id);
    let code = ErrorCode::E3004;
    let message = format!("{code}: this line is not acceptable: {error}");
    let data = json!({ "error": { "code": code, "message": message } });
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -32700, "message": message, "data": data } })
}

fn id_of(message: &Value) -> Option<String> {
    message.get("method")?;
    message.get("id").map(Value::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_have_an_id_to_be_cancelled_by() {
        assert_eq!(id_of(&json!({ "id": 1, "method": "ping" })).as_deref(), Some("1"));
        assert_eq!(id_of(&json!({ "id": "1", "method": "ping" })).as_deref(), Some("\"1\""));
        assert_eq!(id_of(&json!({ "id": 1, "result": {} })), None);
        assert_eq!(id_of(&json!({ "method": "notifications/initialized" })), None);
    }
}
