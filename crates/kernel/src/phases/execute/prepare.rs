//! Preparation of a call: everything that can be read before anything is counted or written (EXE-1).

use std::sync::Arc;

use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use contract::manifest::Isolation;
use contract::schema::CoercionNote;
use ports::call_deadline::CallDeadline;
use ports::executor::{Executor, no_executor};
use ports::resolved_limits::ResolvedLimits;
use ports::tool_version::ToolVersion;
use serde_json::Value;

use super::super::authorize::Authorized;
use super::super::conditions::Conditions;
use super::super::facts::{CallFacts, millis};
use super::place::isolation_of;
use super::timed_out;
use crate::deadline::TimeAllowed;
use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::isolation;
use crate::ledger::CallKey;

/// A call that can run as it was declared. Its time has begun.
pub(super) struct PreparedCall<'k> {
    pub(super) caller: Arc<Principal>,
    pub(super) tool: Arc<ToolVersion>,
    pub(super) parameters: Arc<Value>,
    pub(super) parameters_digest: Digest,
    pub(super) key: CallKey,
    pub(super) coercions: Vec<CoercionNote>,
    pub(super) conditions: Conditions,
    pub(super) limits: ResolvedLimits,
    pub(super) isolation: Isolation,
    pub(super) executor: &'k Arc<dyn Executor>,
    pub(super) deadline: Arc<CallDeadline>,
}

impl PreparedCall<'_> {
    /// The refusal of a call whose time is over.
    pub(super) fn timed_out(&self) -> Refusal {
        timed_out(&self.tool, millis(self.deadline.allowed()))
    }
}

/// Reads how the call is to run, or says why it cannot.
pub(super) fn prepare<'k>(
    kernel: &'k Kernel,
    facts: &CallFacts,
    authorized: Authorized,
) -> Result<PreparedCall<'k>, Refusal> {
    let Authorized {
        caller,
        tool,
        parameters,
        parameters_digest,
        key,
        coercions,
        time_allowed: TimeAllowed { usual, most },
        limits,
        conditions,
        decision: _,
    } = authorized;
    tool.permissions()?;
    let result_bytes = kernel.parts.envelope.result_bytes_of(&tool.manifest)?;
    let limits = kernel.parts.envelope.resolve(tool.manifest.resource_limits.as_ref(), &limits)?;
    let limits = ResolvedLimits { result_bytes, ..limits };
    let isolation = isolation_of(kernel, &caller, &tool, &conditions);
    let executor = executor_for(kernel, &tool, isolation)?;
    facts.checkpointing.possible(&**executor, &tool)?;
    let deadline = Arc::new(CallDeadline::new(Arc::clone(&kernel.parts.clock), usual, most));
    Ok(PreparedCall {
        caller,
        tool,
        parameters,
        parameters_digest,
        key,
        coercions,
        conditions,
        limits,
        isolation,
        executor,
        deadline,
    })
}

fn executor_for<'k>(
    kernel: &'k Kernel,
    tool: &ToolVersion,
    demand: Isolation,
) -> Result<&'k Arc<dyn Executor>, Refusal> {
    let Some(binding) = &tool.manifest.execution else {
        return Err(Refusal::new(
            ErrorCode::E3108,
            format!("`{}` {} is catalogued without a way to run it", tool.id, tool.version),
        )
        .hint("publish a version whose manifest has an `execution` table")
        .retryable(false));
    };
    let kind = binding.kind();
    let executor =
        kernel.parts.executors.iter().find(|executor| executor.kind() == kind).ok_or_else(|| no_executor(kind))?;
    isolation::possible(binding, demand)?;
    executor.ready(tool, binding, demand)?;
    Ok(executor)
}
