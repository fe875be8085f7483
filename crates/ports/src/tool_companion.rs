//! What a running tool may tell and ask: progress, its log, checkpoints, documents.
//!
//! Each call has a companion of its own. What comes in is from the tool and so is hostile: a companion bounds and cleans
//! all of it, and an executor hands it over as it came. Whatever the tool is told back is a refusal or a value, never a
//! reason that only the operator may read.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use serde_json::{Number, Value};

/// How far a tool has come, in its own words.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolProgress {
    /// 0 to 100.
    pub percent: Option<f64>,
    /// The part of the work it is in, for example `download`.
    pub phase: Option<String>,
    pub message: Option<String>,
    /// How far it is in units of its own, where it counts in some.
    pub count: Option<ProgressCount>,
}

/// Progress in units of the tool's own: files, bytes, steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProgressCount {
    pub done: f64,
    /// Of how many, if that is known.
    pub total: Option<f64>,
}

/// Which of the two protocols of an MCP a side speaks: with a handshake, or without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolEra {
    /// 2024-11-05 to 2025-11-25.
    Legacy,
    /// 2026-07-28.
    Modern,
}

impl ProtocolEra {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }
}

/// How much a line of a tool's log matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    Debug,
    Info,
    Warn,
    Error,
}

impl LogLevel {
    /// The level of a word; a word that is none is `info`, because a line must not be lost for it.
    pub fn of_word(word: &str) -> Self {
        match word.to_ascii_lowercase().as_str() {
            "debug" | "trace" => Self::Debug,
            "warn" | "warning" => Self::Warn,
            "error" | "fatal" | "critical" => Self::Error,
            _ => Self::Info,
        }
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// How much a log notification matters, in the words of the Model Context Protocol (RFC 5424).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogSeverity {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogSeverity {
    /// All of them, the least first.
    pub const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    /// The severity of a word; one that is none is as [`LogLevel::of_word`] takes it.
    pub fn of_word(word: &str) -> Self {
        let known = Self::ALL.into_iter().find(|severity| severity.as_str() == word);
        known.unwrap_or_else(|| LogLevel::of_word(word).into())
    }
}

impl From<LogLevel> for LogSeverity {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Debug => Self::Debug,
            LogLevel::Info => Self::Info,
            LogLevel::Warn => Self::Warning,
            LogLevel::Error => Self::Error,
        }
    }
}

impl From<LogSeverity> for LogLevel {
    fn from(severity: LogSeverity) -> Self {
        match severity {
            LogSeverity::Debug => Self::Debug,
            LogSeverity::Info | LogSeverity::Notice => Self::Info,
            LogSeverity::Warning => Self::Warn,
            LogSeverity::Error | LogSeverity::Critical | LogSeverity::Alert | LogSeverity::Emergency => Self::Error,
        }
    }
}

/// A log notification as a server behind Gantry has it.
#[derive(Debug, Clone, PartialEq)]
pub struct LogNote {
    pub severity: LogSeverity,
    /// What of the server speaks.
    pub logger: Option<String>,
    /// Any JSON; a line of text, most often.
    pub data: Value,
}

impl LogNote {
    /// A line.
    pub fn line(level: LogLevel, message: &str) -> Self {
        Self { severity: level.into(), logger: None, data: Value::String(message.to_owned()) }
    }

    /// What it says, as text.
    pub fn text(&self) -> Cow<'_, str> {
        match &self.data {
            Value::String(text) => text.into(),
            other => other.to_string().into(),
        }
    }
}

/// What a tool wants kept, so that a later call can go on from there.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolSnapshot {
    /// Absent: one of many, of which the newest counts.
    pub name: Option<String>,
    /// Any JSON: the tool's own.
    pub state: Value,
    pub counters: BTreeMap<String, Number>,
    /// Bytes by name.
    pub binaries: BTreeMap<String, Vec<u8>>,
    /// Which version of which document it was made from.
    pub document_versions: BTreeMap<String, String>,
}

impl ToolSnapshot {
    /// A state and nothing else.
    pub fn of(name: Option<&str>, state: Value) -> Self {
        Self { name: name.map(str::to_owned), state, ..Self::default() }
    }
}

/// Hears and answers one running tool.
///
/// ```
/// # use gantry_ports::tool_companion::{LogLevel, ToolCompanion as _, ToolProgress, SilentCompanion};
/// let companion = SilentCompanion::new();
/// companion.progress(ToolProgress { percent: Some(40.0), ..ToolProgress::default() });
/// companion.log(LogLevel::Info, "half way");
/// ```
#[async_trait]
pub trait ToolCompanion: Send + Sync + fmt::Debug {
    /// The tool has come this far. Never waits; too many of them are dropped.
    fn progress(&self, progress: ToolProgress);

    /// A line of the tool's log. Never waits; too many of them are dropped.
    fn log(&self, level: LogLevel, message: &str);

    /// A log notification of the tool. Never waits; too many of them are dropped. Its text as a line is the default.
    fn note(&self, note: LogNote) {
        self.log(note.severity.into(), &note.text());
    }

    /// The least severity of log notifications that whoever made the call has asked for. Nothing is the default.
    fn wanted_log(&self) -> Option<LogSeverity> {
        None
    }

    /// Words of the tool, or about it, as they may stand in a log of the operator. Nothing of them is the default.
    fn redacted(&self, text: &str) -> String {
        // Named for whoever implements it; the default does not look at it.
        let _ = text;
        "[REDACTED]".to_owned()
    }

    /// Keeps the tool's state under a new id and returns that id. With a name it is durable then; without one it is so
    /// soon, unless a newer one takes its place. May wait for the store; whoever calls bounds the wait by the call's
    /// deadline.
    async fn checkpoint(&self, snapshot: ToolSnapshot) -> Result<String, Refusal>;

    /// A document that the tool is allowed to see. May wait; whoever calls bounds the wait by the call's deadline.
    async fn document(&self, id: &str) -> Result<Value, Refusal>;

    /// What whoever made the call has said it can be asked, each with the details of that as the Model Context Protocol has
    /// them. A tool elsewhere is told this much and no more. Nothing is the default.
    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        Vec::new()
    }

    /// Which protocol whoever made the call speaks, if it is the Model Context Protocol at all. Nothing is the default.
    fn era(&self) -> Option<ProtocolEra> {
        None
    }

    /// Asks whoever made the call, and waits for all answers. May wait for a person; the call's deadline goes on.
    /// Refused where nobody can be asked, which is the default.
    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        // Named for whoever implements it; the default does not look at them.
        let _ = questions;
        Err(nobody_to_ask())
    }
}

/// What a running tool wants to know of the side that called it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum QuestionKind {
    /// Something only the person knows: a form, a confirmation, a visit to a page.
    Elicitation,
    /// A completion by the caller's own model.
    Sampling,
    /// The places the caller works in.
    Roots,
}

impl QuestionKind {
    /// The word, as the Model Context Protocol has it.
    pub fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    /// The kind of a word.
    pub fn of_method(method: &str) -> Option<Self> {
        [Self::Elicitation, Self::Sampling, Self::Roots].into_iter().find(|kind| kind.method() == method)
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolQuestion {
    /// Unique within the call; its answer carries it too.
    pub key: String,
    pub kind: QuestionKind,
    /// The parameters of the question as the tool gave them.
    pub parameters: Value,
}

/// One answer.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerAnswer {
    pub key: String,
    pub value: Value,
}

/// Who listens at the door a call came through: hears what the tool says and answers what it asks, if anybody there can.
///
/// The kernel has bounded and cleaned what arrives here ([`ToolCompanion`] is what the tool sees).
#[async_trait]
pub trait CallListener: Send + Sync + fmt::Debug {
    /// The tool has come this far. Never waits.
    fn progress(&self, progress: &ToolProgress);

    /// A line of the tool's log. Never waits.
    fn log(&self, level: LogLevel, message: &str);

    /// A log notification of the tool. Never waits. Its text as a line is the default.
    fn note(&self, note: LogNote) {
        self.log(note.severity.into(), &note.text());
    }

    /// What the caller has asked to hear, as in [`ToolCompanion::wanted_log`].
    fn wanted_log(&self) -> Option<LogSeverity> {
        None
    }

    /// What the caller has said it can be asked, as in [`ToolCompanion::can_be_asked`].
    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        Vec::new()
    }

    /// What the caller speaks, as in [`ToolCompanion::era`].
    fn era(&self) -> Option<ProtocolEra> {
        None
    }

    /// Asks the caller and waits for all answers. Refused with E3010 where nobody can be asked.
    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal>;
}

/// The refusal where nobody can be asked.
pub fn nobody_to_ask() -> Refusal {
    Refusal::new(ErrorCode::E3010, "the caller cannot be asked while the tool runs")
        .hint("call it from an MCP client that supports elicitation, or give what it asks for as a parameter")
        .retryable(false)
}

/// Hears everything, keeps nothing and has nothing: for tests, and for tools run outside a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct SilentCompanion;

impl SilentCompanion {
    /// As it stands in a call.
    #[expect(clippy::new_ret_no_self, reason = "a call holds a companion behind its port")]
    pub fn new() -> Arc<dyn ToolCompanion> {
        Arc::new(Self)
    }
}

#[async_trait]
impl ToolCompanion for SilentCompanion {
    fn progress(&self, _: ToolProgress) {}
    fn log(&self, _: LogLevel, _: &str) {}
    async fn checkpoint(&self, _: ToolSnapshot) -> Result<String, Refusal> {
        Err(no_checkpoints())
    }
    async fn document(&self, _: &str) -> Result<Value, Refusal> {
        Err(no_documents())
    }
}

/// The refusal where no state of the tool is kept.
pub fn no_checkpoints() -> Refusal {
    Refusal::new(ErrorCode::E3010, "no checkpoints are kept of this call")
        .hint("go on without, and return the whole result at the end")
        .retryable(false)
}

/// The refusal of a server that has no documents.
pub fn no_documents() -> Refusal {
    Refusal::new(ErrorCode::E3010, "this server has no documents")
        .hint("take what is needed as a parameter instead")
        .retryable(false)
}
