//! JSON-RPC of MCP by hand: requests in, results or faults out, and questions to the other side in between.
//!
//! Written without the library the product is built on, so that a mistake of that library cannot hide on both sides of
//! a connection.
//!
//! Not here: what is answered (the handlers), and how messages travel ([`super::stdio`], [`super::http`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};

/// The newest revision, and what it keeps in `_meta`.
pub const NEWEST: &str = "2026-07-28";
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// A revision of the time of sessions, answered to whoever asks for one we do not know.
pub const OLD: &str = "2025-11-25";
const OLD_REVISIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", OLD];

/// Messages that wait to be sent on one line.
pub const OUTGOING_MAX: usize = 256;
/// A question that nobody answers ends with a fault.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// Which of the two protocols a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEra {
    /// Sessions and a handshake; the server asks by requests of its own.
    Old,
    /// Every request stands alone; the server asks by its results.
    New,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct FixtureRequest {
    pub id: Value,
    pub method: String,
    pub params: Map<String, Value>,
}

/// Why there is no result.
#[derive(Debug, Clone, PartialEq)]
pub struct FixtureFault {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

/// Whoever answers.
#[async_trait]
pub trait FixtureHandler: Send + Sync + 'static {
    async fn handle(&self, request: &FixtureRequest, line: &ReplyLine) -> Result<Value, FixtureFault>;
}

/// What a message turned out to be.
#[derive(Debug)]
pub enum WireMessage {
    Request(FixtureRequest),
    Notification { method: String, params: Map<String, Value> },
    Response { id: Value, outcome: Value },
}

/// The way back to the other side while a request is worked on.
#[derive(Debug, Clone)]
pub struct ReplyLine {
    out: mpsc::Sender<Value>,
    questions: Arc<OpenQuestions>,
}

/// Questions that were asked and not yet answered.
#[derive(Debug, Default)]
pub struct OpenQuestions {
    next: AtomicU64,
    waiting: Mutex<HashMap<String, oneshot::Sender<Value>>>,
}

// ---------------------------------------------------------------------------------------------------------- Message

impl WireMessage {
    /// Nothing if it is no message at all.
    pub fn read(text: &[u8]) -> Option<Self> {
        let Ok(Value::Object(mut members)) = serde_json::from_slice(text) else { return None };
        let id = members.remove("id");
        let params = match members.remove("params") {
            Some(Value::Object(params)) => params,
            _ => Map::new(),
        };
        match (members.remove("method"), id) {
            (Some(Value::String(method)), Some(id)) => Some(Self::Request(FixtureRequest { id, method, params })),
            (Some(Value::String(method)), None) => Some(Self::Notification { method, params }),
            (None, Some(id)) => Some(Self::Response { id, outcome: Value::Object(members) }),
            _ => None,
        }
    }
}

// ---------------------------------------------------------------------------------------------------------- Request

impl FixtureRequest {
    pub fn meta(&self, name: &str) -> Option<&Value> {
        self.params.get("_meta")?.get(name)
    }

    pub fn era(&self) -> RequestEra {
        let said = self.meta(META_VERSION).and_then(Value::as_str);
        if said.is_some() || self.method == "server/discover" { RequestEra::New } else { RequestEra::Old }
    }

    pub fn text(&self, name: &str) -> &str {
        self.params.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// The revision a handshake agrees on.
    pub fn agreed_revision(&self) -> &'static str {
        let wanted = self.text("protocolVersion");
        OLD_REVISIONS.into_iter().find(|known| *known == wanted).unwrap_or(OLD)
    }

    /// The whole answer to it.
    pub fn answered(&self, outcome: Result<Value, FixtureFault>) -> Value {
        match outcome {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": self.id, "result": result }),
            Err(FixtureFault { code, message, data }) => {
                let mut error = json!({ "code": code, "message": message });
                if let (Value::Object(members), false) = (&mut error, data.is_null()) {
                    members.insert("data".into(), data);
                }
                json!({ "jsonrpc": "2.0", "id": self.id, "error": error })
            }
        }
    }
}

// ------------------------------------------------------------------------------------------------------------ Fault

impl FixtureFault {
    pub fn new(code: i64, message: impl Into<String>, data: Value) -> Self {
        Self { code, message: message.into(), data }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(-32602, message, Value::Null)
    }

    pub fn no_method(method: &str) -> Self {
        Self::new(-32601, format!("there is no method `{method}`"), Value::Null)
    }
}

// ------------------------------------------------------------------------------------------------------------- Line

impl ReplyLine {
    pub fn new(out: mpsc::Sender<Value>, questions: Arc<OpenQuestions>) -> Self {
        Self { out, questions }
    }

    pub async fn send(&self, message: Value) {
        // Whoever has hung up does not miss it.
        let _ = self.out.send(message).await;
    }

    pub async fn notify(&self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    /// The other side's result, by a request of ours.
    pub async fn ask(&self, method: &str, params: Value) -> Result<Value, FixtureFault> {
        let id = format!("fixture-{}", self.questions.next.fetch_add(1, Ordering::Relaxed));
        let (sender, answer) = oneshot::channel();
        self.questions.waiting.lock_unpoisoned().insert(id.clone(), sender);
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
        let outcome = tokio::time::timeout(ANSWER_TIME_MAX, answer).await;
        let Ok(Ok(Value::Object(mut outcome))) = outcome else {
            return Err(FixtureFault::new(-32603, format!("nobody answered `{method}`"), Value::Null));
        };
        outcome.remove("result").ok_or_else(|| {
            let said = outcome.get("error").and_then(|error| error.get("message")).and_then(Value::as_str);
            FixtureFault::new(-32603, format!("`{method}` was refused: {}", said.unwrap_or("no reason")), Value::Null)
        })
    }
}

impl OpenQuestions {
    /// Hands an answer to whoever waits for it; one that nobody waits for is dropped.
    pub fn answer(&self, id: &Value, outcome: Value) {
        let waiting = id.as_str().and_then(|id| self.waiting.lock_unpoisoned().remove(id));
        if let Some(sender) = waiting {
            // Whoever asked may have given up.
            let _ = sender.send(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        let kind = |text: &str| match WireMessage::read(text.as_bytes()) {
            Some(WireMessage::Request(request)) => format!("request {} {:?}", request.method, request.era()),
            Some(WireMessage::Notification { method, .. }) => format!("notification {method}"),
            Some(WireMessage::Response { id, .. }) => format!("response {id}"),
            None => "nothing".into(),
        };
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#, "request tools/list Old"),
            (
                r#"{"id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
                "request tools/list New",
            ),
            (r#"{"method":"notifications/initialized"}"#, "notification notifications/initialized"),
            (r#"{"id":"a","result":{}}"#, "response \"a\""),
            ("[]", "nothing"),
            ("{", "nothing"),
        ] {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn a_question_gets_the_answer_with_its_id() {
        let (out, mut sent) = mpsc::channel(OUTGOING_MAX);
        let questions = Arc::new(OpenQuestions::default());
        let line = ReplyLine::new(out, Arc::clone(&questions));
        let asked = tokio::spawn(async move { line.ask("roots/list", json!({})).await });
        let message = sent.recv().await.unwrap();
        questions.answer(&json!("someone else's"), json!({ "result": 1 }));
        questions.answer(&message["id"], json!({ "result": { "roots": [] } }));
        assert_eq!(asked.await.unwrap(), Ok(json!({ "roots": [] })));
    }
}
