//! Resumption of a call: the saved state it goes on from, if it wants to, and the act that it goes on with.
//!
//! Not here: how states are found and kept (`checkpoints`).

use std::sync::Arc;

use contract::error::Refusal;
use ports::executor::ResumePoint;

use super::super::facts::CallFacts;
use super::place::PlacedCall;
use crate::checkpoints::CheckpointKeeper;
use crate::invoke::Kernel;
use crate::ledger;

/// A placed call that knows where it begins.
pub(super) struct ResumedCall<'c> {
    pub(super) placed: PlacedCall<'c>,
    /// What it goes on from.
    pub(super) from: Option<Arc<ResumePoint>>,
    /// Keeps what it saves, if it saves anything.
    pub(super) keeper: Option<Arc<CheckpointKeeper>>,
    /// The name of its act, for a service that knows repetitions by it.
    pub(super) act: String,
}

/// Finds what the call goes on from, and begins to keep what it saves. Before anything is counted.
pub(super) async fn resume<'c>(
    kernel: &Kernel,
    facts: &mut CallFacts,
    placed: PlacedCall<'c>,
) -> Result<ResumedCall<'c>, Refusal> {
    let call = placed.call;
    // Under the id the call has by now.
    let id = facts.invocation_id;
    let from = facts.checkpointing.begin(kernel, &call.caller, &call.tool, id).await?;
    let own_key = call.key.of(&call.caller, &call.tool, &call.parameters);
    // Without a key, whoever goes on from a state goes on with the act of the call that saved it.
    let began_as = from.as_ref().map_or(id, |point| point.invocation_id);
    let act = ledger::act_key(call.caller.tenant(), &call.tool.id, own_key.as_ref(), began_as);
    Ok(ResumedCall { placed, from, keeper: facts.checkpointing.keeper(), act })
}
