//! `gantry-xtask conformance-fixture [--http]`: an MCP server with exactly what the official suites call by fixed names.
//!
//! It stands behind Gantry, over its standard streams, and is imported without a namespace, so that the names stay as the
//! suites know them. What a suite sees has then gone through Gantry's client, its lifecycle and its door. With `--http` it
//! can be looked at alone, to tell a fault of the fixture from one of the gateway.
//!
//! It speaks both protocols, of sessions and of single requests: a tool asks its caller by a request of its own in the
//! one and by its result in the other, and is written once ([`Call::ask`]).
//!
//! Not here: tasks, which Gantry makes of calls that last (`long_tools`), and the skills extension, which Gantry does not offer.

mod content;
mod long_tools;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use test_servers::mcp::wire::{
    FixtureFault, FixtureHandler, FixtureRequest, META_CAPABILITIES, META_SERVER, META_SUBSCRIPTION, NEWEST, OLD,
    ReplyLine, RequestEra,
};
use test_servers::mcp::{http, stdio};
use tokio::sync::broadcast;

/// Changes that a slow listener may miss.
const CHANGES_MAX: usize = 16;

/// The server.
pub(crate) struct FixtureServer {
    /// Whether the tool and the prompt that come and go are there.
    extra_tool: AtomicBool,
    extra_prompt: AtomicBool,
    changes: broadcast::Sender<Change>,
    /// What makes states of this process unlike those of any other.
    secret: std::hash::RandomState,
}

/// A list that is not what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Tools,
    Prompts,
}

/// One call of a tool or prompt, and the way to ask whoever made it.
struct Call<'a> {
    request: &'a FixtureRequest,
    line: &'a ReplyLine,
    era: RequestEra,
}

/// Something to ask a caller: the name its answer will have, the method, the parameters.
type Question = (&'static str, &'static str, Value);

/// Why a tool stops here.
enum Stop {
    Fault(FixtureFault),
    /// Answers are missing; the result says which.
    Asked(Value),
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let fixture: Arc<dyn FixtureHandler> = Arc::new(FixtureServer::new());
    match arguments.first().map(String::as_str) {
        None => runtime.block_on(stdio::serve(fixture)),
        Some("--http") => runtime.block_on(async {
            let (listener, address) = http::listen().await?;
            println!("http://localhost:{}/mcp", address.port());
            http::serve(listener, fixture).await
        }),
        Some(other) => bail!("conformance-fixture has no option `{other}`: it has --http"),
    }
}

// ---------------------------------------------------------------------------------------------------------- Fixture

impl FixtureServer {
    pub(crate) fn new() -> Self {
        let (changes, _) = broadcast::channel(CHANGES_MAX);
        let (extra_tool, extra_prompt) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { extra_tool, extra_prompt, changes, secret: std::hash::RandomState::new() }
    }

    fn capabilities() -> Value {
        json!({ "tools": { "listChanged": true }, "prompts": { "listChanged": true }, "completions": {}, "logging": {},
            "resources": { "subscribe": true, "listChanged": true } })
    }

    /// Stays until the stream is closed or the request cancelled.
    async fn listen(&self, request: &FixtureRequest, line: &ReplyLine) -> Result<Value, FixtureFault> {
        let wanted = request.params.get("notifications").cloned().unwrap_or_default();
        let wants = |name: &str| wanted.get(name) == Some(&Value::Bool(true));
        let meta = json!({ META_SUBSCRIPTION: request.id });
        let mut changes = self.changes.subscribe();
        let told = json!({ "_meta": meta, "notifications": wanted });
        line.notify("notifications/subscriptions/acknowledged", told).await;
        loop {
            match changes.recv().await {
                Ok(change) => {
                    let (name, method) = change.names();
                    if wants(name) {
                        line.notify(method, json!({ "_meta": meta })).await;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return Ok(json!({ "_meta": meta })),
            }
        }
    }

    /// Adds what was not there or takes away what was, and tells everybody who listens.
    async fn change(&self, change: Change, call: &Call<'_>) -> Value {
        let what = match change {
            Change::Tools => &self.extra_tool,
            Change::Prompts => &self.extra_prompt,
        };
        what.fetch_xor(true, Ordering::SeqCst);
        // Nobody may be listening.
        let _ = self.changes.send(change);
        if call.era == RequestEra::Old {
            call.line.notify(change.names().1, json!({})).await;
        }
        content::text("The list has changed.")
    }
}

impl Change {
    /// Its name in a filter, and the notification.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Tools => ("toolsListChanged", "notifications/tools/list_changed"),
            Self::Prompts => ("promptsListChanged", "notifications/prompts/list_changed"),
        }
    }
}

#[async_trait]
impl FixtureHandler for FixtureServer {
    async fn handle(&self, request: &FixtureRequest, line: &ReplyLine) -> Result<Value, FixtureFault> {
        let era = request.era();
        let call = Call { request, line, era };
        let mut result = match (request.method.as_str(), era) {
            ("initialize", RequestEra::Old) => json!({ "protocolVersion": request.agreed_revision(),
                "capabilities": Self::capabilities(), "serverInfo": server_info() }),
            ("ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe", RequestEra::Old) => {
                json!({})
            }
            ("server/discover", RequestEra::New) => {
                json!({ "supportedVersions": [NEWEST, OLD], "capabilities": Self::capabilities() })
            }
            ("subscriptions/listen", RequestEra::New) => self.listen(request, line).await?,
            ("tools/list", _) => json!({ "tools": tools::list(self.extra_tool.load(Ordering::SeqCst)) }),
            ("tools/call", _) => finished(tools::call(self, &call).await)?,
            ("resources/list", _) => json!({ "resources": content::resources() }),
            ("resources/templates/list", _) => json!({ "resourceTemplates": content::templates() }),
            ("resources/read", _) => content::read(request.text("uri"), era)?,
            ("prompts/list", _) => json!({ "prompts": content::prompts(self.extra_prompt.load(Ordering::SeqCst)) }),
            ("prompts/get", _) => finished(content::prompt(&call).await)?,
            ("completion/complete", _) => content::complete(request),
            (method, _) => return Err(FixtureFault::no_method(method)),
        };
        if let (RequestEra::New, Value::Object(members)) = (era, &mut result) {
            members.entry("resultType").or_insert_with(|| json!("complete"));
            let is_cacheable = request.method.ends_with("/list")
                || ["resources/read", "server/discover"].contains(&request.method.as_str());
            if is_cacheable {
                members.insert("ttlMs".into(), json!(0));
                members.insert("cacheScope".into(), json!("private"));
            }
            if let Value::Object(meta) = members.entry("_meta").or_insert_with(|| json!({})) {
                meta.insert(META_SERVER.into(), server_info());
            }
        }
        Ok(result)
    }
}

fn server_info() -> Value {
    json!({ "name": "conformance-fixture", "version": env!("CARGO_PKG_VERSION") })
}

fn finished(outcome: Result<Value, Stop>) -> Result<Value, FixtureFault> {
    match outcome {
        Ok(result) | Err(Stop::Asked(result)) => Ok(result),
        Err(Stop::Fault(fault)) => Err(fault),
    }
}

// ------------------------------------------------------------------------------------------------------------- Call

impl Call<'_> {
    /// What the caller says it can do; in the time of sessions nothing is known here, so everything is tried.
    fn can(&self, capability: &str) -> bool {
        let declared = self.request.meta(META_CAPABILITIES);
        self.era == RequestEra::Old || declared.is_some_and(|capabilities| capabilities.get(capability).is_some())
    }

    /// The state that a retry brings back.
    fn state(&self) -> Option<&str> {
        self.request.params.get("requestState").and_then(Value::as_str)
    }

    /// The answers, by the names of the questions. Without all of them, everything is asked once more.
    async fn ask(&self, questions: &[Question], state: Option<&str>) -> Result<Map<String, Value>, Stop> {
        let mut answers = Map::new();
        if self.era == RequestEra::Old {
            for (key, method, params) in questions {
                let answer = self.line.ask(method, params.clone()).await.map_err(Stop::Fault)?;
                answers.insert((*key).into(), answer);
            }
            return Ok(answers);
        }
        let given = self.request.params.get("inputResponses");
        for (key, ..) in questions {
            // Something that is no object is no answer.
            match given.and_then(|given| given.get(*key)).filter(|answer| answer.is_object()) {
                Some(answer) => answers.insert((*key).into(), answer.clone()),
                None => return Err(Stop::Asked(asked(questions, state))),
            };
        }
        Ok(answers)
    }
}

/// The result that asks.
fn asked(questions: &[Question], state: Option<&str>) -> Value {
    let requests: Map<String, Value> = questions
        .iter()
        .map(|(key, method, params)| ((*key).to_owned(), json!({ "method": method, "params": params })))
        .collect();
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let (Value::Object(members), Some(state)) = (&mut result, state) {
        members.insert("requestState".into(), json!(state));
    }
    result
}

impl From<FixtureFault> for Stop {
    fn from(fault: FixtureFault) -> Self {
        Self::Fault(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_servers::mcp::wire::{META_VERSION, OUTGOING_MAX, OpenQuestions, WireMessage};
    use tokio::sync::mpsc;

    fn request(method: &str, mut params: Value, era: RequestEra) -> FixtureRequest {
        if era == RequestEra::New {
            params["_meta"] = json!({ META_VERSION: NEWEST, META_CAPABILITIES: { "elicitation": {} } });
        }
        let text = json!({ "id": 1, "method": method, "params": params }).to_string();
        match WireMessage::read(text.as_bytes()) {
            Some(WireMessage::Request(request)) => request,
            _ => panic!("{text}"),
        }
    }

    fn line() -> (ReplyLine, mpsc::Receiver<Value>, Arc<OpenQuestions>) {
        let (out, sent) = mpsc::channel(OUTGOING_MAX);
        let questions = Arc::new(OpenQuestions::default());
        (ReplyLine::new(out, Arc::clone(&questions)), sent, questions)
    }

    #[tokio::test]
    async fn a_tool_asks_by_its_result_in_the_new_era() {
        let (fixture, (line, _sent, _)) = (FixtureServer::new(), line());
        let mut params = json!({ "name": "test_input_required_result_request_state", "arguments": {} });
        let asked = fixture.handle(&request("tools/call", params.clone(), RequestEra::New), &line).await.unwrap();
        assert_eq!(asked["resultType"], "input_required");
        assert_eq!(asked["inputRequests"]["confirm"]["method"], "elicitation/create");
        params["inputResponses"] = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
        for (state, code) in [(json!("made up"), Some(-32602)), (asked["requestState"].clone(), None)] {
            params["requestState"] = state;
            let outcome = fixture.handle(&request("tools/call", params.clone(), RequestEra::New), &line).await;
            assert_eq!(outcome.as_ref().err().map(|fault| fault.code), code, "{outcome:?}");
        }
    }

    #[tokio::test]
    async fn the_same_tool_asks_by_a_request_in_the_old_era() {
        let (fixture, (line, mut sent, questions)) = (FixtureServer::new(), line());
        let params = json!({ "name": "test_input_required_result_elicitation", "arguments": {} });
        let call =
            tokio::spawn(async move { fixture.handle(&request("tools/call", params, RequestEra::Old), &line).await });
        let question = sent.recv().await.unwrap();
        assert_eq!(question["method"], "elicitation/create");
        questions.answer(&question["id"], json!({ "result": { "action": "accept", "content": { "name": "Ada" } } }));
        assert_eq!(call.await.unwrap().unwrap()["content"][0]["text"], "Hello, Ada!");
    }

    #[tokio::test]
    async fn every_tool_that_is_listed_is_there() {
        let (fixture, (line, _sent, _)) = (FixtureServer::new(), line());
        let listed = fixture.handle(&request("tools/list", json!({}), RequestEra::New), &line).await.unwrap();
        for tool in listed["tools"].as_array().unwrap() {
            let params = json!({ "name": tool["name"], "arguments": {} });
            let outcome = fixture.handle(&request("tools/call", params, RequestEra::New), &line).await;
            let unknown = outcome.as_ref().is_err_and(|fault| fault.message.starts_with("there is no tool"));
            assert!(!unknown, "{outcome:?}");
        }
    }
}
