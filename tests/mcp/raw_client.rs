//! An MCP client over HTTP by hand, of both eras: with sessions and a handshake, and with requests that stand alone.
//!
//! It shows what is on the wire, which a library would hide, and knows nothing that the library of the product knows.
//! Questions of the server are answered by one function in either era: in the old one when they come as requests, on the
//! call's own stream or on the session's, in the new one when they come as the result of a call, which is then repeated.
//!
//! Used by the black-box tests and by `cargo xtask conformance`, which includes this very file.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The newest revision.
pub(crate) const NEWEST: &str = "2026-07-28";
/// Longest wait for one answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);
/// So often a call asks and is answered before the client gives up.
const ROUNDS_MAX: usize = 8;
/// Pages of a list, after which it counts as endless.
const PAGES_MAX: usize = 1000;

/// How questions are answered: method and parameters in, result out.
pub(crate) type Answerer = fn(&str, &Value) -> Value;

/// The client.
pub(crate) struct RawClient {
    wire: Arc<Wire>,
    /// Reads the session's own stream, where servers of the old era may ask.
    listening: Option<tokio::task::JoinHandle<()>>,
}

/// What came back.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    /// The answer: `result` or `error`.
    pub(crate) message: Value,
    /// Whatever came before it.
    pub(crate) notifications: Vec<Value>,
}

struct Wire {
    http: reqwest::Client,
    url: String,
    token: String,
    revision: &'static str,
    session: Option<String>,
    next: AtomicU64,
    answerer: Answerer,
    asked: Mutex<Vec<Value>>,
    told: Mutex<Vec<Value>>,
    /// Parameters of tools that are sent as headers too: by tool, the names of parameter and header.
    mirrored: Mutex<HashMap<String, Vec<(String, String)>>>,
}

// -------------------------------------------------------------------------------------------------------- RawClient

impl RawClient {
    /// A client of the newest revision. Nothing is sent until something is asked.
    pub(crate) fn new(url: &str, token: &str, answerer: Answerer) -> Self {
        Self { wire: Arc::new(Wire::new(url, token, NEWEST, answerer)), listening: None }
    }

    /// A client of an older revision, after its handshake.
    pub(crate) async fn old(
        url: &str,
        token: &str,
        revision: &'static str,
        answerer: Answerer,
    ) -> Result<Self, String> {
        let mut wire = Wire::new(url, token, revision, answerer);
        let params = json!({ "protocolVersion": revision, "capabilities": capabilities(),
            "clientInfo": { "name": "raw-client", "version": "1.0.0" } });
        let response = wire.post(&wire.request("initialize", params)).await?;
        wire.session = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
        let agreed = wire.read(response, &Value::Null).await?.result()?;
        if agreed.get("protocolVersion").and_then(Value::as_str) != Some(revision) {
            return Err(format!("asked for {revision}, was offered {agreed}"));
        }
        let wire = Arc::new(wire);
        wire.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        let listening = Some(tokio::spawn(listen(Arc::clone(&wire))));
        Ok(Self { wire, listening })
    }

    fn is_new(&self) -> bool {
        self.wire.revision == NEWEST
    }

    /// One request as it is.
    pub(crate) async fn request(&self, method: &str, params: Value) -> Result<Reply, String> {
        self.wire.exchange(method, params).await
    }

    /// All pages of a list: `tools`, `resources` or `prompts`.
    pub(crate) async fn list(&self, what: &str) -> Result<Vec<Value>, String> {
        let (mut found, mut cursor) = (Vec::new(), None::<Value>);
        for _ in 0..PAGES_MAX {
            let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
            let mut page = self.request(&format!("{what}/list"), params).await?.result()?;
            if let Some(Value::Array(items)) = page.get_mut(what) {
                items.iter().for_each(|item| self.wire.remember_headers(item));
                found.append(items);
            }
            match page.get("nextCursor").filter(|cursor| !cursor.is_null()) {
                Some(next) => cursor = Some(next.clone()),
                None => return Ok(found),
            }
        }
        Err(format!("the list of {what} has no end"))
    }

    /// Calls a tool to its end: whatever it asks is answered. The last reply, with all notifications.
    pub(crate) async fn call(&self, tool: &str, arguments: &Value) -> Result<Reply, String> {
        let mut reply = self.request("tools/call", json!({ "name": tool, "arguments": arguments })).await?;
        for _ in 0..ROUNDS_MAX {
            let Some(retry) = self.answered(tool, arguments, &reply) else { return Ok(reply) };
            let mut next = self.request("tools/call", retry).await?;
            let mut notifications = std::mem::take(&mut reply.notifications);
            notifications.append(&mut next.notifications);
            reply = Reply { notifications, ..next };
        }
        Err(format!("`{tool}` asks without end"))
    }

    /// The parameters that answer what a reply asks; nothing if it asks nothing.
    pub(crate) fn answered(&self, tool: &str, arguments: &Value, reply: &Reply) -> Option<Value> {
        let result = reply.message.get("result")?;
        if !self.is_new() || result.get("resultType")?.as_str()? != "input_required" {
            return None;
        }
        let asked = result.get("inputRequests").and_then(Value::as_object);
        let answers: Map<String, Value> = asked
            .into_iter()
            .flatten()
            .map(|(key, question)| {
                let method = question.get("method").and_then(Value::as_str).unwrap_or_default();
                (key.clone(), self.wire.answer(method, question.get("params").unwrap_or(&Value::Null)))
            })
            .collect();
        let mut params = json!({ "name": tool, "arguments": arguments, "inputResponses": answers });
        if let (Value::Object(members), Some(state)) = (&mut params, result.get("requestState")) {
            members.insert("requestState".into(), state.clone());
        }
        Some(params)
    }

    /// Everything the server has asked so far, as method and parameters.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.wire.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What came on the session's own stream.
    pub(crate) fn told(&self) -> Vec<Value> {
        self.wire.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for RawClient {
    fn drop(&mut self) {
        if let Some(task) = &self.listening {
            task.abort();
        }
    }
}

// ------------------------------------------------------------------------------------------------------------ Reply

impl Reply {
    /// The result, or what the error says.
    pub(crate) fn result(mut self) -> Result<Value, String> {
        match self.message.get_mut("result") {
            Some(result) => Ok(result.take()),
            None => Err(self.message.to_string()),
        }
    }

    /// The text of the first block of content, also of a tool's own error.
    pub(crate) fn text(&self) -> String {
        let text = self.message.pointer("/result/content/0/text").and_then(Value::as_str);
        text.map_or_else(|| self.message.to_string(), str::to_owned)
    }
}

// ------------------------------------------------------------------------------------------------------------- Wire

impl Wire {
    fn new(url: &str, token: &str, revision: &'static str, answerer: Answerer) -> Self {
        Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap_or_default(),
            url: url.to_owned(),
            token: token.to_owned(),
            revision,
            session: None,
            next: AtomicU64::new(1),
            answerer,
            asked: Mutex::default(),
            told: Mutex::default(),
            mirrored: Mutex::default(),
        }
    }

    fn request(&self, method: &str, mut params: Value) -> Value {
        if let (NEWEST, Value::Object(members)) = (self.revision, &mut params) {
            let meta = members.entry("_meta").or_insert_with(|| json!({}));
            if let Value::Object(meta) = meta {
                meta.insert("io.modelcontextprotocol/protocolVersion".into(), json!(NEWEST));
                meta.insert("io.modelcontextprotocol/clientCapabilities".into(), capabilities());
                let info = json!({ "name": "raw-client", "version": "1.0.0" });
                meta.insert("io.modelcontextprotocol/clientInfo".into(), info);
            }
        }
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
    }

    fn remember_headers(&self, tool: &Value) {
        let properties = tool.pointer("/inputSchema/properties").and_then(Value::as_object);
        // What could not be a header is none, whatever the server says.
        let is_word =
            |name: &&str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let is_simple =
            |schema: &Value| !matches!(schema.get("type").and_then(Value::as_str), Some("array" | "object"));
        let named = properties.into_iter().flatten().filter(|(_, schema)| is_simple(schema)).filter_map(
            |(parameter, schema)| {
                let header = schema.get("x-mcp-header").and_then(Value::as_str).filter(is_word)?;
                Some((parameter.clone(), format!("mcp-param-{header}")))
            },
        );
        if let Some(name) = tool.get("name").and_then(Value::as_str) {
            let mut mirrored = self.mirrored.lock().unwrap_or_else(PoisonError::into_inner);
            mirrored.insert(name.to_owned(), named.collect());
        }
    }

    fn mirrored_headers(&self, message: &Value) -> Vec<(String, String)> {
        let tool = message.pointer("/params/name").and_then(Value::as_str).unwrap_or_default();
        let mirrored = self.mirrored.lock().unwrap_or_else(PoisonError::into_inner);
        let named = mirrored.get(tool).into_iter().flatten();
        let given = named.filter_map(|(parameter, header)| {
            let value = message.pointer("/params/arguments")?.get(parameter).filter(|value| !value.is_null())?;
            Some((header.clone(), in_a_header(value)))
        });
        given.collect()
    }

    async fn exchange(&self, method: &str, params: Value) -> Result<Reply, String> {
        let message = self.request(method, params);
        let response = self.post(&message).await?;
        self.read(response, message.get("id").unwrap_or(&Value::Null)).await
    }

    async fn post(&self, message: &Value) -> Result<reqwest::Response, String> {
        let mut request = self
            .http
            .post(&self.url)
            .bearer_auth(&self.token)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        let method = message.get("method").and_then(Value::as_str).unwrap_or_default();
        if method != "initialize" {
            request = request.header("mcp-protocol-version", self.revision);
        }
        if self.revision == NEWEST {
            request = request.header("mcp-method", method);
            let params = message.get("params");
            let name = ["name", "uri"].iter().find_map(|key| params?.get(key)?.as_str());
            if let Some(name) = name.filter(|_| ["tools/call", "prompts/get", "resources/read"].contains(&method)) {
                request = request.header("mcp-name", name);
            }
        }
        for (name, value) in self.mirrored_headers(message).into_iter().filter(|_| self.revision == NEWEST) {
            request = request.header(name, value);
        }
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session);
        }
        let sent = request.body(message.to_string()).send();
        let response = tokio::time::timeout(ANSWER_TIME_MAX, sent).await.map_err(|_| "no answer in time".to_owned())?;
        response.map_err(|error| format!("cannot ask: {error}"))
    }

    /// The answer with this id, whatever form the response has; with no id, the first answer of all.
    async fn read(&self, response: reqwest::Response, id: &Value) -> Result<Reply, String> {
        let status = response.status();
        let is_stream = response
            .headers()
            .get("content-type")
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.starts_with("text/event-stream"));
        if !is_stream {
            let body = response.bytes().await.map_err(|error| format!("cannot read: {error}"))?;
            let message = serde_json::from_slice(&body)
                .map_err(|_| format!("status {status}, not JSON: {}", String::from_utf8_lossy(&body)))?;
            return Ok(Reply { message, notifications: Vec::new() });
        }
        let mut notifications = Vec::new();
        let mut events = Events { response, buffer: Vec::new() };
        while let Some(message) = events.next().await? {
            match (message.get("method").and_then(Value::as_str), message.get("id")) {
                (Some(method), Some(question)) => self.answer_by_request(question, method, &message).await?,
                (Some(_), None) => notifications.push(message),
                (None, Some(answered)) if id.is_null() || answered == id => {
                    return Ok(Reply { message, notifications });
                }
                _ => {}
            }
        }
        Err(format!("status {status}, and the stream ended without an answer"))
    }

    fn answer(&self, method: &str, params: &Value) -> Value {
        let asked = json!({ "method": method, "params": params });
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        (self.answerer)(method, params)
    }

    async fn answer_by_request(&self, id: &Value, method: &str, message: &Value) -> Result<(), String> {
        let result = match method {
            "ping" => json!({}),
            _ => self.answer(method, message.get("params").unwrap_or(&Value::Null)),
        };
        self.post(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).await.map(|_| ())
    }
}

/// The session's own stream, until it ends or the client does.
async fn listen(wire: Arc<Wire>) {
    let mut request = wire
        .http
        .get(&wire.url)
        .bearer_auth(&wire.token)
        .header("accept", "text/event-stream")
        .header("mcp-protocol-version", wire.revision);
    if let Some(session) = &wire.session {
        request = request.header("mcp-session-id", session);
    }
    // A server without such a stream says so, and that is all there is to hear.
    let Ok(response) = request.send().await else { return };
    let mut events = Events { response, buffer: Vec::new() };
    while let Ok(Some(message)) = events.next().await {
        match (message.get("method").and_then(Value::as_str), message.get("id")) {
            (Some(method), Some(id)) => {
                let _ = wire.answer_by_request(id, method, &message).await;
            }
            _ => wire.told.lock().unwrap_or_else(PoisonError::into_inner).push(message),
        }
    }
}

/// Messages in a stream of events.
struct Events {
    response: reqwest::Response,
    buffer: Vec<u8>,
}

impl Events {
    async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let text = String::from_utf8_lossy(&line);
                // Lines that are no data say when to come back, or nothing.
                let data = text.trim_end().strip_prefix("data:").map(str::trim_start);
                if let Some(message) = data.and_then(|data| serde_json::from_str(data).ok()) {
                    return Ok(Some(message));
                }
            }
            let chunk = tokio::time::timeout(ANSWER_TIME_MAX, self.response.chunk()).await;
            match chunk.map_err(|_| "the stream went silent".to_owned())? {
                Ok(Some(chunk)) => self.buffer.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(format!("the stream broke: {error}")),
            }
        }
    }
}

/// A value as a header can carry it: as it is, or encoded and marked.
fn in_a_header(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) && text.trim() == text;
    if is_plain && !text.starts_with("=?base64?") {
        return text;
    }
    format!("=?base64?{}?=", STANDARD.encode(text))
}

fn capabilities() -> Value {
    json!({ "elicitation": {}, "sampling": {}, "roots": { "listChanged": true } })
}

/// Says yes to everything: forms are filled with their defaults, models are helpful, there is one root.
pub(crate) fn agreeable(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" => {
            let properties = params.pointer("/requestedSchema/properties").and_then(Value::as_object);
            let content: Map<String, Value> =
                properties.into_iter().flatten().map(|(name, schema)| (name.clone(), filled(name, schema))).collect();
            json!({ "action": "accept", "content": content })
        }
        "sampling/createMessage" => json!({ "role": "assistant", "model": "none", "stopReason": "endTurn",
            "content": { "type": "text", "text": "a model would say this" } }),
        _ => json!({ "roots": [{ "uri": "file:///work", "name": "work" }] }),
    }
}

/// A value that a schema accepts.
pub(crate) fn filled(name: &str, schema: &Value) -> Value {
    if let Some(value) = schema.get("default").or_else(|| schema.pointer("/enum/0")) {
        return value.clone();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => json!(true),
        Some("integer" | "number") => json!(3),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => schema.pointer("/oneOf/0/const").cloned().unwrap_or_else(|| json!(format!("some {name}"))),
    }
}
