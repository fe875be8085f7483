//! A companion that hears nothing of the secrets a tool was given: whatever the tool tells or wants kept goes through
//! the [`SecretScrubber`] first.
//!
//! A checkpoint is scrubbed too. Its state can be read by those who may see the invocation, and it outlives the call,
//! which a secret must not (DESIGN §6.4). A tool that resumes is given its secrets anew.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::Refusal;
use serde_json::Value;

use crate::process::scrub::SecretScrubber;
use ports::tool_companion::{
    CallerAnswer, LogLevel, LogNote, LogSeverity, ProtocolEra, QuestionKind, ToolCompanion, ToolProgress, ToolQuestion,
    ToolSnapshot,
};

/// Stands between a tool and its companion.
#[derive(Debug)]
pub struct ScrubbedCompanion {
    inner: Arc<dyn ToolCompanion>,
    secrets: Arc<SecretScrubber>,
}

impl ScrubbedCompanion {
    /// The companion without these secrets.
    pub fn new(inner: Arc<dyn ToolCompanion>, secrets: Arc<SecretScrubber>) -> Self {
        Self { inner, secrets }
    }

    fn text(&self, text: Option<String>) -> Option<String> {
        text.map(|text| self.secrets.text(&text).into_owned())
    }

    /// Bytes that are text lose secrets as text does. Others are left: what stands in them in another form is found by no
    /// search, and cutting into them would spoil them.
    fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        match String::from_utf8(bytes) {
            Ok(text) => self.secrets.text(&text).into_owned().into_bytes(),
            Err(error) => error.into_bytes(),
        }
    }
}

#[async_trait]
impl ToolCompanion for ScrubbedCompanion {
    fn progress(&self, progress: ToolProgress) {
        let ToolProgress { percent, phase, message, count } = progress;
        self.inner.progress(ToolProgress { percent, phase: self.text(phase), message: self.text(message), count });
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.inner.log(level, &self.secrets.text(message));
    }

    async fn checkpoint(&self, snapshot: ToolSnapshot) -> Result<String, Refusal> {
        let ToolSnapshot { name, state, counters, binaries, document_versions } = snapshot;
        let shown = |text: String| self.secrets.text(&text).into_owned();
        let snapshot = ToolSnapshot {
            name: self.text(name),
            state: self.secrets.value(state),
            counters: counters.into_iter().map(|(name, count)| (shown(name), count)).collect(),
            binaries: binaries.into_iter().map(|(name, bytes)| (shown(name), self.bytes(bytes))).collect(),
            document_versions: document_versions.into_iter().map(|(id, version)| (shown(id), shown(version))).collect(),
        };
        self.inner.checkpoint(snapshot).await
    }

    async fn document(&self, id: &str) -> Result<Value, Refusal> {
        self.inner.document(&self.secrets.text(id)).await
    }

    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        self.inner.can_be_asked()
    }

    fn note(&self, note: LogNote) {
        let LogNote { severity, logger, data } = note;
        self.inner.note(LogNote { severity, logger: self.text(logger), data: self.secrets.value(data) });
    }

    fn wanted_log(&self) -> Option<LogSeverity> {
        self.inner.wanted_log()
    }

    fn era(&self) -> Option<ProtocolEra> {
        self.inner.era()
    }

    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        let scrubbed =
            |question: ToolQuestion| ToolQuestion { parameters: self.secrets.value(question.parameters), ..question };
        self.inner.ask(questions.into_iter().map(scrubbed).collect()).await
    }
}
