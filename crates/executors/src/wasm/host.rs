//! The host's side of `gantry:tool` (`wit/gantry-tool/tool.wit`): progress, log, documents, secrets.
//!
//! Invariants
//! - HOST-1: a secret is given under its exact, declared name and to nobody else; every other name gets the same answer.
//! - HOST-2: what a guest says is bounded in number and length, and made printable, before it reaches the log.
//!
//! Not here: WASI (`grants`), HTTP (`outbound`).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use contract::ids::TenantId;
use kernel::ports::executor::ToolCall;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};

use super::state::State;
use super::streams::printable;

/// Lines of progress and log that one call may write; the rest is counted and dropped.
const LINES_MAX: u32 = 1_000;
/// Characters of one such line that are kept.
const LINE_CHARS_MAX: usize = 1_000;

/// Where the values of declared credentials come from.
///
/// The executor asks only for names that the tool's manifest declares, and only when the guest does.
#[async_trait]
pub trait SecretLookup: Send + Sync + fmt::Debug {
    /// The value, or `None` if there is none. Bounded in time by the call's deadline.
    async fn secret(&self, tenant: &TenantId, name: &str) -> Option<String>;
}

/// No credentials at all: what a server without a vault has.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSecrets;

#[async_trait]
impl SecretLookup for NoSecrets {
    async fn secret(&self, _tenant: &TenantId, _name: &str) -> Option<String> {
        None
    }
}

/// What one call may ask of the host.
#[derive(Debug)]
pub(super) struct Host {
    /// For the log, as are the words below.
    tool: String,
    invocation: String,
    tenant: TenantId,
    /// Names the manifest declares.
    credentials: Vec<Box<str>>,
    secrets: Arc<dyn SecretLookup>,
    /// Lines written so far.
    lines: u32,
}

impl Host {
    /// For one call.
    pub(super) fn of(call: &ToolCall, credentials: Vec<Box<str>>, secrets: Arc<dyn SecretLookup>) -> Self {
        let (tool, invocation) = (call.tool.id.to_string(), call.invocation_id.to_string());
        Self { tool, invocation, tenant: call.tenant.clone(), credentials, secrets, lines: 0 }
    }

    /// For an instance that is made and never called.
    pub(super) fn of_nobody() -> Self {
        let (tool, invocation) = (String::new(), String::new());
        let (credentials, secrets) = (Vec::new(), Arc::new(NoSecrets));
        Self { tool, invocation, tenant: TenantId::home(), credentials, secrets, lines: 0 }
    }

    /// HOST-2: the line, unless the guest has said enough.
    fn line(&mut self, text: &str) -> Option<String> {
        self.lines = self.lines.saturating_add(1);
        (self.lines <= LINES_MAX).then(|| printable(&text.chars().take(LINE_CHARS_MAX).collect::<String>()))
    }

    fn progress(&mut self, percent: Option<f64>, message: &str) {
        if let Some(message) = self.line(message) {
            let percent = percent.filter(|value| value.is_finite()).map(|value| value.clamp(0.0, 100.0));
            tracing::debug!(tool = %self.tool, invocation = %self.invocation, percent, message, "the tool reports progress");
        }
    }

    fn log(&mut self, level: Level, message: &str) {
        let Some(message) = self.line(message) else { return };
        match level {
            Level::Debug => tracing::debug!(tool = %self.tool, invocation = %self.invocation, message, "the tool says"),
            Level::Info => tracing::info!(tool = %self.tool, invocation = %self.invocation, message, "the tool says"),
            Level::Warn => tracing::warn!(tool = %self.tool, invocation = %self.invocation, message, "the tool says"),
            Level::Error => tracing::error!(tool = %self.tool, invocation = %self.invocation, message, "the tool says"),
        }
    }

    /// HOST-1.
    async fn secret(&self, name: &str) -> Result<String, String> {
        let refused = || "there is no such credential for this tool".to_owned();
        if !self.credentials.iter().any(|declared| **declared == *name) {
            return Err(refused());
        }
        self.secrets.secret(&self.tenant, name).await.ok_or_else(refused)
    }
}

/// `gantry:tool/host.level`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by `Lift` from what the guest says")]
enum Level {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

/// `gantry:tool/types.error-kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "made by `Lift` from what the guest says")]
pub(super) enum ErrorKind {
    #[component(name = "invalid-parameters")]
    InvalidParameters,
    #[component(name = "failed")]
    Failed,
    #[component(name = "unavailable")]
    Unavailable,
}

/// `gantry:tool/types.tool-error`.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(record)]
pub(super) struct ToolError {
    #[component(name = "kind")]
    pub(super) kind: ErrorKind,
    #[component(name = "message")]
    pub(super) message: String,
}

/// Gives the interfaces of `gantry:tool` to guests.
pub(super) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut host = linker.instance("gantry:tool/host@1.0.0")?;
    host.func_wrap("progress", |mut store: StoreContextMut<'_, State>, (percent, message): (Option<f64>, String)| {
        store.data_mut().host.progress(percent, &message);
        Ok(())
    })?;
    host.func_wrap("log", |mut store: StoreContextMut<'_, State>, (level, message): (Level, String)| {
        store.data_mut().host.log(level, &message);
        Ok(())
    })?;
    host.func_wrap("get-document", |_store: StoreContextMut<'_, State>, (_id,): (String,)| {
        let answer: Result<String, String> = Err("this server has no documents for tools".to_owned());
        Ok((answer,))
    })?;
    let mut secrets = linker.instance("gantry:tool/secrets@1.0.0")?;
    secrets.func_wrap_async("get", |store: StoreContextMut<'_, State>, (name,): (String,)| {
        Box::new(async move { Ok((store.data().host.secret(&name).await,)) })
    })?;
    Ok(())
}
