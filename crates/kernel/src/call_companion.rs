//! The companion that the kernel gives each call: what a tool says goes to the log and to whoever watches, cleaned and
//! bounded; what it asks for and this server does not have is refused.
//!
//! Bounds: a tool may say [`BURST`] things at once and [`PER_SECOND`] a second after that. What is more is dropped and
//! counted; it is never queued, because a tool that floods must not make anybody wait.
//!
//! Not here: keeping checkpoints (`checkpoints::keeper`) and finding documents, which no part of this server does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use ports::call_deadline::CallDeadline;
use ports::clock::Clock;
use ports::observer::{Observer, SpokenWords, ToolSpeech};
use ports::redactor::Redactor;
use ports::tool_companion::{
    CallListener, CallerAnswer, LogLevel, LogNote, LogSeverity, ProtocolEra, QuestionKind, ToolCompanion, ToolProgress,
    ToolQuestion, ToolSnapshot, no_checkpoints, no_documents, nobody_to_ask,
};
use ports::tool_version::ToolVersion;
use serde_json::Value;

use crate::checkpoints::CheckpointKeeper;
use crate::phases::ShownWords;

/// Things a tool may say at once.
const BURST: u32 = 64;
/// Things a tool may say a second in the long run.
const PER_SECOND: u32 = 16;
/// Longest message; the rest is cut.
const MESSAGE_CHARS_MAX: usize = 2_000;
/// Longest log notification that is passed on whole, as JSON; of a longer one a line is.
const NOTE_BYTES_MAX: usize = 64 * 1024;
/// Questions a tool may ask at once, and how large one may be.
const QUESTIONS_MAX: usize = 16;
const QUESTION_KEY_BYTES_MAX: usize = 256;
const QUESTION_BYTES_MAX: usize = 256 * 1024;
/// Longest name of a phase; the rest is cut.
const PHASE_CHARS_MAX: usize = 100;
/// Longest name of a checkpoint; the rest is cut.
const NAME_CHARS_MAX: usize = 255;

/// Accompanies one call.
#[derive(Debug)]
pub(crate) struct CallCompanion {
    pub(crate) invocation_id: InvocationId,
    pub(crate) tool: Arc<ToolVersion>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) redactor: Arc<dyn Redactor>,
    pub(crate) pace: Mutex<SpeechBucket>,
    /// Who listens at the door, if somebody does, and what they are shown.
    pub(crate) audience: Option<(Arc<dyn CallListener>, ShownWords)>,
    /// Keeps what the tool saves, if this call does.
    pub(crate) keeper: Option<Arc<CheckpointKeeper>>,
    /// Moved by what the tool says about its progress.
    pub(crate) deadline: Arc<CallDeadline>,
    /// The tool has asked something: what comes of it depends on the answer, too.
    pub(crate) has_asked: AtomicBool,
}

/// How much may be said now: a bucket that fills with time.
#[derive(Debug)]
pub(crate) struct SpeechBucket {
    left: f64,
    since: Duration,
}

impl SpeechBucket {
    /// Full, as a call begins.
    pub(crate) fn full(now: Duration) -> Self {
        Self { left: f64::from(BURST), since: now }
    }

    /// May one more thing be said?
    fn admits(&mut self, now: Duration) -> bool {
        let gained = now.saturating_sub(self.since).as_secs_f64() * f64::from(PER_SECOND);
        self.left = (self.left + gained).min(f64::from(BURST));
        self.since = self.since.max(now);
        let admitted = self.left >= 1.0;
        if admitted {
            self.left -= 1.0;
        }
        admitted
    }
}

impl CallCompanion {
    fn tell(&self, words: SpokenWords<'_>) {
        // Metrics are read by the whole installation: names of a tenant's own tools do not belong there.
        let tool = self.tool.tenant.is_home().then_some(&self.tool.id);
        self.observer.tool_spoke(&ToolSpeech { invocation_id: self.invocation_id, tool, words });
    }

    /// A line of the tool, for the log of the operator and for whoever counts.
    fn write_down(&self, level: LogLevel, message: &str) {
        let said = clean(message, MESSAGE_CHARS_MAX);
        let (tool, invocation) = (&self.tool.id, self.invocation_id);
        // Whoever made the call hears the tool's words, the log what may be kept of them.
        let kept = clean(&self.redactor.text(message), MESSAGE_CHARS_MAX);
        match level {
            LogLevel::Debug => tracing::debug!(%tool, %invocation, said = %kept, "the tool's log"),
            // A tool's ordinary chatter is not the operator's news.
            LogLevel::Info => tracing::debug!(%tool, %invocation, said = %kept, "the tool's log"),
            LogLevel::Warn => tracing::info!(%tool, %invocation, said = %kept, "the tool's log"),
            LogLevel::Error => tracing::warn!(%tool, %invocation, said = %kept, "the tool's log"),
        }
        self.tell(SpokenWords::Log(level, &said));
    }

    fn admitted(&self) -> bool {
        let mut pace = self.pace.lock_unpoisoned();
        let admitted = pace.admits(self.clock.monotonic());
        drop(pace);
        if !admitted {
            self.tell(SpokenWords::Dropped);
        }
        admitted
    }
}

#[async_trait]
impl ToolCompanion for CallCompanion {
    fn progress(&self, progress: ToolProgress) {
        self.deadline.progressed();
        if !self.admitted() {
            return;
        }
        let (whole, whole_phase) = (progress.message.clone(), progress.phase.clone());
        let progress = ToolProgress {
            percent: progress.percent.filter(|percent| percent.is_finite()).map(|percent| percent.clamp(0.0, 100.0)),
            // It is kept with the job and its checkpoints, so it says what may be kept.
            phase: progress.phase.map(|phase| clean(&self.redacted(&phase), PHASE_CHARS_MAX)),
            message: progress.message.map(|message| clean(&message, MESSAGE_CHARS_MAX)),
            count: progress.count.filter(|count| count.done.is_finite() && count.total.is_none_or(f64::is_finite)),
        };
        // Redacted before it is cut: half a secret looks like none.
        let said = |whole: &str| clean(&self.redacted(whole), MESSAGE_CHARS_MAX);
        tracing::debug!(tool = %self.tool.id, invocation = %self.invocation_id, percent = progress.percent, phase = progress.phase, said = whole.as_deref().map(said), "the tool reports progress");
        if let Some(keeper) = &self.keeper {
            keeper.progress(&progress);
        }
        self.tell(SpokenWords::Progress(&progress));
        if let Some((audience, words)) = &self.audience {
            // Masked before it is cut: half a document hides nothing.
            let phase = whole_phase.and_then(|phase| Some(clean(&self.redacted(&words.of(&phase)?), PHASE_CHARS_MAX)));
            let message = whole.and_then(|message| Some(clean(&words.of(&message)?, MESSAGE_CHARS_MAX)));
            audience.progress(&ToolProgress { phase, message, ..progress });
        }
    }

    fn log(&self, level: LogLevel, message: &str) {
        if !self.admitted() {
            return;
        }
        self.write_down(level, message);
        if let Some((audience, words)) = &self.audience
            && let Some(shown) = words.of(message)
        {
            audience.log(level, &clean(&shown, MESSAGE_CHARS_MAX));
        }
    }

    fn note(&self, note: LogNote) {
        if !self.admitted() {
            return;
        }
        let LogNote { severity, logger, data } = note.clone();
        let text = note.text();
        self.write_down(severity.into(), &text);
        let Some((audience, words)) = &self.audience else { return };
        // What cannot be masked is not told.
        let Some(shown) = words.of(&text) else { return };
        let logger = logger.and_then(|logger| Some(clean(&words.of(&logger)?, NAME_CHARS_MAX)));
        audience.note(LogNote { severity, logger, data: shown_data(data, &text, &shown) });
    }

    fn wanted_log(&self) -> Option<LogSeverity> {
        self.audience.as_ref().and_then(|(audience, _)| audience.wanted_log())
    }

    fn era(&self) -> Option<ProtocolEra> {
        self.audience.as_ref().and_then(|(audience, _)| audience.era())
    }

    fn redacted(&self, text: &str) -> String {
        self.redactor.text(text).into_owned()
    }

    async fn checkpoint(&self, snapshot: ToolSnapshot) -> Result<String, Refusal> {
        let keeper = self.keeper.as_ref().ok_or_else(no_checkpoints)?;
        let name = snapshot.name.map(|name| clean(&self.redacted(&name), NAME_CHARS_MAX));
        keeper.save(ToolSnapshot { name, ..snapshot }).await.map(|id| id.to_string())
    }

    async fn document(&self, _: &str) -> Result<Value, Refusal> {
        Err(no_documents())
    }

    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        self.audience.as_ref().map(|(audience, _)| audience.can_be_asked()).unwrap_or_default()
    }

    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        let Some((audience, words)) = &self.audience else { return Err(nobody_to_ask()) };
        if !self.admitted() || is_too_much(&questions) {
            return Err(asks_too_much());
        }
        let shown = |question: ToolQuestion| {
            let parameters = shown_question(words, question.parameters)?;
            Some(ToolQuestion { parameters, ..question })
        };
        let questions = questions.into_iter().map(shown).collect::<Option<Vec<_>>>().ok_or_else(unreadable_question)?;
        self.has_asked.store(true, Ordering::Release);
        audience.ask(questions).await
    }
}

/// The data of a log notification, of which `shown` is what may be seen of its `text`: as it came if nothing of it is hidden.
/// What is too large is told as far as a line goes.
fn shown_data(data: Value, text: &str, shown: &str) -> Value {
    if text.len() > NOTE_BYTES_MAX {
        return Value::String(clean(shown, MESSAGE_CHARS_MAX));
    }
    match data {
        data if text == shown => data,
        Value::String(_) => Value::String(shown.to_owned()),
        // Whatever was put in the place of something in it, it is text.
        _ => serde_json::from_str(shown).unwrap_or_else(|_| Value::String(shown.to_owned())),
    }
}

/// What a tool asks, as whoever made the call is shown it: each text in it is masked as the words of a result are. Names of
/// members stay, because a form is filled in by them. Nothing if nobody can say what is in one.
fn shown_question(words: &ShownWords, asked: Value) -> Option<Value> {
    Some(match asked {
        Value::String(text) => Value::String(words.of(&text)?),
        Value::Array(items) => {
            Value::Array(items.into_iter().map(|item| shown_question(words, item)).collect::<Option<_>>()?)
        }
        Value::Object(members) => {
            let shown = members.into_iter().map(|(name, value)| Some((name, shown_question(words, value)?)));
            Value::Object(shown.collect::<Option<_>>()?)
        }
        other => other,
    })
}

fn unreadable_question() -> Refusal {
    Refusal::new(ErrorCode::E3304, "nobody can say what has to be masked in a question of the tool")
        .hint("the question was not asked; tell the tool's author, or ask for a policy without `redact`")
        .retryable(false)
}

/// More, or larger, than a tool may ask at once.
pub(crate) fn is_too_much(questions: &[ToolQuestion]) -> bool {
    questions.len() > QUESTIONS_MAX || questions.iter().any(is_too_large)
}

/// The refusal of such questions.
pub(crate) fn asks_too_much() -> Refusal {
    Refusal::new(ErrorCode::E3407, "the tool asks too much")
        .hint("tell the tool's author: fewer and smaller questions")
        .retryable(false)
}

fn is_too_large(question: &ToolQuestion) -> bool {
    question.key.len() > QUESTION_KEY_BYTES_MAX || question.parameters.to_string().len() > QUESTION_BYTES_MAX
}

/// Text of a tool, fit for a log and a terminal: one line, nothing invisible, not too long.
fn clean(text: &str, chars_max: usize) -> String {
    let turns_around =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    shown.filter(|c| !c.is_control() && !turns_around(*c)).take(chars_max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_dropped_and_a_pause_makes_room_again() {
        let mut pace = SpeechBucket::full(Duration::from_secs(5));
        let said = (0..1_000).filter(|_| pace.admits(Duration::from_secs(5))).count();
        assert_eq!(said, BURST as usize);
        let said = (0..1_000).filter(|_| pace.admits(Duration::from_secs(6))).count();
        assert_eq!(said, PER_SECOND as usize);
        assert!(!pace.admits(Duration::from_secs(1)), "a clock that goes back gives nothing");
        let said = (0..1_000).filter(|_| pace.admits(Duration::from_secs(3_600))).count();
        assert_eq!(said, BURST as usize, "silence is not saved up");
    }

    #[test]
    fn data_of_a_note_stays_as_it_was_unless_something_of_it_is_hidden() {
        let data = serde_json::json!({ "mail": "a@b.example", "n": [1, 2.5, null] });
        let text = data.to_string();
        assert_eq!(shown_data(data.clone(), &text, &text), data);
        let masked = shown_data(data.clone(), &text, &text.replace("a@b.example", "[EMAIL]"));
        assert_eq!(masked, serde_json::json!({ "mail": "[EMAIL]", "n": [1, 2.5, null] }));
        assert_eq!(shown_data(data, &text, "[WITHHELD"), "[WITHHELD");
        assert_eq!(shown_data("two\nlines".into(), "two\nlines", "two\nlines"), "two\nlines");
        assert_eq!(shown_data("my key".into(), "my key", "my [KEY]"), "my [KEY]");
        let long = "x".repeat(NOTE_BYTES_MAX + 1);
        let cut = shown_data(long.clone().into(), &long, &long);
        assert_eq!(cut.as_str().map(str::len), Some(MESSAGE_CHARS_MAX));
    }

    #[test]
    fn text_of_a_tool_is_one_bounded_line_without_tricks() {
        assert_eq!(clean("a\nb\u{1b}[31m\u{202e}c\u{7}", 100), "a b[31mc");
        assert_eq!(clean(&"ä".repeat(50), 10).chars().count(), 10);
    }
}
