//! Phase 4, execute: run the tool, under its deadline. What stands between it and a service that fails is in `attempts`.
//!
//! ```text
//! prepare ─▶ turn ─▶ claim ─▶ place ─▶ resume ─▶ spend ─▶ run
//!    │        │        └─▶ done before: answered with what came of it
//!    │        └ among the calls of this server; a job had its turn in the queue
//!    └ nothing is counted or written yet
//! ```
//!
//! Each step hands the next one a type that says what is true by then, so that none can be left out, or come before the one
//! it rests on.
//!
//! Invariants
//! - EXE-1: a call that cannot run as declared, or finds no turn in time, leaves nothing behind.
//! - EXE-2: a tool with effects is begun only after the ledger and the log have it, durably.
//! - EXE-3: a call is counted against budgets only when nothing but its tool can refuse it any more.

mod claim;
mod place;
mod prepare;
mod resume;
mod run;
mod spend;

use std::sync::Arc;

use contract::envelope::StaleNotice;
use contract::error::{ErrorCode, Refusal};
use contract::schema::CoercionNote;
use ports::executor::ToolOutput;
use ports::job_store::JobKey;
use ports::tool_version::ToolVersion;

use super::authorize::Authorized;
use super::conditions::Conditions;
use super::facts::CallFacts;
use crate::invocation_ids::{IdHold, job_digest, taken};
use crate::invoke::Kernel;
use crate::ledger::KeptResult;
use crate::resilience::last_results::{LastResult, ResultKey};
use claim::{CallClaim, claim};
use prepare::{PreparedCall, prepare};

pub(super) use place::demanded;
pub(crate) use place::takes_place;
pub(crate) use spend::note_spent_by_job;
pub(super) use spend::{spend, would_spend};

/// A call that ran to its end. Its output has not been looked at.
#[derive(Debug)]
pub struct Executed {
    pub(super) tool: Arc<ToolVersion>,
    pub(super) coercions: Vec<CoercionNote>,
    pub(super) output: Output,
    pub(super) conditions: Conditions,
    /// Bytes that its output may have.
    pub(super) result_bytes_max: u64,
    /// Under what it is kept as the last good result, if it turns out to be one.
    pub(super) result_key: Option<ResultKey>,
}

/// Where the output comes from.
#[derive(Debug)]
pub(super) enum Output {
    /// The tool has just given it.
    Fresh(ToolOutput),
    /// The call was made before; this was its result, verified then.
    Kept(Box<KeptResult>),
    /// The service behind the tool is left alone; this is what it said last.
    Stale(Former),
}

/// A result of an earlier call, and how old it is.
#[derive(Debug)]
pub(super) struct Former {
    pub(super) last: Arc<LastResult>,
    pub(super) notice: StaleNotice,
}

/// What came of it, and under what it is kept as the last good result, if it turns out to be one.
type Outcome = (Output, Option<ResultKey>);

/// Runs the phase.
pub async fn execute(kernel: &Kernel, facts: &mut CallFacts, authorized: Authorized) -> Result<Executed, Refusal> {
    if facts.is_id_given {
        // Boxed: few calls bring an id, and every call would carry the room.
        facts.id_hold = Box::pin(hold_id(kernel, facts, &authorized)).await?;
    }
    let call = prepare(kernel, facts, authorized)?;
    let (output, result_key) = carry_out(kernel, facts, &call).await?;
    let PreparedCall { tool, coercions, conditions, limits, .. } = call;
    Ok(Executed { tool, coercions, output, conditions, result_bytes_max: limits.result_bytes, result_key })
}

/// The steps, in their order.
async fn carry_out(kernel: &Kernel, facts: &mut CallFacts, call: &PreparedCall<'_>) -> Result<Outcome, Refusal> {
    // Held to the end.
    let turn = place::turn(kernel, facts, call).await?;
    let claimed = match claim(kernel, facts, call, &turn).await? {
        CallClaim::Run(claimed) => claimed,
        CallClaim::Answered(kept) => return Ok((Output::Kept(kept), None)),
    };
    let placed = place::place(kernel, facts, claimed).await?;
    let resumed = resume::resume(kernel, facts, placed).await?;
    let spent = spend::spend_for_call(kernel, facts, resumed).await?;
    run::run(kernel, facts, spent).await
}

/// Takes the id that the call came with, if nobody has it. The ledger says whether it has, when the call is begun.
async fn hold_id(kernel: &Kernel, facts: &CallFacts, authorized: &Authorized) -> Result<Option<IdHold>, Refusal> {
    let (call, key) = (authorized.identity(), authorized.key());
    let (caller, tool, parameters) = authorized.admitted();
    let id = JobKey { tenant: caller.tenant().clone(), id: facts.invocation_id };
    if facts.is_job {
        return Ok(kernel.ids.hold_for_job(&id, call));
    }
    let hold = kernel.ids.hold(&id, call.clone())?;
    let digest = job_digest(&tool.id, parameters);
    kernel.ids.free_of_jobs(&id, &call, digest, (key, &*kernel.parts.redactor)).await?;
    // The ledger refuses what it begins. A call without effects is none of those, and its record must not stand beside another's.
    if !tool.manifest.side_effect_policy.has_effects() {
        let line = kernel.books().ledger().find(&id.tenant, id.id).await.map_err(|error| error.refusal())?;
        if line.is_some_and(|line| !call.is_of(&line.intent)) {
            return Err(taken());
        }
    }
    Ok(hold)
}

/// Ended by whoever made the call, or by the end of this server.
pub(super) fn cancelled(kernel: &Kernel, facts: &CallFacts, tool: &ToolVersion) -> Refusal {
    let why = if facts.is_left(kernel) { "was ended, because this server ends" } else { "was cancelled while it ran" };
    Refusal::new(ErrorCode::E3703, format!("`{}` {} {why}", tool.id, tool.version))
        .hint("call it again if the result is still wanted; a tool with effects may have had some of them")
        .retryable(tool.manifest.side_effect_policy.is_safe_to_retry())
}

pub(super) fn timed_out(tool: &ToolVersion, after_ms: u64) -> Refusal {
    let refusal = Refusal::new(ErrorCode::E3402, format!("`{}` {} took longer than its {after_ms} ms", tool.id, tool.version))
        .hint("ask for more time with resource_limits.timeout_seconds if the tool's timeout_class allows it, or ask for less work");
    // X-28: a timed-out write must not be repeated blindly.
    refusal.retryable(tool.manifest.side_effect_policy.is_safe_to_retry())
}
