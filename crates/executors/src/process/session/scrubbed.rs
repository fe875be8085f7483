//! A companion that hears nothing of the secrets a tool was given: whatever the tool tells or wants kept goes through
//! the [`Scrubber`] first.
//!
//! A checkpoint is scrubbed too. Its state can be read by those who may see the invocation, and it outlives the call,
//! which a secret must not (DESIGN §6.4). A tool that resumes is given its secrets anew.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::Refusal;
use serde_json::Value;

use crate::process::scrub::Scrubber;
use kernel::ports::companion::{Answer, Companion, LogLevel, Progress, Question, QuestionKind};

/// Stands between a tool and its companion.
#[derive(Debug)]
pub struct Scrubbed {
    inner: Arc<dyn Companion>,
    secrets: Arc<Scrubber>,
}

impl Scrubbed {
    /// The companion without these secrets.
    pub fn new(inner: Arc<dyn Companion>, secrets: Arc<Scrubber>) -> Self {
        Self { inner, secrets }
    }

    fn text(&self, text: Option<String>) -> Option<String> {
        text.map(|text| self.secrets.text(&text).into_owned())
    }
}

#[async_trait]
impl Companion for Scrubbed {
    fn progress(&self, progress: Progress) {
        let Progress { percent, phase, message } = progress;
        self.inner.progress(Progress { percent, phase: self.text(phase), message: self.text(message) });
    }

    fn log(&self, level: LogLevel, message: &str) {
        self.inner.log(level, &self.secrets.text(message));
    }

    async fn checkpoint(&self, name: Option<&str>, state: Value) -> Result<String, Refusal> {
        let name = name.map(|name| self.secrets.text(name));
        self.inner.checkpoint(name.as_deref(), self.secrets.value(state)).await
    }

    async fn document(&self, id: &str) -> Result<Value, Refusal> {
        self.inner.document(&self.secrets.text(id)).await
    }

    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        self.inner.can_be_asked()
    }

    async fn ask(&self, questions: Vec<Question>) -> Result<Vec<Answer>, Refusal> {
        let scrubbed =
            |question: Question| Question { parameters: self.secrets.value(question.parameters), ..question };
        self.inner.ask(questions.into_iter().map(scrubbed).collect()).await
    }
}
