//! One call of a session, from `invoke` to its answer: what the tool's messages mean and who answers them.
//!
//! Requests of the tool (`checkpoint`, `document`) are answered in the order in which they are done, not in which they
//! came; each runs as a task of its own, owned by the call, and ends with it.
//!
//! Not here: lines ([`pipe`](super::pipe)) and their form ([`wire`](super::wire)).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use contract::cost::ReportedCost;
use contract::error::Refusal;
use serde_json::{Value, json};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::pipe::{Pipe, PipeLine};
use super::wire::{self, Id, Message, ProtocolFault};
use super::{SessionBounds, SessionError, checkpointed};
use crate::process::streams::clean;
use ports::tool_companion::{LogLevel, ToolCompanion, ToolProgress, ToolSnapshot};

/// Characters of a progress message or a phase, of a line of the log, of a checkpoint's name and of a document's id.
const WORDS_CHARS_MAX: usize = 1000;
const LOG_CHARS_MAX: usize = 8000;
const NAME_CHARS_MAX: usize = 255;
/// Characters of a method's name when it is repeated.
const METHOD_CHARS_SHOWN: usize = 64;

/// A call that the tool has not answered yet.
#[derive(Debug)]
pub(super) struct Open {
    /// The invocation's own, which nobody could know before (SESS-5).
    id: Box<str>,
    bounds: SessionBounds,
    /// Requests of the tool that nobody has answered yet, by the task that is at it.
    asked: HashMap<task::Id, Id>,
    messages: u64,
    pace: Pace,
    /// Whether a message without meaning has been logged. Once is enough.
    puzzled: bool,
    /// What the tool has reported with its answer.
    said: ReportedCost,
}

/// What a task that answers a request brings.
type Answers = JoinSet<Result<Value, Refusal>>;

impl Open {
    pub(super) fn new(id: Box<str>, bounds: SessionBounds) -> Self {
        let pace = Pace { since: Instant::now(), notes: 0 };
        Self { id, bounds, asked: HashMap::new(), messages: 0, pace, puzzled: false, said: ReportedCost::default() }
    }

    /// Does the tool wait for an answer of ours?
    pub(super) fn is_waited_for(&self) -> bool {
        !self.asked.is_empty()
    }

    /// What the tool reports about its call.
    pub(super) fn said(&self) -> ReportedCost {
        self.said
    }

    /// Hears the tool until it has answered.
    pub(super) async fn answer(
        &mut self,
        pipe: &mut Pipe,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, SessionError> {
        let mut answers = Answers::new();
        loop {
            let heard = tokio::select! {
                heard = pipe.next() => heard?,
                Some(done) = answers.join_next_with_id(), if !answers.is_empty() => {
                    self.reply(pipe, done)?;
                    continue;
                }
            };
            match self.message(heard, pipe)? {
                Message::Response { id, outcome, said } if id == *self.id => {
                    self.said = said;
                    return outcome.map_err(SessionError::Failed);
                }
                Message::Response { .. } => self.puzzle("an answer to nothing that was asked"),
                Message::Notification { method, params } => self.note(&method, &params, companion.as_ref()),
                Message::Request { id, method, params } => {
                    match self.ask(&id, &method, params, companion) {
                        Ok(asking) => {
                            let task = answers.spawn(asking.in_current_span());
                            self.asked.insert(task.id(), id);
                        }
                        Err((code, why)) => pipe.send(&wire::refuse(&id, code, &why))?,
                    };
                }
            }
        }
    }

    /// Tells the tool to stop and hears it out.
    pub(super) async fn come_to_rest(&mut self, pipe: &mut Pipe, reason: &str) -> Result<(), SessionError> {
        const WHY: &str = "the call is cancelled";
        // Those who were at these requests went with the call.
        for (_, id) in self.asked.drain() {
            pipe.send(&wire::refuse(&id, wire::CANCELLED, WHY))?;
        }
        pipe.send(&wire::cancel(&clean(reason, WORDS_CHARS_MAX)))?;
        loop {
            let heard = pipe.next().await?;
            match self.message(heard, pipe)? {
                Message::Response { id, .. } if id == *self.id => return Ok(()),
                Message::Request { id, .. } => pipe.send(&wire::refuse(&id, wire::CANCELLED, WHY))?,
                Message::Response { .. } | Message::Notification { .. } => {}
            }
        }
    }

    fn message(&mut self, heard: PipeLine, pipe: &Pipe) -> Result<Message, SessionError> {
        let PipeLine::Line(line) = heard else { return Err(SessionError::Ended) };
        self.messages += 1;
        if self.messages > self.bounds.messages_max {
            return Err(SessionError::TooMuch { what: "number of messages", limit: self.bounds.messages_max });
        }
        Ok(Message::read(&line, self.bounds.line_bytes_max).inspect_err(|_| pipe.note_stray(&line))?)
    }

    // ------------------------------------------------------------------------------------------------ notifications

    fn note(&mut self, method: &str, params: &Value, companion: &dyn ToolCompanion) {
        let text = |name: &str, max| params.get(name).and_then(Value::as_str).map(|text| clean(text, max));
        match method {
            "progress" | "log" if !self.pace.admits(self.bounds.notes_per_second_max) => {}
            "progress" => {
                let percent = match params.get("percent") {
                    None | Some(Value::Null) => None,
                    Some(percent) => match percent.as_f64() {
                        Some(percent) => Some(percent.clamp(0.0, 100.0)),
                        None => return self.puzzle("a percentage that is not a number"),
                    },
                };
                let (phase, message) = (text("phase", NAME_CHARS_MAX), text("message", WORDS_CHARS_MAX));
                companion.progress(ToolProgress { percent, phase, message, count: None });
            }
            "log" => match text("message", LOG_CHARS_MAX) {
                Some(message) => {
                    let level = params.get("level").and_then(Value::as_str).unwrap_or_default();
                    companion.log(LogLevel::of_word(level), &message);
                }
                None => self.puzzle("a line of the log without `message`"),
            },
            _ => self.puzzle("a notification nobody knows"),
        }
    }

    /// Says once in the server's log that the tool is not understood; it is not worth ending the call.
    fn puzzle(&mut self, what: &'static str) {
        if !std::mem::replace(&mut self.puzzled, true) {
            tracing::debug!(what, "a tool sent a message without meaning; further ones are not logged");
        }
    }

    // ----------------------------------------------------------------------------------------------------- requests

    /// The work a request asks for, or the number and words of its refusal.
    fn ask(
        &self,
        id: &Id,
        method: &str,
        params: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<impl Future<Output = Result<Value, Refusal>> + Send + 'static, (i32, String)> {
        enum Wanted {
            Checkpoint(ToolSnapshot),
            Document { id: String },
        }
        let text =
            |name: &str| params.get(name).and_then(Value::as_str).filter(|text| is_name(text)).map(str::to_owned);
        let unfit = |words: &str| (wire::INVALID_PARAMS, words.to_owned());
        let wanted = match method {
            "checkpoint" => {
                let name = match params.get("name") {
                    None | Some(Value::Null) => None,
                    Some(_) => Some(text("name").ok_or_else(|| unfit("`name` must be a short string"))?),
                };
                Wanted::Checkpoint(checkpointed::snapshot(name, params).map_err(unfit)?)
            }
            "document" => Wanted::Document { id: text("id").ok_or_else(|| unfit("`id` must be a short string"))? },
            other => {
                let shown = clean(other, METHOD_CHARS_SHOWN);
                return Err((wire::METHOD_NOT_FOUND, format!("there is no method `{shown}`")));
            }
        };
        if self.asked.values().any(|open| open == id) {
            return Err((wire::INVALID_REQUEST, "the id is still in use".to_owned()));
        }
        if self.asked.len() >= self.bounds.requests_max {
            let words = format!("at most {} requests may be open at once", self.bounds.requests_max);
            return Err((wire::TOO_MANY_REQUESTS, words));
        }
        let companion = Arc::clone(companion);
        Ok(async move {
            match wanted {
                Wanted::Checkpoint(snapshot) => {
                    let id = companion.checkpoint(snapshot).await?;
                    Ok(json!({ "checkpoint_id": id }))
                }
                Wanted::Document { id } => companion.document(&id).await,
            }
        })
    }

    /// Sends the answer that a task has brought.
    fn reply(
        &mut self,
        pipe: &mut Pipe,
        done: Result<(task::Id, Result<Value, Refusal>), JoinError>,
    ) -> Result<(), ProtocolFault> {
        let (task, outcome) = match done {
            Ok((task, outcome)) => (task, Some(outcome)),
            Err(error) => (error.id(), None),
        };
        let Some(id) = self.asked.remove(&task) else { return Ok(()) };
        let line = match outcome {
            Some(Ok(result)) => wire::answer(&id, &result),
            Some(Err(refusal)) => wire::refuse_with(&id, &refusal),
            None => wire::refuse(&id, wire::INTERNAL, "the request could not be answered"),
        };
        if line.len() > self.bounds.answer_bytes_max {
            let words = format!("the answer is larger than {} bytes", self.bounds.answer_bytes_max);
            return pipe.send(&wire::refuse(&id, wire::ANSWER_TOO_LARGE, &words));
        }
        pipe.send(&line)
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= NAME_CHARS_MAX && !text.chars().any(char::is_control)
}

// ------------------------------------------------------------------------------------------------------------- Pace

/// Counts notes in windows of one second.
#[derive(Debug)]
struct Pace {
    since: Instant,
    notes: u32,
}

impl Pace {
    fn admits(&mut self, per_second_max: u32) -> bool {
        let now = Instant::now();
        if now.duration_since(self.since) >= Duration::from_secs(1) {
            *self = Self { since: now, notes: 0 };
        }
        self.notes = self.notes.saturating_add(1);
        self.notes <= per_second_max
    }
}
