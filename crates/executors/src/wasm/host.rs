//! The host's side of `gantry:tool` (`wit/gantry-tool/tool.wit`): progress, log, documents, the call itself, secrets,
//! checkpoints.
//!
//! Invariants
//! - HOST-1: a secret is given under its exact, declared name and to nobody else; every other name gets the same answer.
//!   All that is declared is there before the guest starts, or the guest does not start.
//! - HOST-2: what a guest says is bounded in number and length, and made printable, before it reaches the log.
//!
//! Not here: WASI (`grants`), HTTP (`outbound`).

use std::fmt;
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::Subject;
use contract::json::{self, JsonLimits};
use ports::executor::{ResumePoint, ToolCall};
use ports::saved_state::STATE_BYTES_MAX;
use ports::secret_source::SecretValue;
use ports::tool_companion::{LogLevel, SilentCompanion, ToolCompanion, ToolProgress, ToolSnapshot};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Lift, Linker, Lower};

use super::state::State;
use super::streams::printable;
use crate::confinement::CallSecrets;

/// Lines of progress and log that one call may write; the rest is counted and dropped.
const LINES_MAX: u32 = 1_000;
/// Characters of one such line that are handed on, to be redacted and then cut.
const LINE_CHARS_MAX: usize = 16_000;

/// The declared credentials of one call, with their values. Never shown.
#[derive(Default)]
pub(super) struct Secrets(Vec<(Box<str>, String)>);

impl Secrets {
    /// Those of one call. A value that is no text cannot be handed to a guest.
    pub(super) fn of(secrets: &CallSecrets) -> Result<Self, Refusal> {
        let one = |(name, secret): (&str, &SecretValue)| {
            let text = String::from_utf8(secret.expose().to_vec()).map_err(|_| {
                Refusal::new(ErrorCode::E3602, format!("the credential `{name}` is not text, which a WASM tool needs"))
            })?;
            Ok((name.into(), text))
        };
        secrets.iter().map(one).collect::<Result<_, _>>().map(Self)
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
    companion: Arc<dyn ToolCompanion>,
    /// The server's own threads: a guest's have not the rights that getting a document may need.
    server: Handle,
    secrets: Secrets,
    /// What the call goes on from.
    resume: Option<Arc<ResumePoint>>,
    /// What tells a repetition of the act from a new one; empty where nothing is called.
    idempotency_key: Arc<str>,
    /// The person on whose behalf it is called.
    user: Option<Subject>,
    /// Lines written so far.
    lines: u32,
}

impl Host {
    /// For one call, which comes on a thread of the server's.
    pub(super) fn of(companion: Arc<dyn ToolCompanion>, secrets: Secrets, call: &ToolCall) -> Self {
        let (resume, idempotency_key) = (call.resume.clone(), Arc::clone(&call.idempotency_key));
        let user = call.user.clone();
        Self { companion, server: Handle::current(), secrets, resume, idempotency_key, user, lines: 0 }
    }

    /// For an instance that is made and never called.
    pub(super) fn of_nobody() -> Self {
        Self {
            companion: SilentCompanion::new(),
            server: Handle::current(),
            secrets: Secrets::default(),
            resume: None,
            idempotency_key: Arc::default(),
            user: None,
            lines: 0,
        }
    }

    /// HOST-2: the line, unless the guest has said enough.
    fn line(&mut self, text: &str) -> Option<String> {
        self.lines = self.lines.saturating_add(1);
        (self.lines <= LINES_MAX).then(|| printable(&text.chars().take(LINE_CHARS_MAX).collect::<String>()))
    }

    /// Has something done for the guest on the server's own threads; it ends with the guest.
    fn asked(
        &self,
        work: impl Future<Output = Result<String, Refusal>> + Send + 'static,
    ) -> impl Future<Output = Result<String, String>> + Send + 'static {
        let mut asked = JoinSet::new();
        asked.spawn_on(work, &self.server);
        async move {
            match asked.join_next().await {
                Some(Ok(answer)) => answer.map_err(|refusal| refusal.message),
                Some(Err(_)) | None => Err("the server could not do it".to_owned()),
            }
        }
    }

    fn progress(&mut self, percent: Option<f64>, message: &str) {
        if let Some(message) = self.line(message) {
            let percent = percent.filter(|value| value.is_finite()).map(|value| value.clamp(0.0, 100.0));
            self.companion.progress(ToolProgress { percent, message: Some(message), ..ToolProgress::default() });
        }
    }

    fn log(&mut self, level: Level, message: &str) {
        let Some(message) = self.line(message) else { return };
        let level = match level {
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
            Level::Error => LogLevel::Error,
        };
        self.companion.log(level, &message);
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

/// Of the text of a state.
fn state_limits() -> JsonLimits {
    JsonLimits { bytes_max: STATE_BYTES_MAX, string_bytes_max: STATE_BYTES_MAX, ..JsonLimits::default() }
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
    host.func_wrap_async("get-document", |store: StoreContextMut<'_, State>, (id,): (String,)| {
        let host = &store.data().host;
        let companion = Arc::clone(&host.companion);
        let asked = host.asked(async move { companion.document(&id).await.map(|document| document.to_string()) });
        Box::new(async move { Ok((asked.await,)) })
    })?;
    let mut checkpoints = linker.instance("gantry:tool/checkpoints@1.0.0")?;
    checkpoints.func_wrap("resume-state", |store: StoreContextMut<'_, State>, (): ()| {
        let resume = store.data().host.resume.as_ref();
        Ok((resume.map(|point| point.saved.custom_state.to_string()),))
    })?;
    checkpoints.func_wrap_async(
        "save",
        |store: StoreContextMut<'_, State>, (name, state): (Option<String>, String)| {
            let host = &store.data().host;
            let companion = Arc::clone(&host.companion);
            let asked = host.asked(async move {
                let state = json::read(state.as_bytes(), &state_limits()).map_err(|error| {
                    Refusal::new(ErrorCode::E3906, format!("the state of a checkpoint is JSON: {error}"))
                })?;
                companion.checkpoint(ToolSnapshot { name, state, ..ToolSnapshot::default() }).await
            });
            Box::new(async move { Ok((asked.await,)) })
        },
    )?;
    let mut invocation = linker.instance("gantry:tool/invocation@1.0.0")?;
    invocation.func_wrap("idempotency-key", |store: StoreContextMut<'_, State>, (): ()| {
        Ok((store.data().host.idempotency_key.to_string(),))
    })?;
    invocation.func_wrap("user", |store: StoreContextMut<'_, State>, (): ()| {
        Ok((store.data().host.user.as_ref().map(ToString::to_string),))
    })?;
    let mut secrets = linker.instance("gantry:tool/secrets@1.0.0")?;
    secrets.func_wrap("get", |store: StoreContextMut<'_, State>, (name,): (String,)| {
        Ok((store.data().host.secrets.get(&name),))
    })?;
    Ok(())
}
