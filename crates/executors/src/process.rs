//! A program in the tool's own folder (`type = "process"`), in simple mode: parameters as JSON on stdin, the result as
//! JSON on stdout, a non-zero exit is an error, stderr is the log (DESIGN §3, EXEC-010…012, EXEC-020, EXEC-022).
//!
//! There is no sandbox in this build. A tool that runs as a plain child of the server can read what the server can read,
//! so nothing runs unless the operator has said so ([`ProcessPolicy::Unsandboxed`]), and a tool that asks for more
//! isolation, or for session mode, is refused and never given less (DESIGN §6.1).
//!
//! Invariants
//! - PROC-1: no shell. Program and arguments are handed over as they stand in the manifest.
//! - PROC-2: the child gets an environment of our making and inherits nothing (EXEC-020).
//! - PROC-3: when the call ends, for whatever reason, the whole process group is killed (EXEC-022).
//! - PROC-4: a bound on CPU, memory or network that a caller asks for is refused, because nothing here could keep it.
//! - PROC-5: what the child writes is bounded: [`STDOUT_BYTES_MAX`] is an error, of stderr only the end is kept.
//!
//! Not here: isolation, accounting of CPU and memory (reported as zero), deadlines (the kernel drops the future).

use std::os::unix::process::ExitStatusExt as _;

use async_trait::async_trait;
use contract::envelope::CallLimits;
use contract::error::{ErrorCode, Refusal};
use contract::json::{self, JsonLimits};
use contract::manifest::{Execution, Isolation, ProcessProtocol};
use kernel::ports::executor::{Executor, ToolCall, ToolOutput};
use kernel::registry::ToolVersion;
use serde_json::Value;

use self::child::{Child, ChildError, Ended};
use crate::homes::Homes;

mod child;

/// Bytes a tool may write to stdout (VALID-013).
pub const STDOUT_BYTES_MAX: usize = 1 << 20;

/// Whether processes may run without a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProcessPolicy {
    /// No process tool runs. The default, because this build cannot isolate one.
    #[default]
    Refuse,
    /// Process tools run as plain children of the server, with its rights. For development, or inside a container.
    Unsandboxed,
}

/// Runs tools of type `process`.
#[derive(Debug, Default)]
pub struct ProcessExecutor {
    policy: ProcessPolicy,
    homes: Homes,
}

impl ProcessExecutor {
    /// For the tools that live in these folders; a command runs in its tool's own.
    pub fn new(policy: ProcessPolicy, homes: Homes) -> Self {
        Self { policy, homes }
    }

    fn admitted(&self, isolation: Isolation, protocol: ProcessProtocol) -> Result<(), Refusal> {
        match isolation {
            Isolation::Process => {}
            Isolation::Gvisor => return Err(no_isolation("gvisor")),
            Isolation::Microvm => return Err(no_isolation("microvm")),
        }
        if protocol == ProcessProtocol::Session {
            return Err(Refusal::new(
                ErrorCode::E3108,
                "this build does not speak the process protocol `gantry/1` yet",
            )
            .hint("use `protocol = \"simple\"`: parameters on stdin, result on stdout")
            .retryable(false));
        }
        match self.policy {
            ProcessPolicy::Unsandboxed => Ok(()),
            ProcessPolicy::Refuse => Err(Refusal::new(
                ErrorCode::E3405,
                "process tools need a sandbox, which this build does not have yet",
            )
            .hint("to run them with the server's own rights, start it with `--unsandboxed-processes` or set `[process] unsandboxed = true`")
            .retryable(false)),
        }
    }
}

#[async_trait]
impl Executor for ProcessExecutor {
    fn kind(&self) -> &'static str {
        "process"
    }

    fn ready(&self, tool: &ToolVersion, binding: &Execution) -> Result<(), Refusal> {
        let Execution::Process { isolation, protocol, .. } = binding else { return Err(unbound()) };
        self.admitted(*isolation, *protocol)?;
        self.homes.of(tool).map(drop)
    }

    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, Refusal> {
        let Some(Execution::Process { command, isolation, protocol, env }) = &call.tool.manifest.execution else {
            return Err(unbound());
        };
        // Asked again, because an executor that relies on having been asked would run unsandboxed by mistake.
        self.admitted(*isolation, *protocol)?;
        enforceable(&call.limits)?;
        let home = self.homes.of(&call.tool)?;
        let child = Child::start(command, env, &home).map_err(|error| not_started(&call, &error))?;
        let input = call.parameters.to_string().into_bytes();
        let ended = child.talk(input, STDOUT_BYTES_MAX).await.map_err(|error| broken(&call, &error))?;
        log(&call, &ended);
        judged(&ended).map(ToolOutput::of)
    }
}

fn unbound() -> Refusal {
    Refusal::new(ErrorCode::E3108, "the tool is not bound to a process").retryable(false)
}

/// A caller who asks for a bound relies on it; without a sandbox there is none but the deadline.
fn enforceable(limits: &CallLimits) -> Result<(), Refusal> {
    let CallLimits { timeout_seconds: _, cpu_millicore_limit, memory_mb_limit, network_bandwidth_mbps } = limits;
    if cpu_millicore_limit.is_none() && memory_mb_limit.is_none() && network_bandwidth_mbps.is_none() {
        return Ok(());
    }
    Err(Refusal::new(ErrorCode::E3405, "this build cannot bound the CPU, memory or network of a process")
        .hint("leave everything but `timeout_seconds` out of `resource_limits`")
        .retryable(false))
}

fn no_isolation(wanted: &str) -> Refusal {
    Refusal::new(ErrorCode::E3405, format!("this build cannot give the isolation `{wanted}` that the tool demands"))
        .hint("use a server that has it; less isolation than demanded is never given")
        .retryable(false)
}

/// The result, or what the end of the process means.
fn judged(ended: &Ended) -> Result<Value, Refusal> {
    if let Some(signal) = ended.status.signal() {
        return Err(Refusal::new(ErrorCode::E3404, format!("the tool was ended by signal {signal}"))
            .hint("look at the server's log for what the tool wrote to stderr"));
    }
    if !ended.status.success() {
        let code = ended.status.code().unwrap_or(-1);
        return Err(
            failed(format!("the tool failed with exit code {code}")).details(serde_json::json!({ "exit_code": code }))
        );
    }
    if ended.stdout.iter().all(u8::is_ascii_whitespace) {
        return Err(failed("the tool gave no result: it must write JSON to stdout"));
    }
    let limits = JsonLimits { bytes_max: STDOUT_BYTES_MAX, ..JsonLimits::default() };
    json::read(&ended.stdout, &limits).map_err(|_| failed("the tool's result is not acceptable JSON"))
}

fn failed(message: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::E3401, message)
        .hint("look at the server's log for what the tool wrote to stderr")
        .retryable(false)
}

fn not_started(call: &ToolCall, error: &std::io::Error) -> Refusal {
    tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, "the tool's program could not be started");
    Refusal::new(ErrorCode::E3401, "the tool's program could not be started")
        .hint("check that `execution.command` names a program that is installed or stands in the tool's folder")
        .retryable(false)
}

fn broken(call: &ToolCall, error: &ChildError) -> Refusal {
    tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, %error, "the tool was stopped");
    match error {
        ChildError::TooMuchOutput { limit } => {
            Refusal::new(ErrorCode::E3407, format!("the tool's result is larger than {limit} bytes"))
                .hint("let the tool return less, for example a page or a reference")
        }
        ChildError::Io(_) => Refusal::new(ErrorCode::E3404, "the connection to the tool broke"),
    }
}

/// The tool's own words are for the log of the operator, never for the caller.
fn log(call: &ToolCall, ended: &Ended) {
    let lines = ended.last_lines();
    if !ended.status.success() {
        tracing::warn!(tool = %call.tool.id, invocation = %call.invocation_id, status = %ended.status, stderr = %lines, "the tool failed");
    } else if !lines.is_empty() {
        tracing::debug!(tool = %call.tool.id, invocation = %call.invocation_id, stderr = %lines, "the tool wrote to its log");
    }
}
