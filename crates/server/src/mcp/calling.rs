//! `tools/call`: from a name and arguments to one call through the kernel, and back.
//!
//! While the call runs, this tells the client how far it is and asks it what the tool asks. Who closes the stream or sends
//! a cancellation cancels the call. What a client of revision 2026-07-28 is asked ends this request and begins the waiting
//! for the next (`waiting`); older clients are asked in between, on the stream of their request.

#![expect(deprecated, reason = "newer revisions have no logging, but older clients ask for it and may have it")]

use std::sync::Arc;
use std::time::Duration;

use contract::envelope::{ExecutionOptions, InvokeRequest};
use contract::error::{ErrorCode, Refusal};
use contract::ids::TraceId;
use kernel::ports::companion::{Answer, LogLevel, Progress, Question, QuestionKind};
use kernel::ports::entropy::new_token_id;
use rmcp::model::{
    CallToolRequestMethod, CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, CustomRequest,
    InputRequest, InputRequests, InputRequiredResult, InputResponses, JsonObject, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerRequest,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::config::McpMode;
use super::handler::Handler;
use super::listing::{Listing, Offered, is_in};
use super::results::Shape;
use super::running::{Ears, Outcome, Running, Said};
use super::waiting::Waiting;
use super::{Visit, lazy, names, seal, to_wire};

/// How long the client may take to accept one word about progress before the word is dropped.
const TELLING_TIME: Duration = Duration::from_secs(1);
/// Where a client may put a key that makes two calls one (LIFE-11).
const IDEMPOTENCY_KEY: &str = "dev.gantry/idempotency_key";
/// Progress may only rise; a word without a number rises by this.
const HARDLY_ANY: f64 = 0.001;

/// What is to be called.
struct Target {
    tool_id: String,
    tool: Option<Arc<Offered>>,
    arguments: JsonObject,
}

impl Handler {
    /// Answers `tools/call`.
    pub(super) async fn call(
        &self,
        visit: Visit,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let mcp = self.door.mcp();
        if mcp.config.mode == McpMode::Discovery && !is_looking(&request.name) {
            return Err(ErrorData::method_not_found::<CallToolRequestMethod>());
        }
        let trace_id =
            context.meta.0.get_traceparent().and_then(TraceId::from_traceparent).unwrap_or(visit.who.trace_id);
        let arguments = request.arguments.take().unwrap_or_default();
        let binding = seal::binding(visit.caller.caller(), &request.name, &Value::Object(arguments.clone()));
        let round = Round { handler: self, visit: &visit, context: &context, trace_id, binding };
        if let Some(state) = &request.request_state {
            return round.rejoin(state, request.input_responses.unwrap_or_default()).await;
        }
        let listing = mcp.listing(self.door.kernel(), &visit);
        let target = match self.target(&visit, &listing, &request.name, arguments).await {
            Ok(Aim::Call(target)) => target,
            Ok(Aim::Answer(result)) => return Ok((*result).into()),
            Err(refusal) => return to_wire::refused(&refusal, trace_id, None).map(Into::into),
        };
        let invoke = InvokeRequest {
            tool_id: target.tool_id,
            tool_version: None,
            parameters: target.arguments,
            invocation_id: None,
            agent_context: None,
            execution_options: ExecutionOptions {
                idempotency_key: round.idempotency_key(),
                ..ExecutionOptions::default()
            },
            resource_limits: contract::envelope::CallLimits::default(),
            document_context: None,
            checkpoint_config: None,
            execution_mode: None,
        };
        match Running::begin(&self.door, visit.who.clone(), trace_id, invoke, round.ears()) {
            Ok(running) => round.attend(running, target.tool).await,
            Err(refusal) => to_wire::refused(&refusal, trace_id, None).map(Into::into),
        }
    }

    /// What a name means: a tool, or one of the three that find and describe tools.
    async fn target(
        &self,
        visit: &Visit,
        listing: &Listing,
        name: &str,
        arguments: JsonObject,
    ) -> Result<Aim, Refusal> {
        if listing.meta.is_some() {
            match name {
                lazy::SEARCH => return self.search(visit, listing, &arguments).await.map(Aim::Answer),
                lazy::DESCRIBE => {
                    let asked = lazy::describe_asked(&arguments)?;
                    let found = listing.named_in_any_way(asked).ok_or_else(|| lazy::not_there(listing, asked))?;
                    return Ok(Aim::Answer(Box::new(lazy::described(found))));
                }
                lazy::CALL => {
                    let (name, inner) = lazy::call_asked(arguments)?;
                    if let Some(tool) = listing.named_in_any_way(&name) {
                        return Ok(Aim::at(tool, inner));
                    }
                    return self.direct(visit, listing, &name, inner);
                }
                _ => {}
            }
        }
        self.direct(visit, listing, name, arguments)
    }

    fn direct(&self, visit: &Visit, listing: &Listing, name: &str, arguments: JsonObject) -> Result<Aim, Refusal> {
        if let Some(tool) = listing.named(name) {
            return Ok(Aim::at(tool, arguments));
        }
        // What is not offered is still asked for by its id: the kernel knows why it is not to be had, and notes that
        // somebody wanted it.
        let toolset = visit.toolset.as_ref().map(|name| self.door.mcp().config.toolsets.get(&**name));
        let patterns = toolset.map(|patterns| patterns.map_or(&[][..], Vec::as_slice));
        let id =
            names::plain_id(name).filter(|id| is_in(patterns, id)).ok_or_else(|| lazy::not_there(listing, name))?;
        Ok(Aim::Call(Target { tool_id: id.to_string(), tool: None, arguments }))
    }

    async fn search(
        &self,
        visit: &Visit,
        listing: &Listing,
        arguments: &JsonObject,
    ) -> Result<Box<CallToolResult>, Refusal> {
        let (query, limit) = lazy::search_asked(arguments)?;
        // More than asked for: what is found but not offered here falls away.
        let hits = self.door.kernel().search_tools(visit.who.actor(), query, lazy::HITS_MAX).await?;
        let offered = hits.iter().filter_map(|hit| listing.named_in_any_way(hit.current.id.as_str()));
        let offered: Vec<&Arc<Offered>> = offered.take(limit).collect();
        Ok(Box::new(lazy::found(&offered, self.door.mcp().config.search_tokens_max)))
    }
}

enum Aim {
    Call(Target),
    Answer(Box<CallToolResult>),
}

impl Aim {
    fn at(tool: &Arc<Offered>, arguments: JsonObject) -> Self {
        Self::Call(Target { tool_id: tool.version.id.to_string(), tool: Some(Arc::clone(tool)), arguments })
    }
}

fn is_looking(name: &str) -> bool {
    matches!(name, lazy::SEARCH | lazy::DESCRIBE)
}

/// One request about one call.
struct Round<'a> {
    handler: &'a Handler,
    visit: &'a Visit,
    context: &'a RequestContext<RoleServer>,
    trace_id: TraceId,
    binding: contract::canonical::Digest,
}

impl Round<'_> {
    /// Does the client speak 2026-07-28 or later?
    fn is_modern(&self) -> bool {
        let version = self.context.protocol_version();
        version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
    }

    fn progress_token(&self) -> Option<ProgressToken> {
        self.context.meta.get_progress_token()
    }

    fn idempotency_key(&self) -> Option<String> {
        self.context.meta.0.0.get(IDEMPOTENCY_KEY).and_then(Value::as_str).map(str::to_owned)
    }

    fn ears(&self) -> Ears {
        let capabilities = self.context.client_capabilities().unwrap_or_default();
        let log = if self.is_modern() { self.context.meta.log_level() } else { self.handler.log_level() };
        Ears { progress: self.progress_token().is_some(), log: log.map(least), questions: askable(&capabilities) }
    }

    /// Stays with a call until it ends, or until it has a question that ends this request.
    async fn attend(&self, mut running: Running, tool: Option<Arc<Offered>>) -> Result<CallToolResponse, ErrorData> {
        loop {
            tokio::select! {
                biased;
                // Dropping `running` cancels the call.
                () = self.context.ct.cancelled() => return Err(ErrorData::internal_error("the call was cancelled", None)),
                Some(said) = running.said.recv() => match said {
                    Said::Progress(progress) => self.tell_progress(&mut running, progress).await,
                    Said::Log(level, line) => self.tell_line(level, line).await,
                    Said::Asked(questions, answer) if self.is_modern() => {
                        return self.park(Waiting { running, tool, questions, answer });
                    }
                    Said::Asked(questions, answer) => self.ask(questions, answer).await,
                },
                outcome = &mut running.outcome => {
                    let outcome = outcome.map_err(|_| ErrorData::internal_error("the call broke off", None))?;
                    return self.render(outcome, tool.as_deref()).map(Into::into);
                }
            }
        }
    }

    fn render(&self, outcome: Outcome, tool: Option<&Offered>) -> Result<CallToolResult, ErrorData> {
        match outcome {
            Err(failed) => {
                self.note_missing_scope(&failed.refusal);
                to_wire::failure(&failed)
            }
            Ok(response) => {
                let mcp = self.handler.door.mcp();
                let kernel = self.handler.door.kernel();
                let relayed = tool.is_some_and(Offered::is_relayed);
                let result = to_wire::result(response, relayed);
                let promised = tool.is_some_and(|tool| tool.wire.output_schema.is_some());
                let shape = Shape { structured_promised: promised, text_is_copy: !relayed };
                let principal = seal::principal(self.visit.caller.caller());
                let now_ms = kernel.clock().now().0;
                Ok(mcp.results.fit(result, &principal, shape, &mcp.config, kernel.entropy(), now_ms))
            }
        }
    }

    /// A token that is too narrow is told so in the way of OAuth as well, where the answer can still say it.
    fn note_missing_scope(&self, refusal: &Refusal) {
        let scope = refusal.details.as_deref().and_then(|details| details.get("missing_scope")).and_then(Value::as_str);
        if let (ErrorCode::E3206, Some(scope)) = (refusal.code, scope) {
            drop(self.visit.lacks.set(scope.to_owned()));
        }
    }

    // ----------------------------------------------------------------------------------------------- telling the client

    async fn tell_progress(&self, running: &mut Running, progress: Progress) {
        let Some(token) = self.progress_token() else { return };
        let least = running.told + HARDLY_ANY;
        running.told = progress.percent.unwrap_or(least).max(least);
        let mut note = ProgressNotificationParam::new(token, running.told);
        note.total = progress.percent.map(|_| 100.0);
        note.message = match (progress.phase, progress.message) {
            (Some(phase), Some(message)) => Some(format!("{phase}: {message}")),
            (phase, message) => phase.or(message),
        };
        self.within(self.context.peer.notify_progress(note)).await;
    }

    async fn tell_line(&self, level: LogLevel, line: String) {
        let level = match level {
            LogLevel::Debug => LoggingLevel::Debug,
            LogLevel::Info => LoggingLevel::Info,
            LogLevel::Warn => LoggingLevel::Warning,
            LogLevel::Error => LoggingLevel::Error,
        };
        let note = LoggingMessageNotificationParam::new(level, Value::String(line));
        self.within(self.context.peer.notify_logging_message(note)).await;
    }

    /// A client that does not read gets no news; it must not hold up the call.
    async fn within<T, E>(&self, telling: impl Future<Output = Result<T, E>>) {
        tokio::select! {
            told = tokio::time::timeout(TELLING_TIME, telling) => {
                if !matches!(told, Ok(Ok(_))) {
                    tracing::debug!("a client did not take what its tool said");
                }
            }
            () = self.context.ct.cancelled() => {}
        }
    }

    // ------------------------------------------------------------------------------------------------ asking the client

    /// Asks an older client: a request of ours on the stream of its own.
    async fn ask(&self, questions: Vec<Question>, answer: oneshot::Sender<Vec<Answer>>) {
        let asking = async {
            let mut answers = Vec::with_capacity(questions.len());
            for question in questions {
                let parameters = match question.kind {
                    QuestionKind::Roots => None,
                    QuestionKind::Elicitation | QuestionKind::Sampling => Some(question.parameters),
                };
                let request = ServerRequest::CustomRequest(CustomRequest::new(question.kind.method(), parameters));
                let given = self.context.peer.send_request(request).await.ok()?;
                answers.push(Answer { key: question.key, value: serde_json::to_value(given).ok()? });
            }
            Some(answers)
        };
        let time = self.handler.door.mcp().config.answer_time();
        let answered = tokio::select! {
            answered = tokio::time::timeout(time, asking) => answered.ok().flatten(),
            () = self.context.ct.cancelled() => None,
        };
        // Without an answer the sender is dropped, and the tool hears that nobody answered.
        if let Some(answers) = answered {
            drop(answer.send(answers));
        }
    }

    /// Answers "input required" and keeps the call until the input comes.
    fn park(&self, waiting: Waiting) -> Result<CallToolResponse, ErrorData> {
        let mcp = self.handler.door.mcp();
        let kernel = self.handler.door.kernel();
        let mut requests = InputRequests::new();
        for question in &waiting.questions {
            let request = json!({ "method": question.kind.method(), "params": question.parameters });
            let request: InputRequest = serde_json::from_value(request).map_err(|_| unclear())?;
            requests.insert(question.key.clone(), request);
        }
        if !mcp.waiting.has_room(mcp.config.questions_max) {
            let refusal = Refusal::new(ErrorCode::E3001, "too many calls wait for an answer of their caller")
                .hint("nothing more is asked now; call the tool again later");
            return to_wire::refused(&refusal, self.trace_id, None).map(Into::into);
        }
        let id = new_token_id(kernel.entropy()).into_bytes();
        let time = mcp.config.answer_time();
        let until_ms = kernel.clock().now().0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
        mcp.waiting.keep(id, waiting, time);
        let state = mcp.seal.close(id, until_ms, &self.binding);
        Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
    }

    /// Goes on with a call that was kept.
    async fn rejoin(&self, state: &str, mut responses: InputResponses) -> Result<CallToolResponse, ErrorData> {
        let mcp = self.handler.door.mcp();
        let now_ms = self.handler.door.kernel().clock().now().0;
        let id = mcp
            .seal
            .open(state, now_ms, &self.binding)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let waiting = mcp.waiting.take(&id).ok_or_else(|| {
            ErrorData::invalid_params(
                "no call waits for this answer any more: it was answered, or its time is over",
                None,
            )
        })?;
        let missing: Vec<&str> = waiting
            .questions
            .iter()
            .filter(|question| !responses.contains_key(&question.key))
            .map(|question| question.key.as_str())
            .collect();
        if !missing.is_empty() {
            // Asked again, under a new seal: what the client lacks it may still bring.
            return self.park(waiting);
        }
        let Waiting { running, tool, questions, answer } = waiting;
        let given = questions
            .into_iter()
            .filter_map(|question| responses.remove(&question.key).map(|value| Answer { key: question.key, value }));
        // A call that has ended meanwhile does not hear it; its outcome is next.
        drop(answer.send(given.collect()));
        self.attend(running, tool).await
    }
}

/// A question that this protocol cannot express.
fn unclear() -> ErrorData {
    ErrorData::internal_error("the tool asks something that cannot be asked over this protocol", None)
}

/// What a client can be asked.
fn askable(capabilities: &ClientCapabilities) -> Vec<QuestionKind> {
    let declared = serde_json::to_value(capabilities).unwrap_or_default();
    [(QuestionKind::Elicitation, "elicitation"), (QuestionKind::Sampling, "sampling"), (QuestionKind::Roots, "roots")]
        .into_iter()
        .filter(|(_, name)| declared.get(name).is_some())
        .map(|(kind, _)| kind)
        .collect()
}

/// The least level that a client wants to hear of.
fn least(level: LoggingLevel) -> LogLevel {
    match level {
        LoggingLevel::Debug => LogLevel::Debug,
        LoggingLevel::Info | LoggingLevel::Notice => LogLevel::Info,
        LoggingLevel::Warning => LogLevel::Warn,
        _ => LogLevel::Error,
    }
}
