//! Places of a call: its turn among the calls of this server, and a place among those of its agent if it runs code of a tool's
//! author here. Both are held until the call has ended.
//!
//! Not here: how places are shared (`concurrency`, `fair_places`).

use contract::error::Refusal;
use contract::ids::TenantId;
use contract::manifest::{Execution, Isolation};
use fair_places::FairPermit;
use policy::Caller;
use ports::tool_version::ToolVersion;

use super::super::conditions::Conditions;
use super::super::facts::CallFacts;
use super::cancelled;
use super::claim::ClaimedCall;
use super::prepare::PreparedCall;
use crate::concurrency::NoPlace;
use crate::invoke::Kernel;
use crate::isolation::IsolationFacts;

/// It is the call's turn among the calls of this server. A job had its turn in the queue.
pub(super) struct CallTurn(
    #[expect(dead_code, reason = "held, not read: dropped, it is given back")] Option<FairPermit>,
);

/// A claimed call with every place it needs.
pub(super) struct PlacedCall<'c> {
    pub(super) call: &'c PreparedCall<'c>,
    _place: Option<FairPermit>,
}

/// Waits for the call's turn. Before anything is written: whoever finds none in time leaves nothing behind.
pub(super) async fn turn(kernel: &Kernel, facts: &CallFacts, call: &PreparedCall<'_>) -> Result<CallTurn, Refusal> {
    if facts.is_job {
        return Ok(CallTurn(None));
    }
    let left = call.deadline.left();
    let turn = kernel.concurrency.call(&call.caller, kernel.clock(), &facts.cancellation, left).await;
    Ok(CallTurn(Some(turn.map_err(|none| refusal_of(none, kernel, facts, &call.tool))?)))
}

/// EXEC-005: what runs no code of a tool's author here uses none of what the number protects. Not held while the call waits
/// for another one, whose key it has.
pub(super) async fn place<'c>(
    kernel: &Kernel,
    facts: &mut CallFacts,
    ClaimedCall(call): ClaimedCall<'c>,
) -> Result<PlacedCall<'c>, Refusal> {
    let is_needed = needs_place(call.isolation);
    let place = match facts.place.take() {
        None if is_needed => {
            let left = call.deadline.left();
            let place = kernel.concurrency.sandboxed(&call.caller, kernel.clock(), &facts.cancellation, left).await;
            Some(place.map_err(|none| refusal_of(none, kernel, facts, &call.tool))?)
        }
        brought => brought.filter(|_| is_needed),
    };
    Ok(PlacedCall { call, _place: place })
}

fn refusal_of(none: NoPlace, kernel: &Kernel, facts: &CallFacts, tool: &ToolVersion) -> Refusal {
    match none {
        NoPlace::Refused(refusal) => refusal,
        NoPlace::Cancelled => cancelled(kernel, facts, tool),
    }
}

/// Will calls of this tool by this tenant need a place among those of their agent, unless a policy demands more of one call?
pub(crate) fn takes_place(kernel: &Kernel, tenant: &TenantId, tool: &ToolVersion) -> bool {
    needs_place(demanded(kernel, tenant, tool))
}

fn needs_place(isolation: Isolation) -> bool {
    isolation > Isolation::Builtin
}

/// The most of what manifest, operator and policies demand.
pub(super) fn isolation_of(kernel: &Kernel, caller: &Caller, tool: &ToolVersion, conditions: &Conditions) -> Isolation {
    let demanded = demanded(kernel, caller.tenant(), tool);
    conditions.isolation.map_or(demanded, |level| level.max(demanded))
}

/// The most of what manifest and operator demand.
pub(in crate::phases) fn demanded(kernel: &Kernel, tenant: &TenantId, tool: &ToolVersion) -> Isolation {
    let asked = tool.manifest.execution.as_ref().map_or(Isolation::Builtin, Execution::isolation_asked);
    let facts = IsolationFacts { tool: &tool.id, aliases: &tool.aliases, tags: &tool.manifest.tags, tenant };
    kernel.parts.isolation.effective(asked, facts)
}
