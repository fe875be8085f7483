//! Staying with what runs for a client, until it ends or asks something that ends the request.
//!
//! While it runs, this tells the client how far it is and asks it what the tool asks. Who closes the stream or sends a
//! cancellation cancels it; a call that has effects and a key is cancelled by the message alone (`detached_calls`). What a client
//! of revision 2026-07-28 is asked ends this request and begins the waiting for the next (`waiting_calls`); older clients are asked in between, on the stream of their request.
//!
//! Whoever asks for something (`tools_call`, `offering_rounds`, `tasks`) begins a round and is given its end; nothing here knows
//! them.
//!
//! Not here: what is asked for, and how it is told at the end.

#![expect(deprecated, reason = "newer revisions have no logging, but older clients ask for it and may have it")]

use std::time::Duration;

use base::SaturatingFrom as _;
use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TraceId;
use contract::trace_context::TraceContext;
use jobs::AcceptedCall;
use ports::entropy::new_token_id;
use ports::tool_companion::{
    CallerAnswer, LogNote, LogSeverity, ProgressCount, ProtocolEra, QuestionKind, ToolProgress, ToolQuestion,
};
use rmcp::model::{
    ClientCapabilities, CustomRequest, InputRequest, InputRequests, InputRequiredResult, InputResponses, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, ProtocolVersion, ServerRequest,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::client_state::ClientState;
use super::running_call::{ClientAbilities, RequestedRun, RunOutcome, RunSubject, RunningCall, ToolMessage};
use super::waiting_calls::WaitingCall;
use super::{McpVisit, call_logs};

/// How long the client may take to accept one word about progress before the word is dropped.
const TELLING_TIME: Duration = Duration::from_secs(1);
/// Progress may only rise; a word without a number rises by this.
const HARDLY_ANY: f64 = 0.001;

/// How one request about it ends.
#[derive(Debug)]
pub(crate) enum RoundEnd {
    Ended(RunOutcome, RunSubject),
    Asked(InputRequiredResult),
    Refused(Refusal),
    /// It goes on as a job, which still says and asks something.
    Promoted(AcceptedCall, RunningCall, InputResponses, RunSubject),
}

/// One request about one thing that runs.
pub(crate) struct CallRound<'a> {
    pub(crate) client: &'a ClientState,
    pub(crate) visit: &'a McpVisit,
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) trace_id: TraceId,
    pub(crate) binding: Digest,
}

/// The trace a request belongs to, the one it names or one of its own, with what the request tells of it: in `_meta`, because not every transport has headers, or in a header.
pub(crate) fn context_of(visit: &McpVisit, context: &RequestContext<RoleServer>) -> TraceContext {
    let meta = &context.meta.0;
    let named = meta.get_traceparent().and_then(|parent| TraceContext::read(parent, meta.get_tracestate()));
    named.unwrap_or_else(|| visit.who.trace().clone())
}

impl<'a> CallRound<'a> {
    /// A request of this visitor. What it asks for is bound to it by `binding`, so that only the same one can go on with it.
    pub(crate) fn of(
        client: &'a ClientState,
        visit: &'a McpVisit,
        context: &'a RequestContext<RoleServer>,
        binding: Digest,
    ) -> Self {
        Self { client, visit, context, trace_id: context_of(visit, context).trace_id, binding }
    }

    /// Begins something, and stays with it. `given` are answers that the client has sent along, for what it knows will be
    /// asked.
    pub(crate) async fn begin(
        &self,
        requested: RequestedRun,
        subject: RunSubject,
        given: Option<InputResponses>,
    ) -> Result<RoundEnd, ErrorData> {
        let ending = self.client.door.kernel().drain_cancellation();
        let lasting = outlasts_its_client(&requested, &subject)
            .then(|| self.client.lasting.note(self.context.id.clone(), ending));
        match RunningCall::begin(
            &self.client.door,
            (self.visit.caller.caller(), self.visit.who.clone()),
            context_of(self.visit, self.context),
            requested,
            self.abilities(),
            lasting,
        ) {
            Ok(running) => self.attend(running, subject, given.unwrap_or_default()).await,
            Err(refusal) => Ok(RoundEnd::Refused(refusal)),
        }
    }

    /// Does the client speak 2026-07-28 or later?
    pub(crate) fn is_modern(&self) -> bool {
        let version = self.context.protocol_version();
        version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
    }

    fn progress_token(&self) -> Option<ProgressToken> {
        self.context.meta.get_progress_token().filter(|_| !call_logs::is_unasked(&self.context.extensions))
    }

    pub(crate) fn abilities(&self) -> ClientAbilities {
        let capabilities = self.context.client_capabilities().unwrap_or_default();
        let log = if self.is_modern() { self.context.meta.log_level() } else { self.client.log_level() };
        // Clients of sessions that name no level hear what servers usually say; newer ones ask for it with each request.
        let unasked = (!self.is_modern()).then_some(LogSeverity::Info);
        ClientAbilities {
            progress: self.progress_token().is_some(),
            log: log.map(severity).or(unasked),
            log_asked: log.is_some(),
            era: Some(if self.is_modern() { ProtocolEra::Modern } else { ProtocolEra::Legacy }),
            questions: askable(&capabilities),
        }
    }

    /// Stays with a call until it ends, or until it has a question that ends this request.
    async fn attend(
        &self,
        mut running: RunningCall,
        subject: RunSubject,
        mut given: InputResponses,
    ) -> Result<RoundEnd, ErrorData> {
        loop {
            tokio::select! {
                biased;
                // Dropping `running` cancels the call, unless it outlasts its client.
                () = self.context.ct.cancelled() => return Err(ErrorData::internal_error("the call was cancelled", None)),
                Some(said) = running.said.recv() => match said {
                    ToolMessage::Progress(progress) => self.tell_progress(&mut running, progress).await,
                    ToolMessage::Log(note) => self.tell_note(note).await,
                    ToolMessage::Asked(questions, answer) if is_answered(&questions, &given) => {
                        drop(answer.send(answers(questions, &mut given)));
                    }
                    ToolMessage::Asked(questions, answer) if self.is_modern() => {
                        return self.park(WaitingCall { running, subject, questions, answer });
                    }
                    ToolMessage::Asked(questions, answer) => self.ask(questions, answer).await,
                },
                outcome = &mut running.outcome => {
                    let outcome = outcome.map_err(|_| ErrorData::internal_error("the call broke off", None))?;
                    return Ok(match outcome {
                        RunOutcome::Promoted(accepted) => RoundEnd::Promoted(accepted, running, given, subject),
                        outcome => RoundEnd::Ended(outcome, subject),
                    });
                }
            }
        }
    }

    // ----------------------------------------------------------------------------------------------- telling the client

    async fn tell_progress(&self, running: &mut RunningCall, progress: ToolProgress) {
        let Some(token) = self.progress_token() else { return };
        // What a tool counts in units of its own is told in them; anything else as a part of a hundred.
        let count = progress.count.or_else(|| progress.percent.map(|done| ProgressCount { done, total: Some(100.0) }));
        let (done, total) = (count.map(|count| count.done), count.and_then(|count| count.total));
        let told = match (done, running.told) {
            (Some(done), None) => done,
            (Some(done), Some(before)) if done > before => done,
            (_, before) => before.unwrap_or_default() + HARDLY_ANY,
        };
        running.told = Some(told);
        let mut note = ProgressNotificationParam::new(token, told);
        note.total = total;
        note.message = match (progress.phase, progress.message) {
            (Some(phase), Some(message)) => Some(format!("{phase}: {message}")),
            (phase, message) => phase.or(message),
        };
        self.within(self.context.peer.notify_progress(note)).await;
    }

    async fn tell_note(&self, LogNote { severity, logger, data }: LogNote) {
        let mut note = LoggingMessageNotificationParam::new(level(severity), data);
        note.logger = logger;
        let note = call_logs::on_its_stream(&self.context.extensions, note);
        self.within(self.context.peer.send_notification(note)).await;
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
    async fn ask(&self, questions: Vec<ToolQuestion>, answer: oneshot::Sender<Vec<CallerAnswer>>) {
        let asking = async {
            let mut answers = Vec::with_capacity(questions.len());
            for question in questions {
                let parameters = match question.kind {
                    QuestionKind::Roots => None,
                    QuestionKind::Elicitation | QuestionKind::Sampling => Some(question.parameters),
                };
                let request = ServerRequest::CustomRequest(CustomRequest::new(question.kind.method(), parameters));
                let given = self.context.peer.send_request(request).await.ok()?;
                answers.push(CallerAnswer { key: question.key, value: serde_json::to_value(given).ok()? });
            }
            Some(answers)
        };
        let time = self.client.door.mcp().config.answer_time();
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
    fn park(&self, waiting: WaitingCall) -> Result<RoundEnd, ErrorData> {
        let mcp = self.client.door.mcp();
        let kernel = self.client.door.kernel();
        let mut requests = InputRequests::new();
        for question in &waiting.questions {
            requests.insert(question.key.clone(), input_request(question).ok_or_else(unclear)?);
        }
        if !mcp.waiting.has_room(mcp.config.questions_max) {
            let refusal = Refusal::new(ErrorCode::E3001, "too many calls wait for an answer of their caller")
                .hint("nothing more is asked now; call the tool again later");
            return Ok(RoundEnd::Refused(refusal));
        }
        let id = new_token_id(kernel.entropy()).into_bytes();
        let time = mcp.config.answer_time();
        let until_ms = kernel.clock().now().0.saturating_add(i64::saturating_from(time.as_millis()));
        mcp.waiting.keep(id, waiting, time);
        let state = mcp.seal.close(id, until_ms, &self.binding);
        Ok(RoundEnd::Asked(InputRequiredResult::new(Some(requests), Some(state))))
    }

    /// Goes on with a call that was kept.
    pub(crate) async fn rejoin(&self, state: &str, mut responses: InputResponses) -> Result<RoundEnd, ErrorData> {
        let mcp = self.client.door.mcp();
        let now_ms = self.client.door.kernel().clock().now().0;
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
        if !is_answered(&waiting.questions, &responses) {
            // Asked again, under a new seal: what the client lacks it may still bring.
            return self.park(waiting);
        }
        let WaitingCall { running, subject, questions, answer } = waiting;
        // A call that has ended meanwhile does not hear it; its outcome is next.
        drop(answer.send(answers(questions, &mut responses)));
        self.attend(running, subject, responses).await
    }
}

/// A call of a tool with effects that can be found again by its key.
fn outlasts_its_client(requested: &RequestedRun, subject: &RunSubject) -> bool {
    match (requested, subject) {
        (RequestedRun::Call(request) | RequestedRun::Promotable(request, ..), RunSubject::Tool(Some(tool))) => {
            request.execution_options.idempotency_key.is_some()
                && tool.version.manifest.side_effect_policy.has_effects()
        }
        _ => false,
    }
}

pub(crate) fn is_answered(questions: &[ToolQuestion], given: &InputResponses) -> bool {
    questions.iter().all(|question| given.contains_key(&question.key))
}

/// The answers to these questions; what answers none stays for what may be asked later.
pub(crate) fn answers(questions: Vec<ToolQuestion>, given: &mut InputResponses) -> Vec<CallerAnswer> {
    let answer =
        |question: ToolQuestion| given.remove(&question.key).map(|value| CallerAnswer { key: question.key, value });
    questions.into_iter().filter_map(answer).collect()
}

/// A question as the protocol has it.
pub(crate) fn input_request(question: &ToolQuestion) -> Option<InputRequest> {
    serde_json::from_value(json!({ "method": question.kind.method(), "params": question.parameters })).ok()
}

/// A question that this protocol cannot express.
fn unclear() -> ErrorData {
    ErrorData::internal_error("the tool asks something that cannot be asked over this protocol", None)
}

/// What a client can be asked, with what it says of it.
fn askable(capabilities: &ClientCapabilities) -> Vec<(QuestionKind, Value)> {
    let mut declared = serde_json::to_value(capabilities).unwrap_or_default();
    let mut can = |name: &str| declared.get_mut(name).map(Value::take);
    let details = [
        (QuestionKind::Elicitation, can("elicitation")),
        (QuestionKind::Sampling, can("sampling")),
        // That it tells of changes of its roots is of no use to whoever asks once.
        (QuestionKind::Roots, can("roots").map(|_| json!({}))),
    ];
    details.into_iter().filter_map(|(kind, details)| Some((kind, details?))).collect()
}

/// Each severity and what the protocol's library calls it.
const LEVELS: [(LogSeverity, LoggingLevel); 8] = [
    (LogSeverity::Debug, LoggingLevel::Debug),
    (LogSeverity::Info, LoggingLevel::Info),
    (LogSeverity::Notice, LoggingLevel::Notice),
    (LogSeverity::Warning, LoggingLevel::Warning),
    (LogSeverity::Error, LoggingLevel::Error),
    (LogSeverity::Critical, LoggingLevel::Critical),
    (LogSeverity::Alert, LoggingLevel::Alert),
    (LogSeverity::Emergency, LoggingLevel::Emergency),
];

fn severity(level: LoggingLevel) -> LogSeverity {
    LEVELS.iter().find(|(_, its)| *its == level).map_or(LogSeverity::Error, |(severity, _)| *severity)
}

fn level(severity: LogSeverity) -> LoggingLevel {
    LEVELS.iter().find(|(its, _)| *its == severity).map_or(LoggingLevel::Error, |(_, level)| *level)
}
