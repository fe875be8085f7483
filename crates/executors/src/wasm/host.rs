//! The host's side of `gantry:tool` (`wit/gantry-tool/tool.wit`): progress, log, documents, secrets.
//!
//! Invariants
//! - HOST-1: a secret is given under its exact, declared name and to nobody else; every other name gets the same answer.
//!   All that is declared is there before the guest starts, or the guest does not start.
//! - HOST-2: what a guest says is bounded in number and length, and made printable, before it reaches the log.
//!
//! Not here: WASI (`grants`), HTTP (`outbound`).

use std::fmt;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
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
/// The executor asks for each name that the tool's manifest declares, before the tool starts, and for no other.
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

/// The declared credentials of one call, with their values. Never shown.
#[derive(Default)]
pub(super) struct Secrets(Vec<(Box<str>, String)>);

impl Secrets {
    /// Everything the manifest declares.
    ///
    /// # Errors
    /// E3602 if one of them is not provisioned: a tool without its credential would only fail later and less clearly.
    pub(super) async fn fetch(
        lookup: &dyn SecretLookup,
        tenant: &TenantId,
        declared: &[Box<str>],
    ) -> Result<Self, Refusal> {
        let mut secrets = Vec::with_capacity(declared.len());
        for name in declared {
            let value = lookup.secret(tenant, name).await.ok_or_else(|| {
                Refusal::new(ErrorCode::E3602, format!("the credential `{name}` is not provisioned"))
                    .hint(format!("let the operator provision `{name}` for this tenant; the tool was not started"))
            })?;
            secrets.push((name.clone(), value));
        }
        Ok(Self(secrets))
    }

    /// HOST-1.
    fn get(&self, name: &str) -> Result<String, String> {
        let found = self.0.iter().find(|(declared, _)| **declared == *name);
        found.map(|(_, value)| value.clone()).ok_or_else(|| "the manifest declares no such credential".to_owned())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// What one call may ask of the host.
#[derive(Debug)]
pub(super) struct Host {
    /// For the log, as is the next.
    tool: String,
    invocation: String,
    secrets: Secrets,
    /// Lines written so far.
    lines: u32,
}

impl Host {
    /// For one call.
    pub(super) fn of(call: &ToolCall, secrets: Secrets) -> Self {
        Self { tool: call.tool.id.to_string(), invocation: call.invocation_id.to_string(), secrets, lines: 0 }
    }

    /// For an instance that is made and never called.
    pub(super) fn of_nobody() -> Self {
        Self { tool: String::new(), invocation: String::new(), secrets: Secrets::default(), lines: 0 }
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
    secrets.func_wrap("get", |store: StoreContextMut<'_, State>, (name,): (String,)| {
        Ok((store.data().host.secrets.get(&name),))
    })?;
    Ok(())
}
