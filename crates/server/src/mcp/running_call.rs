//! One call, or one question to a server, on its way, seen from the door: what its tool says and asks, and how it ends.
//!
//! The call itself runs in a task of its own and is carried to its end whatever becomes of the request that began it
//! (DOOR-2). What holds a [`RunningCall`] holds the call: dropped, the call is cancelled, which ends its tool and leaves a
//! record. Only a call that outlasts its client (`detached_calls`) goes on.
//!
//! Not here: what is told to the client, and how it is asked (`rounds`).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::envelope::{InvokeRequest, InvokeResponse};
use contract::error::{ErrorCode, Refusal};
use contract::trace_context::TraceContext;
use jobs::{AcceptedCall, CallOutcome, Jobs};
use kernel::{FailedCall, IncomingCall};
use policy::Caller;
use ports::offerings::OfferingRequest;
use ports::tool_companion::{
    CallListener, CallerAnswer, LogLevel, LogNote, LogSeverity, ProtocolEra, QuestionKind, ToolProgress, ToolQuestion,
    nobody_to_ask,
};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::DropGuard;

use super::detached_calls::DetachedCall;
use super::offering_relay::RequestedOffering;
use super::tool_list::ListedTool;
use crate::door::Door;
use crate::incoming_request::CallerCredential;

/// Things said that wait to be told. At the limit the newest are dropped: a client that does not listen must not hold up
/// the tool.
const SAID_MAX: usize = 64;

/// What a running tool says.
#[derive(Debug)]
pub(crate) enum ToolMessage {
    Progress(ToolProgress),
    Log(LogNote),
    Asked(Vec<ToolQuestion>, oneshot::Sender<Vec<CallerAnswer>>),
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum RequestedRun {
    /// Call a tool, and wait for it.
    Call(Box<InvokeRequest>),
    /// Call a tool for a client that can take a task, or be told of a job, should it last longer than it is waited for.
    Promotable(Box<InvokeRequest>, Arc<Jobs>, Option<Duration>),
    /// Ask a server for something that is not a tool.
    Offering { server: String, request: OfferingRequest, parameters: Value },
}

/// What it is about.
#[derive(Debug)]
pub(crate) enum RunSubject {
    /// A tool, if it is one that is offered.
    Tool(Option<Arc<ListedTool>>),
    /// Something else of a server.
    Offering(RequestedOffering),
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum RunOutcome {
    Call(Box<Result<InvokeResponse, Box<FailedCall>>>),
    Offering(Result<Value, Refusal>),
    /// It has not: it goes on as a job.
    Promoted(AcceptedCall),
}

/// What the caller wants to hear, and what it can be asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientAbilities {
    pub(crate) progress: bool,
    pub(crate) log: Option<LogSeverity>,
    /// Has it asked for that, or is it what clients hear that say nothing?
    pub(crate) log_asked: bool,
    /// What it speaks.
    pub(crate) era: Option<ProtocolEra>,
    /// Each with what the client says of it.
    pub(crate) questions: Vec<(QuestionKind, Value)>,
}

/// A call on its way.
#[derive(Debug)]
pub(crate) struct RunningCall {
    pub(crate) said: mpsc::Receiver<ToolMessage>,
    pub(crate) outcome: oneshot::Receiver<RunOutcome>,
    /// Highest progress told so far: it may only rise.
    pub(crate) told: Option<f64>,
    cancels: Option<DropGuard>,
}

impl RunningCall {
    /// Begins, if there is room for one more.
    pub(crate) fn begin(
        door: &Arc<Door>,
        (caller, who): (&Caller, CallerCredential),
        trace: TraceContext,
        requested: RequestedRun,
        abilities: ClientAbilities,
        lasting: Option<DetachedCall>,
    ) -> Result<Self, Refusal> {
        let (say, said) = mpsc::channel(SAID_MAX);
        let (ended, outcome) = oneshot::channel();
        let kernel = door.shared_kernel();
        let (cancelled, cancels) = match &lasting {
            Some(lasting) => (lasting.cancellation.clone(), None),
            None => {
                let cancellation = kernel.drain_cancellation().child_token();
                (cancellation.clone(), Some(cancellation.drop_guard()))
            }
        };
        door.carry_call(caller, async move {
            let audience: Arc<dyn CallListener> = Arc::new(StreamListener { say, abilities });
            let outcome = match requested {
                RequestedRun::Call(request) => {
                    let arrival = IncomingCall {
                        credential: who.secret(),
                        source: who.source(),
                        request: *request,
                        trace: Some(trace),
                        parent_left: None,
                        audience: Some(audience),
                        cancellation: cancelled,
                    };
                    let outcome = kernel.invoke(arrival).await.map(kernel::phases::Returned::into_response);
                    RunOutcome::Call(Box::new(outcome))
                }
                RequestedRun::Promotable(request, jobs, patience) => {
                    let who = who.in_trace(trace.trace_id);
                    match jobs.call_heard(who.actor(), trace, *request, audience, patience, cancelled).await {
                        Ok(CallOutcome::Returned(returned)) => RunOutcome::Call(Box::new(Ok(returned.into_response()))),
                        Ok(CallOutcome::Promoted(accepted)) => RunOutcome::Promoted(accepted),
                        Err(failed) => RunOutcome::Call(Box::new(Err(failed))),
                    }
                }
                RequestedRun::Offering { server, request, parameters } => {
                    let who = who.in_trace(trace.trace_id);
                    let asking = kernel.ask_offering(who.actor(), &server, request, parameters, Some(audience));
                    tokio::select! {
                        answer = asking => RunOutcome::Offering(answer),
                        () = cancelled.cancelled() => RunOutcome::Offering(Err(gone())),
                    }
                }
            };
            drop(lasting);
            // Nobody waits for it any more: it has been recorded all the same.
            drop(ended.send(outcome));
        })?;
        Ok(Self { said, outcome, told: None, cancels })
    }

    /// Lets go of a call that has become a job: what it says is still heard, and nothing here cancels it any more.
    pub(crate) fn let_go(self) -> mpsc::Receiver<ToolMessage> {
        if let Some(cancels) = self.cancels {
            cancels.disarm();
        }
        self.said
    }
}

/// An audience for one call, and where it is heard.
pub(crate) fn hearing(abilities: ClientAbilities) -> (Arc<dyn CallListener>, mpsc::Receiver<ToolMessage>) {
    let (say, said) = mpsc::channel(SAID_MAX);
    (Arc::new(StreamListener { say, abilities }), said)
}

/// The audience of one call.
#[derive(Debug)]
struct StreamListener {
    say: mpsc::Sender<ToolMessage>,
    abilities: ClientAbilities,
}

#[async_trait]
impl CallListener for StreamListener {
    fn progress(&self, progress: &ToolProgress) {
        if self.abilities.progress {
            drop(self.say.try_send(ToolMessage::Progress(progress.clone())));
        }
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.note(LogNote::line(level, message));
    }

    fn note(&self, note: LogNote) {
        if self.abilities.log.is_some_and(|least| note.severity >= least) {
            drop(self.say.try_send(ToolMessage::Log(note)));
        }
    }

    fn wanted_log(&self) -> Option<LogSeverity> {
        self.abilities.log.filter(|_| self.abilities.log_asked)
    }

    fn era(&self) -> Option<ProtocolEra> {
        self.abilities.era
    }

    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        self.abilities.questions.clone()
    }

    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        let can = |kind: QuestionKind| self.abilities.questions.iter().any(|(known, _)| *known == kind);
        if questions.iter().any(|question| !can(question.kind)) {
            return Err(nobody_to_ask());
        }
        let (answer, answered) = oneshot::channel();
        self.say.send(ToolMessage::Asked(questions, answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())
    }
}

/// The refusal of a question that nobody answers any more.
fn gone() -> Refusal {
    Refusal::new(ErrorCode::E3703, "the caller has not answered what the tool asked")
        .hint("call the tool again and answer in time")
        .retryable(false)
}
