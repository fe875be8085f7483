//! Session mode, `gantry/1`: newline-delimited JSON-RPC 2.0 on stdin and stdout, stderr is the log (DESIGN §3).
//!
//! ```text
//!   Gantry ──▶ tool   invoke { invocation_id, tool_id, tool_version, parameters, deadline_ms, trace_id, idempotency_key,
//!                              traceparent?, resume? }                                                    request
//!                     cancel { reason }                                                               notification
//!   tool ──▶ Gantry   progress { percent?, phase?, message? }    log { level, message }              notifications
//!                     checkpoint { name?, state, … }    document { id }                                   requests
//!                     the response to `invoke`: the result, or an error { code, message, data? }; beside it usage?
//! ```
//!
//! One process serves one call at a time, and as many after each other as it is used for. [`ProcessSession::invoke`] may be
//! dropped at any moment (that is what a deadline does); then [`ProcessSession::cancel`] tells the tool and waits for it to come
//! to rest, or says that it did not. Whether the process may be used again is always known: [`ProcessSession::is_reusable`].
//!
//! Invariants
//! - SESS-1: a tool that breaks the protocol gets no second call.
//! - SESS-2: every message is bounded, and so are their number, the log, the requests that are open, and what a tool
//!   leaves unread ([`SessionBounds`]).
//! - SESS-3: nothing that was said between two calls is taken for part of the next: such a process is not used again.
//! - SESS-4: progress and log lines above the pace are dropped; they are news, not data.
//! - SESS-5: the id of `invoke` is the invocation's own, made from randomness for this call. So what an earlier call has
//!   left running in the process cannot answer a later one ahead of it, and an answer to an earlier id answers nothing.
//!
//! Not here: starting and ending the process, the deadline (the kernel drops the future), secrets in the result
//! ([`scrub`](super::scrub)); what the companion hears can be freed of them by [`ScrubbedCompanion`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use contract::cost::ReportedCost;
use contract::error::tool_words::TOOL_DATA;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::{InvocationId, Subject, ToolId, TraceId};
use contract::version::Version;
use ports::executor::{ExecutionReach, ResumePoint, ToolCall};
use serde_json::{Value, json};

pub use self::scrubbed::ScrubbedCompanion;
pub use self::wire::{ProtocolFault, ToolFailure};
use ports::tool_companion::ToolCompanion;

use self::conversation::Open;
use self::pipe::Pipe;
use super::output::failed;
use super::scrub::SecretScrubber;
use super::service_failure::ServiceFailure;
use super::streams::ProcessStreams;

mod checkpointed;
mod conversation;
mod pipe;
mod scrubbed;
mod wire;

/// Bytes of a line for a state that is saved, and for the result of a tool about which nobody says anything (VALID-013).
const RESULT_BYTES_USUAL: usize = 1 << 20;
/// Bytes of a line around what it carries.
const ENVELOPE_BYTES: usize = 4096;

/// How much a tool may say in one call, and how long it is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionBounds {
    /// Bytes of one line from the tool. Default 1 MiB and 4 KiB, so that the largest result fits (VALID-013).
    pub line_bytes_max: usize,
    /// Bytes on stdout in one call. Default 64 MiB.
    pub call_bytes_max: u64,
    /// Messages in one call. Default 100,000.
    pub messages_max: u64,
    /// Progress and log messages a second; the surplus is dropped. Default 200.
    pub notes_per_second_max: u32,
    /// Requests of the tool that are open at once; more are refused. Default 16.
    pub requests_max: usize,
    /// Bytes of one answer to the tool, for example a document; larger ones are refused. Default 8 MiB.
    pub answer_bytes_max: usize,
    /// Bytes that wait because the tool does not read; more end the call. Default 16 MiB.
    pub unread_bytes_max: usize,
    /// Bytes on stderr in one call. Default 64 MiB.
    pub log_bytes_max: u64,
    /// Bytes of the end of stderr that are kept. Default 4 KiB.
    pub log_bytes_kept: usize,
    /// How long a cancelled tool may take to answer. Default two seconds.
    pub cancel_grace: Duration,
    /// How long stderr is read after the tool has closed its stdout. Default one second.
    pub drain_max: Duration,
}

impl Default for SessionBounds {
    fn default() -> Self {
        Self {
            line_bytes_max: RESULT_BYTES_USUAL + ENVELOPE_BYTES,
            call_bytes_max: 64 << 20,
            messages_max: 100_000,
            notes_per_second_max: 200,
            requests_max: 16,
            answer_bytes_max: 8 << 20,
            unread_bytes_max: 16 << 20,
            log_bytes_max: 64 << 20,
            log_bytes_kept: 4096,
            cancel_grace: Duration::from_secs(2),
            drain_max: Duration::from_secs(1),
        }
    }
}

impl SessionBounds {
    /// For the process of one tool: its limit of results is the same for all of its calls.
    pub(super) fn of(call: &ToolCall) -> Self {
        // States that a tool saves are lines, too.
        let result_bytes_max = super::result_bytes_max(call).max(RESULT_BYTES_USUAL);
        Self { line_bytes_max: result_bytes_max.saturating_add(ENVELOPE_BYTES), ..Self::default() }
    }
}

/// What a tool is told of its call.
#[derive(Debug, Clone)]
pub struct SessionCall {
    pub invocation_id: InvocationId,
    pub tool_id: ToolId,
    pub tool_version: Version,
    pub parameters: Arc<Value>,
    /// Until the deadline; the tool gets it as `deadline_ms`, because its clock need not be ours.
    pub time_left: Duration,
    pub trace_id: TraceId,
    /// The same trace as a header has it, for what the tool calls.
    pub traceparent: Option<String>,
    /// What the tool goes on from.
    pub resume: Option<Arc<ResumePoint>>,
    /// What tells a repetition of the act from a new one.
    pub idempotency_key: Arc<str>,
    /// The person on whose behalf it is called.
    pub user: Option<Subject>,
}

impl From<&ToolCall> for SessionCall {
    fn from(call: &ToolCall) -> Self {
        Self {
            invocation_id: call.invocation_id,
            tool_id: call.tool.id.clone(),
            tool_version: call.tool.version.clone(),
            parameters: Arc::clone(&call.parameters),
            time_left: call.time_left,
            trace_id: call.trace_id,
            traceparent: call.trace.context().traceparent(),
            resume: call.resume.clone(),
            idempotency_key: Arc::clone(&call.idempotency_key),
            user: call.user.clone(),
        }
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The process was not in order, and was not asked. Another one may be.
    #[error("the tool's process was not fit for another call")]
    Unfit,
    /// The tool answered with an error of its own.
    #[error("the tool failed: {}", .0.message)]
    Failed(ToolFailure),
    /// The tool said something that is not of the protocol.
    #[error("the tool broke the protocol `gantry/1`: {0}")]
    Protocol(#[from] ProtocolFault),
    /// The tool said too much.
    #[error("the tool exceeded its {what} of {limit}")]
    TooMuch { what: &'static str, limit: u64 },
    /// The tool closed its stdout, which usually means that it has ended; whoever holds the process knows how.
    #[error("the tool ended without an answer")]
    Ended,
    /// The tool was told to stop and did not within the grace.
    #[error("the tool did not stop when it was told to")]
    Unresponsive,
    /// A stream failed under us.
    #[error("the connection to the tool broke")]
    Io(#[from] io::Error),
}

impl SessionError {
    /// May the process serve another call? Only a tool that answered in order may.
    pub fn is_reusable(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    /// Was the tool asked at all? If not, asking another process repeats nothing.
    pub fn was_asked(&self) -> bool {
        !matches!(self, Self::Unfit)
    }

    /// What is known of the call. A tool that did not answer as it must was in the middle of something, for all we know.
    pub fn reach(&self) -> ExecutionReach {
        match self {
            Self::Unfit => ExecutionReach::NotSent,
            Self::Failed(failure) => {
                ServiceFailure::of_data(failure.data.as_ref()).map_or(ExecutionReach::Answered, ServiceFailure::reach)
            }
            Self::Protocol(_) | Self::TooMuch { .. } | Self::Ended | Self::Unresponsive | Self::Io(_) => {
                ExecutionReach::MayHaveRun
            }
        }
    }

    /// The row of the error table (EXEC-012), in words for the caller. For [`SessionError::Ended`] the holder of the
    /// process knows better ([`output::ended_early`](super::output::ended_early)).
    pub fn refusal(&self) -> Refusal {
        match self {
            Self::Failed(failure) => {
                let mut details = json!({ "tool_code": failure.code });
                if let (Some(data), Some(members)) = (&failure.data, details.as_object_mut()) {
                    members.insert(TOOL_DATA.to_owned(), data.clone());
                }
                match ServiceFailure::of_data(failure.data.as_ref()) {
                    Some(whose) => whose.refusal(Some(&failure.message), failure.data.as_ref(), details),
                    None => failed(self.to_string()).details(details),
                }
            }
            Self::Protocol(ProtocolFault::LineTooLong { .. }) => Refusal::new(ErrorCode::E3414, self.to_string())
                .hint("let the tool return less, for example a page or a reference")
                .retryable(false),
            Self::Protocol(_) => failed(self.to_string())
                .because(RefusalReason::UnreadableAnswer)
                .hint("a session tool writes JSON-RPC lines to stdout and nothing else; print to stderr"),
            Self::TooMuch { .. } => {
                Refusal::new(ErrorCode::E3407, self.to_string()).hint("let the tool say less").retryable(false)
            }
            Self::Unfit | Self::Ended | Self::Io(_) => Refusal::new(ErrorCode::E3404, self.to_string()),
            Self::Unresponsive => Refusal::new(ErrorCode::E3703, self.to_string()),
        }
    }
}

/// A process that speaks `gantry/1`.
#[derive(Debug)]
pub struct ProcessSession {
    pipe: Pipe,
    bounds: SessionBounds,
    /// The call that the tool has not answered yet.
    open: Option<Open>,
    calls: u64,
    /// SESS-1.
    spoiled: bool,
    /// What the tool reported with its last answer.
    said: ReportedCost,
}

impl ProcessSession {
    /// On the streams of a process that has just been started. Dropping the session closes the tool's stdin, which tells
    /// it to end; whoever holds the process makes sure.
    pub fn new(streams: ProcessStreams, bounds: SessionBounds) -> Self {
        Self {
            pipe: Pipe::new(streams, bounds),
            bounds,
            open: None,
            calls: 0,
            spoiled: false,
            said: ReportedCost::default(),
        }
    }

    /// Has the process said nothing since its last call? SESS-3; what it says before its first can belong to no other.
    pub async fn is_quiet(&mut self) -> bool {
        self.calls == 0 || self.pipe.is_quiet().await
    }

    /// Asks the tool once and waits for its answer; the companion hears and answers what it says meanwhile.
    ///
    /// Dropping the future leaves the tool working: [`cancel`](Self::cancel) it, or end the process.
    pub async fn invoke(
        &mut self,
        call: &SessionCall,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, SessionError> {
        if !self.is_reusable() || !self.is_quiet().await {
            self.spoiled = true;
            return Err(SessionError::Unfit);
        }
        self.calls += 1;
        self.said = ReportedCost::default();
        self.pipe.begin();
        let open = self.open.insert(Open::new(call.invocation_id.to_string().into(), self.bounds));
        self.pipe.send(&wire::invoke(call))?;
        let ended = open.answer(&mut self.pipe, companion).await;
        self.said = open.said();
        // What is still asked for will not be answered, and a tool that waits for it is no good.
        self.spoiled = open.is_waited_for() || ended.as_ref().is_err_and(|error| !error.is_reusable());
        self.close(&ended).await;
        ended
    }

    /// Tells the tool to stop what a dropped [`invoke`](Self::invoke) left it doing, and waits for its answer within
    /// [`SessionBounds::cancel_grace`]; the answer is thrown away (EXEC-022). After an error the process is to be ended.
    pub async fn cancel(&mut self, reason: &str) -> Result<(), SessionError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let told = open.come_to_rest(&mut self.pipe, reason);
        let ended =
            tokio::time::timeout(self.bounds.cancel_grace, told).await.unwrap_or(Err(SessionError::Unresponsive));
        self.spoiled = ended.is_err();
        self.close(&ended).await;
        ended
    }

    /// May the process be asked again? Not while a call is open, nor after it broke the protocol.
    pub fn is_reusable(&self) -> bool {
        self.open.is_none() && !self.spoiled
    }

    /// What the tool reported with its answer to the last call.
    pub fn reported(&self) -> ReportedCost {
        self.said
    }

    /// The end of what the tool wrote to stderr during the last call, without the secrets that it was given. It is redacted
    /// before its last lines are shown.
    pub fn log(&self, secrets: &SecretScrubber) -> String {
        secrets.text(&self.pipe.log()).into_owned()
    }

    async fn close<T>(&mut self, ended: &Result<T, SessionError>) {
        self.open = None;
        self.pipe.rest();
        match ended {
            Err(SessionError::Ended) => self.pipe.drain_log().await,
            _ => self.pipe.take_log().await,
        }
    }
}

#[cfg(test)]
mod tests;
