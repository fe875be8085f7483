//! A program in the tool's own folder (`type = "process"`), in a sandbox that has what its manifest declares and nothing
//! else (EXEC-003…022, DESIGN §3, §6).
//!
//! The program sees its folder read-only at `/tool`, which is where it starts; the declared paths under their own names;
//! declared credentials as files in `/run/secrets`; and, if it declared hosts, a proxy that leads to those.
//!
//! Two ways to talk to it: *simple* ([`simple`]), parameters on stdin and result on stdout, one process per call; and
//! *sessions* ([`session`]), JSON-RPC on both, where a process can stay for the next call of the same tool and tenant
//! ([`warm`]).
//!
//! Invariants
//! - PROC-1: no shell. Program and arguments are handed over as they stand in the manifest.
//! - PROC-2: the child gets an environment of our making and inherits nothing (EXEC-020).
//! - PROC-3: when the call ends, for whatever reason, everything the program has started ends with it (EXEC-022). A warm
//!   process is the declared exception: it and everything it has started stand still until its next call.
//! - PROC-4: the demanded isolation is given or the call is refused. Without a sandbox nothing runs, unless the operator
//!   has said so ([`ProcessIsolation::Unsandboxed`]), and then no limit is promised.
//! - PROC-5: what the child writes is bounded; secrets are taken out of all of it.
//!
//! Not here: what declared words mean ([`confinement`](crate::confinement)), deadlines (the kernel drops the future).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::{Execution, Isolation, Manifest, ManifestError, ProcessProtocol};
use ports::clock::Clock;
use ports::executor::{Executor, ExecutorError, ToolCall, ToolOutput};
use ports::tool_version::ToolVersion;

use self::prepared::PreparedSandbox;
use self::process_run::ProcessRun;
use self::warm::{WarmBounds, WarmPool};
use crate::confinement::ToolConfinement;
use crate::log_hint;
use crate::sandbox_provider::SandboxProvider;
use crate::tool_directories::ToolDirectories;

mod attended;
mod child;
mod ended;
pub(crate) mod exchange;
pub mod key_block;
pub mod log_end;
pub mod output;
pub(crate) mod prepared;
mod process_run;
pub mod scrub;
mod service_failure;
pub mod session;
pub mod simple;
mod stray_output;
pub mod streams;
mod unsandboxed;
pub mod warm;

/// The variable in which a program in simple mode finds the idempotency key of its call. A session is told with the call, and
/// a warm process serves many, so it is in no environment there.
const KEY_VARIABLE: &str = "IDEMPOTENCY_KEY";

/// The variable in which such a program finds the person on whose behalf it is called, if the token names one.
const USER_VARIABLE: &str = "GANTRY_USER";

/// Where a tool's folder has the packages that were installed into it for Python, and the variable by which Python finds them.
/// What the manifest's `env` says goes before. (decision 0107)
const PYTHON_PACKAGES: &str = "gantry-packages/python";
const PYTHON_PATH: &str = "PYTHONPATH";

/// What a program finds about its call in its environment: the user, and the key of the act. A pure tool does nothing twice,
/// so it is told no key.
fn call_environment(call: &ToolCall) -> impl Iterator<Item = (String, String)> {
    let has_effects = call.tool.manifest.side_effect_policy.has_effects();
    let key = has_effects.then(|| (KEY_VARIABLE.to_owned(), call.idempotency_key.to_string()));
    let user = call.user.as_ref().map(|user| (USER_VARIABLE.to_owned(), user.to_string()));
    key.into_iter().chain(user)
}

/// Bytes that a program may write as its result: as many as the call allows. The kernel counts the result itself.
fn result_bytes_max(call: &ToolCall) -> usize {
    usize::saturating_from(call.limits.result_bytes)
}

/// What stands around processes.
#[derive(Debug, Clone)]
pub enum ProcessIsolation {
    /// A sandbox each.
    Sandboxed(SandboxProvider),
    /// Nothing: process tools run as plain children of the server, with its rights. For development, or inside a
    /// container that cannot make namespaces.
    Unsandboxed,
}

/// Runs tools of type `process`.
#[derive(Debug)]
pub struct ProcessExecutor {
    isolation: ProcessIsolation,
    homes: ToolDirectories,
    confinement: ToolConfinement,
    warm: Arc<WarmPool<ProcessRun>>,
}

impl ProcessExecutor {
    /// For the tools that live in these folders.
    pub fn new(
        isolation: ProcessIsolation,
        homes: ToolDirectories,
        confinement: ToolConfinement,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let warm = Arc::new(WarmPool::new(clock, WarmBounds::default()));
        Self { isolation, homes, confinement, warm }
    }

    /// Processes that wait for their next call. Whoever watches over the server lets them expire
    /// ([`WarmPool::keep_in_order`]) and forgets those of a version that is unloaded.
    pub fn warm(&self) -> &Arc<WarmPool<ProcessRun>> {
        &self.warm
    }

    async fn prepared(
        &self,
        walls: &SandboxProvider,
        call: &ToolCall,
        (command, env): (&[String], &BTreeMap<String, String>),
        home: &Path,
    ) -> Result<PreparedSandbox, Refusal> {
        let prepared = PreparedSandbox::for_call(&self.confinement, call, command, env).await?;
        let prepared = prepared.in_folder(&self.confinement, call, home).await?;
        Ok(prepared.behind(walls.around_program(call.isolation)?))
    }

    fn admitted(&self, demand: Isolation, protocol: ProcessProtocol) -> Result<(), Refusal> {
        match &self.isolation {
            ProcessIsolation::Sandboxed(walls) => walls.around_program(demand).map(drop),
            ProcessIsolation::Unsandboxed if demand > Isolation::Process => Err(Refusal::new(
                ErrorCode::E3405,
                "the isolation that this call demands cannot be given without the sandbox",
            )
            .hint("start the server without `--unsandboxed-processes`; less isolation than demanded is never given")
            .retryable(false)),
            ProcessIsolation::Unsandboxed if protocol == ProcessProtocol::Session => {
                Err(Refusal::new(ErrorCode::E3108, "the process protocol `gantry/1` needs the sandbox")
                    .hint("use `protocol = \"simple\"`, or start the server without `--unsandboxed-processes`")
                    .retryable(false))
            }
            ProcessIsolation::Unsandboxed => Ok(()),
        }
    }
}

#[async_trait]
impl Executor for ProcessExecutor {
    fn is_well(&self) -> bool {
        match &self.isolation {
            ProcessIsolation::Sandboxed(walls) => walls.sandbox().is_able(),
            ProcessIsolation::Unsandboxed => true,
        }
    }

    fn kind(&self) -> &'static str {
        "process"
    }

    fn admits(&self, tenant: &TenantId, manifest: &Manifest) -> Result<(), ManifestError> {
        if let ProcessIsolation::Unsandboxed = &self.isolation {
            unsandboxed::admit(manifest)?;
        }
        self.homes.admit(tenant, manifest)
    }

    fn saves(&self, manifest: &Manifest) -> bool {
        matches!(manifest.execution, Some(Execution::Process { protocol: ProcessProtocol::Session, .. }))
    }

    fn ready(&self, tool: &ToolVersion, binding: &Execution, demand: Isolation) -> Result<(), Refusal> {
        let Execution::Process { protocol, .. } = binding else { return Err(unbound()) };
        self.admitted(demand, *protocol)?;
        let permissions = tool.permissions()?;
        permissions.read.iter().chain(&permissions.write).try_for_each(|path| self.confinement.admitted(path))?;
        self.homes.of(tool).map(drop)
    }

    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        let Some(Execution::Process { command, protocol, env, warm, .. }) = &call.tool.manifest.execution else {
            return Err(ExecutorError::not_sent(unbound()));
        };
        call.dispatch.hold();
        // A program that cannot be started has a log too: an empty one.
        call.program_log.leave(String::new);
        // Asked again, because an executor that relies on having been asked would run unsandboxed by mistake.
        self.admitted(call.isolation, *protocol).map_err(ExecutorError::not_sent)?;
        let home = self.homes.of(&call.tool).map_err(ExecutorError::not_sent)?;
        let walls = match &self.isolation {
            ProcessIsolation::Unsandboxed => {
                return unsandboxed::run(&call, command, env, &home).await.map_err(log_hint::naming(&call.tool.id));
            }
            ProcessIsolation::Sandboxed(walls) => walls,
        };
        let prepared = self.prepared(walls, &call, (command, env), &home).await.map_err(ExecutorError::not_sent)?;
        let ended = match protocol {
            ProcessProtocol::Simple => exchange::simply(walls, &call, prepared).await,
            ProcessProtocol::Session => {
                let pool = warm.then_some(&self.warm);
                exchange::in_session(walls, &call, prepared, pool).await
            }
        };
        ended.map_err(log_hint::naming(&call.tool.id))
    }
}

fn unbound() -> Refusal {
    Refusal::new(ErrorCode::E3108, "the tool is not bound to a process").retryable(false)
}

/// Where the tool's folder is inside.
fn tool_dir() -> &'static Path {
    Path::new("/tool")
}
