//! A way to run a tool. Built-ins, processes, WASM, HTTP … each implement this one trait.
//!
//! Executors decide nothing: no rights, no retries, no records (AUTH-020, X-05). They get a call that has been validated
//! and authorized, run it, and say what came of it in terms of the error table.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::envelope::CallLimits;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, Subject, TenantId, TraceId};
use contract::manifest::Execution;
use serde_json::Value;

use crate::registry::ToolVersion;

/// One authorized call, as an executor sees it.
#[derive(Debug, Clone)]
pub struct ToolCall {
    pub invocation_id: InvocationId,
    pub trace_id: TraceId,
    pub tool: Arc<ToolVersion>,
    /// Exactly the value that passed validation (VALID-005).
    pub parameters: Arc<Value>,
    pub tenant: TenantId,
    pub subject: Subject,
    /// Time left until the call's deadline. The kernel drops the future at the deadline; an executor with something to
    /// stop outside the process (a child, a request) stops it when dropped.
    pub time_left: Duration,
    /// What the caller allows this call to use; never more than the manifest does.
    pub limits: CallLimits,
}

/// What a call used. Zero where an executor cannot know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub cpu_millicore_seconds: u64,
    pub memory_peak_mb: u64,
    pub network_bytes_sent: u64,
    pub network_bytes_received: u64,
    /// Tokens of the model behind the tool.
    pub tokens: Option<u64>,
}

/// What a tool gave back, before anybody has verified it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolOutput {
    pub value: Value,
    pub usage: Usage,
}

impl ToolOutput {
    /// A result that used nothing worth counting.
    pub fn of(value: Value) -> Self {
        Self { value, usage: Usage::default() }
    }
}

/// Runs tools of one kind.
///
/// ```
/// # use gantry_kernel::ports::executor::{Executor, ToolCall, ToolOutput};
/// # use contract::error::Refusal;
/// #[derive(Debug)]
/// struct Echo;
/// #[async_trait::async_trait]
/// impl Executor for Echo {
///     fn kind(&self) -> &'static str { "builtin" }
///     async fn execute(&self, call: ToolCall) -> Result<ToolOutput, Refusal> {
///         Ok(ToolOutput::of((*call.parameters).clone()))
///     }
/// }
/// ```
#[async_trait]
pub trait Executor: Send + Sync + fmt::Debug {
    /// The `execution.type` this executor runs.
    fn kind(&self) -> &'static str;

    /// Can this binding run here, now? Asked when a call arrives, before anything is done; the answer must be cheap.
    /// The default is yes.
    fn ready(&self, tool: &ToolVersion, binding: &Execution) -> Result<(), Refusal> {
        let _ = (tool, binding);
        Ok(())
    }

    /// Runs the call once. Never retries. Dropping the future must stop the work.
    ///
    /// A failure says whose fault it was by its code: parameters the tool cannot work with E3301, the tool itself E3401,
    /// a crash E3404, a service behind it E3502…E3504, no sandbox E3405.
    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, Refusal>;
}

/// The refusal for a binding that nothing on this server can run.
pub fn no_executor(kind: &str) -> Refusal {
    Refusal::new(ErrorCode::E3108, format!("this server has no executor for tools of type `{kind}`"))
        .hint("register a version with an execution type this server has, or use a server that has it")
        .retryable(false)
}
