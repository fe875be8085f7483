//! Claim of a call: a tool with effects takes its place in the ledger, durably, before it starts; or it was done before. One
//! without is asked about only if somebody gave the call a name. (EXE-2)
//!
//! Not here: what the ledger does with it (`ledger`), how its end is written (`settle`).

use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use ports::audit_sink::AuditAction;
use ports::ledger::Intent;
use ports::observer::EffectStep;
use ports::tool_version::ToolVersion;

use super::super::facts::CallFacts;
use super::super::shown_output::redacted_failure;
use super::cancelled;
use super::place::CallTurn;
use super::prepare::PreparedCall;
use crate::invoke::Kernel;
use crate::ledger::{self, FirstCall, HeldClaim, KeptOutcome, KeptResult, LedgerClaim, LedgerRequest, WaitsFor};

/// Whose the call is to run.
pub(super) enum CallClaim<'c> {
    /// This one's.
    Run(ClaimedCall<'c>),
    /// It was run before, and this came of it.
    Answered(Box<KeptResult>),
}

/// A prepared call that nobody has made before, as far as it can be known.
pub(super) struct ClaimedCall<'c>(pub(super) &'c PreparedCall<'c>);

/// Asks the ledger, if it is to be asked. A call has its turn by then.
pub(super) async fn claim<'c>(
    kernel: &Kernel,
    facts: &mut CallFacts,
    call: &'c PreparedCall<'c>,
    _turn: &CallTurn,
) -> Result<CallClaim<'c>, Refusal> {
    let has_effects = call.tool.manifest.side_effect_policy.has_effects();
    if !has_effects && call.key.given.is_none() {
        return Ok(CallClaim::Run(ClaimedCall(call)));
    }
    match answer_of_ledger(kernel, facts, call, has_effects).await? {
        LedgerClaim::Run(held) => begun(kernel, facts, held).await?,
        LedgerClaim::RunLightly(noted) => facts.noted = noted,
        LedgerClaim::Replay(first, kept) => return replayed(facts, call, first, kept).map(CallClaim::Answered),
    }
    Ok(CallClaim::Run(ClaimedCall(call)))
}

/// What the ledger says, within the time of the call.
async fn answer_of_ledger(
    kernel: &Kernel,
    facts: &CallFacts,
    call: &PreparedCall<'_>,
    has_effects: bool,
) -> Result<LedgerClaim, Refusal> {
    let intent = intent_of(kernel, facts, call);
    // Does it wait for another call with its key? Then that is why its time is over, whatever it was just doing about it.
    let waits = WaitsFor::default();
    let claiming = async {
        if !has_effects {
            return kernel.parts.books.claim_lightly(intent, (call.key.wait, facts.is_job), &waits).await;
        }
        kernel.parts.observer.step(EffectStep::Intending);
        let (wait, is_id_given) = (call.key.wait, facts.is_id_given);
        let wish = LedgerRequest { intent, wait, is_id_given, entropy: kernel.entropy(), waits: &waits };
        kernel.parts.books.claim(wish).await
    };
    tokio::select! {
        biased;
        claim = claiming => claim,
        () = facts.cancellation.cancelled() => Err(cancelled(kernel, facts, &call.tool)),
        () = call.deadline.nears(Duration::ZERO) => Err(match waits.get() {
            Some(first) => still_running(&call.tool, first),
            None => call.timed_out(),
        }),
    }
}

fn intent_of(kernel: &Kernel, facts: &CallFacts, call: &PreparedCall<'_>) -> Intent {
    ledger::intent_of(
        facts.invocation_id,
        facts.trace_id,
        &call.caller,
        &call.tool,
        (&call.parameters, call.parameters_digest),
        &call.key,
        kernel.parts.books.owner(),
    )
}

/// The ledger has it; so must the log, before the tool begins.
async fn begun(kernel: &Kernel, facts: &mut CallFacts, held: HeldClaim) -> Result<(), Refusal> {
    facts.invocation_id = held.invocation;
    facts.held = Some(held);
    kernel.parts.observer.step(EffectStep::Intended);
    let slot = kernel.parts.recorder.reserve().await?;
    let record = facts.record(AuditAction::InvocationStarted, kernel.clock().now(), None);
    // Boxed: calls without effects have no use for the room.
    Box::pin(slot.record_durably(record)).await
}

/// What came of the first call, as it is told again.
fn replayed(
    facts: &mut CallFacts,
    call: &PreparedCall<'_>,
    first: FirstCall,
    kept: KeptOutcome,
) -> Result<Box<KeptResult>, Refusal> {
    facts.replay_of = Some(first);
    match kept {
        KeptOutcome::Success(kept) => Ok(kept),
        KeptOutcome::Resolved { result, truncation } => {
            Ok(Box::new(KeptResult::of_person(result, truncation, facts.started_at)))
        }
        KeptOutcome::Failure(failure) => {
            facts.told_checkpoint = failure.checkpoint();
            Err(redacted_failure(&*facts.redactor, &call.tool, &call.conditions, failure.refusal()))
        }
    }
}

/// The first call may run, or be a job that still waits for its turn.
fn still_running(tool: &ToolVersion, first: InvocationId) -> Refusal {
    Refusal::new(
        ErrorCode::E3409,
        format!("the first call of `{}` {} with this key has not ended", tool.id, tool.version),
    )
    .hint("nothing was run a second time; ask again, with the same key")
    .details(ledger::handle(first))
    .retryable(true)
}
